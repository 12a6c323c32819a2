/* Answers a question with the help of a tool, the clock of this computer. The conversation goes
 * from response to response by their ids, and the cache keeps what has been run of it.
 *
 *   tools MODEL_DIR QUESTION
 *
 * The model must be one that was trained to call tools.
 */
#include <mlxb.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST_CALLS 5

static const char tools[] =
    "\"parallel_tool_calls\": false,"
    " \"tools\": [{\"type\": \"function\", \"name\": \"current_time\","
    " \"description\": \"Tells the time of day in UTC.\","
    " \"parameters\": {\"type\": \"object\", \"properties\": {}}}]";

/* A program without a JSON library gets far enough with this: the string of the first field of
 * this name, as it is written. */
static mlxb_str field(mlxb_str json, const char *name) {
    char key[64];
    mlxb_str found = {"", 0};
    int length = snprintf(key, sizeof key, "\"%s\":\"", name);
    for (size_t at = 0; at + (size_t)length < json.len; at++) {
        if (memcmp(json.ptr + at, key, (size_t)length) == 0) {
            const char *end = json.ptr + json.len;
            found.ptr = json.ptr + at + length;
            while (found.ptr + found.len < end && found.ptr[found.len] != '"') {
                found.len += found.ptr[found.len] == '\\' ? 2 : 1;
            }
            break;
        }
    }
    return found;
}

/* Control characters are all that the library writes as numbers. */
static void print_unescaped(mlxb_str text) {
    for (size_t at = 0; at < text.len; at++) {
        char byte = text.ptr[at];
        if (byte != '\\') {
            putchar(byte);
        } else if (text.ptr[++at] == 'u') {
            at += 4;
        } else {
            const char *names = "nrtbf", *values = "\n\r\t\b\f";
            const char *name = strchr(names, text.ptr[at]);
            putchar(name != NULL ? values[name - names] : text.ptr[at]);
        }
    }
    fflush(stdout);
}

static char *escaped(const char *text) {
    char *json = malloc(6 * strlen(text) + 1); /* a byte becomes six at the most */
    char *end = json;
    for (; json != NULL && *text != '\0'; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte == '"' || byte == '\\') {
            end += sprintf(end, "\\%c", byte);
        } else if (byte < 0x20) {
            end += sprintf(end, "\\u%04x", byte);
        } else {
            *end++ = *text;
        }
    }
    if (json != NULL) {
        *end = '\0';
    }
    return json;
}

/* The ids by which the conversation goes on. */
typedef struct {
    char response[96], call[96];
} turn;

static void keep(char *kept, size_t size, mlxb_str text) {
    snprintf(kept, size, "%.*s", (int)text.len, text.ptr);
}

static int32_t on_event(void *user_data, mlxb_str name, mlxb_str json) {
    turn *turn = user_data;
    char event[64];
    keep(event, sizeof event, name);
    if (strcmp(event, "response.created") == 0) {
        keep(turn->response, sizeof turn->response, field(json, "id"));
    } else if (strcmp(event, "response.output_text.delta") == 0) {
        print_unescaped(field(json, "delta"));
    } else if (strcmp(event, "response.output_item.done") == 0) {
        keep(turn->call, sizeof turn->call, field(json, "call_id"));
    }
    return MLXB_CONTINUE;
}

/* The tool. */
static void current_time(char *text, size_t size) {
    time_t now = time(NULL);
    strftime(text, size, "%H:%M UTC", gmtime(&now));
}

int main(int argument_count, char **arguments) {
    mlxb_model *model = NULL;
    mlxb_cache *cache = NULL;
    mlxb_error *error = NULL;
    char *question = NULL, *request = NULL;
    int exit_code = EXIT_FAILURE;

    if (argument_count != 3) {
        fprintf(stderr, "usage: tools MODEL_DIR QUESTION\n");
        return 2;
    }
    question = escaped(arguments[2]);
    size_t size = question == NULL ? 0 : strlen(question) + sizeof tools + 512;
    request = malloc(size);
    if (question == NULL || request == NULL) {
        fprintf(stderr, "tools: out of memory\n");
        goto done;
    }
    if (mlxb_model_load(arguments[1], NULL, &model, &error) != MLXB_OK ||
        mlxb_cache_open(NULL, &cache, &error) != MLXB_OK) {
        goto done;
    }
    snprintf(request, size, "{\"input\": \"%s\", \"max_output_tokens\": 512, %s}", question, tools);
    for (int calls = 0;; calls++) {
        turn turn = {"", ""};
        if (mlxb_respond(model, cache, NULL, MLXB_PROTOCOL_RESPONSES, request, strlen(request),
                         NULL, on_event, &turn, NULL, &error) != MLXB_OK) {
            goto done;
        }
        if (turn.call[0] == '\0' || calls == MOST_CALLS) {
            break;
        }
        char result[32];
        current_time(result, sizeof result);
        fprintf(stderr, "[current_time: %s]\n", result);
        snprintf(request, size,
                 "{\"previous_response_id\": \"%s\", \"max_output_tokens\": 512, \"input\":"
                 " [{\"type\": \"function_call_output\", \"call_id\": \"%s\", \"output\": \"%s\"}],"
                 " %s}",
                 turn.response, turn.call, result, tools);
    }
    printf("\n");
    exit_code = EXIT_SUCCESS;

done:
    if (error != NULL) {
        fprintf(stderr, "tools: %s\n", mlxb_error_message(error));
        mlxb_error_free(error);
    }
    free(request);
    free(question);
    mlxb_cache_close(cache);
    mlxb_model_release(model);
    return exit_code;
}
