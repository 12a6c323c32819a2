/* The registry through the ABI: a small hub on disk, every function, every pointer NULL. */
#include "mlxb.h"

#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

static char hub[256];

/* Makes the folders above hub/`below` and the file. */
static void make_file(const char *below, const void *content, size_t length) {
    char path[1024];
    char *slash;
    FILE *file;
    snprintf(path, sizeof path, "%s/%s", hub, below);
    for (slash = path + strlen(hub); (slash = strchr(slash + 1, '/')) != NULL;) {
        *slash = '\0';
        CHECK(mkdir(path, 0777) == 0 || errno == EEXIST);
        *slash = '/';
    }
    file = fopen(path, "wb");
    CHECK(file != NULL && fwrite(content, 1, length, file) == length && fclose(file) == 0);
}

static void make_text(const char *below, const char *text) { make_file(below, text, strlen(text)); }

static void make_model(const char *repo, const char *commit, const char *model_type) {
    static const char config[] =
        "{\"model_type\": \"%s\", \"hidden_size\": 4, \"num_hidden_layers\": 2,"
        " \"num_attention_heads\": 2, \"intermediate_size\": 8, \"vocab_size\": 16}";
    static const char header[] =
        "{\"model.embed_tokens.weight\":{\"dtype\":\"F32\",\"shape\":[4,4],"
        "\"data_offsets\":[0,64]}}";
    char below[512], text[512];
    unsigned char weights[8 + sizeof header - 1 + 64] = {sizeof header - 1};
    memcpy(weights + 8, header, sizeof header - 1);
    snprintf(text, sizeof text, config, model_type);
    snprintf(below, sizeof below, "%s/snapshots/%s/config.json", repo, commit);
    make_text(below, text);
    snprintf(below, sizeof below, "%s/snapshots/%s/tokenizer.json", repo, commit);
    make_text(below, "{}");
    snprintf(below, sizeof below, "%s/snapshots/%s/model.safetensors", repo, commit);
    make_file(below, weights, sizeof weights);
}

static mlxb_registry *registry;

static void a_scan_finds_what_is_there(void) {
    size_t count = 99;
    char *report = NULL;
    CHECK_INT(MLXB_OK, mlxb_registry_open(":memory:", &registry, NULL));
    CHECK_INT(MLXB_OK, mlxb_registry_scan(registry, hub, &count, &report, NULL));
    CHECK_INT(4, count);
    CHECK(report != NULL && strstr(report, "\"skipped\":[") != NULL &&
          strstr(report, "not-a-repo") != NULL);
    mlxb_string_free(report);
    CHECK_INT(MLXB_OK, mlxb_registry_scan(registry, hub, NULL, NULL, NULL));
}

static void lists_are_filtered(void) {
    mlxb_model_list *list = NULL;
    mlxb_list_options options;
    mlxb_model_record record = {.struct_size = sizeof record};
    CHECK_INT(MLXB_OK, mlxb_registry_list(registry, NULL, &list, NULL));
    CHECK_INT(4, mlxb_model_list_count(list));
    mlxb_model_list_free(list);

    mlxb_list_options_init(&options, sizeof options);
    CHECK_INT(sizeof options, options.struct_size);
    options.query = "ORG/A";
    options.canonical_only = 1;
    options.vision = MLXB_VISION_NO;
    CHECK_INT(MLXB_OK, mlxb_registry_list(registry, &options, &list, NULL));
    CHECK_INT(1, mlxb_model_list_count(list));
    CHECK_INT(MLXB_OK, mlxb_model_list_get(list, 0, &record, NULL));
    CHECK_STR("org/a", record.repo_id);
    CHECK_STR("llama", record.model_type);
    CHECK(record.is_complete && record.is_canonical && record.is_supported);
    CHECK(!record.vision_capable && record.license == NULL && record.quant_mode == NULL);
    CHECK_INT(16, record.parameter_count);
    CHECK_INT(-1, record.quant_bits);
    CHECK_INT(2, record.layer_count);
    CHECK(strncmp(record.path, hub, strlen(hub)) == 0);
    CHECK_INT(MLXB_INVALID_ARGUMENT, mlxb_model_list_get(list, 1, &record, NULL));
    record.struct_size = 1;
    CHECK_INT(MLXB_INVALID_ARGUMENT, mlxb_model_list_get(list, 0, &record, NULL));
    /* An older caller's shorter struct: nothing beyond is written. */
    memset(&record, 0x5a, sizeof record);
    record.struct_size = offsetof(mlxb_model_record, model_type);
    CHECK_INT(MLXB_OK, mlxb_model_list_get(list, 0, &record, NULL));
    CHECK_STR("org/a", record.repo_id);
    CHECK_INT(0x5a5a5a5a5a5a5a5aLL, record.size_bytes);
    mlxb_model_list_free(list);

    options.vision = 7;
    CHECK_INT(MLXB_INVALID_ARGUMENT, mlxb_registry_list(registry, &options, &list, NULL));
    CHECK(list == NULL);
    options.vision = -1;
    options.canonical_only = 2;
    CHECK_INT(MLXB_INVALID_ARGUMENT, mlxb_registry_list(registry, &options, &list, NULL));
    options.canonical_only = -1;
    options.query = "\xff";
    CHECK_INT(MLXB_INVALID_UTF8, mlxb_registry_list(registry, &options, &list, NULL));
}

