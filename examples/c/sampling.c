/* Completes a text with every knob that sampling has, and shows for each token how likely it was
 * and what else could have come.
 *
 *   sampling MODEL_DIR TEXT [NAME=VALUE ...]
 *
 *   temperature top_p min_p min_tokens_to_keep top_k xtc_probability xtc_threshold
 *   repetition presence frequency     a penalty, or a penalty and its context size: 1.1,64
 *   bias                              a token and what is added to its logit: 42,-5 (repeatable)
 *   seed max_tokens logprobs          whole numbers
 *   stop                              a text that ends the answer (repeatable)
 *
 * What is not named is as the model's makers suggest; those settings are printed first. Link it
 * with -lm besides the library.
 */
#include <mlxb.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 16 };

/* The lists that the options point to. */
struct lists {
    const char *stop[MOST];
    uint32_t bias_tokens[MOST];
    float bias_values[MOST];
};

static void print_token(const mlxb_event *event) {
    printf("  %6u %8.3f |", (unsigned)event->token, (double)event->logprob);
    for (size_t i = 0; i < event->top_count; i++) {
        printf(" %u (%.1f%%)", (unsigned)event->top_tokens[i],
               100 * exp((double)event->top_logprobs[i]));
    }
    printf("\n");
}

/* user_data is the answer's text so far, which is printed as a whole in the end. */
static int32_t on_event(void *user_data, const mlxb_event *event) {
    FILE *text = user_data;
    switch (event->kind) {
    case MLXB_EVENT_TOKEN:
        print_token(event);
        break;
    case MLXB_EVENT_TEXT:
        fwrite(event->text.ptr, 1, event->text.len, text);
        break;
    default: /* Later versions may tell more. */
        break;
    }
    return MLXB_CONTINUE;
}

/* The number that `text` begins with; moves `text` behind it, and behind a comma. */
static int take_number(const char **text, double *number) {
    char *end;
    errno = 0;
    *number = strtod(*text, &end);
    if (end == *text || errno != 0 || (*end != '\0' && *end != ',')) {
        return 0;
    }
    *text = *end == ',' ? end + 1 : end;
    return 1;
}

static int set_penalty(const char *value, float *penalty, int32_t *context_size) {
    double number, size = -1;
    if (!take_number(&value, &number) || (*value != '\0' && !take_number(&value, &size))) {
        return 0;
    }
    *penalty = (float)number;
    *context_size = (int32_t)size;
    return 1;
}

static int set_bias(const char *value, mlxb_generate_options *options, struct lists *lists) {
    double token, bias;
    if (options->logit_bias_count == MOST || !take_number(&value, &token) ||
        !take_number(&value, &bias) || token < 0) {
        return 0;
    }
    lists->bias_tokens[options->logit_bias_count] = (uint32_t)token;
    lists->bias_values[options->logit_bias_count] = (float)bias;
    options->logit_bias_count++;
    return 1;
}

/* Sets what "NAME=VALUE" says; 0 if it says nothing. The library checks the values. */
static int set_option(const char *setting, mlxb_generate_options *options, struct lists *lists) {
    const char *value = strchr(setting, '=');
    size_t length = value == NULL ? 0 : (size_t)(value - setting);
    double number;
#define IS(name) (length == sizeof name - 1 && strncmp(setting, name, length) == 0)
    if (value == NULL) {
        return 0;
    }
    value++;
    if (IS("stop")) {
        if (options->stop_count == MOST) {
            return 0;
        }
        lists->stop[options->stop_count++] = value;
        return 1;
    }
    if (IS("bias")) {
        return set_bias(value, options, lists);
    }
    if (IS("repetition")) {
        return set_penalty(value, &options->repetition_penalty,
                           &options->repetition_context_size);
    }
    if (IS("presence")) {
        return set_penalty(value, &options->presence_penalty, &options->presence_context_size);
    }
    if (IS("frequency")) {
        return set_penalty(value, &options->frequency_penalty, &options->frequency_context_size);
    }
    if (!take_number(&value, &number) || *value != '\0') {
        return 0;
    }
    if (IS("temperature")) {
        options->temperature = (float)number;
    } else if (IS("top_p")) {
        options->top_p = (float)number;
    } else if (IS("min_p")) {
        options->min_p = (float)number;
    } else if (IS("min_tokens_to_keep")) {
        options->min_tokens_to_keep = (int32_t)number;
    } else if (IS("top_k")) {
        options->top_k = (int32_t)number;
    } else if (IS("xtc_probability")) {
        options->xtc_probability = (float)number;
    } else if (IS("xtc_threshold")) {
        options->xtc_threshold = (float)number;
    } else if (IS("seed")) {
        options->has_seed = 1;
        options->seed = (uint64_t)number;
    } else if (IS("max_tokens")) {
        options->max_tokens = (int64_t)number;
    } else if (IS("logprobs")) {
        options->logprobs = (int32_t)number + 1;
    } else {
        return 0;
    }
#undef IS
    return 1;
}

