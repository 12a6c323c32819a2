/* NULL in every pointer argument of every function: a status or nothing, never a crash; and what
 * a failed call leaves in its `out`s. Without a pointer argument are mlxb_cancel_new,
 * mlxb_status_name, mlxb_version_number and mlxb_version_string. */
#include "fixture.h"

/* The call with and without an error object: MLXB_INVALID_ARGUMENT, naming `part`. */
#define REFUSED(part, function, ...)                                                         \
    do {                                                                                     \
        EXPECT_ERROR(MLXB_INVALID_ARGUMENT, part, function(__VA_ARGS__, &error));            \
        CHECK_INT(MLXB_INVALID_ARGUMENT, function(__VA_ARGS__, NULL));                        \
    } while (0)

/* Something that is neither NULL nor valid: an `out` must not be left like this. */
#define GARBAGE ((void *)&garbage)
static char garbage;

static void nothing_happens_to_null(void) {
    CHECK_INT(MLXB_OK, mlxb_error_status(NULL));
    CHECK_STR("", mlxb_error_message(NULL));
    CHECK(mlxb_error_detail(NULL) == NULL);
    mlxb_error_free(NULL);
    mlxb_string_free(NULL);
    mlxb_cancel_request(NULL);
    mlxb_cancel_free(NULL);
    mlxb_chat_free(NULL);
    CHECK(mlxb_model_retain(NULL) == NULL);
    mlxb_model_release(NULL);
    mlxb_kv_free(NULL);
    mlxb_model_options_init(NULL, sizeof(mlxb_model_options));
    mlxb_generate_options_init(NULL, sizeof(mlxb_generate_options));
    mlxb_quantize_options_init(NULL, sizeof(mlxb_quantize_options));
}

static void log_set_takes_null(void) {
    EXPECT(MLXB_OK, mlxb_log_set(MLXB_LOG_OFF, NULL, NULL, NULL, &error));
    CHECK_INT(MLXB_OK, mlxb_log_set(MLXB_LOG_OFF, NULL, NULL, NULL, NULL));
    REFUSED("max_level", mlxb_log_set, 99, NULL, NULL, NULL);
}

static void memory_takes_null(void) {
    REFUSED("out", mlxb_memory, NULL);
    EXPECT(MLXB_OK, mlxb_memory_trim(UINT64_MAX, NULL, &error));
    CHECK_INT(MLXB_OK, mlxb_memory_trim(UINT64_MAX, NULL, NULL));
    CHECK_INT(MLXB_OK, mlxb_memory_limits_set(0, 256 << 20, NULL));
}

static void load_refuses_null(void) {
    mlxb_model *model = GARBAGE;
    REFUSED("snapshot_dir", mlxb_model_load, NULL, NULL, &model);
    CHECK(model == NULL);
    REFUSED("out", mlxb_model_load, tiny_dir(), NULL, NULL);
    REFUSED("out", mlxb_model_load, NULL, NULL, NULL);
    CHECK_INT(MLXB_NOT_FOUND, mlxb_model_load("/no/such/folder", NULL, &model, NULL));
    CHECK_INT(MLXB_OK, mlxb_model_load(tiny_dir(), NULL, &model, NULL));
    mlxb_model_release(model);
}

