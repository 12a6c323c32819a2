/* Text and ids that cross the boundary: versions, names, UTF-8, buffers, ids out of range. */
#include "fixture.h"

/* Bytes that are not UTF-8: stray, cut off, too long for their character, a surrogate. */
static const char *const not_utf8[] = {"\xff", "a\x80", "\xe2\x82", "\xc0\x80", "\xed\xa0\x80",
                                       "\xf4\x90\x80\x80"};
#define EACH_BAD_TEXT(bad)                                                                   \
    for (const char *const *bad = not_utf8; bad < not_utf8 + sizeof not_utf8 / sizeof *not_utf8; bad++)

static void the_library_is_of_the_headers_version(void) {
    char expected[64];
    CHECK_INT(1000000 * MLXB_VERSION_MAJOR + 1000 * MLXB_VERSION_MINOR
                                        + MLXB_VERSION_PATCH, mlxb_version_number());
    snprintf(expected, sizeof expected, "mlxb/%d.%d.%d mlx/", MLXB_VERSION_MAJOR, MLXB_VERSION_MINOR,
             MLXB_VERSION_PATCH);
    CHECK(strncmp(mlxb_version_string(), expected, strlen(expected)) == 0);
}

static void text_that_is_not_utf8_is_refused(void) {
    mlxb_generate_options options;
    mlxb_generate_options_init(&options, sizeof options);
    EACH_BAD_TEXT(bad) {
        mlxb_model *model = NULL;
        char *prompt = NULL;
        size_t count = 0;
        EXPECT_ERROR(MLXB_INVALID_UTF8, "snapshot_dir", mlxb_model_load(*bad, NULL, &model, &error));
        EXPECT_ERROR(MLXB_INVALID_UTF8, "text",
                     mlxb_model_tokenize(tiny(), *bad, strlen(*bad), false, NULL, 0, &count, &error));
        EXPECT_ERROR(MLXB_INVALID_UTF8, "request_json",
                     mlxb_chat_render(tiny(), *bad, &prompt, &error));
        EXPECT_ERROR(MLXB_INVALID_UTF8, "request_json",
                     mlxb_chat_tokenize(tiny(), *bad, NULL, 0, &count, NULL, &error));
        mlxb_chat *chat = mlxb_chat_new();
        EXPECT_ERROR(MLXB_INVALID_UTF8, "role", mlxb_chat_add(chat, *bad, "a", 1, &error));
        EXPECT_ERROR(MLXB_INVALID_UTF8, "text",
                     mlxb_chat_add(chat, "user", *bad, strlen(*bad), &error));
        mlxb_chat_free(chat);
        options = greedy(1);
        options.stop = bad;
        options.stop_count = 1;
        EXPECT_ERROR(MLXB_INVALID_UTF8, "stop",
                     mlxb_generate(tiny(), NULL, &options, NULL, NULL, NULL, &error));
        mlxb_generate_options_init(&options, sizeof options);
        options.prompt = *bad;
        options.prompt_len = strlen(*bad);
        EXPECT_ERROR(MLXB_INVALID_UTF8, "prompt",
                     mlxb_generate(tiny(), NULL, &options, NULL, NULL, NULL, &error));
    }
}

static void an_error_holds_nothing_of_the_prompt(void) {
    const char secret[] = "my secret \xff";
    size_t count = 0;
    mlxb_status status =
        mlxb_model_tokenize(tiny(), secret, strlen(secret), false, NULL, 0, &count, &error);
    CHECK_INT(MLXB_INVALID_UTF8, status);
    CHECK(strstr(mlxb_error_message(error), "secret") == NULL);
    CHECK(mlxb_error_detail(error) == NULL || strstr(mlxb_error_detail(error), "secret") == NULL);
    mlxb_error_free(error);
    error = NULL;
}

static void an_error_is_reset_by_the_next_call(void) {
    mlxb_kv *kv = NULL;
    mlxb_error *stale = (mlxb_error *)(void *)&kv;
    CHECK_INT(MLXB_OK, mlxb_kv_new(tiny(), &kv, &stale));
    CHECK(stale == NULL);
    mlxb_kv_free(kv);
}

