/* What the tests that need a model share: checks of calls, the models, a callback that records. */
#ifndef FIXTURE_H
#define FIXTURE_H

#include "mlxb.h"

#include "check.h"

#include <ctype.h>
#include <pthread.h>
#include <stdbool.h>
#include <unistd.h>

/* ---- calls ------------------------------------------------------------------------------ */

/* This thread's error; EXPECT checks and frees it. */
static _Thread_local mlxb_error *error;

/* A call that is given `&error`: its status, and an error object if and only if it failed. */
#define EXPECT(status, call) check_call(__FILE__, __LINE__, #call, (status), NULL, (call))
/* As EXPECT; the message must hold `part`. */
#define EXPECT_ERROR(status, part, call) \
    check_call(__FILE__, __LINE__, #call, (status), (part), (call))

static inline void check_call(const char *file, int line, const char *what, mlxb_status expected,
                              const char *part, mlxb_status actual) {
    const char *message = mlxb_error_message(error);
    const char *complaint = NULL;
    if (actual != expected) {
        complaint = "another status";
    } else if (mlxb_error_status(error) != actual || (error == NULL) != (actual == MLXB_OK)) {
        complaint = "an error object of another status";
    } else if (error != NULL
               && (*message == '\0' || isupper((unsigned char)*message) || strchr(message, '\n'))) {
        complaint = "a message that is not one line in lower case";
    } else if (part != NULL && strstr(message, part) == NULL) {
        complaint = "a message that does not name it";
    }
    if (!check_count(complaint == NULL)) {
        fprintf(stderr, "%s:%d: %s: expected %s %s, got %s: %s (%s)\n", file, line, what,
                mlxb_status_name(expected), part == NULL ? "" : part, mlxb_status_name(actual),
                message, complaint);
    }
    mlxb_error_free(error);
    error = NULL;
}

/* ---- models ----------------------------------------------------------------------------- */

/* Random weights, and a vocabulary of the 256 bytes after three special tokens. */
static inline const char *tiny_dir(void) {
    return test_model("tiny");
}

static inline mlxb_model *load(const char *dir) {
    mlxb_model *model = NULL;
    EXPECT(MLXB_OK, mlxb_model_load(dir, NULL, &model, &error));
    if (model == NULL) {
        exit(check_summary());
    }
    return model;
}

static mlxb_model *tiny_model;

/* The tiny model, loaded once; borrowed. */
static inline mlxb_model *tiny(void) {
    if (tiny_model == NULL) {
        tiny_model = load(tiny_dir());
    }
    return tiny_model;
}

/* ---- generating ------------------------------------------------------------------------- */

/* The data of a callback: what it was told, and what it does. */
typedef struct recorder {
    /* Told. */
    size_t events, prefills, token_count, texts;
    uint64_t prefill_done, prefill_total;
    uint32_t tokens[4096];
    char text[16384];
    size_t text_len;
    /* To do at the n-th event, progress, token or text; 0: never. */
    size_t stop_at_event, stop_at_token, stop_at_text;
    size_t cancel_at_prefill, cancel_at_token;
    mlxb_cancel *cancel;
    /* Called for each event, if not NULL; its answer counts. */
    int32_t (*then)(struct recorder *recorder, const mlxb_event *event);
    void *context;
} recorder;

static inline int32_t record(void *user_data, const mlxb_event *event) {
    recorder *self = user_data;
    bool stop = ++self->events == self->stop_at_event;
    CHECK(event->struct_size >= sizeof *event);
    switch ((int)event->kind) {
    case MLXB_EVENT_PREFILL:
        CHECK_INT(0, self->token_count);
        CHECK(self->prefills == 0 ? event->done == 0 : event->done > self->prefill_done);
        CHECK(event->done <= event->total);
        self->prefill_done = event->done;
        self->prefill_total = event->total;
        if (++self->prefills == self->cancel_at_prefill) {
            mlxb_cancel_request(self->cancel);
        }
        break;
    case MLXB_EVENT_TOKEN:
        CHECK(self->token_count < sizeof self->tokens / sizeof *self->tokens);
        self->tokens[self->token_count++] = event->token;
        stop = stop || self->token_count == self->stop_at_token;
        if (self->token_count == self->cancel_at_token) {
            mlxb_cancel_request(self->cancel);
        }
        break;
    case MLXB_EVENT_TEXT:
        CHECK(event->text.len > 0 && self->text_len + event->text.len < sizeof self->text);
        memcpy(self->text + self->text_len, event->text.ptr, event->text.len);
        self->text_len += event->text.len;
        self->text[self->text_len] = '\0';
        stop = ++self->texts == self->stop_at_text || stop;
        break;
    default:
        break;
    }
    if (!stop && self->then != NULL) {
        return self->then(self, event);
    }
    return stop ? MLXB_STOP : MLXB_CONTINUE;
}

/* Generates with the recorder and expects MLXB_OK. */
static inline mlxb_generate_result run(const mlxb_model *model, mlxb_kv *kv,
                                       const mlxb_generate_options *options, recorder *recorder) {
    mlxb_generate_result result = {.struct_size = sizeof result};
    recorder->events = recorder->prefills = recorder->token_count = recorder->texts = 0;
    recorder->prefill_done = recorder->text_len = 0;
    recorder->text[0] = '\0';
    EXPECT(MLXB_OK, mlxb_generate(model, kv, options, record, recorder, &result, &error));
    CHECK_INT(recorder->token_count, result.generated_tokens);
    CHECK(result.prefill_seconds >= 0 && result.decode_seconds >= 0);
    return result;
}

/* Ids after which greedy decoding of the tiny model meets no end token for ENDLESS tokens, nor
 * runs in a small circle. */
#define PROMPT 12
#define ENDLESS 200
static inline const uint32_t *endless_prompt(void) {
    static uint32_t prompt[PROMPT];
    static bool found;
    for (uint32_t first = 0; !found && first < 250; first++) {
        recorder recorder = {0};
        mlxb_generate_options options;
        bool seen[512] = {false};
        size_t distinct = 0;
        for (uint32_t index = 0; index < PROMPT; index++) {
            prompt[index] = 3 + (7 * first + 31 * index) % 250;
        }
        mlxb_generate_options_init(&options, sizeof options);
        options.tokens = prompt;
        options.token_count = PROMPT;
        options.max_tokens = ENDLESS;
        run(tiny(), NULL, &options, &recorder);
        for (size_t index = 0; index < recorder.token_count; index++) {
            distinct += !seen[recorder.tokens[index]];
            seen[recorder.tokens[index]] = true;
        }
        found = recorder.token_count == ENDLESS && distinct > 50;
    }
    CHECK(found);
    return prompt;
}

/* Greedy, from the endless prompt. */
static inline mlxb_generate_options greedy(int64_t max_tokens) {
    mlxb_generate_options options;
    mlxb_generate_options_init(&options, sizeof options);
    options.tokens = endless_prompt();
    options.token_count = PROMPT;
    options.max_tokens = max_tokens;
    return options;
}

/* Whether it was told exactly these. */
static inline bool same_tokens(const recorder *recorder, const uint32_t *tokens, size_t count) {
    return recorder->token_count == count
           && (count == 0 || memcmp(recorder->tokens, tokens, count * sizeof *tokens) == 0);
}

/* ---- KV states -------------------------------------------------------------------------- */

static inline mlxb_kv *new_kv(const mlxb_model *model) {
    mlxb_kv *kv = NULL;
    EXPECT(MLXB_OK, mlxb_kv_new(model, &kv, &error));
    CHECK(kv != NULL);
    return kv;
}

static inline size_t kv_length(const mlxb_kv *kv) {
    uint32_t tokens[4096];
    size_t count = 0;
    EXPECT(MLXB_OK, mlxb_kv_tokens(kv, tokens, 4096, &count, &error));
    return count;
}

/* Expects the kv to hold `prompt` and then `generated`. */
static inline void check_kv(const mlxb_kv *kv, const uint32_t *prompt, size_t prompt_count,
                            const uint32_t *generated, size_t generated_count) {
    uint32_t tokens[4096];
    size_t count = 0, bytes = prompt_count * sizeof *tokens;
    EXPECT(MLXB_OK, mlxb_kv_tokens(kv, tokens, 4096, &count, &error));
    CHECK_INT(prompt_count + generated_count, count);
    if (count == prompt_count + generated_count) {
        CHECK(prompt_count == 0 || memcmp(tokens, prompt, bytes) == 0);
        CHECK(generated_count == 0
              || memcmp(tokens + prompt_count, generated, generated_count * sizeof *tokens) == 0);
    }
}

/* ---- threads ---------------------------------------------------------------------------- */

static inline pthread_t start_thread(void *(*body)(void *), void *argument) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, body, argument) != 0) {
        perror("pthread_create");
        exit(EXIT_FAILURE);
    }
    return thread;
}

static inline void join_thread(pthread_t thread) {
    CHECK_INT(0, pthread_join(thread, NULL));
}

/* Opened once. */
typedef struct gate {
    pthread_mutex_t mutex;
    pthread_cond_t opened;
    bool is_open;
} gate;
#define GATE {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false}

static inline void gate_open(gate *gate) {
    pthread_mutex_lock(&gate->mutex);
    gate->is_open = true;
    pthread_cond_broadcast(&gate->opened);
    pthread_mutex_unlock(&gate->mutex);
}

static inline void gate_wait(gate *gate) {
    pthread_mutex_lock(&gate->mutex);
    while (!gate->is_open) {
        pthread_cond_wait(&gate->opened, &gate->mutex);
    }
    pthread_mutex_unlock(&gate->mutex);
}

/* ---- the end ---------------------------------------------------------------------------- */

/* Instead of check_summary in a program that used tiny(). */
static inline int finish(void) {
    mlxb_model_release(tiny_model);
    tiny_model = NULL;
    return check_summary();
}

#endif