static void model_functions_refuse_null(void) {
    mlxb_model_info info = {.struct_size = sizeof info};
    REFUSED("model", mlxb_model_info_get, NULL, &info);
    REFUSED("out", mlxb_model_info_get, tiny(), NULL);
    CHECK_INT(MLXB_OK, mlxb_model_info_get(tiny(), &info, NULL));

    mlxb_generate_options defaults = {.struct_size = sizeof defaults};
    REFUSED("model", mlxb_model_generation_defaults, NULL, &defaults);
    REFUSED("out", mlxb_model_generation_defaults, tiny(), NULL);
    CHECK_INT(MLXB_OK, mlxb_model_generation_defaults(tiny(), &defaults, NULL));

    uint32_t tokens[8] = {0};
    size_t count = 77;
    REFUSED("model", mlxb_model_eos_tokens, NULL, tokens, 8, &count);
    CHECK_INT(0, count);
    REFUSED("buffer", mlxb_model_eos_tokens, tiny(), NULL, 8, &count);
    REFUSED("count", mlxb_model_eos_tokens, tiny(), tokens, 8, NULL);
    CHECK_INT(MLXB_OK, mlxb_model_eos_tokens(tiny(), tokens, 8, &count, NULL));

    REFUSED("model", mlxb_model_tokenize, NULL, "a", 1, false, tokens, 8, &count);
    CHECK_INT(0, count);
    REFUSED("text", mlxb_model_tokenize, tiny(), NULL, 1, false, tokens, 8, &count);
    REFUSED("buffer", mlxb_model_tokenize, tiny(), "a", 1, false, NULL, 8, &count);
    REFUSED("count", mlxb_model_tokenize, tiny(), "a", 1, false, tokens, 8, NULL);
    EXPECT(MLXB_OK, mlxb_model_tokenize(tiny(), NULL, 0, false, NULL, 0, &count, &error));
    CHECK_INT(MLXB_OK, mlxb_model_tokenize(tiny(), "a", 1, false, tokens, 8, &count, NULL));

    char *text = GARBAGE;
    REFUSED("model", mlxb_model_detokenize, NULL, tokens, 1, false, &text);
    CHECK(text == NULL);
    REFUSED("tokens", mlxb_model_detokenize, tiny(), NULL, 1, false, &text);
    REFUSED("text", mlxb_model_detokenize, tiny(), tokens, 1, false, NULL);
    CHECK_INT(MLXB_OK, mlxb_model_detokenize(tiny(), NULL, 0, false, &text, NULL));
    CHECK_STR("", text);
    mlxb_string_free(text);
}

static void kv_functions_refuse_null(void) {
    mlxb_kv *kv = GARBAGE;
    REFUSED("model", mlxb_kv_new, NULL, &kv);
    CHECK(kv == NULL);
    REFUSED("out", mlxb_kv_new, tiny(), NULL);
    kv = GARBAGE;
    REFUSED("kv", mlxb_kv_fork, NULL, &kv);
    CHECK(kv == NULL);
    REFUSED("kv", mlxb_kv_trim, NULL, 0);

    uint32_t token = 0;
    size_t count = 77;
    REFUSED("kv", mlxb_kv_tokens, NULL, &token, 1, &count);
    CHECK_INT(0, count);

    uint64_t bytes = 77;
    REFUSED("kv", mlxb_kv_bytes, NULL, &bytes);
    CHECK_INT(0, bytes);

    CHECK_INT(MLXB_OK, mlxb_kv_new(tiny(), &kv, NULL));
    REFUSED("bytes", mlxb_kv_bytes, kv, NULL);
    CHECK_INT(MLXB_OK, mlxb_kv_bytes(kv, &bytes, NULL));
    REFUSED("out", mlxb_kv_fork, kv, NULL);
    REFUSED("count", mlxb_kv_tokens, kv, &token, 1, NULL);
    EXPECT(MLXB_OK, mlxb_kv_tokens(kv, NULL, 0, &count, &error));
    recorder recorder = {0};
    mlxb_generate_options options = greedy(1);
    run(tiny(), kv, &options, &recorder);
    REFUSED("buffer", mlxb_kv_tokens, kv, NULL, PROMPT, &count);
    CHECK_INT(MLXB_OK, mlxb_kv_trim(kv, 0, NULL));
    mlxb_kv *fork = NULL;
    CHECK_INT(MLXB_OK, mlxb_kv_fork(kv, &fork, NULL));
    mlxb_kv_free(fork);
    mlxb_kv_free(kv);

    mlxb_kv *loaded = GARBAGE;
    REFUSED("kv", mlxb_kv_save, NULL, "/tmp/mlxb-no-such-file");
    mlxb_kv *empty = new_kv(tiny());
    REFUSED("path", mlxb_kv_save, empty, NULL);
    REFUSED("without tokens", mlxb_kv_save, empty, "/tmp/mlxb-no-such-file");
    mlxb_kv_free(empty);
    REFUSED("model", mlxb_kv_load, NULL, "/no/such/file", NULL, 0, &loaded);
    CHECK(loaded == NULL);
    REFUSED("path", mlxb_kv_load, tiny(), NULL, NULL, 0, &loaded);
    REFUSED("tokens", mlxb_kv_load, tiny(), "/no/such/file", NULL, 1, &loaded);
    REFUSED("out", mlxb_kv_load, tiny(), "/no/such/file", NULL, 0, NULL);
    CHECK_INT(MLXB_NOT_FOUND, mlxb_kv_load(tiny(), "/no/such/file", NULL, 0, &loaded, NULL));
}

