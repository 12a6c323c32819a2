/* Cancelling, and a callback that has heard enough. */
#include "fixture.h"

#define LONG_PROMPT 4000

static mlxb_generate_options long_prompt(void) {
    static uint32_t tokens[LONG_PROMPT];
    for (uint32_t index = 0; index < LONG_PROMPT; index++) {
        tokens[index] = 3 + index % 256;
    }
    mlxb_generate_options options = greedy(5);
    options.tokens = tokens;
    options.token_count = LONG_PROMPT;
    options.prefill_chunk = 16;
    return options;
}

static void before_the_call_nothing_runs(void) {
    mlxb_cancel *cancel = mlxb_cancel_new();
    mlxb_kv *kv = new_kv(tiny());
    mlxb_generate_options options = greedy(5);
    mlxb_model *model = NULL;
    recorder recorder = {0};
    options.cancel = cancel;
    mlxb_cancel_request(cancel);
    /* It stays requested: the second call ends likewise. */
    for (int call = 0; call < 2; call++) {
        CHECK_INT(MLXB_FINISH_CANCELLED, run(tiny(), kv, &options, &recorder).finish);
        CHECK_INT(0, recorder.token_count);
        CHECK_INT(0, kv_length(kv));
    }
    mlxb_model_options model_options;
    mlxb_model_options_init(&model_options, sizeof model_options);
    model_options.cancel = cancel;
    EXPECT(MLXB_CANCELLED, mlxb_model_load(tiny_dir(), &model_options, &model, &error));
    CHECK(model == NULL);
    options.cancel = NULL;
    CHECK_INT(MLXB_FINISH_LENGTH, run(tiny(), kv, &options, &recorder).finish);
    mlxb_kv_free(kv);
    mlxb_cancel_free(cancel);
}

static void at_the_first_progress_nothing_has_run(void) {
    mlxb_kv *kv = new_kv(tiny());
    mlxb_generate_options options = long_prompt();
    mlxb_cancel *cancel = mlxb_cancel_new();
    recorder recorder = {.cancel = cancel, .cancel_at_prefill = 1};
    options.cancel = cancel;
    CHECK_INT(MLXB_FINISH_CANCELLED, run(tiny(), kv, &options, &recorder).finish);
    CHECK_INT(1, recorder.events);
    CHECK_INT(0, kv_length(kv));
    mlxb_cancel_free(cancel);
    mlxb_kv_free(kv);
}

/* A thread that cancels when it is told to, and says so. */
typedef struct canceller {
    gate go, done;
    mlxb_cancel *cancel;
    size_t at_prefill, at_token;
} canceller;

static void *cancel_when_told(void *argument) {
    canceller *self = argument;
    gate_wait(&self->go);
    mlxb_cancel_request(self->cancel);
    gate_open(&self->done);
    return NULL;
}

static int32_t have_it_cancelled(recorder *recorder, const mlxb_event *event) {
    canceller *self = recorder->context;
    if ((event->kind == MLXB_EVENT_PREFILL && recorder->prefills == self->at_prefill)
        || (event->kind == MLXB_EVENT_TOKEN && recorder->token_count == self->at_token)) {
        gate_open(&self->go);
        gate_wait(&self->done);
    }
    return MLXB_CONTINUE;
}

static void from_another_thread_during_the_prompt(void) {
    canceller canceller = {GATE, GATE, mlxb_cancel_new(), .at_prefill = 3};
    mlxb_kv *kv = new_kv(tiny());
    mlxb_generate_options options = long_prompt();
    recorder recorder = {.then = have_it_cancelled, .context = &canceller};
    options.cancel = canceller.cancel;
    pthread_t thread = start_thread(cancel_when_told, &canceller);
    CHECK_INT(MLXB_FINISH_CANCELLED, run(tiny(), kv, &options, &recorder).finish);
    join_thread(thread);
    /* Nothing is told after the request. The engine may have been ahead by what fits into its
     * queue, never by the prompt. */
    CHECK_INT(3, recorder.prefills);
    CHECK_INT(0, recorder.token_count);
    size_t kept = kv_length(kv);
    CHECK(kept >= 2 * 16 && kept % 16 == 0 && kept <= 16 * 16);
    check_kv(kv, options.tokens, kept, NULL, 0);
    mlxb_kv_free(kv);
    mlxb_cancel_free(canceller.cancel);
}

static void from_another_thread_during_the_answer(void) {
    canceller canceller = {GATE, GATE, mlxb_cancel_new(), .at_token = 20};
    mlxb_kv *kv = new_kv(tiny());
    mlxb_generate_options options = greedy(-1);
    recorder recorder = {.then = have_it_cancelled, .context = &canceller};
    options.cancel = canceller.cancel;
    pthread_t thread = start_thread(cancel_when_told, &canceller);
    CHECK_INT(MLXB_FINISH_CANCELLED, run(tiny(), kv, &options, &recorder).finish);
    join_thread(thread);
    CHECK_INT(20, recorder.token_count);
    check_kv(kv, options.tokens, PROMPT, recorder.tokens, 19);
    mlxb_kv_free(kv);
    mlxb_cancel_free(canceller.cancel);
}

