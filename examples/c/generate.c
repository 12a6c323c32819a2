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

/* {"messages": [{"role": "user", "content": TEXT}]}, to be freed; NULL without memory. */
static char *request_json(const char *text) {
    static const char before[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"";
    static const char after[] = "\"}]}";
    /* A byte becomes six at the most: \u001f. */
    char *json = malloc(sizeof before + 6 * strlen(text) + sizeof after);
    char *end = json;
    if (json == NULL) {
        return NULL;
    }
    end += sprintf(end, "%s", before);
    for (; *text != '\0'; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte == '"' || byte == '\\') {
            end += sprintf(end, "\\%c", byte);
        } else if (byte < 0x20) {
            end += sprintf(end, "\\u%04x", byte);
        } else {
            *end++ = *text;
        }
    }
    sprintf(end, "%s", after);
    return json;
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
    char *request = NULL;
    char *prompt = NULL;
    int exit_code = EXIT_FAILURE;

    if (argument_count != 3) {
        fprintf(stderr, "usage: generate MODEL_DIR PROMPT\n");
        return 2;
    }
    cancel = mlxb_cancel_new();
    request = request_json(arguments[2]);
    if (cancel == NULL || request == NULL) {
        fprintf(stderr, "generate: out of memory\n");
        goto done;
    }
    signal(SIGINT, on_interrupt);

    mlxb_model_options_init(&model_options, sizeof model_options);
    model_options.cancel = cancel;
    if (mlxb_model_load(arguments[1], &model_options, &model, &error) != MLXB_OK) {
        goto done;
    }
    /* The model's own template makes a prompt of the conversation. */
    if (mlxb_chat_render(model, request, &prompt, &error) != MLXB_OK) {
        goto done;
    }
    mlxb_generate_options_init(&options, sizeof options);
    options.prompt = prompt;
    options.prompt_len = strlen(prompt);
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
    mlxb_string_free(prompt);
    free(request);
    mlxb_model_release(model);
    signal(SIGINT, SIG_DFL);
    mlxb_cancel_free(cancel);
    return exit_code;
}