static void generate_refuses_null(void) {
    mlxb_generate_options options = greedy(2);
    mlxb_generate_result result = {.struct_size = sizeof result, .finish = 99};
    recorder recorder = {0};
    REFUSED("model", mlxb_generate, NULL, NULL, &options, record, &recorder, &result);
    CHECK_INT(0, result.finish);
    REFUSED("options", mlxb_generate, tiny(), NULL, NULL, record, &recorder, &result);
    CHECK_INT(0, recorder.events);
    EXPECT(MLXB_OK, mlxb_generate(tiny(), NULL, &options, NULL, NULL, NULL, &error));
    CHECK_INT(MLXB_OK, mlxb_generate(tiny(), NULL, &options, NULL, NULL, NULL, NULL));

    mlxb_generate_options without = options;
    without.tokens = NULL;
    REFUSED("tokens", mlxb_generate, tiny(), NULL, &without, NULL, NULL, NULL);
    without.token_count = 0;
    REFUSED("prompt", mlxb_generate, tiny(), NULL, &without, NULL, NULL, NULL);
    const char *const stop[] = {"a", NULL};
    without = options;
    without.stop_count = 1;
    REFUSED("stop", mlxb_generate, tiny(), NULL, &without, NULL, NULL, NULL);
    without.stop = stop;
    without.stop_count = 2;
    REFUSED("stop", mlxb_generate, tiny(), NULL, &without, NULL, NULL, NULL);
}

static void generate_refuses_null_arrays(void) {
    mlxb_generate_options options = greedy(2);
    options.stop_token_count = 1;
    REFUSED("stop_tokens", mlxb_generate, tiny(), NULL, &options, NULL, NULL, NULL);
    const uint32_t token = 3;
    const float bias = 1;
    options = greedy(2);
    options.logit_bias_count = 1;
    options.logit_bias_values = &bias;
    REFUSED("logit_bias_tokens", mlxb_generate, tiny(), NULL, &options, NULL, NULL, NULL);
    options.logit_bias_tokens = &token;
    options.logit_bias_values = NULL;
    REFUSED("logit_bias_values", mlxb_generate, tiny(), NULL, &options, NULL, NULL, NULL);
}

static void chat_render_refuses_null(void) {
    char *prompt = GARBAGE;
    REFUSED("model", mlxb_chat_render, NULL, "{\"messages\": []}", &prompt);
    CHECK(prompt == NULL);
    REFUSED("request_json", mlxb_chat_render, tiny(), NULL, &prompt);
    REFUSED("prompt", mlxb_chat_render, tiny(), "{\"messages\": []}", NULL);
    REFUSED("malformed", mlxb_chat_render, tiny(), "{", &prompt);
}

static void chat_tokenize_refuses_null(void) {
    const char request[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}";
    uint32_t tokens[64] = {0};
    size_t count = 77;
    size_t stable_count = 77;
    REFUSED("model", mlxb_chat_tokenize, NULL, request, tokens, 64, &count, &stable_count);
    CHECK_INT(0, count);
    CHECK_INT(0, stable_count);
    REFUSED("request_json", mlxb_chat_tokenize, tiny(), NULL, tokens, 64, &count, &stable_count);
    REFUSED("malformed", mlxb_chat_tokenize, tiny(), "{", tokens, 64, &count, &stable_count);
    REFUSED("buffer", mlxb_chat_tokenize, tiny(), request, NULL, 64, &count, &stable_count);
    REFUSED("count", mlxb_chat_tokenize, tiny(), request, tokens, 64, NULL, &stable_count);
    EXPECT(MLXB_OK, mlxb_chat_tokenize(tiny(), request, tokens, 64, &count, NULL, &error));
    CHECK_INT(MLXB_OK, mlxb_chat_tokenize(tiny(), request, tokens, 64, &count, NULL, NULL));
}

