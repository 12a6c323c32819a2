/* Requests in the protocols of hosted models: what comes back, how it is told, how it ends. */
#include "fixture.h"

static const char *const REQUESTS[] = {
    [MLXB_PROTOCOL_RESPONSES] = "{\"input\": \"Hi\", \"max_output_tokens\": 8}",
    [MLXB_PROTOCOL_CHAT_COMPLETIONS] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"max_tokens\": 8}",
    [MLXB_PROTOCOL_MESSAGES] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"max_tokens\": 8}",
};
static const char *const LAST_EVENTS[] = {
    [MLXB_PROTOCOL_RESPONSES] = "response.incomplete",
    [MLXB_PROTOCOL_CHAT_COMPLETIONS] = "chat.completion.chunk",
    [MLXB_PROTOCOL_MESSAGES] = "message_stop",
};
#define EACH_PROTOCOL(protocol)                                \
    for (int32_t protocol = MLXB_PROTOCOL_RESPONSES;           \
         protocol <= MLXB_PROTOCOL_MESSAGES; protocol++)

/* What a callback is told, and does. */
typedef struct {
    size_t count, stop_at, cancel_at, respond_at;
    mlxb_cancel *cancel;
    char last[64];
} listener;

static int32_t hear(void *user_data, mlxb_str name, mlxb_str json) {
    listener *self = user_data;
    self->count++;
    CHECK(self->stop_at == 0 || self->count <= self->stop_at);
    CHECK(name.len > 0 && name.len < sizeof self->last);
    CHECK(json.len > 1 && json.ptr[0] == '{' && json.ptr[json.len - 1] == '}');
    snprintf(self->last, sizeof self->last, "%.*s", (int)name.len, name.ptr);
    if (self->count == self->cancel_at) {
        mlxb_cancel_request(self->cancel);
    }
    if (self->count == self->respond_at) {
        const char *request = REQUESTS[MLXB_PROTOCOL_MESSAGES];
        EXPECT(MLXB_OK, mlxb_respond(tiny(), NULL, NULL, MLXB_PROTOCOL_MESSAGES, request,
                                     strlen(request), NULL, NULL, NULL, NULL, &error));
    }
    return self->count == self->stop_at ? MLXB_STOP : MLXB_CONTINUE;
}

/* The answer to a request of this length, to be freed. */
static char *respond(int32_t protocol, const char *request, mlxb_cache *cache, const char *ns,
                     listener *listener) {
    char *response = NULL;
    EXPECT(MLXB_OK,
           mlxb_respond(tiny(), cache, ns, protocol, request, strlen(request),
                        listener == NULL ? NULL : listener->cancel,
                        listener == NULL ? NULL : hear, listener, &response, &error));
    CHECK(response != NULL && response[0] == '{');
    return response;
}

static void each_protocol_is_translated(void) {
    EACH_PROTOCOL(protocol) {
        const char *request = REQUESTS[protocol];
        char *chat = NULL, *prompt = NULL;
        EXPECT(MLXB_OK,
               mlxb_protocol_to_chat(protocol, request, strlen(request), &chat, &error));
        CHECK_STR("{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}", chat);
        EXPECT(MLXB_OK, mlxb_chat_render(tiny(), chat, &prompt, &error));
        CHECK_STR("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", prompt);
        mlxb_string_free(prompt);
        mlxb_string_free(chat);
    }
}

static void events_end_with_the_protocols_last(void) {
    EACH_PROTOCOL(protocol) {
        listener listener = {0};
        char *streamed = respond(protocol, REQUESTS[protocol], NULL, NULL, &listener);
        char *whole = respond(protocol, REQUESTS[protocol], NULL, NULL, NULL);
        CHECK(listener.count > 2);
        CHECK_STR(LAST_EVENTS[protocol], listener.last);
        CHECK_INT(strlen(whole), strlen(streamed));
        mlxb_string_free(whole);
        mlxb_string_free(streamed);
    }
}

static void a_callback_ends_the_events(void) {
    EACH_PROTOCOL(protocol) {
        for (size_t at = 1; at < 5; at += 3) {
            listener listener = {.stop_at = at};
            mlxb_string_free(respond(protocol, REQUESTS[protocol], NULL, NULL, &listener));
            CHECK_INT(at, listener.count);
        }
    }
}

