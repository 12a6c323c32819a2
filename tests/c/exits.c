/* The process ends while the library works: no crash, no hang, the exit code of the host's.
 * Each role is a process of its own, too many for valgrind; ways: plain sanitized */
#include "processes.h"

#define EXIT_CODE 7

/* ---- roles ------------------------------------------------------------------------------ */

static gate working = GATE;

static int32_t say_that_it_works(recorder *recorder, const mlxb_event *event) {
    const int32_t *kind = recorder->context;
    if ((int32_t)event->kind == *kind) {
        gate_open(&working);
    }
    return MLXB_CONTINUE;
}

typedef struct work {
    mlxb_model *model;
    /* MLXB_EVENT_PREFILL: a long prompt in one step; MLXB_EVENT_TOKEN: many tokens. */
    int32_t kind;
} work;

/* Prompt tokens whose step takes a while. */
static size_t a_while(const mlxb_model *model) {
    return model == tiny_model ? 3000 : 60;
}

/* Generates again and again until the end of the process refuses. */
static void *work_until_the_end(void *argument) {
    static uint32_t prompt[3000];
    work work = *(struct work *)argument;
    recorder recorder = {.then = say_that_it_works, .context = &work.kind};
    mlxb_model *model = mlxb_model_retain(work.model);
    mlxb_status status;
    for (uint32_t index = 0; index < 3000; index++) {
        prompt[index] = 3 + index % 250;
    }
    mlxb_generate_options options = greedy(-1);
    options.tokens = prompt;
    options.token_count = work.kind == MLXB_EVENT_PREFILL ? a_while(model) : 10;
    options.prefill_chunk = 3000;
    do {
        recorder.events = recorder.prefills = recorder.token_count = recorder.texts = 0;
        recorder.text_len = 0;
        status = mlxb_generate(model, NULL, &options, record, &recorder, NULL, NULL);
    } while (status == MLXB_OK);
    CHECK_INT(MLXB_CANCELLED, status);
    require_checks();
    return NULL;
}

static void *load_until_the_end(void *unused) {
    (void)unused;
    mlxb_model *model = NULL;
    while (mlxb_model_load(tiny_dir(), NULL, &model, NULL) == MLXB_OK) {
        mlxb_model_release(model);
    }
    return NULL;
}

/* Returns once the engine is at it, in the middle of a step most likely. */
static void start_work(mlxb_model *model, int32_t kind) {
    const struct timespec into_the_step = {0, 30000000};
    work *work = malloc(sizeof *work);
    *work = (struct work){model, kind};
    endless_prompt();
    start_thread(work_until_the_end, work);
    gate_wait(&working);
    nanosleep(&into_the_step, NULL);
}

static int32_t exit_at_a_token(recorder *recorder, const mlxb_event *event) {
    if (event->kind == MLXB_EVENT_TOKEN && recorder->token_count == 5) {
        exit(EXIT_CODE);
    }
    return MLXB_CONTINUE;
}

static mlxb_kv *kept_kv;

static void free_everything(void) {
    mlxb_kv_free(kept_kv);
    mlxb_model_release(tiny_model);
}

static void *exit_from_here(void *unused) {
    (void)unused;
    exit(EXIT_CODE);
}