static void chats_refuse_null(void) {
    mlxb_chat *chat = mlxb_chat_new();
    char *json = GARBAGE;
    REFUSED("chat", mlxb_chat_add, NULL, "user", "a", 1);
    REFUSED("role", mlxb_chat_add, chat, NULL, "a", 1);
    REFUSED("role", mlxb_chat_add, chat, "", "a", 1);
    REFUSED("text", mlxb_chat_add, chat, "user", NULL, 1);
    CHECK_INT(MLXB_OK, mlxb_chat_add(chat, "user", NULL, 0, NULL));
    REFUSED("chat", mlxb_chat_json, NULL, &json);
    CHECK(json == NULL);
    REFUSED("json", mlxb_chat_json, chat, NULL);
    mlxb_chat_free(chat);
}

static void quantize_refuses_null(void) {
    mlxb_quantize_result result = {.struct_size = sizeof result, .packed_count = 99};
    REFUSED("source", mlxb_quantize, NULL, "/tmp/mlxb-no-such-target", NULL, &result);
    CHECK_INT(0, result.packed_count);
    REFUSED("target_dir", mlxb_quantize, tiny_dir(), NULL, NULL, NULL);
    CHECK_INT(MLXB_NOT_FOUND, mlxb_quantize(tiny_dir(), "/no/such/folder", NULL, NULL, NULL));

    mlxb_quantize_options options;
    mlxb_quantize_options_init(&options, sizeof options);
    options.module_count = 1;
    REFUSED("module_paths", mlxb_quantize, tiny_dir(), "/no/such/folder", &options, NULL);
    const char *const paths[] = {NULL};
    options.module_paths = paths;
    REFUSED("module_bits", mlxb_quantize, tiny_dir(), "/no/such/folder", &options, NULL);
    const int32_t bits = 8;
    options.module_bits = &bits;
    REFUSED("module_paths", mlxb_quantize, tiny_dir(), "/no/such/folder", &options, NULL);

    char *report = GARBAGE;
    REFUSED("source", mlxb_quantize_report, NULL, NULL, "a", 1, &report);
    CHECK(report == NULL);
    REFUSED("text", mlxb_quantize_report, tiny_dir(), NULL, NULL, 1, &report);
    REFUSED("no tokens", mlxb_quantize_report, tiny_dir(), NULL, NULL, 0, &report);
    REFUSED("report_json", mlxb_quantize_report, tiny_dir(), NULL, "a", 1, NULL);
}