static void a_cancelled_answer_ends_as_if_it_were_cut(void) {
    EACH_PROTOCOL(protocol) {
        for (size_t at = 1; at < 4; at += 2) {
            listener listener = {.cancel_at = at, .cancel = mlxb_cancel_new()};
            mlxb_string_free(respond(protocol, REQUESTS[protocol], NULL, NULL, &listener));
            CHECK_STR(LAST_EVENTS[protocol], listener.last);
            mlxb_cancel_free(listener.cancel);
        }
    }
}

static void a_callback_may_ask_itself(void) {
    listener listener = {.respond_at = 3};
    mlxb_string_free(respond(MLXB_PROTOCOL_RESPONSES, REQUESTS[MLXB_PROTOCOL_RESPONSES], NULL,
                             NULL, &listener));
    CHECK(listener.count > 3);
}

static void what_is_wrong_is_named(void) {
    static const struct {
        const char *request, *named;
        mlxb_status status;
    } wrong[] = {
        {"", "json", MLXB_PROTOCOL},
        {"[]", "object", MLXB_PROTOCOL},
        {"{\"messages\": [], \"max_tokens\": 1, \"input\": []}", "no messages", MLXB_PROTOCOL},
        {"\xff", "request_json", MLXB_INVALID_UTF8},
    };
    EACH_PROTOCOL(protocol) {
        for (size_t index = 0; index < sizeof wrong / sizeof *wrong; index++) {
            listener listener = {0};
            char *json = (char *)"set";
            const char *request = wrong[index].request;
            EXPECT_ERROR(wrong[index].status, wrong[index].named,
                         mlxb_respond(tiny(), NULL, NULL, protocol, request, strlen(request), NULL,
                                      hear, &listener, &json, &error));
            CHECK(json == NULL);
            CHECK_INT(0, listener.count);
            json = (char *)"set";
            EXPECT_ERROR(wrong[index].status, wrong[index].named,
                         mlxb_protocol_to_chat(protocol, request, strlen(request), &json, &error));
            CHECK(json == NULL);
        }
    }
    for (int32_t protocol = -1; protocol < 6; protocol += 5) {
        char *json = NULL;
        EXPECT_ERROR(MLXB_INVALID_ARGUMENT, "protocol",
                     mlxb_protocol_to_chat(protocol, "{}", 2, &json, &error));
        EXPECT_ERROR(MLXB_INVALID_ARGUMENT, "protocol",
                     mlxb_respond(tiny(), NULL, NULL, protocol, "{}", 2, NULL, NULL, NULL, &json,
                                  &error));
    }
}

static void a_conversation_goes_on_in_its_cache_and_namespace(void) {
    mlxb_cache *cache = NULL;
    char request[256];
    char *json = NULL, *id;
    EXPECT(MLXB_OK, mlxb_cache_open(NULL, &cache, &error));
    json = respond(MLXB_PROTOCOL_RESPONSES, REQUESTS[MLXB_PROTOCOL_RESPONSES], cache, "ann", NULL);
    id = strstr(json, "resp_");
    CHECK(id != NULL);
    snprintf(request, sizeof request,
             "{\"input\": \"More\", \"max_output_tokens\": 4, \"previous_response_id\": \"%.*s\"}",
             (int)strcspn(id, "\""), id);
    mlxb_string_free(json);
    json = respond(MLXB_PROTOCOL_RESPONSES, request, cache, "ann", NULL);
    CHECK(strstr(json, "\"cached_tokens\":0") == NULL);
    mlxb_string_free(json);
    EXPECT_ERROR(MLXB_PROTOCOL, "previous_response_id",
                 mlxb_respond(tiny(), cache, "bob", MLXB_PROTOCOL_RESPONSES, request,
                              strlen(request), NULL, NULL, NULL, NULL, &error));
    EXPECT_ERROR(MLXB_PROTOCOL, "previous_response_id",
                 mlxb_respond(tiny(), NULL, NULL, MLXB_PROTOCOL_RESPONSES, request,
                              strlen(request), NULL, NULL, NULL, NULL, &error));
    mlxb_cache_close(cache);
}

int main(void) {
    RUN(each_protocol_is_translated);
    RUN(events_end_with_the_protocols_last);
    RUN(a_callback_ends_the_events);
    RUN(a_cancelled_answer_ends_as_if_it_were_cut);
    RUN(a_callback_may_ask_itself);
    RUN(what_is_wrong_is_named);
    RUN(a_conversation_goes_on_in_its_cache_and_namespace);
    return finish();
}