static void text_becomes_tokens_and_text_again(void) {
    const char text[] = "h\xc3\xa9llo \xf0\x9f\x98\x80 <|im_end|>";
    uint32_t tokens[64];
    size_t count = 0;
    char *back = NULL;
    EXPECT(MLXB_OK,
           mlxb_model_tokenize(tiny(), text, strlen(text), false, tokens, 64, &count, &error));
    CHECK(count > 0 && count < 64);
    CHECK_INT(2, tokens[count - 1]);
    EXPECT(MLXB_OK, mlxb_model_detokenize(tiny(), tokens, count, false, &back, &error));
    CHECK_STR(text, back);
    mlxb_string_free(back);
    EXPECT(MLXB_OK, mlxb_model_detokenize(tiny(), tokens, count, true, &back, &error));
    CHECK_STR("h\xc3\xa9llo \xf0\x9f\x98\x80 ", back);
    mlxb_string_free(back);
    EXPECT(MLXB_OK, mlxb_model_tokenize(tiny(), "a\0b", 3, false, tokens, 64, &count, &error));
    CHECK_INT(3, count);
}

static void half_a_character_is_no_text(void) {
    uint32_t tokens[8];
    size_t count = 0;
    char *text = NULL;
    EXPECT(MLXB_OK, mlxb_model_tokenize(tiny(), "\xf0\x9f\x98\x80", 4, false, tokens, 8, &count, &error));
    CHECK_INT(4, count);
    EXPECT(MLXB_OK, mlxb_model_detokenize(tiny(), tokens, 3, false, &text, &error));
    CHECK_STR("\xef\xbf\xbd", text);
    mlxb_string_free(text);
}

static void a_buffer_too_small_is_left_alone(void) {
    uint32_t tokens[4] = {7, 7, 7, 7};
    size_t count = 0;
    EXPECT(MLXB_BUFFER_TOO_SMALL,
           mlxb_model_tokenize(tiny(), "abcd", 4, false, tokens, 3, &count, &error));
    CHECK_INT(4, count);
    CHECK_INT(7, tokens[0]);
    EXPECT(MLXB_BUFFER_TOO_SMALL,
           mlxb_model_tokenize(tiny(), "abcd", 4, false, NULL, 0, &count, &error));
    CHECK_INT(4, count);
    EXPECT(MLXB_OK, mlxb_model_tokenize(tiny(), "abcd", 4, false, tokens, 4, &count, &error));
    EXPECT(MLXB_OK, mlxb_model_tokenize(tiny(), "", 0, false, NULL, 0, &count, &error));
    CHECK_INT(0, count);
    EXPECT(MLXB_BUFFER_TOO_SMALL, mlxb_model_eos_tokens(tiny(), NULL, 0, &count, &error));
    CHECK_INT(2, count);
}

static void end_tokens_come_from_all_places_that_name_them(void) {
    uint32_t tokens[4];
    size_t count = 0;
    EXPECT(MLXB_OK, mlxb_model_eos_tokens(tiny(), tokens, 4, &count, &error));
    CHECK_INT(2, count);
    CHECK_INT(0, tokens[0]);
    CHECK_INT(2, tokens[1]);
}

static void info_tells_what_the_model_is(void) {
    mlxb_model_info info = {.struct_size = sizeof info};
    EXPECT(MLXB_OK, mlxb_model_info_get(tiny(), &info, &error));
    CHECK_STR("llama", info.model_type);
    CHECK_INT(4096, info.context_length);
    CHECK_INT(259, info.vocab_size);
    CHECK_INT(2, info.layer_count);
    CHECK_INT(64, info.hidden_size);
    CHECK_INT(MLXB_DEVICE_DEFAULT, info.device);
    /* Two layers of keys and values of two heads of 16 floats. */
    CHECK_INT(2 * 2 * 2 * 16 * 4, info.kv_bytes_per_token);
    CHECK_INT(477952, info.weight_bytes);
}

