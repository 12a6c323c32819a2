/* A large model loads while a small one speaks: the loading takes turns with the speaking, a
 * tensor at a time. Too much memory for valgrind; ways: plain sanitized */
#include "fixture.h"

#include <time.h>

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* ---- speaking --------------------------------------------------------------------------- */

/* Tokens told so far, and the longest time between two of them. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t told = PTHREAD_COND_INITIALIZER;
static size_t tokens;
static double last_token, longest_gap;

static int32_t count_tokens(void *user_data, const mlxb_event *event) {
    (void)user_data;
    if (event->kind == MLXB_EVENT_TOKEN) {
        pthread_mutex_lock(&lock);
        double now = seconds_now();
        if (last_token > 0 && now - last_token > longest_gap) {
            longest_gap = now - last_token;
        }
        last_token = now;
        tokens++;
        pthread_cond_broadcast(&told);
        pthread_mutex_unlock(&lock);
    }
    return MLXB_CONTINUE;
}

/* Waits until there are more than `count` tokens; how many there are. */
static size_t wait_for_more_tokens(size_t count) {
    pthread_mutex_lock(&lock);
    while (tokens <= count) {
        pthread_cond_wait(&told, &lock);
    }
    count = tokens;
    pthread_mutex_unlock(&lock);
    return count;
}

static void *speak(void *cancel) {
    mlxb_generate_result result = {.struct_size = sizeof result};
    mlxb_generate_options options = greedy(-1);
    options.cancel = cancel;
    while (result.finish != MLXB_FINISH_CANCELLED) {
        EXPECT(MLXB_OK, mlxb_generate(tiny(), NULL, &options, count_tokens, NULL, &result, &error));
    }
    return NULL;
}

/* ---- loading ---------------------------------------------------------------------------- */

typedef struct loading {
    bool waits;
    size_t tensors, tokens;
} loading;

static int32_t on_tensor(void *user_data, const mlxb_event *event) {
    loading *self = user_data;
    (void)event;
    self->tensors++;
    if (self->waits) {
        /* Would the load keep the engine until its end, this would wait for ever. */
        self->tokens = wait_for_more_tokens(self->tokens);
    }
    return MLXB_CONTINUE;
}

/* Loads the real model while the tiny one speaks; how long that took. */
static double load_meanwhile(loading *loading) {
    mlxb_cancel *cancel = mlxb_cancel_new();
    mlxb_model_options options;
    mlxb_model *model = NULL;
    endless_prompt();
    pthread_t thread = start_thread(speak, cancel);
    loading->tokens = wait_for_more_tokens(tokens);
    mlxb_model_options_init(&options, sizeof options);
    options.on_progress = on_tensor;
    options.user_data = loading;
    pthread_mutex_lock(&lock);
    longest_gap = 0;
    pthread_mutex_unlock(&lock);
    double start = seconds_now();
    EXPECT(MLXB_OK, mlxb_model_load(test_model("f32"), &options, &model, &error));
    double took = seconds_now() - start;
    /* A gap that has not ended yet counts too. */
    wait_for_more_tokens(wait_for_more_tokens(0));
    mlxb_cancel_request(cancel);
    join_thread(thread);
    mlxb_cancel_free(cancel);
    mlxb_model_release(model);
    return took;
}

static void between_any_two_tensors_comes_a_token(void) {
    loading loading = {.waits = true};
    load_meanwhile(&loading);
    CHECK(loading.tensors > 200);
}

static void no_wait_for_a_token_is_that_for_a_load(void) {
    loading loading = {.waits = false};
    double took = load_meanwhile(&loading);
    printf("the load took %.3f s, the longest wait for a token %.3f s\n", took, longest_gap);
    CHECK(longest_gap < took / 2);
}

int main(void) {
    RUN(between_any_two_tensors_comes_a_token);
    RUN(no_wait_for_a_token_is_that_for_a_load);
    return finish();
}
