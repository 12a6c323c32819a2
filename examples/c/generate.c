/* Asks a model one question and prints the answer as it comes. Ctrl-C ends it early.
 *
 *   generate MODEL_DIR PROMPT
 */
#include <mlxb.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static mlxb_cancel *cancel;

static void on_interrupt(int signal_number) {
    (void)signal_number;
    mlxb_cancel_request(cancel);
}

/* Called for everything that happens meanwhile; text is what this program wants. */
static int32_t on_event(void *user_data, const mlxb_event *event) {
    (void)user_data;
    if (event->kind == MLXB_EVENT_TEXT) {
        fwrite(event->text.ptr, 1, event->text.len, stdout);
        fflush(stdout);
    }
    return MLXB_CONTINUE;
}

/* The prompt that the model's own template makes of a question: ids, to be freed; NULL on a
 * failure, which `error` tells of unless memory is exhausted. */
static uint32_t *prompt_tokens(const mlxb_model *model, const char *question, size_t *count,
                               mlxb_error **error) {
    mlxb_chat *chat = mlxb_chat_new();
    char *request = NULL;
    uint32_t *tokens = NULL;
    if (mlxb_chat_add(chat, "user", question, strlen(question), error) == MLXB_OK &&
        mlxb_chat_json(chat, &request, error) == MLXB_OK) {
        /* Without room it tells how much it needs. */
        mlxb_status status = mlxb_chat_tokenize(model, request, NULL, 0, count, NULL, error);
        if (status == MLXB_BUFFER_TOO_SMALL) {
            mlxb_error_free(*error);
            *error = NULL;
            tokens = malloc(*count * sizeof *tokens);
            if (tokens != NULL &&
                mlxb_chat_tokenize(model, request, tokens, *count, count, NULL, error) != MLXB_OK) {
                free(tokens);
                tokens = NULL;
            }
        }
    }
    mlxb_string_free(request);
    mlxb_chat_free(chat);
    return tokens;
}

static void print_rate(const char *what, uint64_t tokens, double seconds) {
    double rate = seconds > 0 ? (double)tokens / seconds : 0;
    printf("%s: %llu tokens, %.1f tokens/s\n", what, (unsigned long long)tokens, rate);
}

int main(int argument_count, char **arguments) {
    mlxb_model_options model_options;
    mlxb_generate_options options;
    mlxb_generate_result result = {.struct_size = sizeof result};
    mlxb_model *model = NULL;
    mlxb_error *error = NULL;
    uint32_t *tokens = NULL;
    int exit_code = EXIT_FAILURE;

    if (argument_count != 3) {
        fprintf(stderr, "usage: generate MODEL_DIR PROMPT\n");
        return 2;
    }
    cancel = mlxb_cancel_new();
    signal(SIGINT, on_interrupt);

    mlxb_model_options_init(&model_options, sizeof model_options);
    model_options.cancel = cancel;
    if (mlxb_model_load(arguments[1], &model_options, &model, &error) != MLXB_OK) {
        goto done;
    }
    mlxb_generate_options_init(&options, sizeof options);
    tokens = prompt_tokens(model, arguments[2], &options.token_count, &error);
    if (tokens == NULL) {
        if (error == NULL) {
            fprintf(stderr, "generate: out of memory\n");
        }
        goto done;
    }
    options.tokens = tokens;
    options.cancel = cancel;
    if (mlxb_generate(model, NULL, &options, on_event, NULL, &result, &error) != MLXB_OK) {
        goto done;
    }
    printf("\n");
    print_rate("prompt", result.prompt_tokens, result.prefill_seconds);
    /* The first token came with the prompt. */
    print_rate("decode", result.generated_tokens > 0 ? result.generated_tokens - 1 : 0,
               result.decode_seconds);
    exit_code = result.finish == MLXB_FINISH_CANCELLED ? 130 : EXIT_SUCCESS;

done:
    if (error != NULL) {
        fprintf(stderr, "generate: %s\n", mlxb_error_message(error));
        mlxb_error_free(error);
    }
    free(tokens);
    mlxb_model_release(model);
    signal(SIGINT, SIG_DFL);
    mlxb_cancel_free(cancel);
    return exit_code;
}