static void queries_are_resolved(void) {
    mlxb_model_list *list = NULL;
    mlxb_error *error = NULL;
    mlxb_model_record record = {.struct_size = sizeof record};
    CHECK_INT(MLXB_OK, mlxb_registry_resolve(registry, "g/a", &list, &error));
    CHECK(error == NULL);
    CHECK_INT(1, mlxb_model_list_count(list));
    CHECK_INT(MLXB_OK, mlxb_model_list_get(list, 0, &record, NULL));
    CHECK(strstr(record.path, "/snapshots/2222") != NULL);
    mlxb_model_list_free(list);

    CHECK_INT(MLXB_AMBIGUOUS, mlxb_registry_resolve(registry, "org/", &list, &error));
    CHECK(list == NULL);
    CHECK_STR("org/a\norg/b", mlxb_error_detail(error));
    mlxb_error_free(error);
    CHECK_INT(MLXB_NOT_FOUND, mlxb_registry_resolve(registry, "nothing", &list, &error));
    CHECK_INT(MLXB_NOT_FOUND, mlxb_error_status(error));
    mlxb_error_free(error);
    CHECK_INT(MLXB_INVALID_ARGUMENT, mlxb_registry_resolve(registry, "", &list, NULL));
}

static void folders_are_inspected_and_fitted(void) {
    char folder[512];
    mlxb_model_list *list = NULL;
    mlxb_model_record record = {.struct_size = sizeof record};
    mlxb_fit_options options;
    mlxb_fit fit = {.struct_size = sizeof fit};
    snprintf(folder, sizeof folder, "%s/models--org--b/snapshots/1111", hub);
    CHECK_INT(MLXB_OK, mlxb_registry_inspect(folder, "my/name", &list, NULL));
    CHECK_INT(MLXB_OK, mlxb_model_list_get(list, 0, &record, NULL));
    CHECK_STR("my/name", record.repo_id);
    mlxb_model_list_free(list);
    CHECK_INT(MLXB_NOT_FOUND, mlxb_registry_inspect("/nothing/there", NULL, &list, NULL));

    CHECK_INT(MLXB_OK, mlxb_registry_fit(folder, NULL, &fit, NULL));
    CHECK(fit.fits);
    CHECK_INT(64, fit.weight_bytes);
    mlxb_fit_options_init(&options, sizeof options);
    options.context_tokens = 100;
    options.budget_bytes = 64;
    CHECK_INT(MLXB_OK, mlxb_registry_fit(folder, &options, &fit, NULL));
    CHECK(!fit.fits);
    CHECK_INT(2 * 256 * 4 * 2 * 4, fit.kv_bytes);
    CHECK_INT(fit.weight_bytes + fit.kv_bytes + fit.transient_bytes, fit.total_bytes);
    options.kv_bits = 7;
    CHECK_INT(MLXB_INVALID_ARGUMENT, mlxb_registry_fit(folder, &options, &fit, NULL));
    options.kv_bits = -1;
    options.context_tokens = -2;
    CHECK_INT(MLXB_INVALID_ARGUMENT, mlxb_registry_fit(folder, &options, &fit, NULL));
}

