/* Generation: what it is asked, what it tells, how it ends. */
#include "fixture.h"

/* Whether all of it is whole characters. */
static bool is_utf8(const char *text, size_t len) {
    for (size_t at = 0; at < len;) {
        unsigned char first = (unsigned char)text[at++];
        size_t more = first < 0x80 ? 0 : first < 0xc2 ? 9 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : first < 0xf5 ? 3 : 9;
        if (more > len - at) {
            return false;
        }
        for (; more > 0; more--) {
            if (((unsigned char)text[at++] & 0xc0) != 0x80) {
                return false;
            }
        }
    }
    return true;
}

static int32_t note_progress(recorder *recorder, const mlxb_event *event) {
    uint64_t **next = recorder->context;
    if (event->kind == MLXB_EVENT_PREFILL) {
        *(*next)++ = event->done;
    }
    return MLXB_CONTINUE;
}

static void the_prompt_is_told_in_chunks(void) {
    uint64_t done[16], *next = done;
    recorder recorder = {.then = note_progress, .context = &next};
    mlxb_generate_options options = greedy(1);
    options.prefill_chunk = 5;
    mlxb_generate_result result = run(tiny(), NULL, &options, &recorder);
    const uint64_t expected[] = {0, 5, 10, 11, 12};
    CHECK_INT(5, next - done);
    CHECK(memcmp(done, expected, sizeof expected) == 0);
    CHECK_INT(PROMPT, recorder.prefill_total);
    CHECK_INT(MLXB_FINISH_LENGTH, result.finish);
    CHECK_INT(PROMPT, result.prompt_tokens);
    CHECK_INT(0, result.reused_tokens);
    CHECK_INT(-1, result.stop_index);
}

static void chunks_of_any_size_give_the_same_tokens(void) {
    recorder expected = {0}, recorder = {0};
    mlxb_generate_options options = greedy(16);
    run(tiny(), NULL, &options, &expected);
    for (int32_t chunk = 1; chunk <= 13; chunk += 3) {
        options.prefill_chunk = chunk;
        run(tiny(), NULL, &options, &recorder);
        CHECK(same_tokens(&recorder, expected.tokens, expected.token_count));
    }
}

static int32_t check_whole_characters(recorder *recorder, const mlxb_event *event) {
    (void)recorder;
    CHECK(event->kind != MLXB_EVENT_TEXT || is_utf8(event->text.ptr, event->text.len));
    return MLXB_CONTINUE;
}

static void text_comes_in_whole_characters_and_adds_up(void) {
    for (uint64_t seed = 0; seed < 5; seed++) {
        recorder recorder = {.then = check_whole_characters};
        mlxb_generate_options options = greedy(120);
        options.temperature = 5;
        options.seed = seed;
        options.has_seed = true;
        mlxb_generate_result result = run(tiny(), NULL, &options, &recorder);
        size_t told = recorder.token_count - (result.finish == MLXB_FINISH_EOS ? 1 : 0);
        char *text = NULL;
        EXPECT(MLXB_OK, mlxb_model_detokenize(tiny(), recorder.tokens, told, false, &text, &error));
        /* An owned string cannot hold a NUL, an event can. */
        size_t kept = 0;
        for (size_t at = 0; at < recorder.text_len; at++) {
            if (recorder.text[at] != '\0') {
                recorder.text[kept++] = recorder.text[at];
            }
        }
        recorder.text[kept] = '\0';
        CHECK_STR(recorder.text, text);
        mlxb_string_free(text);
    }
}

static void max_tokens_is_the_most(void) {
    recorder recorder = {0};
    for (int64_t most = 0; most < 4; most++) {
        mlxb_generate_options options = greedy(most);
        mlxb_generate_result result = run(tiny(), NULL, &options, &recorder);
        CHECK_INT(MLXB_FINISH_LENGTH, result.finish);
        CHECK_INT(most, recorder.token_count);
    }
}

static void an_end_token_ends(void) {
    recorder recorder = {0};
    mlxb_generate_options options = greedy(-1);
    /* Almost any token: two of the 259 are end tokens. */
    options.temperature = 100;
    options.has_seed = true;
    options.seed = 1;
    mlxb_generate_result result = run(tiny(), NULL, &options, &recorder);
    CHECK_INT(MLXB_FINISH_EOS, result.finish);
    for (size_t index = 0; index < recorder.token_count; index++) {
        bool is_end = recorder.tokens[index] == 0 || recorder.tokens[index] == 2;
        CHECK_INT(index == recorder.token_count - 1, is_end);
    }
    CHECK(strstr(recorder.text, "<|") == NULL || recorder.tokens[recorder.token_count - 1] != 2);
}

