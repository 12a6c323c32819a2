/* A model that speaks. Too much arithmetic for valgrind; ways: plain sanitized */
#include "fixture.h"

static void a_real_model_answers(void) {
    mlxb_model *model = load(test_model("f32"));
    mlxb_generate_options options;
    char *prompt = NULL;
    recorder recorder = {0};
    EXPECT(MLXB_OK, mlxb_chat_render(model,
                                     "{\"messages\": [{\"role\": \"user\","
                                     "\"content\": \"What is the capital of Japan?\"}]}",
                                     &prompt, &error));
    mlxb_generate_options_init(&options, sizeof options);
    options.prompt = prompt;
    options.prompt_len = strlen(prompt);
    CHECK_INT(MLXB_FINISH_EOS, run(model, NULL, &options, &recorder).finish);
    CHECK_STR("The capital of Japan is Tokyo.", recorder.text);
    const char *stop[] = {" Japan is"};
    options.stop = stop;
    options.stop_count = 1;
    CHECK_INT(MLXB_FINISH_STOP_STRING, run(model, NULL, &options, &recorder).finish);
    CHECK_STR("The capital of", recorder.text);
    mlxb_string_free(prompt);
    mlxb_model_release(model);
}

int main(void) {
    RUN(a_real_model_answers);
    return check_summary();
}