static void the_disk_is_given_back(void) {
    mlxb_gc_plan *plan = NULL;
    mlxb_gc_item item = {.struct_size = sizeof item};
    mlxb_gc_result result = {.struct_size = sizeof result};
    mlxb_model_list *list = NULL;
    char *report = NULL;
    size_t index;
    int pruned = 0, kept = 0;
    CHECK_INT(MLXB_OK, mlxb_gc_plan_create(hub, NULL, false, &plan, NULL));
    for (index = 0; index < mlxb_gc_plan_count(plan); index++) {
        CHECK_INT(MLXB_OK, mlxb_gc_plan_get(plan, index, &item, NULL));
        CHECK(item.path != NULL);
        if (item.kind == MLXB_GC_PRUNED) {
            pruned++;
            CHECK_STR("org/a", item.repo_id);
            CHECK_STR("1111", item.revision);
        }
        kept += item.kind == MLXB_GC_KEPT;
    }
    CHECK_INT(1, pruned);
    CHECK_INT(3, kept);
    CHECK_INT(MLXB_INVALID_ARGUMENT, mlxb_gc_plan_get(plan, index, &item, NULL));
    CHECK_INT(MLXB_OK, mlxb_gc_plan_report(plan, &report, NULL));
    CHECK(strstr(report, "\"pruned\":[{") != NULL && strstr(report, "executed") == NULL);
    mlxb_string_free(report);
    CHECK_INT(MLXB_INVALID_ARGUMENT, mlxb_gc_plan_execute(plan, NULL, NULL));
    CHECK_INT(MLXB_OK, mlxb_gc_plan_execute(plan, &result, NULL));
    CHECK_INT(1, result.snapshot_count);
    CHECK_INT(0, result.left_count);
    CHECK_INT(mlxb_gc_plan_bytes(plan), result.bytes);
    CHECK_INT(MLXB_OK, mlxb_gc_plan_report(plan, &report, NULL));
    CHECK(strstr(report, "\"executed\":{") != NULL);
    mlxb_string_free(report);
    mlxb_gc_plan_free(plan);

    CHECK_INT(MLXB_OK, mlxb_delete_plan_create(hub, "org/b", NULL, &plan, NULL));
    CHECK_INT(MLXB_OK, mlxb_gc_plan_execute(plan, &result, NULL));
    CHECK(result.snapshot_count == 1 && result.bytes > 0);
    mlxb_gc_plan_free(plan);
    CHECK_INT(MLXB_NOT_FOUND, mlxb_delete_plan_create(hub, "org/b", NULL, &plan, NULL));
    CHECK_INT(MLXB_NOT_FOUND, mlxb_delete_plan_create(hub, "org/a", "none", &plan, NULL));
    CHECK(plan == NULL);
    CHECK_INT(MLXB_OK, mlxb_registry_list(registry, NULL, &list, NULL));
    CHECK_INT(2, mlxb_model_list_count(list)); /* gone ones are not listed, scanned or not */
    mlxb_model_list_free(list);
}

