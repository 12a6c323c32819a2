/* Conversion: progress, stopping, what the options refuse, and that the result is a model. */
#include "fixture.h"

#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

/* A folder of this process for targets, without a trailing slash. */
static const char *scratch(void) {
    static char folder[64];
    if (folder[0] == '\0') {
        snprintf(folder, sizeof folder, "/tmp/mlxb-quantize-XXXXXX");
        CHECK(mkdtemp(folder) != NULL);
    }
    return folder;
}

/* The path of a target; valid until the next call. */
static const char *target(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", scratch(), name);
    return path;
}

static bool exists(const char *path) {
    struct stat status;
    return lstat(path, &status) == 0;
}

static mlxb_quantize_options unset(void) {
    mlxb_quantize_options options;
    mlxb_quantize_options_init(&options, sizeof options);
    return options;
}

static void remove_target(const char *name) {
    char command[256];
    snprintf(command, sizeof command, "rm -r '%s'", target(name));
    CHECK_INT(0, system(command));
}

typedef struct {
    int events, stop_at;
    uint64_t done, total;
} progress;

static int32_t follow(void *user_data, const mlxb_event *event) {
    progress *seen = user_data;
    CHECK_INT(MLXB_EVENT_QUANTIZE, event->kind);
    CHECK(event->done >= seen->done && event->done <= event->total);
    CHECK(seen->events == 0 || event->total == seen->total);
    seen->done = event->done;
    seen->total = event->total;
    seen->events++;
    return seen->events == seen->stop_at ? MLXB_STOP : MLXB_CONTINUE;
}

static void a_model_becomes_smaller_and_runs(void) {
    progress seen = {0};
    mlxb_quantize_options options = unset();
    mlxb_quantize_result result = {.struct_size = sizeof result};
    options.on_progress = follow;
    options.user_data = &seen;
    options.group_size = 32;
    EXPECT(MLXB_OK, mlxb_quantize(tiny_dir(), target("a"), &options, &result, &error));
    CHECK(seen.events > 10 && seen.done == seen.total && seen.total > 100000);
    CHECK_INT(16, result.packed_count);
    CHECK_INT(0, result.plain_count);
    CHECK(result.bits_per_weight > 6 && result.bits_per_weight < 7);
    CHECK(result.tensor_bytes < seen.total / 4);

    mlxb_model *model = load(target("a"));
    mlxb_model_info info = {.struct_size = sizeof info};
    EXPECT(MLXB_OK, mlxb_model_info_get(model, &info, &error));
    CHECK_INT(result.tensor_bytes, info.weight_bytes);
    mlxb_generate_options generation = greedy(4);
    recorder recorder = {0};
    run(model, NULL, &generation, &recorder);
    mlxb_model_release(model);

    /* Once more: only when told so. */
    EXPECT_ERROR(MLXB_INVALID_ARGUMENT, "exists",
                 mlxb_quantize(tiny_dir(), target("a"), NULL, &result, &error));
    CHECK_INT(0, result.packed_count);
    options.overwrite = true;
    options.on_progress = NULL;
    EXPECT(MLXB_OK, mlxb_quantize(tiny_dir(), target("a"), &options, NULL, &error));
    remove_target("a");
}

static void what_is_stopped_leaves_nothing(void) {
    progress seen = {.stop_at = 7};
    mlxb_quantize_options options = unset();
    options.on_progress = follow;
    options.user_data = &seen;
    EXPECT_ERROR(MLXB_CANCELLED, "cancelled",
                 mlxb_quantize(tiny_dir(), target("b"), &options, NULL, &error));
    CHECK_INT(7, seen.events);

    mlxb_cancel *cancel = mlxb_cancel_new();
    options = unset();
    options.cancel = cancel;
    mlxb_cancel_request(cancel);
    EXPECT_ERROR(MLXB_CANCELLED, "cancelled",
                 mlxb_quantize(tiny_dir(), target("b"), &options, NULL, &error));
    mlxb_cancel_free(cancel);
    CHECK(!exists(target("b")));
    /* The folder is empty: nothing is left under other names. */
    CHECK_INT(0, rmdir(scratch()));
    CHECK_INT(0, mkdir(scratch(), 0700));
}

static void refuse(mlxb_quantize_options options, const char *part) {
    EXPECT_ERROR(MLXB_INVALID_ARGUMENT, part,
                 mlxb_quantize(tiny_dir(), target("c"), &options, NULL, &error));
    CHECK(!exists(target("c")));
}

