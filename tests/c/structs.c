/* struct_size: callers that were compiled against an older or a newer header, or forgot it. */
#include "fixture.h"

#include <stddef.h>
#include <stdint.h>

/* A caller's struct with fields that this version does not know. */
#define LARGER(type)    \
    struct {            \
        type known;     \
        char later[24]; \
    }

static const size_t wrong_sizes[] = {0, 1, sizeof(size_t) - 1, 1 << 20, SIZE_MAX};
#define EACH_WRONG_SIZE(size)                                                                \
    for (const size_t *size = wrong_sizes; size < wrong_sizes + sizeof wrong_sizes / sizeof *wrong_sizes; size++)

static void options_of_a_wrong_size_are_refused(void) {
    mlxb_generate_options options = greedy(1);
    mlxb_model_options model_options;
    mlxb_model_options_init(&model_options, sizeof model_options);
    recorder recorder = {0};
    EACH_WRONG_SIZE(size) {
        mlxb_model *model = NULL;
        options.struct_size = model_options.struct_size = *size;
        EXPECT_ERROR(MLXB_INVALID_ARGUMENT, "struct_size",
                     mlxb_generate(tiny(), NULL, &options, record, &recorder, NULL, &error));
        EXPECT_ERROR(MLXB_INVALID_ARGUMENT, "struct_size",
                     mlxb_model_load(tiny_dir(), &model_options, &model, &error));
        CHECK(model == NULL);
    }
    CHECK_INT(0, recorder.events);
}

static void fields_of_a_later_version_are_refused_when_set(void) {
    LARGER(mlxb_generate_options) options;
    memset(&options, 0, sizeof options);
    options.known = greedy(1);
    options.known.struct_size = sizeof options;
    EXPECT(MLXB_OK, mlxb_generate(tiny(), NULL, &options.known, NULL, NULL, NULL, &error));
    options.later[sizeof options.later - 1] = 1;
    EXPECT(MLXB_VERSION_MISMATCH,
           mlxb_generate(tiny(), NULL, &options.known, NULL, NULL, NULL, &error));

    LARGER(mlxb_model_options) model_options;
    mlxb_model *model = NULL;
    mlxb_model_options_init(&model_options.known, sizeof model_options);
    EXPECT(MLXB_OK, mlxb_model_load(tiny_dir(), &model_options.known, &model, &error));
    mlxb_model_release(model);
    model_options.later[0] = 1;
    EXPECT(MLXB_VERSION_MISMATCH, mlxb_model_load(tiny_dir(), &model_options.known, &model, &error));
    CHECK(model == NULL);
}

static void init_of_a_later_version_unsets_what_it_does_not_know(void) {
    LARGER(mlxb_generate_options) options;
    memset(&options, 0xee, sizeof options);
    mlxb_generate_options_init(&options.known, sizeof options);
    CHECK_INT(sizeof options, options.known.struct_size);
    for (size_t index = 0; index < sizeof options.later; index++) {
        CHECK_INT(0, options.later[index]);
    }
}

static void init_writes_no_more_than_the_size(void) {
    const size_t older = offsetof(mlxb_generate_options, stop);
    unsigned char bytes[sizeof(mlxb_generate_options)];
    memset(bytes, 0xee, sizeof bytes);
    mlxb_generate_options_init((mlxb_generate_options *)(void *)bytes, older);
    for (size_t index = older; index < sizeof bytes; index++) {
        CHECK_INT(0xee, bytes[index]);
    }
    EACH_WRONG_SIZE(size) {
        memset(bytes, 0xee, sizeof bytes);
        mlxb_generate_options_init((mlxb_generate_options *)(void *)bytes, *size);
        mlxb_model_options_init((mlxb_model_options *)(void *)bytes, *size);
        for (size_t index = 0; index < sizeof bytes; index++) {
            CHECK_INT(0xee, bytes[index]);
        }
    }
}

