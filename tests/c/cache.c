/* The prompt cache as a C program uses it: kept, found, restored, evicted, from many threads. */
#include "fixture.h"

#include <stdint.h>

#define NS "chat"

/* What greedy decoding gives from the endless prompt, told once. */
static const recorder *reference(void) {
    static recorder recorder;
    if (recorder.token_count == 0) {
        mlxb_generate_options options = greedy(5);
        run(tiny(), NULL, &options, &recorder);
    }
    return &recorder;
}

/* A new folder; to be given to remove_folder. */
static char *temporary_folder(void) {
    char *dir = strdup("/tmp/mlxb-cache-XXXXXX");
    CHECK(dir != NULL && mkdtemp(dir) != NULL);
    return dir;
}

static void remove_folder(char *dir) {
    char command[64];
    snprintf(command, sizeof command, "rm -r '%s'", dir);
    CHECK_INT(0, system(command));
    free(dir);
}

static mlxb_cache *open_cache(int64_t memory_bytes, const char *dir) {
    mlxb_cache_options options;
    mlxb_cache_options_init(&options, sizeof options);
    options.memory_bytes = memory_bytes;
    options.disk_dir = dir;
    mlxb_cache *cache = NULL;
    EXPECT(MLXB_OK, mlxb_cache_open(&options, &cache, &error));
    return cache;
}

static mlxb_cache_stats stats_of(const mlxb_cache *cache) {
    mlxb_cache_stats stats = {.struct_size = sizeof stats};
    EXPECT(MLXB_OK, mlxb_cache_stats_get(cache, &stats, &error));
    return stats;
}

static mlxb_generate_options cached(mlxb_cache *cache, int64_t max_tokens) {
    mlxb_generate_options options = greedy(max_tokens);
    options.cache = cache;
    options.cache_namespace = NS;
    return options;
}

static void generating_keeps_and_finds(void) {
    mlxb_cache *cache = open_cache(-1, NULL);
    mlxb_generate_options options = cached(cache, 5);
    for (uint64_t round = 0; round < 3; round++) {
        recorder recorder = {0};
        mlxb_generate_result result = run(tiny(), NULL, &options, &recorder);
        CHECK_INT(PROMPT, result.prompt_tokens);
        CHECK_INT(round == 0 ? 0 : PROMPT - 1, result.reused_tokens);
        CHECK_INT(0, result.restored_tokens);
        CHECK(same_tokens(&recorder, reference()->tokens, 5));
    }
    mlxb_cache_stats stats = stats_of(cache);
    CHECK_INT(1, stats.entries);
    CHECK_INT(2, stats.hits);
    CHECK_INT(1, stats.misses);
    CHECK_INT(2 * (PROMPT - 1), stats.reused_tokens);
    options.cache_namespace = "other";
    recorder recorder = {0};
    CHECK_INT(0, run(tiny(), NULL, &options, &recorder).reused_tokens);
    /* Closed while its states are in use: they and the model go whenever their last owner does. */
    mlxb_kv *kv = NULL;
    EXPECT(MLXB_OK,
           mlxb_cache_take(cache, tiny(), NS, options.tokens, PROMPT, &kv, &error));
    mlxb_cache_close(cache);
    size_t count = 0;
    EXPECT(MLXB_BUFFER_TOO_SMALL, mlxb_kv_tokens(kv, NULL, 0, &count, &error));
    CHECK_INT(PROMPT - 1, count);
    mlxb_kv_free(kv);
}

static void a_state_survives_its_cache(void) {
    char *dir = temporary_folder();
    mlxb_cache *cache = open_cache(-1, dir);
    mlxb_generate_options options = cached(cache, 5);
    recorder recorder = {0};
    run(tiny(), NULL, &options, &recorder);
    EXPECT(MLXB_OK, mlxb_cache_flush(cache, &error));
    CHECK(stats_of(cache).written_bytes > 0);
    EXPECT(MLXB_OK, mlxb_cache_clear(cache, &error));
    CHECK_INT(0, stats_of(cache).entries);
    mlxb_cache_close(cache);

    cache = open_cache(-1, dir);
    mlxb_cache_match match = {.struct_size = sizeof match};
    EXPECT(MLXB_OK,
           mlxb_cache_peek(cache, tiny(), NS, options.tokens, PROMPT, &match, &error));
    CHECK_INT(0, match.memory_prefix);
    CHECK_INT(PROMPT - 1, match.disk_prefix);
    bool found = false;
    EXPECT(MLXB_OK, mlxb_cache_find_exact(cache, tiny(), NS, options.tokens, PROMPT, &found,
                                          &error));
    CHECK(found);
    options.cache = cache;
    memset(&recorder, 0, sizeof recorder);
    mlxb_generate_result result = run(tiny(), NULL, &options, &recorder);
    CHECK_INT(PROMPT - 1, result.restored_tokens);
    CHECK(same_tokens(&recorder, reference()->tokens, 5));
    CHECK_INT(1, stats_of(cache).restores);
    CHECK(stats_of(cache).last_restore_seconds > 0);
    uint64_t freed = 0;
    EXPECT(MLXB_OK, mlxb_cache_clear_disk(cache, &freed, &error));
    CHECK(freed > 0);
    CHECK_INT(0, stats_of(cache).disk_files);
    mlxb_cache_close(cache);
    remove_folder(dir);
}