static void from_the_callback_at_a_token_no_more_is_told(void) {
    for (size_t token = 1; token <= 41; token += 10) {
        mlxb_cancel *cancel = mlxb_cancel_new();
        mlxb_kv *kv = new_kv(tiny());
        mlxb_generate_options options = greedy(ENDLESS);
        recorder recorder = {.cancel = cancel, .cancel_at_token = token}, more = {0};
        options.cancel = cancel;
        mlxb_generate_result result = run(tiny(), kv, &options, &recorder);
        CHECK_INT(MLXB_FINISH_CANCELLED, result.finish);
        CHECK_INT(token, recorder.token_count);
        check_kv(kv, options.tokens, PROMPT, recorder.tokens, token - 1);
        /* As good as new. */
        options.cancel = NULL;
        options.tokens = &recorder.tokens[token - 1];
        options.token_count = 1;
        options.max_tokens = 5;
        run(tiny(), kv, &options, &more);
        options = greedy((int64_t)token + 5);
        run(tiny(), NULL, &options, &recorder);
        CHECK(same_tokens(&more, recorder.tokens + token, 5));
        mlxb_kv_free(kv);
        mlxb_cancel_free(cancel);
    }
}

static void after_stop_no_event_comes(void) {
    recorder all = {0};
    mlxb_generate_options options = greedy(30);
    options.prefill_chunk = 4;
    run(tiny(), NULL, &options, &all);
    for (size_t event = 1; event <= all.events; event++) {
        recorder recorder = {.stop_at_event = event};
        mlxb_generate_result result = run(tiny(), NULL, &options, &recorder);
        CHECK_INT(event, recorder.events);
        CHECK_INT(MLXB_FINISH_CALLER, result.finish);
        CHECK(same_tokens(&recorder, all.tokens, recorder.token_count));
    }
    /* Any number but MLXB_CONTINUE stops. */
    recorder recorder = {.stop_at_text = 2};
    CHECK_INT(MLXB_FINISH_CALLER, run(tiny(), NULL, &options, &recorder).finish);
    CHECK_INT(2, recorder.texts);
}

static int32_t free_the_cancel(recorder *recorder, const mlxb_event *event) {
    if (event->kind == MLXB_EVENT_TOKEN && recorder->token_count == 3) {
        mlxb_cancel_free(recorder->cancel);
    }
    return MLXB_CONTINUE;
}

static void a_cancel_may_be_freed_while_a_call_has_it(void) {
    recorder recorder = {.cancel = mlxb_cancel_new(), .then = free_the_cancel};
    mlxb_generate_options options = greedy(20);
    options.cancel = recorder.cancel;
    CHECK_INT(MLXB_FINISH_LENGTH, run(tiny(), NULL, &options, &recorder).finish);
    CHECK_INT(20, recorder.token_count);
}

static void *generate_until_cancelled(void *cancel) {
    recorder recorder = {0};
    mlxb_generate_options options = greedy(-1);
    options.cancel = cancel;
    CHECK_INT(MLXB_FINISH_CANCELLED, run(tiny(), NULL, &options, &recorder).finish);
    return NULL;
}

static void one_cancel_ends_many_calls(void) {
    mlxb_cancel *cancel = mlxb_cancel_new();
    pthread_t threads[3];
    tiny();
    endless_prompt();
    for (int index = 0; index < 3; index++) {
        threads[index] = start_thread(generate_until_cancelled, cancel);
    }
    recorder recorder = {0};
    mlxb_generate_options options = greedy(20);
    run(tiny(), NULL, &options, &recorder);
    mlxb_cancel_request(cancel);
    for (int index = 0; index < 3; index++) {
        join_thread(threads[index]);
    }
    mlxb_cancel_free(cancel);
}

typedef struct loading {
    size_t events, end_at;
    uint64_t done, total;
    mlxb_cancel *cancel;
} loading;

static int32_t end_loading(void *user_data, const mlxb_event *event) {
    loading *self = user_data;
    CHECK_INT(MLXB_EVENT_LOAD, event->kind);
    CHECK(event->done >= self->done && event->done <= event->total);
    self->done = event->done;
    self->total = event->total;
    if (++self->events != self->end_at) {
        return MLXB_CONTINUE;
    }
    mlxb_cancel_request(self->cancel);
    return self->cancel == NULL ? MLXB_STOP : MLXB_CONTINUE;
}

static void loading_ends_at_any_tensor(void) {
    loading whole = {0};
    mlxb_model *model = NULL;
    mlxb_model_options options;
    mlxb_model_options_init(&options, sizeof options);
    options.on_progress = end_loading;
    options.user_data = &whole;
    EXPECT(MLXB_OK, mlxb_model_load(tiny_dir(), &options, &model, &error));
    CHECK(whole.events > 10 && whole.done == whole.total && whole.total > 400000);
    mlxb_model_release(model);
    for (size_t end_at = 1; end_at <= whole.events; end_at += 5) {
        loading by_stop = {.end_at = end_at};
        options.user_data = &by_stop;
        EXPECT(MLXB_CANCELLED, mlxb_model_load(tiny_dir(), &options, &model, &error));
        CHECK(model == NULL && by_stop.events == end_at);

        loading by_cancel = {.end_at = end_at, .cancel = mlxb_cancel_new()};
        options.user_data = &by_cancel;
        options.cancel = by_cancel.cancel;
        EXPECT(MLXB_CANCELLED, mlxb_model_load(tiny_dir(), &options, &model, &error));
        CHECK(model == NULL && by_cancel.events == end_at);
        mlxb_cancel_free(by_cancel.cancel);
        options.cancel = NULL;
    }
}

int main(void) {
    RUN(before_the_call_nothing_runs);
    RUN(at_the_first_progress_nothing_has_run);
    RUN(from_another_thread_during_the_prompt);
    RUN(from_another_thread_during_the_answer);
    RUN(from_the_callback_at_a_token_no_more_is_told);
    RUN(after_stop_no_event_comes);
    RUN(a_cancel_may_be_freed_while_a_call_has_it);
    RUN(one_cancel_ends_many_calls);
    RUN(loading_ends_at_any_tensor);
    return finish();
}