/* Returns from main, unless the role calls exit itself. */
static int play(const char *role) {
    recorder recorder = {0};
    alarm(LIMIT_SECONDS);
    if (strcmp(role, "exit during prefill") == 0) {
        start_work(tiny(), MLXB_EVENT_PREFILL);
        exit(EXIT_CODE);
    } else if (strcmp(role, "return during prefill") == 0) {
        start_work(tiny(), MLXB_EVENT_PREFILL);
    } else if (strcmp(role, "exit during decode") == 0) {
        start_work(tiny(), MLXB_EVENT_TOKEN);
        exit(EXIT_CODE);
    } else if (strcmp(role, "return during decode") == 0) {
        start_work(tiny(), MLXB_EVENT_TOKEN);
    } else if (strcmp(role, "exit during prefill of a large model") == 0) {
        start_work(load(test_model("f32")), MLXB_EVENT_PREFILL);
        exit(EXIT_CODE);
    } else if (strcmp(role, "return during decode of a large model") == 0) {
        start_work(load(test_model("f32")), MLXB_EVENT_TOKEN);
    } else if (strcmp(role, "exit during all of it") == 0) {
        start_work(tiny(), MLXB_EVENT_PREFILL);
        start_thread(load_until_the_end, NULL);
        start_thread(load_until_the_end, NULL);
        start_work(tiny(), MLXB_EVENT_TOKEN);
        exit(EXIT_CODE);
    } else if (strcmp(role, "exit from another thread") == 0) {
        start_work(tiny(), MLXB_EVENT_TOKEN);
        start_thread(exit_from_here, NULL);
        pause();
    } else if (strcmp(role, "exit from a callback") == 0) {
        mlxb_generate_options options = greedy(-1);
        recorder.then = exit_at_a_token;
        run(tiny(), NULL, &options, &recorder);
        return 98;
    } else if (strcmp(role, "free in an exit handler from before") == 0) {
        /* Runs after the library's own. */
        atexit(free_everything);
        mlxb_generate_options options = greedy(5);
        kept_kv = new_kv(tiny());
        run(tiny(), kept_kv, &options, &recorder);
    } else if (strcmp(role, "free in an exit handler from after") == 0) {
        mlxb_generate_options options = greedy(5);
        kept_kv = new_kv(tiny());
        run(tiny(), kept_kv, &options, &recorder);
        atexit(free_everything);
        start_work(tiny(), MLXB_EVENT_TOKEN);
    } else if (strcmp(role, "free nothing") == 0) {
        mlxb_generate_options options = greedy(5);
        kept_kv = new_kv(tiny());
        run(tiny(), kept_kv, &options, &recorder);
    } else if (strcmp(role, "only ask for the version") == 0) {
        CHECK(mlxb_version_number() > 0);
    } else {
        return 97;
    }
    require_checks();
    return EXIT_CODE;
}

/* ---- tests ------------------------------------------------------------------------------ */

static void ends_well(const char *role) {
    /* Where exactly the engine is differs from run to run. */
    for (int round = 0; round < 2; round++) {
        int end = end_of_role(role);
        if (!check_count(end == EXIT_CODE)) {
            fprintf(stderr, "%s: ended with %d\n", role, end);
        }
    }
}

static void exit_during_prefill(void) {
    ends_well("exit during prefill");
}
static void return_from_main_during_prefill(void) {
    ends_well("return during prefill");
}
static void exit_during_decode(void) {
    ends_well("exit during decode");
}
static void return_from_main_during_decode(void) {
    ends_well("return during decode");
}
/* Whose matrix products run on threads of their own. */
static void exit_from_a_large_model(void) {
    ends_well("exit during prefill of a large model");
    ends_well("return during decode of a large model");
}
static void exit_during_prefill_decode_and_loads(void) {
    ends_well("exit during all of it");
}
static void exit_from_another_thread(void) {
    ends_well("exit from another thread");
}
static void exit_from_a_callback(void) {
    ends_well("exit from a callback");
}
static void exit_handlers_free_handles(void) {
    ends_well("free in an exit handler from before");
    ends_well("free in an exit handler from after");
}
static void handles_are_not_freed(void) {
    ends_well("free nothing");
}
static void the_engine_never_started(void) {
    ends_well("only ask for the version");
}

int main(int argument_count, char **arguments) {
    own_arguments = arguments;
    if (argument_count > 1) {
        return play(arguments[1]);
    }
    RUN(exit_during_prefill);
    RUN(return_from_main_during_prefill);
    RUN(exit_during_decode);
    RUN(return_from_main_during_decode);
    RUN(exit_from_a_large_model);
    RUN(exit_during_prefill_decode_and_loads);
    RUN(exit_from_another_thread);
    RUN(exit_from_a_callback);
    RUN(exit_handlers_free_handles);
    RUN(handles_are_not_freed);
    RUN(the_engine_never_started);
    return check_summary();
}
