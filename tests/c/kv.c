/* KV states: what they hold after each way to end, and that they are as good as new ones. */
#include "fixture.h"

/* What greedy decoding gives from the endless prompt, told once. */
static const recorder *reference(void) {
    static recorder recorder;
    if (recorder.token_count == 0) {
        mlxb_generate_options options = greedy(ENDLESS);
        run(tiny(), NULL, &options, &recorder);
    }
    return &recorder;
}

/* Goes on from a kv that holds the prompt and all but the last of `count` tokens of the
 * reference: the next ones must be the reference's, as if there had been no end. */
static void check_goes_on(mlxb_kv *kv, size_t count, size_t more) {
    recorder recorder = {0};
    mlxb_generate_options options = greedy((int64_t)more);
    options.tokens = &reference()->tokens[count - 1];
    options.token_count = 1;
    mlxb_generate_result result = run(tiny(), kv, &options, &recorder);
    CHECK_INT(PROMPT + count - 1, result.reused_tokens);
    CHECK_INT(PROMPT + count, result.prompt_tokens);
    CHECK(same_tokens(&recorder, reference()->tokens + count, more));
    check_kv(kv, endless_prompt(), PROMPT, reference()->tokens, count + more - 1);
}

static void after_the_length_all_but_the_last_token(void) {
    mlxb_kv *kv = new_kv(tiny());
    recorder recorder = {0};
    mlxb_generate_options options = greedy(10);
    CHECK_INT(MLXB_FINISH_LENGTH, run(tiny(), kv, &options, &recorder).finish);
    check_kv(kv, options.tokens, PROMPT, reference()->tokens, 9);
    check_goes_on(kv, 10, 10);
    check_goes_on(kv, 20, 1);
    check_goes_on(kv, 21, 30);
    mlxb_kv_free(kv);
}

static void after_no_tokens_the_prompt_that_was_run(void) {
    mlxb_kv *kv = new_kv(tiny());
    recorder recorder = {0};
    mlxb_generate_options options = greedy(0);
    CHECK_INT(MLXB_FINISH_LENGTH, run(tiny(), kv, &options, &recorder).finish);
    check_kv(kv, options.tokens, PROMPT - 1, NULL, 0);
    options = greedy(5);
    options.tokens += PROMPT - 1;
    options.token_count = 1;
    run(tiny(), kv, &options, &recorder);
    CHECK(same_tokens(&recorder, reference()->tokens, 5));
    mlxb_kv_free(kv);
}

static void after_an_end_token_all_but_that(void) {
    mlxb_kv *kv = new_kv(tiny());
    recorder recorder = {0};
    mlxb_generate_options options = greedy(-1);
    options.temperature = 100;
    options.has_seed = true;
    options.seed = 1;
    CHECK_INT(MLXB_FINISH_EOS, run(tiny(), kv, &options, &recorder).finish);
    check_kv(kv, options.tokens, PROMPT, recorder.tokens, recorder.token_count - 1);
    mlxb_kv_free(kv);
}

static void after_a_callbacks_stop_what_it_was_told(void) {
    for (size_t stop = 1; stop < 40; stop += 13) {
        mlxb_kv *kv = new_kv(tiny());
        recorder recorder = {.stop_at_token = stop};
        mlxb_generate_options options = greedy(ENDLESS);
        CHECK_INT(MLXB_FINISH_CALLER, run(tiny(), kv, &options, &recorder).finish);
        CHECK_INT(stop, recorder.token_count);
        check_kv(kv, options.tokens, PROMPT, recorder.tokens, stop - 1);
        check_goes_on(kv, stop, 10);
        mlxb_kv_free(kv);
    }
}