static void null_is_refused_or_ignored(void) {
    mlxb_registry *opened = NULL;
    mlxb_model_list *list = NULL;
    mlxb_gc_plan *plan = NULL;
    mlxb_fit fit = {.struct_size = sizeof fit};
    mlxb_gc_item item = {.struct_size = sizeof item};
    mlxb_gc_result result = {.struct_size = sizeof result};
    char *text = NULL;
    CHECK_INT(MLXB_INVALID_ARGUMENT, mlxb_registry_open(":memory:", NULL, NULL));
    CHECK_INT(MLXB_INVALID_UTF8, mlxb_registry_open("\xff", &opened, NULL));
    CHECK_INT(MLXB_INVALID_ARGUMENT, mlxb_registry_scan(NULL, hub, NULL, NULL, NULL));
    CHECK_INT(MLXB_NOT_FOUND, mlxb_registry_scan(registry, "/nothing", NULL, &text, NULL));
    CHECK(text == NULL);
    CHECK_INT(MLXB_INVALID_ARGUMENT, mlxb_registry_list(NULL, NULL, &list, NULL));
    CHECK_INT(MLXB_INVALID_ARGUMENT, mlxb_registry_list(registry, NULL, NULL, NULL));
    CHECK_INT(MLXB_INVALID_ARGUMENT, mlxb_registry_resolve(registry, NULL, &list, NULL));
    CHECK_INT(MLXB_INVALID_ARGUMENT, mlxb_registry_resolve(registry, "x", NULL, NULL));
    CHECK_INT(MLXB_INVALID_ARGUMENT, mlxb_registry_resolve(NULL, "x", &list, NULL));
    CHECK_INT(MLXB_INVALID_ARGUMENT, mlxb_registry_inspect(NULL, NULL, &list, NULL));
    CHECK_INT(MLXB_INVALID_ARGUMENT, mlxb_registry_inspect(hub, NULL, NULL, NULL));
    CHECK_INT(MLXB_INVALID_ARGUMENT, mlxb_registry_fit(NULL, NULL, &fit, NULL));
    CHECK_INT(MLXB_INVALID_ARGUMENT, mlxb_registry_fit(hub, NULL, NULL, NULL));
    CHECK_INT(MLXB_INVALID_ARGUMENT, mlxb_gc_plan_create(hub, NULL, false, NULL, NULL));
    CHECK_INT(MLXB_INVALID_ARGUMENT, mlxb_delete_plan_create(hub, NULL, NULL, &plan, NULL));
    CHECK_INT(MLXB_INVALID_ARGUMENT, mlxb_gc_plan_get(NULL, 0, &item, NULL));
    CHECK_INT(MLXB_INVALID_ARGUMENT, mlxb_gc_plan_report(NULL, &text, NULL));
    CHECK_INT(MLXB_INVALID_ARGUMENT, mlxb_gc_plan_execute(NULL, &result, NULL));
    CHECK_INT(0, mlxb_model_list_count(NULL));
    CHECK_INT(0, mlxb_gc_plan_count(NULL));
    CHECK_INT(0, mlxb_gc_plan_bytes(NULL));
    mlxb_list_options_init(NULL, sizeof(mlxb_list_options));
    mlxb_fit_options_init(NULL, sizeof(mlxb_fit_options));
    mlxb_model_list_free(NULL);
    mlxb_gc_plan_free(NULL);
    mlxb_registry_close(NULL);
}

static void *scan_and_list(void *argument) {
    (void)argument;
    int round;
    for (round = 0; round < 20; round++) {
        mlxb_model_list *list = NULL;
        CHECK_INT(MLXB_OK, mlxb_registry_scan(registry, hub, NULL, NULL, NULL));
        CHECK_INT(MLXB_OK, mlxb_registry_list(registry, NULL, &list, NULL));
        CHECK_INT(4, mlxb_model_list_count(list));
        mlxb_model_list_free(list);
    }
    return NULL;
}

static void threads_share_a_registry(void) {
    pthread_t threads[4];
    size_t index;
    for (index = 0; index < 4; index++) {
        CHECK(pthread_create(&threads[index], NULL, scan_and_list, registry) == 0);
    }
    for (index = 0; index < 4; index++) {
        CHECK(pthread_join(threads[index], NULL) == 0);
    }
}

int main(void) {
    char remove[300];
    snprintf(hub, sizeof hub, "/tmp/mlxb-registry-XXXXXX");
    CHECK(mkdtemp(hub) != NULL);
    make_model("models--org--a", "1111", "llama");
    make_model("models--org--a", "2222", "llama");
    make_text("models--org--a/refs/main", "2222\n");
    make_model("models--org--b", "1111", "unheard-of");
    make_text("models--org--b/refs/main", "1111");
    make_model("models--solo", "1111", "llama");
    make_text("not-a-repo/file", "");

    RUN(a_scan_finds_what_is_there);
    RUN(lists_are_filtered);
    RUN(queries_are_resolved);
    RUN(folders_are_inspected_and_fitted);
    RUN(threads_share_a_registry);
    RUN(null_is_refused_or_ignored);
    RUN(the_disk_is_given_back);
    mlxb_registry_close(registry);

    snprintf(remove, sizeof remove, "rm -rf '%s'", hub);
    CHECK(system(remove) == 0);
    return check_summary();
}
