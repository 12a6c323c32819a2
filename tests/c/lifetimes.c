/* Frees in any order, memory that comes back, limits, the log callback. */
#include "fixture.h"

#define HANDLES 5

/* A model, a kv, its fork, a cancel and an error, all used. */
typedef struct handles {
    mlxb_model *model;
    mlxb_kv *kv, *fork;
    mlxb_cancel *cancel;
    mlxb_error *error;
} handles;

static handles make(void) {
    handles made = {.model = load(tiny_dir()), .cancel = mlxb_cancel_new()};
    recorder recorder = {0};
    mlxb_generate_options options = greedy(3);
    options.cancel = made.cancel;
    made.kv = new_kv(made.model);
    run(made.model, made.kv, &options, &recorder);
    EXPECT(MLXB_OK, mlxb_kv_fork(made.kv, &made.fork, &error));
    options.token_count = 0;
    CHECK(mlxb_generate(made.model, made.kv, &options, NULL, NULL, NULL, &made.error) != MLXB_OK);
    return made;
}

static void free_one(handles *made, int which) {
    switch (which) {
    case 0: mlxb_model_release(made->model); break;
    case 1: mlxb_kv_free(made->kv); break;
    case 2: mlxb_kv_free(made->fork); break;
    case 3: mlxb_cancel_free(made->cancel); break;
    default:
        CHECK_INT(MLXB_INVALID_ARGUMENT, mlxb_error_status(made->error));
        mlxb_error_free(made->error);
    }
}

static uint64_t active_bytes(void) {
    static uint64_t peak;
    mlxb_memory_stats stats = {.struct_size = sizeof stats};
    EXPECT(MLXB_OK, mlxb_memory(&stats, &error));
    CHECK(stats.peak_bytes >= stats.active_bytes);
    CHECK(stats.peak_bytes >= peak); /* also when a model has been freed */
    peak = stats.peak_bytes;
    return stats.active_bytes;
}

/* The rest of `order`, in every order. */
static size_t permute(int *order, int at) {
    if (at == HANDLES) {
        handles made = make();
        for (int index = 0; index < HANDLES; index++) {
            free_one(&made, order[index]);
        }
        return 1;
    }
    size_t count = 0;
    for (int index = at; index < HANDLES; index++) {
        int swap = order[at];
        order[at] = order[index];
        order[index] = swap;
        count += permute(order, at + 1);
        order[index] = order[at];
        order[at] = swap;
    }
    return count;
}

static void handles_are_freed_in_any_order(void) {
    int order[HANDLES] = {0, 1, 2, 3, 4};
    tiny();
    endless_prompt();
    uint64_t before = active_bytes();
    CHECK_INT(120, permute(order, 0));
    CHECK_INT(before, active_bytes());
}

static void a_kv_keeps_its_model(void) {
    uint64_t before = active_bytes();
    mlxb_model *model = load(tiny_dir());
    mlxb_kv *kv = new_kv(model);
    mlxb_model_release(model);
    CHECK_INT(0, kv_length(kv));
    CHECK(active_bytes() > before + 400000);
    mlxb_kv_free(kv);
    CHECK_INT(before, active_bytes());
}

static void a_model_lives_until_its_last_reference(void) {
    uint64_t before = active_bytes();
    mlxb_model *model = load(tiny_dir());
    CHECK(mlxb_model_retain(model) == model);
    mlxb_model_release(model);
    recorder recorder = {0};
    mlxb_generate_options options = greedy(3);
    CHECK_INT(3, run(model, NULL, &options, &recorder).generated_tokens);
    mlxb_model_release(model);
    CHECK_INT(before, active_bytes());
}

static void generations_leave_nothing_behind(void) {
    recorder recorder = {0};
    mlxb_generate_options options = greedy(50);
    run(tiny(), NULL, &options, &recorder);
    uint64_t before = active_bytes();
    for (size_t round = 1; round <= 10; round++) {
        recorder.stop_at_token = round % 3 == 0 ? round : 0;
        run(tiny(), NULL, &options, &recorder);
    }
    CHECK_INT(before, active_bytes());
}

