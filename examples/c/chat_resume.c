/* A chat whose context is still warm after the program was started again. Run it twice: the first
 * time the model reads the long system prompt (cold), the second time its state comes from disk.
 * In between, each turn goes on from memory where the last one ended.
 *
 *   chat_resume MODEL_DIR CACHE_DIR [QUESTION ...]
 */
#include <mlxb.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_TOKENS 8192
#define MOST_ANSWER 4096

/* The answer as it comes: shown, and kept for the next turn. */
typedef struct answer {
    char text[MOST_ANSWER];
    size_t length;
} answer;

static int32_t on_event(void *user_data, const mlxb_event *event) {
    answer *self = user_data;
    if (event->kind == MLXB_EVENT_TEXT) {
        size_t length = event->text.len;
        fwrite(event->text.ptr, 1, length, stdout);
        fflush(stdout);
        if (length > sizeof self->text - self->length) {
            return MLXB_STOP;
        }
        memcpy(self->text + self->length, event->text.ptr, length);
        self->length += length;
    }
    return MLXB_CONTINUE;
}

/* Rules of the house, as long as real system prompts are. */
static mlxb_status add_system_prompt(mlxb_chat *chat, mlxb_error **error) {
    char text[8192];
    size_t length = (size_t)sprintf(text, "You answer in one short sentence. The rooms:");
    for (int room = 1; room <= 60; room++) {
        length += (size_t)sprintf(text + length, " Room %d has %d windows and %d chairs.", room,
                                  1 + room % 5, 2 + room % 7);
    }
    return mlxb_chat_add(chat, "system", text, length, error);
}

static mlxb_status take_turn(const mlxb_model *model, mlxb_cache *cache, mlxb_chat *chat,
                             const char *question, mlxb_error **error) {
    static uint32_t tokens[MOST_TOKENS];
    mlxb_generate_options options;
    mlxb_generate_result result = {.struct_size = sizeof result};
    answer answer = {.length = 0};
    size_t count = 0;
    char *request = NULL;
    mlxb_status status = mlxb_chat_add(chat, "user", question, strlen(question), error);
    if (status == MLXB_OK) {
        status = mlxb_chat_json(chat, &request, error);
    }
    if (status == MLXB_OK) {
        status = mlxb_chat_tokenize(model, request, tokens, MOST_TOKENS, &count, NULL, error);
    }
    mlxb_string_free(request);
    if (status != MLXB_OK) {
        return status;
    }
    mlxb_generate_options_init(&options, sizeof options);
    options.tokens = tokens;
    options.token_count = count;
    options.max_tokens = 24;
    options.cache = cache; /* finds what is known of the prompt, and keeps what comes of it */
    printf("> %s\n", question);
    status = mlxb_generate(model, NULL, &options, on_event, &answer, &result, error);
    if (status != MLXB_OK) {
        return status;
    }
    printf("\n  %s: first token after %.3f s, %llu of %llu prompt tokens known\n",
           result.restored_tokens > 0 ? "restored" : result.reused_tokens > 0 ? "warm" : "cold",
           result.prefill_seconds, (unsigned long long)result.reused_tokens,
           (unsigned long long)result.prompt_tokens);
    return mlxb_chat_add(chat, "assistant", answer.text, answer.length, error);
}

int main(int argument_count, char **arguments) {
    static char *const usual[] = {"How many chairs are in room 3?", "And in room 4?"};
    char *const *questions = usual;
    int question_count = 2;
    mlxb_cache_options cache_options;
    mlxb_model *model = NULL;
    mlxb_cache *cache = NULL;
    mlxb_chat *chat = NULL;
    mlxb_error *error = NULL;
    int exit_code = EXIT_FAILURE;

    if (argument_count < 3) {
        fprintf(stderr, "usage: chat_resume MODEL_DIR CACHE_DIR [QUESTION ...]\n");
        return 2;
    }
    if (argument_count > 3) {
        questions = arguments + 3;
        question_count = argument_count - 3;
    }
    mlxb_cache_options_init(&cache_options, sizeof cache_options);
    cache_options.disk_dir = arguments[2];
    if (mlxb_model_load(arguments[1], NULL, &model, &error) != MLXB_OK
        || mlxb_cache_open(&cache_options, &cache, &error) != MLXB_OK) {
        goto done;
    }
    chat = mlxb_chat_new();
    if (chat == NULL || add_system_prompt(chat, &error) != MLXB_OK) {
        goto done;
    }
    for (int i = 0; i < question_count; i++) {
        if (take_turn(model, cache, chat, questions[i], &error) != MLXB_OK) {
            goto done;
        }
    }
    exit_code = EXIT_SUCCESS;

done:
    if (error != NULL) {
        fprintf(stderr, "chat_resume: %s\n", mlxb_error_message(error));
        mlxb_error_free(error);
    }
    mlxb_chat_free(chat);
    mlxb_cache_close(cache); /* writes what is not on disk yet */
    mlxb_model_release(model);
    return exit_code;
}
