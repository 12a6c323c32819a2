/* How tokens are drawn, and what is told of them. */
#include "fixture.h"

#include <math.h>

#define VOCABULARY 259

static void numbers_that_mean_nothing_are_refused(void) {
#define REFUSED(field, value)                                                                \
    do {                                                                                     \
        mlxb_generate_options options = greedy(1);                                           \
        options.field = (value);                                                             \
        EXPECT_ERROR(MLXB_INVALID_ARGUMENT, #field,                                          \
                     mlxb_generate(tiny(), NULL, &options, NULL, NULL, NULL, &error));       \
    } while (0)
    REFUSED(max_tokens, -2);
    REFUSED(max_tokens, INT64_MIN);
    REFUSED(prefill_chunk, 0);
    REFUSED(prefill_chunk, -2);
    REFUSED(temperature, -0.5f);
    REFUSED(temperature, INFINITY);
    REFUSED(top_p, -0.1f);
    REFUSED(top_p, 1.1f);
    REFUSED(top_k, -2);
    REFUSED(min_p, -0.1f);
    REFUSED(min_p, INFINITY);
    REFUSED(min_tokens_to_keep, 0);
    REFUSED(xtc_probability, 2.0f);
    REFUSED(xtc_threshold, 0.6f);
    REFUSED(repetition_penalty, 0.0f);
    REFUSED(repetition_penalty, -1.0f);
    REFUSED(presence_penalty, INFINITY);
    REFUSED(frequency_penalty, -INFINITY);
    REFUSED(repetition_context_size, -2);
    REFUSED(presence_context_size, -2);
    REFUSED(frequency_context_size, -2);
    REFUSED(logprobs, -2);
#undef REFUSED
    mlxb_model_options options;
    mlxb_model *model = NULL;
    mlxb_model_options_init(&options, sizeof options);
    options.device = 77;
    EXPECT_ERROR(MLXB_INVALID_ARGUMENT, "device", mlxb_model_load(tiny_dir(), &options, &model, &error));
}

static void the_largest_numbers_are_fine(void) {
    recorder recorder = {.stop_at_token = 3};
    mlxb_generate_options options = greedy(INT64_MAX);
    options.prefill_chunk = INT32_MAX;
    options.top_k = INT32_MAX;
    options.min_tokens_to_keep = INT32_MAX;
    options.min_p = 0.1f;
    options.repetition_context_size = INT32_MAX;
    options.repetition_penalty = 1.5f;
    options.presence_context_size = INT32_MAX;
    options.presence_penalty = 1e30f;
    options.frequency_context_size = INT32_MAX;
    options.frequency_penalty = 1e30f;
    options.logprobs = INT32_MAX;
    options.temperature = 1;
    options.seed = UINT64_MAX;
    options.has_seed = true;
    run(tiny(), NULL, &options, &recorder);
    CHECK(recorder.token_count <= 3);
}

static void seeds_make_draws_repeatable(void) {
    recorder first = {0}, second = {0};
    mlxb_generate_options options = greedy(40);
    options.temperature = 2;
    options.has_seed = true;
    for (uint64_t seed = 0; seed < 3; seed++) {
        options.seed = seed;
        run(tiny(), NULL, &options, &first);
        run(tiny(), NULL, &options, &second);
        CHECK(same_tokens(&second, first.tokens, first.token_count));
    }
    options.seed = 77;
    run(tiny(), NULL, &options, &second);
    CHECK(!same_tokens(&second, first.tokens, first.token_count));
    options.has_seed = false;
    run(tiny(), NULL, &options, &first);
    run(tiny(), NULL, &options, &second);
    CHECK(!same_tokens(&second, first.tokens, first.token_count));
}

static void the_most_likely_token_is_what_greedy_takes(void) {
    recorder expected = {0}, recorder = {0};
    mlxb_generate_options options = greedy(20);
    run(tiny(), NULL, &options, &expected);
    options.temperature = 0;
    run(tiny(), NULL, &options, &recorder);
    CHECK(same_tokens(&recorder, expected.tokens, expected.token_count));
    options.temperature = 3;
    options.top_k = 1;
    run(tiny(), NULL, &options, &recorder);
    CHECK(same_tokens(&recorder, expected.tokens, expected.token_count));
}

static int32_t check_logprobs(recorder *recorder, const mlxb_event *event) {
    size_t top_count = *(size_t *)recorder->context;
    if (event->kind != MLXB_EVENT_TOKEN) {
        CHECK_INT(0, event->top_count);
        return MLXB_CONTINUE;
    }
    CHECK_INT(top_count, event->top_count);
    CHECK(event->logprob < 0);
    for (size_t index = 0; index < event->top_count; index++) {
        CHECK(event->top_tokens[index] < VOCABULARY);
        CHECK(index == 0 || event->top_logprobs[index] <= event->top_logprobs[index - 1]);
        CHECK(event->top_logprobs[index] < 0);
    }
    /* Greedy takes the first of them. */
    if (event->top_count > 0) {
        CHECK_INT(event->token, event->top_tokens[0]);
        CHECK(event->logprob == event->top_logprobs[0]);
    }
    return MLXB_CONTINUE;
}