static void cache_functions_refuse_null(void) {
    mlxb_cache_options_init(NULL, sizeof(mlxb_cache_options));
    mlxb_cache_close(NULL);
    REFUSED("out", mlxb_cache_open, NULL, NULL);
    mlxb_cache *cache = GARBAGE;
    mlxb_cache_options options;
    mlxb_cache_options_init(&options, sizeof options);
    options.disk_dir = "/dev/null/no-such-folder";
    CHECK(mlxb_cache_open(&options, &cache, NULL) != MLXB_OK);
    CHECK(cache == NULL);
    options.disk_dir = "";
    REFUSED("disk_dir", mlxb_cache_open, &options, &cache);
    options.disk_dir = NULL;
    options.memory_bytes = -2;
    REFUSED("memory_bytes", mlxb_cache_open, &options, &cache);
    options.memory_bytes = -1;
    options.verify = 2;
    REFUSED("verify is out of range: 2", mlxb_cache_open, &options, &cache);
    options.verify = -1;
    options.disk_bytes = -2; /* without a folder too */
    REFUSED("disk_bytes", mlxb_cache_open, &options, &cache);
    options.disk_bytes = -1;
    options.idle_seconds = -1;
    REFUSED("idle_seconds", mlxb_cache_open, &options, &cache);
    EXPECT(MLXB_OK, mlxb_cache_open(NULL, &cache, &error));

    mlxb_kv *kv = GARBAGE;
    const uint32_t tokens[] = {3, 4};
    REFUSED("cache", mlxb_cache_put, NULL, NULL, NULL);
    REFUSED("kv", mlxb_cache_put, cache, NULL, NULL);
    REFUSED("cache", mlxb_cache_take, NULL, tiny(), NULL, tokens, 2, &kv);
    CHECK(kv == NULL);
    REFUSED("model", mlxb_cache_take, cache, NULL, NULL, tokens, 2, &kv);
    REFUSED("tokens", mlxb_cache_take, cache, tiny(), NULL, NULL, 2, &kv);
    REFUSED("out", mlxb_cache_take, cache, tiny(), NULL, tokens, 2, NULL);
    EXPECT(MLXB_OK, mlxb_cache_take(cache, tiny(), NULL, NULL, 0, &kv, &error));
    CHECK(kv == NULL);

    mlxb_cache_match match = {.struct_size = sizeof match, .memory_prefix = 99};
    REFUSED("cache", mlxb_cache_peek, NULL, tiny(), NULL, tokens, 2, &match);
    CHECK_INT(0, match.memory_prefix);
    REFUSED("model", mlxb_cache_peek, cache, NULL, NULL, tokens, 2, &match);
    REFUSED("tokens", mlxb_cache_peek, cache, tiny(), NULL, NULL, 2, &match);
    REFUSED("out", mlxb_cache_peek, cache, tiny(), NULL, tokens, 2, NULL);
    bool found = true;
    REFUSED("cache", mlxb_cache_find_exact, NULL, tiny(), NULL, tokens, 2, &found);
    CHECK(!found);
    REFUSED("model", mlxb_cache_find_exact, cache, NULL, NULL, tokens, 2, &found);
    REFUSED("found", mlxb_cache_find_exact, cache, tiny(), NULL, tokens, 2, NULL);

    uint64_t freed = 99;
    REFUSED("cache", mlxb_cache_flush, NULL);
    REFUSED("cache", mlxb_cache_clear, NULL);
    REFUSED("cache", mlxb_cache_trim, NULL, 0, &freed);
    CHECK_INT(0, freed);
    EXPECT(MLXB_OK, mlxb_cache_trim(cache, 0, NULL, &error));
    REFUSED("cache", mlxb_cache_clear_disk, NULL, NULL);
    EXPECT(MLXB_OK, mlxb_cache_clear_disk(cache, NULL, &error));
    mlxb_cache_stats stats = {.struct_size = sizeof stats, .entries = 99};
    REFUSED("cache", mlxb_cache_stats_get, NULL, &stats);
    CHECK_INT(0, stats.entries);
    REFUSED("out", mlxb_cache_stats_get, cache, NULL);
    mlxb_cache_close(cache);
}

static void protocols_refuse_null(void) {
    const int32_t chat = MLXB_PROTOCOL_CHAT_COMPLETIONS;
    char *json = GARBAGE;
    REFUSED("request_json", mlxb_protocol_to_chat, chat, NULL, 2, &json);
    CHECK(json == NULL);
    REFUSED("chat_json", mlxb_protocol_to_chat, chat, "{}", 2, NULL);
    json = GARBAGE;
    REFUSED("model", mlxb_respond, NULL, NULL, NULL, chat, "{}", 2, NULL, NULL, NULL, &json);
    CHECK(json == NULL);
    REFUSED("request_json", mlxb_respond, tiny(), NULL, NULL, chat, NULL, 2, NULL, NULL, NULL,
            NULL);
    EXPECT_ERROR(MLXB_PROTOCOL, "json",
                 mlxb_respond(tiny(), NULL, NULL, chat, NULL, 0, NULL, NULL, NULL, NULL, &error));
}

int main(void) {
    RUN(nothing_happens_to_null);
    RUN(log_set_takes_null);
    RUN(memory_takes_null);
    RUN(load_refuses_null);
    RUN(model_functions_refuse_null);
    RUN(kv_functions_refuse_null);
    RUN(generate_refuses_null);
    RUN(generate_refuses_null_arrays);
    RUN(chat_render_refuses_null);
    RUN(chat_tokenize_refuses_null);
    RUN(chats_refuse_null);
    RUN(protocols_refuse_null);
    RUN(quantize_refuses_null);
    RUN(cache_functions_refuse_null);
    return finish();
}
