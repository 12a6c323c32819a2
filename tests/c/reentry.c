/* Calls from within callbacks: they work, or answer MLXB_BUSY; none waits for itself. */
#include "fixture.h"

static recorder expected;

static void fill_expected(void) {
    mlxb_generate_options options = greedy(20);
    run(tiny(), NULL, &options, &expected);
}

typedef struct outer {
    mlxb_kv *kv;
    void (*once)(struct outer *outer);
    size_t calls;
} outer;

static int32_t call_once(recorder *recorder, const mlxb_event *event) {
    outer *self = recorder->context;
    if (event->kind == MLXB_EVENT_TOKEN && recorder->token_count == 3) {
        self->calls++;
        self->once(self);
    }
    return MLXB_CONTINUE;
}

/* Calls `once` from the callback of a generation with a kv, which must go on unharmed. */
static void from_a_callback(void (*once)(outer *outer)) {
    fill_expected();
    outer outer = {new_kv(tiny()), once, 0};
    recorder recorder = {.then = call_once, .context = &outer};
    mlxb_generate_options options = greedy(20);
    CHECK_INT(MLXB_FINISH_LENGTH, run(tiny(), outer.kv, &options, &recorder).finish);
    CHECK_INT(1, outer.calls);
    CHECK(same_tokens(&recorder, expected.tokens, 20));
    check_kv(outer.kv, options.tokens, PROMPT, expected.tokens, 19);
    mlxb_kv_free(outer.kv);
}

static void use_the_same_kv(outer *outer) {
    mlxb_generate_options options = greedy(1);
    mlxb_kv *fork = NULL;
    uint32_t tokens[8];
    size_t count = 0;
    EXPECT(MLXB_BUSY, mlxb_generate(tiny(), outer->kv, &options, NULL, NULL, NULL, &error));
    EXPECT(MLXB_BUSY, mlxb_kv_fork(outer->kv, &fork, &error));
    EXPECT(MLXB_BUSY, mlxb_kv_trim(outer->kv, 0, &error));
    EXPECT(MLXB_BUSY, mlxb_kv_tokens(outer->kv, tokens, 8, &count, &error));
}

static void the_kv_of_the_running_call_is_busy(void) {
    from_a_callback(use_the_same_kv);
}

static void generate_with_another_kv(outer *outer) {
    (void)outer;
    mlxb_kv *kv = new_kv(tiny());
    recorder recorder = {0};
    mlxb_generate_options options = greedy(20);
    run(tiny(), kv, &options, &recorder);
    CHECK(same_tokens(&recorder, expected.tokens, 20));
    run(tiny(), NULL, &options, &recorder);
    CHECK(same_tokens(&recorder, expected.tokens, 20));
    mlxb_kv_free(kv);
}

static void another_generation_runs_to_its_end(void) {
    from_a_callback(generate_with_another_kv);
}

static void load_another_model(outer *outer) {
    (void)outer;
    mlxb_model *model = load(tiny_dir());
    recorder recorder = {0};
    mlxb_generate_options options = greedy(20);
    run(model, NULL, &options, &recorder);
    CHECK(same_tokens(&recorder, expected.tokens, 20));
    mlxb_model_release(model);
}

static void another_model_loads(void) {
    from_a_callback(load_another_model);
}

static void use_everything_else(outer *outer) {
    (void)outer;
    mlxb_memory_stats stats = {.struct_size = sizeof stats};
    uint64_t freed = 0;
    uint32_t tokens[8];
    size_t count = 0;
    char *text = NULL;
    EXPECT(MLXB_OK, mlxb_memory(&stats, &error));
    EXPECT(MLXB_OK, mlxb_memory_trim(0, &freed, &error));
    EXPECT(MLXB_OK, mlxb_memory_limits_set(0, 256 << 20, &error));
    EXPECT(MLXB_OK, mlxb_model_tokenize(tiny(), "abc", 3, false, tokens, 8, &count, &error));
    EXPECT(MLXB_OK, mlxb_model_detokenize(tiny(), tokens, count, false, &text, &error));
    CHECK_STR("abc", text);
    mlxb_string_free(text);
    EXPECT(MLXB_OK, mlxb_log_set(MLXB_LOG_OFF, NULL, NULL, NULL, &error));
    mlxb_model_release(mlxb_model_retain(tiny()));
}

static void every_other_function_works(void) {
    from_a_callback(use_everything_else);
}

/* Each callback starts the next generation at its second token, ten deep. */
static int32_t descend(recorder *recorder, const mlxb_event *event) {
    int *depth = recorder->context;
    if (event->kind == MLXB_EVENT_TOKEN && recorder->token_count == 2 && *depth < 10) {
        ++*depth;
        struct recorder *inner = calloc(1, sizeof *inner);
        inner->then = descend;
        inner->context = depth;
        mlxb_generate_options options = greedy(20);
        run(tiny(), NULL, &options, inner);
        CHECK(same_tokens(inner, expected.tokens, 20));
        free(inner);
    }
    return MLXB_CONTINUE;
}

static void generations_nest(void) {
    int depth = 0;
    fill_expected();
    recorder recorder = {.then = descend, .context = &depth};
    mlxb_generate_options options = greedy(20);
    run(tiny(), NULL, &options, &recorder);
    CHECK_INT(10, depth);
    CHECK(same_tokens(&recorder, expected.tokens, 20));
}

static int32_t generate_while_loading(void *user_data, const mlxb_event *event) {
    size_t *events = user_data;
    (void)event;
    if (++*events % 7 == 0) {
        recorder recorder = {0};
        mlxb_generate_options options = greedy(20);
        run(tiny(), NULL, &options, &recorder);
        CHECK(same_tokens(&recorder, expected.tokens, 20));
    }
    return MLXB_CONTINUE;
}

static void a_progress_callback_generates(void) {
    mlxb_model_options options;
    mlxb_model *model = NULL;
    size_t events = 0;
    fill_expected();
    mlxb_model_options_init(&options, sizeof options);
    options.on_progress = generate_while_loading;
    options.user_data = &events;
    EXPECT(MLXB_OK, mlxb_model_load(tiny_dir(), &options, &model, &error));
    CHECK(events >= 7);
    mlxb_model_release(model);
}

int main(void) {
    RUN(the_kv_of_the_running_call_is_busy);
    RUN(another_generation_runs_to_its_end);
    RUN(another_model_loads);
    RUN(every_other_function_works);
    RUN(generations_nest);
    RUN(a_progress_callback_generates);
    return finish();
}