static void trimming_memory_empties_the_allocators_cache(void) {
    recorder recorder = {0};
    mlxb_generate_options options = greedy(20);
    mlxb_memory_stats stats = {.struct_size = sizeof stats};
    uint64_t freed = 0;
    run(tiny(), NULL, &options, &recorder);
    EXPECT(MLXB_OK, mlxb_memory(&stats, &error));
    EXPECT(MLXB_OK, mlxb_memory_trim(0, &freed, &error));
    CHECK_INT(stats.cached_bytes, freed);
    EXPECT(MLXB_OK, mlxb_memory(&stats, &error));
    CHECK_INT(0, stats.cached_bytes);
    EXPECT(MLXB_OK, mlxb_memory_trim(0, &freed, &error));
    CHECK_INT(0, freed);
}

static void work_beyond_the_budget_is_refused_before_it_starts(void) {
    mlxb_model *model = NULL;
    recorder recorder = {0};
    mlxb_generate_options options = greedy(3);
    tiny();
    EXPECT(MLXB_OK, mlxb_memory_limits_set(active_bytes() + 1000, 0, &error));
    EXPECT_ERROR(MLXB_OVER_BUDGET, "budget", mlxb_model_load(tiny_dir(), NULL, &model, &error));
    CHECK(model == NULL);
    mlxb_kv *kv = new_kv(tiny());
    EXPECT_ERROR(MLXB_OVER_BUDGET, "budget",
                 mlxb_generate(tiny(), kv, &options, record, &recorder, NULL, &error));
    CHECK_INT(0, recorder.token_count);
    CHECK_INT(0, kv_length(kv));
    EXPECT(MLXB_OK, mlxb_memory_limits_set(0, 256 << 20, &error));
    CHECK_INT(3, run(tiny(), kv, &options, &recorder).generated_tokens);
    mlxb_kv_free(kv);
}

typedef struct log_data {
    size_t lines, destroyed;
} log_data;

static void count_line(void *user_data, int32_t level, mlxb_str message) {
    (void)level;
    (void)message;
    ((log_data *)user_data)->lines++;
}

static void count_destroy(void *user_data) {
    ((log_data *)user_data)->destroyed++;
}

static void a_log_receiver_is_destroyed_once(void) {
    log_data first = {0, 0}, second = {0, 0}, refused = {0, 0}, none = {0, 0};
    EXPECT(MLXB_OK, mlxb_log_set(MLXB_LOG_TRACE, count_line, &first, count_destroy, &error));
    CHECK_INT(0, first.destroyed);
    EXPECT(MLXB_OK, mlxb_log_set(MLXB_LOG_TRACE, count_line, &second, count_destroy, &error));
    CHECK_INT(1, first.destroyed);
    EXPECT(MLXB_INVALID_ARGUMENT, mlxb_log_set(6, count_line, &refused, count_destroy, &error));
    CHECK_INT(1, refused.destroyed);
    CHECK_INT(0, second.destroyed);
    recorder recorder = {0};
    mlxb_generate_options options = greedy(2);
    run(tiny(), NULL, &options, &recorder);
    EXPECT(MLXB_OK, mlxb_log_set(MLXB_LOG_OFF, NULL, &none, count_destroy, &error));
    CHECK_INT(1, second.destroyed);
    CHECK_INT(1, none.destroyed);
    size_t lines = second.lines;
    run(tiny(), NULL, &options, &recorder);
    CHECK_INT(lines, second.lines);
    CHECK_INT(4, first.destroyed + second.destroyed + refused.destroyed + none.destroyed);
}

int main(void) {
    RUN(handles_are_freed_in_any_order);
    RUN(a_kv_keeps_its_model);
    RUN(a_model_lives_until_its_last_reference);
    RUN(generations_leave_nothing_behind);
    RUN(trimming_memory_empties_the_allocators_cache);
    RUN(work_beyond_the_budget_is_refused_before_it_starts);
    RUN(a_log_receiver_is_destroyed_once);
    return finish();
}