static void after_a_stop_in_the_prompt_what_was_run_of_it(void) {
    /* Events of the prompt: 0, 4, 8, 11 and all 12 done. */
    const size_t at_least[] = {0, 4, 8, 11, 12};
    for (size_t event = 1; event <= 5; event++) {
        mlxb_kv *kv = new_kv(tiny());
        recorder recorder = {.stop_at_event = event};
        mlxb_generate_options options = greedy(4);
        options.prefill_chunk = 4;
        CHECK_INT(MLXB_FINISH_CALLER, run(tiny(), kv, &options, &recorder).finish);
        CHECK_INT(event, recorder.events);
        CHECK_INT(0, recorder.token_count);
        size_t kept = kv_length(kv);
        CHECK(kept >= at_least[event - 1] && kept <= PROMPT && (event > 1 || kept == 0));
        check_kv(kv, options.tokens, kept, NULL, 0);
        /* Go on from there; a sampled token that was not told is sampled again. */
        if (kept == PROMPT) {
            EXPECT(MLXB_OK, mlxb_kv_trim(kv, --kept, &error));
        }
        recorder.stop_at_event = 0;
        options.tokens += kept;
        options.token_count -= kept;
        run(tiny(), kv, &options, &recorder);
        CHECK(same_tokens(&recorder, reference()->tokens, 4));
        mlxb_kv_free(kv);
    }
}

static void after_a_refusal_nothing_has_changed(void) {
    mlxb_kv *kv = new_kv(tiny());
    recorder recorder = {0};
    mlxb_generate_options options = greedy(5);
    run(tiny(), kv, &options, &recorder);
    options.temperature = -1;
    EXPECT(MLXB_INVALID_ARGUMENT, mlxb_generate(tiny(), kv, &options, NULL, NULL, NULL, &error));
    EXPECT(MLXB_INVALID_ARGUMENT, mlxb_kv_trim(kv, PROMPT + 5, &error));
    check_goes_on(kv, 5, 5);
    mlxb_kv_free(kv);
}

static void a_fork_and_its_origin_go_separate_ways(void) {
    mlxb_kv *kv = new_kv(tiny()), *fork = NULL, *second = NULL;
    recorder recorder = {0};
    mlxb_generate_options options = greedy(20);
    run(tiny(), kv, &options, &recorder);
    EXPECT(MLXB_OK, mlxb_kv_fork(kv, &fork, &error));
    check_kv(fork, options.tokens, PROMPT, reference()->tokens, 19);
    /* Elsewhere with the fork: that must not show in the origin, nor the other way round. */
    const uint32_t elsewhere[] = {200, 100, 50};
    options.tokens = elsewhere;
    options.token_count = 3;
    run(tiny(), fork, &options, &recorder);
    EXPECT(MLXB_OK, mlxb_kv_fork(kv, &second, &error));
    check_goes_on(kv, 20, 15);
    check_goes_on(second, 20, 15);
    mlxb_kv_free(kv);
    check_goes_on(second, 35, 15);
    EXPECT(MLXB_OK, mlxb_kv_trim(fork, PROMPT + 19, &error));
    check_goes_on(fork, 20, 15);
    mlxb_kv_free(second);
    mlxb_kv_free(fork);
}

static void forks_of_many_lengths_share_and_grow(void) {
    /* Past the 256 positions by which the buffers grow. */
    static recorder recorder;
    const size_t prompt_count = 230;
    uint32_t prompt[230];
    for (uint32_t index = 0; index < 230; index++) {
        prompt[index] = 3 + (index * 7) % 250;
    }
    mlxb_generate_options options = greedy(60);
    options.tokens = prompt;
    options.token_count = prompt_count;
    mlxb_kv *kv = new_kv(tiny());
    mlxb_generate_result whole = run(tiny(), kv, &options, &recorder);
    if (whole.generated_tokens == 60) {
        CHECK_INT(prompt_count + 59, kv_length(kv));
    }
    for (size_t length = prompt_count; length < prompt_count + whole.generated_tokens; length += 17) {
        mlxb_kv *fork = NULL;
        static struct recorder again;
        EXPECT(MLXB_OK, mlxb_kv_fork(kv, &fork, &error));
        EXPECT(MLXB_OK, mlxb_kv_trim(fork, length - 1, &error));
        size_t known = length - prompt_count;
        mlxb_generate_options rest = greedy((int64_t)(whole.generated_tokens - known));
        rest.tokens = known == 0 ? &prompt[prompt_count - 1] : &recorder.tokens[known - 1];
        rest.token_count = 1;
        run(tiny(), fork, &rest, &again);
        CHECK(same_tokens(&again, recorder.tokens + known, whole.generated_tokens - known));
        mlxb_kv_free(fork);
    }
    mlxb_kv_free(kv);
}