static void fields_that_an_older_caller_lacks_are_unset(void) {
    mlxb_generate_options options = greedy(4);
    recorder expected = {0}, recorder = {0};
    run(tiny(), NULL, &options, &expected);
    /* Everything from `stop` on is what happens to lie behind an older struct. */
    options.struct_size = offsetof(mlxb_generate_options, stop);
    memset((char *)&options + options.struct_size, 0xee, sizeof options - options.struct_size);
    run(tiny(), NULL, &options, &recorder);
    CHECK(same_tokens(&recorder, expected.tokens, expected.token_count));

    mlxb_model_options model_options;
    mlxb_model *model = NULL;
    mlxb_model_options_init(&model_options, sizeof model_options);
    model_options.struct_size = offsetof(mlxb_model_options, on_progress);
    memset((char *)&model_options + model_options.struct_size, 0xee,
           sizeof model_options - model_options.struct_size);
    EXPECT(MLXB_OK, mlxb_model_load(tiny_dir(), &model_options, &model, &error));
    mlxb_model_release(model);
}

static void outs_of_a_wrong_size_are_refused_and_unchanged(void) {
    mlxb_generate_options options = greedy(1);
    mlxb_generate_result result;
    mlxb_memory_stats stats;
    mlxb_model_info info;
    mlxb_generate_options defaults;
    recorder recorder = {0};
    EACH_WRONG_SIZE(size) {
        memset(&result, 0xee, sizeof result);
        memset(&stats, 0xee, sizeof stats);
        memset(&info, 0xee, sizeof info);
        result.struct_size = stats.struct_size = info.struct_size = *size;
        EXPECT_ERROR(MLXB_INVALID_ARGUMENT, "struct_size",
                     mlxb_generate(tiny(), NULL, &options, record, &recorder, &result, &error));
        EXPECT_ERROR(MLXB_INVALID_ARGUMENT, "struct_size", mlxb_memory(&stats, &error));
        EXPECT_ERROR(MLXB_INVALID_ARGUMENT, "struct_size", mlxb_model_info_get(tiny(), &info, &error));
        memset(&defaults, 0xee, sizeof defaults);
        defaults.struct_size = *size;
        EXPECT_ERROR(MLXB_INVALID_ARGUMENT, "struct_size",
                     mlxb_model_generation_defaults(tiny(), &defaults, &error));
        CHECK_INT(0xee, ((unsigned char *)&defaults)[sizeof(size_t)]);
        CHECK_INT(0xee, ((unsigned char *)&result)[sizeof(size_t)]);
        CHECK_INT(0xee, ((unsigned char *)&stats)[sizeof(size_t)]);
        CHECK_INT(0xee, ((unsigned char *)&info)[sizeof(size_t)]);
    }
    CHECK_INT(0, recorder.events);
}

static void outs_are_written_up_to_their_size(void) {
    LARGER(mlxb_generate_result) larger;
    mlxb_generate_options options = greedy(3);
    memset(&larger, 0xee, sizeof larger);
    larger.known.struct_size = sizeof larger;
    EXPECT(MLXB_OK, mlxb_generate(tiny(), NULL, &options, NULL, NULL, &larger.known, &error));
    CHECK_INT(sizeof larger, larger.known.struct_size);
    CHECK_INT(3, larger.known.generated_tokens);
    CHECK_INT(0xee, (unsigned char)larger.later[0]);

    mlxb_generate_result older;
    memset(&older, 0xee, sizeof older);
    older.struct_size = offsetof(mlxb_generate_result, generated_tokens);
    EXPECT(MLXB_OK, mlxb_generate(tiny(), NULL, &options, NULL, NULL, &older, &error));
    CHECK_INT(offsetof(mlxb_generate_result, generated_tokens), older.struct_size);
    CHECK_INT(MLXB_FINISH_LENGTH, older.finish);
    CHECK_INT(PROMPT, older.prompt_tokens);
    CHECK_INT(0xeeeeeeeeeeeeeeee, older.generated_tokens);

    mlxb_model_info info = {.struct_size = offsetof(mlxb_model_info, vocab_size), .vocab_size = 7};
    EXPECT(MLXB_OK, mlxb_model_info_get(tiny(), &info, &error));
    CHECK_STR("llama", info.model_type);
    CHECK_INT(7, info.vocab_size);
}

int main(void) {
    RUN(options_of_a_wrong_size_are_refused);
    RUN(fields_of_a_later_version_are_refused_when_set);
    RUN(init_of_a_later_version_unsets_what_it_does_not_know);
    RUN(init_writes_no_more_than_the_size);
    RUN(fields_that_an_older_caller_lacks_are_unset);
    RUN(outs_of_a_wrong_size_are_refused_and_unchanged);
    RUN(outs_are_written_up_to_their_size);
    return finish();
}