static void logprobs_are_told_where_they_are_asked_for(void) {
    const size_t top_counts[] = {0, 1, 5, VOCABULARY};
    recorder expected = {0};
    mlxb_generate_options options = greedy(8);
    run(tiny(), NULL, &options, &expected);
    for (size_t index = 0; index < sizeof top_counts / sizeof *top_counts; index++) {
        size_t top_count = top_counts[index];
        recorder recorder = {.then = check_logprobs, .context = &top_count};
        options.logprobs = (int32_t)top_count + 1;
        run(tiny(), NULL, &options, &recorder);
        CHECK(same_tokens(&recorder, expected.tokens, 8));
    }
}

static int32_t check_no_logprobs(recorder *recorder, const mlxb_event *event) {
    (void)recorder;
    CHECK(event->kind != MLXB_EVENT_TOKEN || isnan(event->logprob));
    CHECK(event->top_count == 0 && event->top_tokens == NULL && event->top_logprobs == NULL);
    return MLXB_CONTINUE;
}

static void logprobs_are_not_told_otherwise(void) {
    recorder recorder = {.then = check_no_logprobs};
    mlxb_generate_options options = greedy(3);
    run(tiny(), NULL, &options, &recorder);
    options.logprobs = 0;
    run(tiny(), NULL, &options, &recorder);
}

static void a_bias_forces_and_forbids(void) {
    recorder recorder = {0};
    uint32_t ids[VOCABULARY];
    float bias[VOCABULARY];
    mlxb_generate_options options = greedy(6);
    options.logit_bias_tokens = ids;
    options.logit_bias_values = bias;
    options.logit_bias_count = 1;
    ids[0] = 77;
    bias[0] = 1000;
    run(tiny(), NULL, &options, &recorder);
    for (size_t index = 0; index < recorder.token_count; index++) {
        CHECK_INT(77, recorder.tokens[index]);
    }
    /* All but one of them. */
    for (uint32_t id = 0; id < VOCABULARY; id++) {
        ids[id] = id;
        bias[id] = id == 88 ? 0 : -INFINITY;
    }
    options.logit_bias_count = VOCABULARY;
    options.temperature = 2;
    run(tiny(), NULL, &options, &recorder);
    for (size_t index = 0; index < recorder.token_count; index++) {
        CHECK_INT(88, recorder.tokens[index]);
    }
    /* None is left: something is drawn all the same, and it is a token. */
    bias[88] = -INFINITY;
    run(tiny(), NULL, &options, &recorder);
    for (size_t index = 0; index < recorder.token_count; index++) {
        CHECK(recorder.tokens[index] < VOCABULARY);
    }
    bias[3] = NAN;
    EXPECT_ERROR(MLXB_INVALID_ARGUMENT, "logit_bias",
                 mlxb_generate(tiny(), NULL, &options, NULL, NULL, NULL, &error));
}

static void a_stop_token_ends_like_an_end_token(void) {
    recorder expected = {0}, recorder = {0};
    mlxb_generate_options options = greedy(ENDLESS);
    run(tiny(), NULL, &options, &expected);
    options.stop_tokens = &expected.tokens[9];
    options.stop_token_count = 1;
    size_t first = 0;
    while (expected.tokens[first] != expected.tokens[9]) {
        first++;
    }
    CHECK_INT(MLXB_FINISH_EOS, run(tiny(), NULL, &options, &recorder).finish);
    CHECK(same_tokens(&recorder, expected.tokens, first + 1));
}

static void the_models_defaults_are_told(void) {
    mlxb_generate_options defaults;
    mlxb_generate_options_init(&defaults, sizeof defaults);
    EXPECT(MLXB_OK, mlxb_model_generation_defaults(tiny(), &defaults, &error));
    CHECK(defaults.temperature == 0 && defaults.top_p == 1 && defaults.top_k == 0);
    CHECK(defaults.tokens == NULL && defaults.max_tokens == -1);
    /* As good as saying nothing. */
    recorder expected = {0}, recorder = {0};
    mlxb_generate_options options = greedy(10);
    run(tiny(), NULL, &options, &expected);
    defaults.tokens = options.tokens;
    defaults.token_count = options.token_count;
    defaults.max_tokens = 10;
    run(tiny(), NULL, &defaults, &recorder);
    CHECK(same_tokens(&recorder, expected.tokens, 10));
}

int main(void) {
    RUN(numbers_that_mean_nothing_are_refused);
    RUN(the_largest_numbers_are_fine);
    RUN(seeds_make_draws_repeatable);
    RUN(the_most_likely_token_is_what_greedy_takes);
    RUN(logprobs_are_told_where_they_are_asked_for);
    RUN(logprobs_are_not_told_otherwise);
    RUN(a_bias_forces_and_forbids);
    RUN(a_stop_token_ends_like_an_end_token);
    RUN(the_models_defaults_are_told);
    return finish();
}
