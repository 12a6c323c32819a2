/* Answers a request as a hosted model would: its JSON comes from a file, or from stdin for "-",
 * and the events of the protocol go to stdout as a server would send them. Ctrl-C ends the answer
 * early.
 *
 *   respond MODEL_DIR responses|chat|messages REQUEST_JSON
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

/* Server-sent events. Those of Chat Completions have no name. */
static int32_t on_event(void *user_data, mlxb_str name, mlxb_str json) {
    int32_t protocol = *(int32_t *)user_data;
    if (protocol != MLXB_PROTOCOL_CHAT_COMPLETIONS) {
        printf("event: %.*s\n", (int)name.len, name.ptr);
    }
    printf("data: %.*s\n\n", (int)json.len, json.ptr);
    fflush(stdout);
    return MLXB_CONTINUE;
}

static int32_t protocol_of(const char *name) {
    if (strcmp(name, "responses") == 0) {
        return MLXB_PROTOCOL_RESPONSES;
    }
    if (strcmp(name, "chat") == 0) {
        return MLXB_PROTOCOL_CHAT_COMPLETIONS;
    }
    return strcmp(name, "messages") == 0 ? MLXB_PROTOCOL_MESSAGES : 0;
}

/* The whole file, to be freed; NULL if it cannot be read. */
static char *read_all(const char *path, size_t *length) {
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    size_t capacity = 1 << 16;
    char *text = file == NULL ? NULL : malloc(capacity);
    *length = 0;
    while (text != NULL) {
        size_t count = fread(text + *length, 1, capacity - *length, file);
        *length += count;
        if (*length < capacity) {
            break;
        }
        capacity *= 2;
        char *larger = realloc(text, capacity);
        if (larger == NULL) {
            free(text);
        }
        text = larger;
    }
    if (text != NULL && ferror(file)) {
        free(text);
        text = NULL;
    }
    if (file != NULL && file != stdin) {
        fclose(file);
    }
    return text;
}

int main(int argument_count, char **arguments) {
    mlxb_model_options options;
    mlxb_model *model = NULL;
    mlxb_error *error = NULL;
    char *request = NULL;
    size_t request_length = 0;
    int32_t protocol = 0;
    int exit_code = EXIT_FAILURE;

    if (argument_count == 4) {
        protocol = protocol_of(arguments[2]);
    }
    if (protocol == 0) {
        fprintf(stderr, "usage: respond MODEL_DIR responses|chat|messages REQUEST_JSON\n");
        return 2;
    }
    request = read_all(arguments[3], &request_length);
    if (request == NULL) {
        fprintf(stderr, "respond: cannot read %s\n", arguments[3]);
        return EXIT_FAILURE;
    }
    cancel = mlxb_cancel_new();
    signal(SIGINT, on_interrupt);

    mlxb_model_options_init(&options, sizeof options);
    options.cancel = cancel;
    if (mlxb_model_load(arguments[1], &options, &model, &error) == MLXB_OK &&
        mlxb_respond(model, NULL, NULL, protocol, request, request_length, cancel, on_event,
                     &protocol, NULL, &error) == MLXB_OK) {
        if (protocol == MLXB_PROTOCOL_CHAT_COMPLETIONS) {
            printf("data: [DONE]\n\n");
        }
        exit_code = EXIT_SUCCESS;
    }
    if (error != NULL) {
        fprintf(stderr, "respond: %s\n", mlxb_error_message(error));
        mlxb_error_free(error);
    }
    mlxb_model_release(model);
    signal(SIGINT, SIG_DFL);
    mlxb_cancel_free(cancel);
    free(request);
    return exit_code;
}