static void a_trimmed_state_is_that_of_fewer_tokens(void) {
    mlxb_kv *kv = new_kv(tiny());
    recorder recorder = {0};
    mlxb_generate_options options = greedy(50);
    run(tiny(), kv, &options, &recorder);
    for (int kept = 41; kept > 0; kept -= 20) {
        EXPECT(MLXB_OK, mlxb_kv_trim(kv, PROMPT + (size_t)kept, &error));
        CHECK_INT(PROMPT + kept, kv_length(kv));
        check_goes_on(kv, (size_t)kept + 1, 5);
    }
    EXPECT_ERROR(MLXB_INVALID_ARGUMENT, "trim", mlxb_kv_trim(kv, 1000, &error));
    EXPECT(MLXB_OK, mlxb_kv_trim(kv, 0, &error));
    CHECK_INT(0, kv_length(kv));
    CHECK_INT(0, run(tiny(), kv, &options, &recorder).reused_tokens);
    CHECK(same_tokens(&recorder, reference()->tokens, 50));
    mlxb_kv_free(kv);
}

static void trims_add_up_without_a_use_between_them(void) {
    mlxb_kv *kv = new_kv(tiny()), *fork = NULL;
    recorder recorder = {0};
    mlxb_generate_options options = greedy(30);
    run(tiny(), kv, &options, &recorder);
    EXPECT(MLXB_OK, mlxb_kv_trim(kv, PROMPT + 20, &error));
    EXPECT(MLXB_OK, mlxb_kv_fork(kv, &fork, &error));
    EXPECT(MLXB_OK, mlxb_kv_trim(kv, PROMPT + 9, &error));
    EXPECT(MLXB_INVALID_ARGUMENT, mlxb_kv_trim(kv, PROMPT + 20, &error));
    check_goes_on(kv, 10, 10);
    check_goes_on(fork, 21, 10);
    mlxb_kv_free(fork);
    mlxb_kv_free(kv);
}

static void a_kv_of_another_model_is_refused(void) {
    mlxb_model *other = load(tiny_dir());
    mlxb_kv *kv = new_kv(other);
    mlxb_generate_options options = greedy(1);
    EXPECT_ERROR(MLXB_INVALID_ARGUMENT, "another model",
                 mlxb_generate(tiny(), kv, &options, NULL, NULL, NULL, &error));
    CHECK_INT(0, kv_length(kv));
    EXPECT(MLXB_OK, mlxb_generate(other, kv, &options, NULL, NULL, NULL, &error));
    mlxb_kv_free(kv);
    mlxb_model_release(other);
}

static void tokens_tell_how_much_room_they_need(void) {
    mlxb_kv *kv = new_kv(tiny());
    uint32_t tokens[PROMPT + 1] = {0};
    size_t count = 9;
    recorder recorder = {0};
    EXPECT(MLXB_OK, mlxb_kv_tokens(kv, tokens, PROMPT, &count, &error));
    CHECK_INT(0, count);
    mlxb_generate_options options = greedy(2);
    run(tiny(), kv, &options, &recorder);
    EXPECT(MLXB_BUFFER_TOO_SMALL, mlxb_kv_tokens(kv, tokens, PROMPT, &count, &error));
    CHECK_INT(PROMPT + 1, count);
    CHECK_INT(0, tokens[0]);
    EXPECT(MLXB_OK, mlxb_kv_tokens(kv, tokens, PROMPT + 1, &count, &error));
    CHECK_INT(recorder.tokens[0], tokens[PROMPT]);
    mlxb_kv_free(kv);
}

static void bytes_are_those_of_the_tokens_and_some_room(void) {
    mlxb_kv *kv = new_kv(tiny());
    uint64_t bytes = 9;
    recorder recorder = {0};
    mlxb_model_info info = {.struct_size = sizeof info};
    EXPECT(MLXB_OK, mlxb_model_info_get(tiny(), &info, &error));
    EXPECT(MLXB_OK, mlxb_kv_bytes(kv, &bytes, &error));
    CHECK_INT(0, bytes);
    mlxb_generate_options options = greedy(5);
    run(tiny(), kv, &options, &recorder);
    EXPECT(MLXB_OK, mlxb_kv_bytes(kv, &bytes, &error));
    CHECK_INT(256 * info.kv_bytes_per_token, bytes);
    uint32_t more[256];
    for (uint32_t index = 0; index < 256; index++) {
        more[index] = 3 + index;
    }
    options.tokens = more;
    options.token_count = 256;
    run(tiny(), kv, &options, &recorder);
    EXPECT(MLXB_OK, mlxb_kv_bytes(kv, &bytes, &error));
    CHECK(bytes >= kv_length(kv) * info.kv_bytes_per_token);
    CHECK(bytes <= (kv_length(kv) + 256) * info.kv_bytes_per_token);
    mlxb_kv_free(kv);
}