static void ids_past_the_embedding_are_refused_everywhere(void) {
    const uint32_t bad[] = {259, 260, 1u << 31, UINT32_MAX};
    mlxb_kv *kv = new_kv(tiny());
    for (size_t index = 0; index < sizeof bad / sizeof *bad; index++) {
        char *text = NULL;
        const uint32_t tokens[] = {3, bad[index], 4};
        char number[16];
        recorder recorder = {0};
        mlxb_generate_options options = greedy(1);
        snprintf(number, sizeof number, "%lu", (unsigned long)bad[index]);
        options.tokens = tokens;
        options.token_count = 3;
        EXPECT_ERROR(MLXB_INVALID_ARGUMENT, number,
                     mlxb_generate(tiny(), NULL, &options, record, &recorder, NULL, &error));
        EXPECT_ERROR(MLXB_INVALID_ARGUMENT, number,
                     mlxb_generate(tiny(), kv, &options, record, &recorder, NULL, &error));
        const float bias = 1;
        options = greedy(1);
        options.stop_tokens = &bad[index];
        options.stop_token_count = 1;
        EXPECT_ERROR(MLXB_INVALID_ARGUMENT, number,
                     mlxb_generate(tiny(), kv, &options, record, &recorder, NULL, &error));
        options = greedy(1);
        options.logit_bias_tokens = &bad[index];
        options.logit_bias_values = &bias;
        options.logit_bias_count = 1;
        EXPECT_ERROR(MLXB_INVALID_ARGUMENT, number,
                     mlxb_generate(tiny(), kv, &options, record, &recorder, NULL, &error));
        CHECK_INT(0, recorder.events);
        CHECK_INT(0, kv_length(kv));
        EXPECT_ERROR(MLXB_INVALID_ARGUMENT, number,
                     mlxb_model_detokenize(tiny(), tokens, 3, false, &text, &error));
        CHECK(text == NULL);
    }
    mlxb_kv_free(kv);
}

static void chat_is_rendered_with_the_models_template(void) {
    char *prompt = NULL;
    EXPECT(MLXB_OK, mlxb_chat_render(tiny(),
                                     "{\"messages\": [{\"role\": \"user\", \"content\": \"a\\\"b\"}]}",
                                     &prompt, &error));
    CHECK_STR("<|im_start|>user\na\"b<|im_end|>\n<|im_start|>assistant\n", prompt);
    mlxb_string_free(prompt);
}

static void a_chat_becomes_json_and_tokens(void) {
    const char quote[] = "a\"b\n<|im_end|>";
    mlxb_chat *chat = mlxb_chat_new();
    char *json = NULL;
    char *prompt = NULL;
    char *stable = NULL;
    uint32_t tokens[128];
    uint32_t one[1];
    size_t count = 0;
    size_t stable_count = 0;
    size_t ends = 0;
    EXPECT(MLXB_OK, mlxb_chat_add(chat, "system", "x", 1, &error));
    EXPECT(MLXB_OK, mlxb_chat_add(chat, "user", quote, strlen(quote), &error));
    EXPECT(MLXB_OK, mlxb_chat_json(chat, &json, &error));
    mlxb_chat_free(chat);
    CHECK_STR("{\"messages\":[{\"role\":\"system\",\"content\":\"x\"},"
              "{\"role\":\"user\",\"content\":\"a\\\"b\\n<|im_end|>\"}]}",
              json);

    EXPECT(MLXB_OK, mlxb_chat_tokenize(tiny(), json, tokens, 128, &count, &stable_count, &error));
    CHECK(stable_count > 0 && stable_count < count);
    for (size_t at = 0; at < count; at++) {
        ends += tokens[at] == 2;
    }
    CHECK_INT(2, ends);
    EXPECT(MLXB_OK, mlxb_chat_render(tiny(), json, &prompt, &error));
    EXPECT(MLXB_OK, mlxb_model_detokenize(tiny(), tokens, stable_count, false, &stable, &error));
    CHECK(strncmp(prompt, stable, strlen(stable)) == 0);
    mlxb_string_free(stable);
    mlxb_string_free(prompt);

    size_t needed = 0;
    EXPECT(MLXB_BUFFER_TOO_SMALL,
           mlxb_chat_tokenize(tiny(), json, one, 1, &needed, &stable_count, &error));
    CHECK_INT(count, needed);
    mlxb_string_free(json);
}

int main(void) {
    RUN(the_library_is_of_the_headers_version);
    RUN(text_that_is_not_utf8_is_refused);
    RUN(an_error_holds_nothing_of_the_prompt);
    RUN(an_error_is_reset_by_the_next_call);
    RUN(text_becomes_tokens_and_text_again);
    RUN(half_a_character_is_no_text);
    RUN(a_buffer_too_small_is_left_alone);
    RUN(end_tokens_come_from_all_places_that_name_them);
    RUN(info_tells_what_the_model_is);
    RUN(ids_past_the_embedding_are_refused_everywhere);
    RUN(chat_is_rendered_with_the_models_template);
    RUN(a_chat_becomes_json_and_tokens);
    return finish();
}
