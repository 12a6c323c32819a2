/* Reads a text once and goes on from it in several ways, each from a fork of its KV state. The
 * state is kept in a file, so that the next run does not read the text again; mlx-lm reads such
 * files too.
 *
 *   fork MODEL_DIR STATE_FILE TEXT CONTINUATION ...
 */
#include <mlxb.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_TOKENS 8192

static int32_t on_event(void *user_data, const mlxb_event *event) {
    (void)user_data;
    if (event->kind == MLXB_EVENT_TEXT) {
        fwrite(event->text.ptr, 1, event->text.len, stdout);
        fflush(stdout);
    }
    return MLXB_CONTINUE;
}

/* Whether `kv` is of exactly these tokens. */
static bool is_of(const mlxb_kv *kv, const uint32_t *tokens, size_t count) {
    static uint32_t known[MOST_TOKENS];
    size_t known_count = 0;
    return mlxb_kv_tokens(kv, known, MOST_TOKENS, &known_count, NULL) == MLXB_OK &&
           known_count == count && memcmp(known, tokens, count * sizeof *tokens) == 0;
}

/* The state of all tokens but the last: from the file, or else read by the model and saved. The
 * last one is run with what follows, to get at the next. */
static mlxb_kv *state_of(const mlxb_model *model, const char *path, const uint32_t *tokens,
                         size_t count, mlxb_error **error) {
    mlxb_generate_options options;
    mlxb_kv *kv = NULL;
    mlxb_status status = mlxb_kv_load(model, path, NULL, 0, &kv, error);
    if (status == MLXB_OK && is_of(kv, tokens, count - 1)) {
        printf("[%s: %zu tokens]\n", path, count - 1);
        return kv;
    }
    mlxb_kv_free(kv); /* of another text */
    kv = NULL;
    if (status != MLXB_OK && status != MLXB_NOT_FOUND) {
        return NULL;
    }
    mlxb_error_free(*error);
    mlxb_generate_options_init(&options, sizeof options);
    options.tokens = tokens;
    options.token_count = count;
    options.max_tokens = 0; /* run the prompt, no more */
    if (mlxb_kv_new(model, &kv, error) != MLXB_OK ||
        mlxb_generate(model, kv, &options, NULL, NULL, NULL, error) != MLXB_OK ||
        mlxb_kv_save(kv, path, error) != MLXB_OK) {
        mlxb_kv_free(kv);
        return NULL;
    }
    printf("[read %zu tokens]\n", count - 1);
    return kv;
}

/* Goes on from a fork of `kv` with the token that it has not seen and a text. */
static mlxb_status go_on(const mlxb_model *model, const mlxb_kv *kv, uint32_t last,
                         const char *text, mlxb_error **error) {
    static uint32_t tokens[MOST_TOKENS];
    mlxb_generate_options options;
    mlxb_kv *fork = NULL;
    size_t count = 0;
    mlxb_status status = mlxb_model_tokenize(model, text, strlen(text), false, tokens + 1,
                                             MOST_TOKENS - 1, &count, error);
    if (status == MLXB_OK) {
        status = mlxb_kv_fork(kv, &fork, error);
    }
    if (status == MLXB_OK) {
        tokens[0] = last;
        mlxb_generate_options_init(&options, sizeof options);
        options.tokens = tokens;
        options.token_count = count + 1;
        options.max_tokens = 24;
        printf("...%s", text);
        status = mlxb_generate(model, fork, &options, on_event, NULL, NULL, error);
        printf("\n");
    }
    mlxb_kv_free(fork);
    return status;
}

int main(int argument_count, char **arguments) {
    static uint32_t tokens[MOST_TOKENS];
    mlxb_model *model = NULL;
    mlxb_kv *kv = NULL;
    mlxb_error *error = NULL;
    size_t count = 0;
    int exit_code = EXIT_FAILURE;

    if (argument_count < 5 || arguments[3][0] == '\0') {
        fprintf(stderr, "usage: fork MODEL_DIR STATE_FILE TEXT CONTINUATION ...\n");
        return 2;
    }
    if (mlxb_model_load(arguments[1], NULL, &model, &error) != MLXB_OK ||
        mlxb_model_tokenize(model, arguments[3], strlen(arguments[3]), true, tokens, MOST_TOKENS,
                            &count, &error) != MLXB_OK) {
        goto done;
    }
    kv = state_of(model, arguments[2], tokens, count, &error);
    if (kv == NULL) {
        goto done;
    }
    for (int i = 4; i < argument_count; i++) {
        if (go_on(model, kv, tokens[count - 1], arguments[i], &error) != MLXB_OK) {
            goto done;
        }
    }
    exit_code = EXIT_SUCCESS;

done:
    if (error != NULL) {
        fprintf(stderr, "fork: %s\n", mlxb_error_message(error));
        mlxb_error_free(error);
    }
    mlxb_kv_free(kv);
    mlxb_model_release(model);
    return exit_code;
}
