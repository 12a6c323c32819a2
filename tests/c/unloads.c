/* The library is opened and closed by hand: it stays, and keeps working.
 * This program is not linked with it; links: nothing; ways: plain sanitized */
#include "check.h"

#include "mlxb.h"

#include <dlfcn.h>
#include <pthread.h>

/* Pointers to the functions that the test uses. */
static struct {
    mlxb_status (*load)(const char *, const mlxb_model_options *, mlxb_model **, mlxb_error **);
    void (*release)(mlxb_model *);
    void (*options_init)(mlxb_generate_options *, size_t);
    mlxb_status (*generate)(const mlxb_model *, mlxb_kv *, const mlxb_generate_options *,
                            mlxb_event_fn, void *, mlxb_generate_result *, mlxb_error **);
} api;

static void *open_library(void) {
    const char *path = getenv("MLXB_TEST_LIBRARY");
    void *library = path == NULL ? NULL : dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", path == NULL ? "MLXB_TEST_LIBRARY is not set" : dlerror());
        exit(EXIT_FAILURE);
    }
    /* The way POSIX shows to turn an object pointer into a function pointer. */
    *(void **)&api.load = dlsym(library, "mlxb_model_load");
    *(void **)&api.release = dlsym(library, "mlxb_model_release");
    *(void **)&api.options_init = dlsym(library, "mlxb_generate_options_init");
    *(void **)&api.generate = dlsym(library, "mlxb_generate");
    return library;
}

static int32_t count(void *user_data, const mlxb_event *event) {
    if (event->kind == MLXB_EVENT_TOKEN) {
        __atomic_add_fetch((int *)user_data, 1, __ATOMIC_RELAXED);
    }
    return MLXB_CONTINUE;
}

static void generate(const mlxb_model *model, int64_t max_tokens, int *tokens) {
    const uint32_t prompt[] = {3, 4, 5, 6};
    mlxb_generate_options options;
    api.options_init(&options, sizeof options);
    options.tokens = prompt;
    options.token_count = 4;
    options.max_tokens = max_tokens;
    CHECK_INT(MLXB_OK, api.generate(model, NULL, &options, count, tokens, NULL, NULL));
}

static void it_may_be_opened_used_and_closed_again_and_again(void) {
    for (int round = 0; round < 3; round++) {
        void *library = open_library();
        mlxb_model *model = NULL;
        int tokens = 0;
        CHECK_INT(MLXB_OK, api.load(test_model("tiny"), NULL, &model, NULL));
        generate(model, 5, &tokens);
        CHECK(tokens > 0);
        api.release(model);
        CHECK_INT(0, dlclose(library));
    }
}

static mlxb_model *shared_model;

static void *generate_some(void *tokens) {
    generate(shared_model, 500, tokens);
    return NULL;
}

static void it_may_be_closed_while_it_works(void) {
    void *library = open_library();
    pthread_t thread;
    int tokens = 0;
    CHECK_INT(MLXB_OK, api.load(test_model("tiny"), NULL, &shared_model, NULL));
    CHECK_INT(0, pthread_create(&thread, NULL, generate_some, &tokens));
    while (__atomic_load_n(&tokens, __ATOMIC_RELAXED) == 0) {
        usleep(1000);
    }
    CHECK_INT(0, dlclose(library));
    CHECK_INT(0, pthread_join(thread, NULL));
    /* The model is not released: the process ends with the engine alive. */
}

int main(void) {
    RUN(it_may_be_opened_used_and_closed_again_and_again);
    RUN(it_may_be_closed_while_it_works);
    return check_summary();
}