static void the_same_prompt_again_is_run_again(void) {
    recorder first = {0}, second = {0};
    mlxb_generate_options options = greedy(10);
    CHECK_INT(PROMPT, run(tiny(), NULL, &options, &first).prompt_tokens);
    CHECK_INT(PROMPT, run(tiny(), NULL, &options, &second).prompt_tokens);
    CHECK(same_tokens(&second, first.tokens, 10));
    /* Likewise with a kv that holds all but its last token. */
    mlxb_kv *kv = new_kv(tiny());
    run(tiny(), kv, &options, &first);
    EXPECT(MLXB_OK, mlxb_kv_trim(kv, PROMPT - 1, &error));
    options.tokens += PROMPT - 1;
    options.token_count = 1;
    CHECK_INT(PROMPT - 1, run(tiny(), kv, &options, &second).reused_tokens);
    CHECK(same_tokens(&second, first.tokens, 10));
    mlxb_kv_free(kv);
}

static void a_saved_state_is_loaded_as_it_was(void) {
    char path[] = "/tmp/mlxb-kv-%s%n-XXXXXX";
    close(mkstemp(path));
    mlxb_kv *kv = new_kv(tiny()), *loaded = NULL;
    recorder recorder = {0};
    mlxb_generate_options options = greedy(10);
    run(tiny(), kv, &options, &recorder);
    EXPECT(MLXB_OK, mlxb_kv_save(kv, path, &error));
    EXPECT(MLXB_OK, mlxb_kv_load(tiny(), path, NULL, 0, &loaded, &error));
    check_kv(loaded, options.tokens, PROMPT, recorder.tokens, 9);
    check_goes_on(loaded, 10, 10);
    mlxb_kv_free(loaded);
    EXPECT_ERROR(MLXB_INVALID_ARGUMENT, "tokens",
                 mlxb_kv_load(tiny(), path, options.tokens, PROMPT, &loaded, &error));
    CHECK(loaded == NULL);
    mlxb_kv_free(kv);

    /* Of a model with more tokens. */
    FILE *file = fopen(path, "r+b");
    unsigned char header[4096];
    size_t length = fread(header, 1, sizeof header, file), at = 1;
    while (at + 3 < length && !(header[at - 1] == ' ' && isdigit(header[at]) &&
                                isdigit(header[at + 1]) && isdigit(header[at + 2]))) {
        at++;
    }
    CHECK(at + 3 < length);
    fseek(file, (long)at, SEEK_SET);
    fputc('9', file);
    fclose(file);
    EXPECT_ERROR(MLXB_CORRUPT, "of another model",
                 mlxb_kv_load(tiny(), path, NULL, 0, &loaded, &error));
    CHECK(loaded == NULL);
    CHECK_INT(0, remove(path));
}

int main(void) {
    RUN(after_the_length_all_but_the_last_token);
    RUN(after_no_tokens_the_prompt_that_was_run);
    RUN(after_an_end_token_all_but_that);
    RUN(after_a_callbacks_stop_what_it_was_told);
    RUN(after_a_stop_in_the_prompt_what_was_run_of_it);
    RUN(after_a_refusal_nothing_has_changed);
    RUN(a_fork_and_its_origin_go_separate_ways);
    RUN(forks_of_many_lengths_share_and_grow);
    RUN(a_trimmed_state_is_that_of_fewer_tokens);
    RUN(trims_add_up_without_a_use_between_them);
    RUN(a_kv_of_another_model_is_refused);
    RUN(tokens_tell_how_much_room_they_need);
    RUN(bytes_are_those_of_the_tokens_and_some_room);
    RUN(the_same_prompt_again_is_run_again);
    RUN(a_saved_state_is_loaded_as_it_was);
    return finish();
}