static void what_makes_no_sense_is_refused_by_name(void) {
    mlxb_quantize_options options;
#define REFUSED(part, ...)      \
    do {                        \
        options = unset();      \
        __VA_ARGS__;            \
        refuse(options, part);  \
    } while (0)
    REFUSED("options.mode is no mode: 6", options.mode = 6);
    REFUSED("options.mode is no mode: -1", options.mode = -1);
    REFUSED("affine have these bits and group size: 7, 64", options.bits = 7);
    REFUSED("affine have these bits and group size: -2, 64", options.bits = -2);
    REFUSED("affine have these bits and group size: 4, 16", options.group_size = 16);
    REFUSED("mxfp4 have", options.mode = MLXB_QUANTIZE_MXFP4, options.bits = 8);
    REFUSED("options.bits does not go with", options.mode = MLXB_QUANTIZE_NONE, options.bits = 4);
    REFUSED("options.recipe does not go with", options.mode = MLXB_QUANTIZE_REVERSE,
            options.recipe = "mixed_3_6");
    REFUSED("options.recipe is no recipe: mixed_%s%n", options.recipe = "mixed_%s%n");
    REFUSED("options.bits does not go with a recipe", options.recipe = "mixed_3_6",
            options.bits = 3);
    REFUSED("options.dtype is no type: 4", options.dtype = 4);
    REFUSED("options.max_shard_bytes must be positive", options.max_shard_bytes = 0);

    const char *path = "model.layers.0.mlp.down_proj";
    int32_t bits = 4, mode = MLXB_QUANTIZE_NONE, group_size = 128;
    REFUSED("no mode with bits: 0", options.module_paths = &path, options.module_bits = &bits,
            options.module_modes = &mode, options.module_count = 1);
    REFUSED("rows of 160 cannot be packed in groups of 128: model.layers.0.mlp.down_proj",
            options.module_paths = &path, options.module_bits = &bits,
            options.module_group_sizes = &group_size, options.module_count = 1);
    path = "model.layers.7.%s%n";
    REFUSED("no such matrix: model.layers.7.%s%n", options.module_paths = &path,
            options.module_bits = &bits, options.module_count = 1);
}

static void single_modules_have_bits_of_their_own(void) {
    const char *const paths[] = {"model.embed_tokens", "lm_head", "model.layers.0.mlp.up_proj"};
    const int32_t bits[] = {8, 0, 4};
    const int32_t modes[] = {MLXB_QUANTIZE_AFFINE, MLXB_QUANTIZE_AFFINE, MLXB_QUANTIZE_MXFP4};
    mlxb_quantize_options options = unset();
    mlxb_quantize_result result = {.struct_size = sizeof result};
    options.bits = 2;
    options.group_size = 32;
    options.module_paths = paths;
    options.module_bits = bits;
    options.module_modes = modes;
    options.module_count = 3;
    EXPECT(MLXB_OK, mlxb_quantize(tiny_dir(), target("d"), &options, &result, &error));
    CHECK_INT(15, result.packed_count);
    CHECK_INT(1, result.plain_count);
    mlxb_model_release(load(target("d")));
    remove_target("d");
}

static void structs_of_other_versions_are_taken(void) {
    struct {
        mlxb_quantize_options known;
        char later[24];
    } options;
    mlxb_quantize_options_init(&options.known, sizeof options);
    options.known.mode = MLXB_QUANTIZE_NONE;
    options.known.dtype = MLXB_DTYPE_FLOAT16;
    mlxb_quantize_result older = {.struct_size = offsetof(mlxb_quantize_result, packed_count),
                                  .packed_count = 99};
    EXPECT(MLXB_OK, mlxb_quantize(tiny_dir(), target("e"), &options.known, &older, &error));
    CHECK_INT(2 * older.parameter_count, older.tensor_bytes);
    CHECK_INT(99, older.packed_count);
    remove_target("e");
    options.later[3] = 1;
    EXPECT(MLXB_VERSION_MISMATCH,
           mlxb_quantize(tiny_dir(), target("e"), &options.known, NULL, &error));
    options.known.struct_size = 3;
    EXPECT_ERROR(MLXB_INVALID_ARGUMENT, "struct_size",
                 mlxb_quantize(tiny_dir(), target("e"), &options.known, NULL, &error));
    CHECK(!exists(target("e")));
}

static void a_report_tells_what_a_conversion_costs(void) {
    static const char text[] = "The quick brown fox jumps over the lazy dog.";
    progress seen = {0};
    mlxb_quantize_options options = unset();
    options.group_size = 32;
    options.on_progress = follow;
    options.user_data = &seen;
    char *report = NULL;
    EXPECT(MLXB_OK, mlxb_quantize_report(tiny_dir(), &options, text, strlen(text), &report, &error));
    CHECK(report != NULL && strstr(report, "\"path\":\"model.layers.1\"") != NULL);
    CHECK(report != NULL && strstr(report, "\"divergence\":") != NULL);
    mlxb_string_free(report);
    /* The source, all of it, embedding, two layers, head. */
    CHECK_INT(6, seen.total);
    CHECK_INT(6, seen.done);

    seen = (progress){.stop_at = seen.events - 1};
    EXPECT(MLXB_CANCELLED,
           mlxb_quantize_report(tiny_dir(), &options, text, strlen(text), &report, &error));
    CHECK(report == NULL);
    options = unset();
    options.mode = MLXB_QUANTIZE_NONE;
    EXPECT_ERROR(MLXB_INVALID_ARGUMENT, "packed",
                 mlxb_quantize_report(tiny_dir(), &options, text, strlen(text), &report, &error));
}

int main(void) {
    RUN(a_model_becomes_smaller_and_runs);
    RUN(what_is_stopped_leaves_nothing);
    RUN(what_makes_no_sense_is_refused_by_name);
    RUN(single_modules_have_bits_of_their_own);
    RUN(a_report_tells_what_a_conversion_costs);
    RUN(structs_of_other_versions_are_taken);
    CHECK_INT(0, rmdir(scratch()));
    return finish();
}