static void the_context_is_a_bound(void) {
    mlxb_model_options model_options;
    mlxb_model *small = NULL;
    mlxb_model_options_init(&model_options, sizeof model_options);
    model_options.context_length = PROMPT + 3;
    EXPECT(MLXB_OK, mlxb_model_load(tiny_dir(), &model_options, &small, &error));
    recorder recorder = {0};
    mlxb_generate_options options = greedy(-1);
    mlxb_kv *kv = new_kv(small);
    mlxb_generate_result result = run(small, kv, &options, &recorder);
    CHECK_INT(MLXB_FINISH_LENGTH, result.finish);
    CHECK_INT(3, recorder.token_count);
    /* Two of the three were run; one may still come. */
    CHECK_INT(PROMPT + 2, kv_length(kv));
    recorder.events = 0;
    EXPECT(MLXB_CONTEXT_FULL, mlxb_generate(small, kv, &options, record, &recorder, NULL, &error));
    CHECK_INT(0, recorder.events);
    CHECK_INT(PROMPT + 2, kv_length(kv));
    options.token_count = 1;
    EXPECT(MLXB_CONTEXT_FULL, mlxb_generate(small, kv, &options, record, &recorder, NULL, &error));
    EXPECT(MLXB_OK, mlxb_kv_trim(kv, PROMPT + 1, &error));
    CHECK_INT(1, run(small, kv, &options, &recorder).generated_tokens);
    mlxb_kv_free(kv);
    mlxb_model_release(small);
    for (int64_t wrong = -2; wrong <= 0; wrong += 2) {
        model_options.context_length = wrong;
        EXPECT_ERROR(MLXB_INVALID_ARGUMENT, "context_length",
                     mlxb_model_load(tiny_dir(), &model_options, &small, &error));
    }
}

static void no_prompt_and_two_prompts_are_refused(void) {
    mlxb_generate_options options = greedy(1);
    options.token_count = 0;
    EXPECT(MLXB_INVALID_ARGUMENT, mlxb_generate(tiny(), NULL, &options, NULL, NULL, NULL, &error));
    options = greedy(1);
    options.prompt = "a";
    options.prompt_len = 1;
    EXPECT_ERROR(MLXB_INVALID_ARGUMENT, "both",
                 mlxb_generate(tiny(), NULL, &options, NULL, NULL, NULL, &error));
    options.tokens = NULL;
    options.token_count = 0;
    options.prompt_len = 0;
    EXPECT(MLXB_INVALID_ARGUMENT, mlxb_generate(tiny(), NULL, &options, NULL, NULL, NULL, &error));
}

static void a_prompt_may_be_text(void) {
    char text[] = "Once upon";
    uint32_t tokens[16];
    recorder by_tokens = {0}, by_text = {0};
    mlxb_generate_options options = greedy(8);
    size_t count = 0;
    EXPECT(MLXB_OK, mlxb_model_tokenize(tiny(), text, strlen(text), true, tokens, 16, &count, &error));
    options.tokens = tokens;
    options.token_count = count;
    run(tiny(), NULL, &options, &by_tokens);
    options.tokens = NULL;
    options.token_count = 0;
    options.prompt = text;
    options.prompt_len = strlen(text);
    run(tiny(), NULL, &options, &by_text);
    CHECK(same_tokens(&by_text, by_tokens.tokens, by_tokens.token_count));
}

/* A piece of a text without NUL, at character boundaries, that starts after `from`. */
static size_t cut_out(const recorder *recorder, size_t from, size_t len, char *piece) {
    for (size_t start = from; start + len < recorder->text_len; start++) {
        memcpy(piece, recorder->text + start, len);
        piece[len] = '\0';
        if (strlen(piece) == len && is_utf8(piece, len)) {
            return start;
        }
    }
    return 0;
}

static void stop_strings_end_and_are_not_told(void) {
    static recorder whole;
    recorder recorder = {0};
    char piece[8];
    const char *stop[] = {"\x7f never \x7f", piece, "nor this, which is long"};
    mlxb_generate_options options = greedy(ENDLESS);
    run(tiny(), NULL, &options, &whole);
    CHECK(cut_out(&whole, whole.text_len / 3, 3, piece) > 0);
    options.stop = stop;
    options.stop_count = 3;
    mlxb_kv *kv = new_kv(tiny());
    mlxb_generate_result result = run(tiny(), kv, &options, &recorder);
    CHECK_INT(MLXB_FINISH_STOP_STRING, result.finish);
    CHECK_INT(1, result.stop_index);
    /* The whole text up to the piece's first appearance, and no byte of that. */
    size_t at = 0;
    while (memcmp(whole.text + at, piece, 3) != 0) {
        at++;
    }
    CHECK_INT(at, recorder.text_len);
    CHECK(memcmp(recorder.text, whole.text, at) == 0);
    CHECK(same_tokens(&recorder, whole.tokens, recorder.token_count));
    check_kv(kv, options.tokens, PROMPT, recorder.tokens, recorder.token_count - 1);
    mlxb_kv_free(kv);
    stop[0] = "";
    EXPECT_ERROR(MLXB_INVALID_ARGUMENT, "stop",
                 mlxb_generate(tiny(), NULL, &options, NULL, NULL, NULL, &error));
}

int main(void) {
    RUN(the_prompt_is_told_in_chunks);
    RUN(chunks_of_any_size_give_the_same_tokens);
    RUN(text_comes_in_whole_characters_and_adds_up);
    RUN(max_tokens_is_the_most);
    RUN(an_end_token_ends);
    RUN(the_context_is_a_bound);
    RUN(no_prompt_and_two_prompts_are_refused);
    RUN(a_prompt_may_be_text);
    RUN(stop_strings_end_and_are_not_told);
    return finish();
}