static size_t evicted;

static void on_evict(void *user_data, mlxb_str ns, const mlxb_kv *kv) {
    CHECK(user_data == &evicted);
    CHECK(ns.len == strlen(NS) && memcmp(ns.ptr, NS, ns.len) == 0);
    mlxb_kv *fork = NULL;
    EXPECT(MLXB_OK, mlxb_kv_fork(kv, &fork, &error));
    mlxb_kv_free(fork);
    evicted++;
}

static void the_hook_sees_who_is_evicted(void) {
    mlxb_cache_options options;
    mlxb_cache_options_init(&options, sizeof options);
    options.memory_bytes = 1;
    options.on_evict = on_evict;
    options.user_data = &evicted;
    mlxb_cache *cache = NULL;
    EXPECT(MLXB_OK, mlxb_cache_open(&options, &cache, &error));
    mlxb_kv *kv = new_kv(tiny());
    recorder recorder = {0};
    mlxb_generate_options some = greedy(2);
    run(tiny(), kv, &some, &recorder);
    EXPECT(MLXB_OK, mlxb_cache_put(cache, NS, kv, &error));
    CHECK_INT(1, evicted);
    CHECK_INT(0, stats_of(cache).entries);
    CHECK_INT(1, stats_of(cache).oversized);
    mlxb_kv_free(kv);
    mlxb_cache_close(cache);
}

static void what_makes_no_sense_is_refused(void) {
    mlxb_cache *cache = open_cache(-1, NULL);
    mlxb_kv *kv = new_kv(tiny());
    EXPECT_ERROR(MLXB_INVALID_ARGUMENT, "without tokens", mlxb_cache_put(cache, NS, kv, &error));
    mlxb_generate_options options = cached(cache, 1);
    EXPECT_ERROR(MLXB_INVALID_ARGUMENT, "cache",
                 mlxb_generate(tiny(), kv, &options, NULL, NULL, NULL, &error));
    EXPECT(MLXB_INVALID_UTF8, mlxb_cache_put(cache, "\xff", kv, &error));
    const uint32_t foreign = UINT32_MAX;
    mlxb_kv *out = NULL;
    EXPECT(MLXB_INVALID_ARGUMENT,
           mlxb_cache_take(cache, tiny(), NS, &foreign, 1, &out, &error));
    mlxb_kv_free(kv);
    mlxb_cache_close(cache);
}

#define THREADS 4

static void *use(void *shared) {
    mlxb_cache *cache = shared;
    for (int round = 0; round < 5; round++) {
        recorder recorder = {0};
        mlxb_generate_options options = cached(cache, 4);
        mlxb_generate_result result = {.struct_size = sizeof result};
        EXPECT(MLXB_OK,
               mlxb_generate(tiny(), NULL, &options, record, &recorder, &result, &error));
        CHECK(same_tokens(&recorder, reference()->tokens, 4));
        mlxb_cache_match match = {.struct_size = sizeof match};
        EXPECT(MLXB_OK,
               mlxb_cache_peek(cache, tiny(), NS, options.tokens, PROMPT, &match, &error));
        mlxb_kv *kv = NULL;
        EXPECT(MLXB_OK,
               mlxb_cache_take(cache, tiny(), NS, options.tokens, PROMPT, &kv, &error));
        if (kv != NULL) {
            EXPECT(MLXB_OK, mlxb_cache_put(cache, NS, kv, &error));
        }
        mlxb_kv_free(kv);
        if (round == 2) {
            EXPECT(MLXB_OK, mlxb_cache_trim(cache, 0, NULL, &error));
        }
    }
    return NULL;
}

static void many_threads_use_one(void) {
    char *dir = temporary_folder();
    mlxb_cache *cache = open_cache(-1, dir);
    reference();
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        threads[i] = start_thread(use, cache);
    }
    for (int i = 0; i < THREADS; i++) {
        join_thread(threads[i]);
    }
    mlxb_cache_close(cache);
    remove_folder(dir);
}

int main(void) {
    RUN(generating_keeps_and_finds);
    RUN(a_state_survives_its_cache);
    RUN(the_hook_sees_who_is_evicted);
    RUN(what_makes_no_sense_is_refused);
    RUN(many_threads_use_one);
    return finish();
}
