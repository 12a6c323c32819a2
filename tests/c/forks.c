/* A process that is forked after the library's first use: the child gets a status, and ends as
 * it likes. Each role is a process of its own, too many for valgrind. GCC 12's address sanitizer
 * does not make its allocator safe for a fork while other threads allocate, as glibc does: the
 * child may hang in it, whatever it calls. ways: plain */
#include "processes.h"

#define EXIT_CODE 7

/* ---- roles ------------------------------------------------------------------------------ */

/* What a child may do with handles that it inherited: ask, and free. Nothing that computes. */
static void use_inherited(mlxb_kv *kv, mlxb_cache *cache) {
    mlxb_generate_options options;
    mlxb_model *model = NULL;
    mlxb_kv *fork = NULL;
    mlxb_memory_stats stats = {.struct_size = sizeof stats};
    uint32_t tokens[8];
    size_t count = 0;
    char *text = NULL;
    mlxb_generate_options_init(&options, sizeof options);
    options.tokens = endless_prompt();
    options.token_count = PROMPT;
    EXPECT_ERROR(MLXB_UNSUPPORTED, "forked",
                 mlxb_generate(tiny(), NULL, &options, NULL, NULL, NULL, &error));
    EXPECT_ERROR(MLXB_UNSUPPORTED, "forked",
                 mlxb_generate(tiny(), kv, &options, NULL, NULL, NULL, &error));
    EXPECT_ERROR(MLXB_UNSUPPORTED, "forked", mlxb_model_load(tiny_dir(), NULL, &model, &error));
    EXPECT_ERROR(MLXB_UNSUPPORTED, "forked", mlxb_memory(&stats, &error));
    EXPECT_ERROR(MLXB_UNSUPPORTED, "forked", mlxb_memory_trim(0, NULL, &error));
    EXPECT_ERROR(MLXB_UNSUPPORTED, "forked", mlxb_memory_limits_set(0, 0, &error));
    EXPECT(MLXB_OK, mlxb_model_tokenize(tiny(), "abc", 3, false, tokens, 8, &count, &error));
    EXPECT(MLXB_OK, mlxb_model_detokenize(tiny(), tokens, count, false, &text, &error));
    mlxb_string_free(text);
    EXPECT(MLXB_OK, mlxb_kv_fork(kv, &fork, &error));
    mlxb_kv_free(fork);
    EXPECT_ERROR(MLXB_UNSUPPORTED, "forked", mlxb_cache_put(cache, NULL, kv, &error));
    EXPECT_ERROR(MLXB_UNSUPPORTED, "forked", mlxb_cache_flush(cache, &error));
    mlxb_cache_close(cache);
    mlxb_kv_free(kv);
    mlxb_model_release(tiny());
    require_checks();
}

static gate working = GATE;

static int32_t say_that_it_works(recorder *recorder, const mlxb_event *event) {
    if (event->kind == MLXB_EVENT_TOKEN && recorder->token_count == 3) {
        gate_open(&working);
    }
    return MLXB_CONTINUE;
}

static void *generate_until_cancelled(void *cancel) {
    recorder recorder = {.then = say_that_it_works};
    mlxb_generate_options options = greedy(-1);
    options.cancel = cancel;
    while (run(tiny(), NULL, &options, &recorder).finish != MLXB_FINISH_CANCELLED) {
    }
    return NULL;
}

typedef enum way_to_end { BY_EXIT, BY_UNDERSCORE_EXIT, BY_EXEC } way_to_end;

static void end(way_to_end way) {
    if (way == BY_EXEC) {
        execl("/bin/sh", "sh", "-c", "exit 7", (char *)NULL);
    }
    if (way == BY_EXIT) {
        exit(EXIT_CODE);
    }
    _exit(EXIT_CODE);
}

/* Forks children that end in every way, some while the engine works. */
static int fork_children(bool busy) {
    mlxb_cancel *cancel = mlxb_cancel_new();
    recorder recorder = {0};
    pthread_t thread = pthread_self();
    mlxb_generate_options options = greedy(10);
    mlxb_kv *kv = new_kv(tiny());
    run(tiny(), kv, &options, &recorder);
    char dir[] = "/tmp/mlxb-forks-XXXXXX", command[64];
    CHECK(mkdtemp(dir) != NULL);
    mlxb_cache_options cache_options;
    mlxb_cache_options_init(&cache_options, sizeof cache_options);
    cache_options.disk_dir = dir;
    mlxb_cache *cache = NULL;
    EXPECT(MLXB_OK, mlxb_cache_open(&cache_options, &cache, &error));
    EXPECT(MLXB_OK, mlxb_cache_put(cache, NULL, kv, &error));
    if (busy) {
        thread = start_thread(generate_until_cancelled, cancel);
        gate_wait(&working);
    }
    for (int child = 0; child < 9; child++) {
        pid_t process = fork();
        if (process == 0) {
            alarm(LIMIT_SECONDS);
            if (child % 2 == 0) {
                use_inherited(kv, cache);
            }
            end((way_to_end)(child / 3));
        }
        int ended = end_of(process);
        if (!check_count(ended == EXIT_CODE)) {
            fprintf(stderr, "child %d ended with %d\n", child, ended);
        }
    }
    if (busy) {
        mlxb_cancel_request(cancel);
        join_thread(thread);
    }
    /* The parent has noticed nothing. */
    options.tokens = &recorder.tokens[9];
    options.token_count = 1;
    run(tiny(), kv, &options, &recorder);
    mlxb_kv_free(kv);
    mlxb_cache_close(cache);
    snprintf(command, sizeof command, "rm -r '%s'", dir);
    CHECK_INT(0, system(command));
    mlxb_cancel_free(cancel);
    require_checks();
    return EXIT_CODE;
}

/* Without a use before the fork both sides may use it. */
static int fork_before_the_first_use(void) {
    recorder recorder = {0};
    pid_t process = fork();
    mlxb_generate_options options = greedy(10);
    run(tiny(), NULL, &options, &recorder);
    require_checks();
    if (process == 0) {
        exit(EXIT_CODE);
    }
    return end_of(process);
}

static int play(const char *role) {
    if (strcmp(role, "idle") == 0) {
        return fork_children(false);
    } else if (strcmp(role, "busy") == 0) {
        return fork_children(true);
    } else if (strcmp(role, "before") == 0) {
        return fork_before_the_first_use();
    }
    return 97;
}

/* ---- tests ------------------------------------------------------------------------------ */

static void a_child_gets_a_status_and_ends(void) {
    CHECK_INT(EXIT_CODE, end_of_role("idle"));
}
static void so_does_one_that_was_forked_during_decode(void) {
    CHECK_INT(EXIT_CODE, end_of_role("busy"));
}
static void a_child_forked_before_the_first_use_may_use_it(void) {
    CHECK_INT(EXIT_CODE, end_of_role("before"));
}

int main(int argument_count, char **arguments) {
    own_arguments = arguments;
    if (argument_count > 1) {
        alarm(3 * LIMIT_SECONDS);
        return play(arguments[1]);
    }
    RUN(a_child_gets_a_status_and_ends);
    RUN(so_does_one_that_was_forked_during_decode);
    RUN(a_child_forked_before_the_first_use_may_use_it);
    return check_summary();
}
