/* Several threads at once, and handles that wander between them. */
#include "fixture.h"

typedef struct work {
    mlxb_model *model;
    mlxb_kv *kv;
    uint32_t first;
    recorder recorder;
    mlxb_generate_result result;
} work;

/* Twenty tokens after a prompt of its own. */
static void *generate_some(void *argument) {
    work *self = argument;
    uint32_t prompt[6];
    for (uint32_t index = 0; index < 6; index++) {
        prompt[index] = self->first + index;
    }
    mlxb_generate_options options = greedy(20);
    options.tokens = prompt;
    options.token_count = 6;
    options.prefill_chunk = 2;
    self->result = run(self->model, self->kv, &options, &self->recorder);
    return NULL;
}

#define THREADS 6

static void many_generations_equal_serial_ones(void) {
    static work serial[THREADS], parallel[THREADS];
    pthread_t threads[THREADS];
    mlxb_model *other = load(tiny_dir());
    for (uint32_t index = 0; index < THREADS; index++) {
        serial[index] = (work){.model = tiny(), .first = 10 + 30 * index};
        generate_some(&serial[index]);
    }
    for (int round = 0; round < 5; round++) {
        for (uint32_t index = 0; index < THREADS; index++) {
            /* Two models, each used by three threads, two of them with a kv. */
            mlxb_model *model = index % 2 == 0 ? tiny() : other;
            mlxb_kv *kv = index < 4 ? new_kv(model) : NULL;
            parallel[index] = (work){.model = model, .first = 10 + 30 * index, .kv = kv};
            threads[index] = start_thread(generate_some, &parallel[index]);
        }
        for (uint32_t index = 0; index < THREADS; index++) {
            join_thread(threads[index]);
            CHECK(same_tokens(&parallel[index].recorder, serial[index].recorder.tokens,
                              serial[index].recorder.token_count));
            mlxb_kv_free(parallel[index].kv);
        }
    }
    mlxb_model_release(other);
}

static void *load_and_make(void *argument) {
    work *self = argument;
    self->model = load(tiny_dir());
    self->kv = new_kv(self->model);
    return NULL;
}

static void *free_all(void *argument) {
    work *self = argument;
    mlxb_model_release(self->model);
    mlxb_kv_free(self->kv);
    return NULL;
}

static void made_here_used_there_freed_elsewhere(void) {
    static work work, expected;
    work.first = expected.first = 50;
    join_thread(start_thread(load_and_make, &work));
    join_thread(start_thread(generate_some, &work));
    expected.model = tiny();
    generate_some(&expected);
    CHECK(same_tokens(&work.recorder, expected.recorder.tokens, expected.recorder.token_count));
    join_thread(start_thread(free_all, &work));
}

/* A callback that holds its generation up at the first token. */
typedef struct holdup {
    gate reached, go_on;
} holdup;

static int32_t hold_up(recorder *recorder, const mlxb_event *event) {
    holdup *self = recorder->context;
    if (event->kind == MLXB_EVENT_TOKEN && recorder->token_count == 1) {
        gate_open(&self->reached);
        gate_wait(&self->go_on);
    }
    return MLXB_CONTINUE;
}

static void a_slow_callback_holds_up_nobody_else(void) {
    static work slow, fast, expected;
    holdup holdup = {GATE, GATE};
    slow = (work){.model = tiny(), .first = 50, .recorder = {.then = hold_up, .context = &holdup}};
    fast = (work){.model = tiny(), .first = 80};
    expected = (work){.model = tiny(), .first = 50};
    pthread_t thread = start_thread(generate_some, &slow);
    gate_wait(&holdup.reached);
    generate_some(&fast);
    generate_some(&expected);
    gate_open(&holdup.go_on);
    join_thread(thread);
    CHECK(same_tokens(&slow.recorder, expected.recorder.tokens, expected.recorder.token_count));
}

static void a_kv_in_use_is_busy(void) {
    static work user;
    holdup holdup = {GATE, GATE};
    user = (work){.model = tiny(), .kv = new_kv(tiny()), .first = 50,
                  .recorder = {.then = hold_up, .context = &holdup}};
    pthread_t thread = start_thread(generate_some, &user);
    gate_wait(&holdup.reached);
    mlxb_generate_options options = greedy(1);
    mlxb_kv *fork = (mlxb_kv *)(void *)&user;
    uint32_t tokens[8];
    size_t count = 9;
    EXPECT(MLXB_BUSY, mlxb_generate(tiny(), user.kv, &options, NULL, NULL, NULL, &error));
    options.tokens = NULL;
    options.token_count = 0;
    options.prompt = "a";
    options.prompt_len = 1;
    EXPECT(MLXB_BUSY, mlxb_generate(tiny(), user.kv, &options, NULL, NULL, NULL, &error));
    EXPECT(MLXB_BUSY, mlxb_kv_tokens(user.kv, tokens, 8, &count, &error));
    CHECK_INT(0, count);
    EXPECT(MLXB_BUSY, mlxb_kv_trim(user.kv, 0, &error));
    EXPECT(MLXB_BUSY, mlxb_kv_fork(user.kv, &fork, &error));
    CHECK(fork == NULL);
    gate_open(&holdup.go_on);
    join_thread(thread);
    /* And free again afterwards. */
    CHECK_INT(6 + 19, kv_length(user.kv));
    mlxb_kv_free(user.kv);
}

static void *load_and_release(void *argument) {
    (void)argument;
    for (int round = 0; round < 5; round++) {
        mlxb_model *model = load(tiny_dir());
        mlxb_memory_stats stats = {.struct_size = sizeof stats};
        EXPECT(MLXB_OK, mlxb_memory(&stats, &error));
        mlxb_model_release(model);
    }
    return NULL;
}

static void loading_and_generating_go_together(void) {
    static work work, expected;
    expected = (struct work){.model = tiny(), .first = 90};
    generate_some(&expected);
    pthread_t threads[] = {start_thread(load_and_release, NULL), start_thread(load_and_release, NULL)};
    for (int round = 0; round < 5; round++) {
        work = (struct work){.model = tiny(), .first = 90};
        generate_some(&work);
        CHECK(same_tokens(&work.recorder, expected.recorder.tokens, expected.recorder.token_count));
    }
    join_thread(threads[0]);
    join_thread(threads[1]);
}

int main(void) {
    RUN(many_generations_equal_serial_ones);
    RUN(made_here_used_there_freed_elsewhere);
    RUN(a_slow_callback_holds_up_nobody_else);
    RUN(a_kv_in_use_is_busy);
    RUN(loading_and_generating_go_together);
    return finish();
}