static void print_defaults(const mlxb_generate_options *defaults) {
    printf("the model's own settings: temperature %g, top_p %g, min_p %g, top_k %d, "
           "repetition penalty %g over %d tokens\n",
           (double)defaults->temperature, (double)defaults->top_p, (double)defaults->min_p,
           (int)defaults->top_k, (double)defaults->repetition_penalty,
           (int)defaults->repetition_context_size);
}

static void print_finish(const mlxb_generate_result *result, const struct lists *lists) {
    switch (result->finish) {
    case MLXB_FINISH_EOS:
        printf("the model ended its answer\n");
        break;
    case MLXB_FINISH_STOP_STRING:
        printf("stopped before \"%s\"\n", lists->stop[result->stop_index]);
        break;
    case MLXB_FINISH_LENGTH:
        printf("cut after %llu tokens\n", (unsigned long long)result->generated_tokens);
        break;
    default:
        printf("ended for reason %d\n", (int)result->finish);
        break;
    }
}

int main(int argument_count, char **arguments) {
    mlxb_generate_options defaults;
    mlxb_generate_options options;
    mlxb_generate_result result = {.struct_size = sizeof result};
    struct lists lists;
    mlxb_model *model = NULL;
    mlxb_error *error = NULL;
    FILE *text = NULL;
    int exit_code = EXIT_FAILURE;
    int byte;

    mlxb_generate_options_init(&options, sizeof options);
    options.max_tokens = 32;
    options.logprobs = 1 + 3; /* of the token, and of the three most likely ones */
    options.stop = lists.stop;
    options.logit_bias_tokens = lists.bias_tokens;
    options.logit_bias_values = lists.bias_values;
    if (argument_count < 3) {
        fprintf(stderr, "usage: sampling MODEL_DIR TEXT [NAME=VALUE ...]\n");
        return 2;
    }
    for (int i = 3; i < argument_count; i++) {
        if (!set_option(arguments[i], &options, &lists)) {
            fprintf(stderr, "sampling: not a setting: %s\n", arguments[i]);
            return 2;
        }
    }
    options.prompt = arguments[2];
    options.prompt_len = strlen(arguments[2]);

    text = tmpfile();
    if (text == NULL) {
        perror("sampling");
        return EXIT_FAILURE;
    }
    if (mlxb_model_load(arguments[1], NULL, &model, &error) != MLXB_OK) {
        goto done;
    }
    mlxb_generate_options_init(&defaults, sizeof defaults);
    if (mlxb_model_generation_defaults(model, &defaults, &error) != MLXB_OK) {
        goto done;
    }
    print_defaults(&defaults);
    printf("   token  log p  | most likely\n");
    if (mlxb_generate(model, NULL, &options, on_event, text, &result, &error) != MLXB_OK) {
        goto done;
    }
    printf("%s", arguments[2]);
    rewind(text);
    while ((byte = fgetc(text)) != EOF) {
        putchar(byte);
    }
    printf("\n");
    print_finish(&result, &lists);
    exit_code = EXIT_SUCCESS;

done:
    if (error != NULL) {
        fprintf(stderr, "sampling: %s\n", mlxb_error_message(error));
        mlxb_error_free(error);
    }
    mlxb_model_release(model);
    fclose(text);
    return exit_code;
}
