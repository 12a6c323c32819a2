/* Makes a model smaller: from a Hugging Face folder or a GGUF file to a folder for MLX.
 *
 *   quantize SOURCE TARGET [NAME=VALUE ...]
 *
 *   bits=4 group_size=64              of a weight, and weights that share a scale
 *   mode=affine                       affine, mxfp4, mxfp8, nvfp4; none: only the type changes;
 *                                     reverse: packed matrices become plain. The blocks of GGUF
 *                                     files are packed: none keeps them as they are
 *   recipe=mixed_3_6                  mixed_2_6, mixed_3_4, mixed_3_6, mixed_4_6
 *   dtype=bfloat16                    float32, float16, bfloat16
 *   module=model.embed_tokens,8       single modules with other bits; 0: plain; up to 64 of them
 *   overwrite=1                       replace the model at TARGET
 *   report=TEXT                       only tell, as JSON, how far the model would be from its
 *                                     source on this text; nothing is written
 *
 * Ctrl-C cancels; TARGET then is what it was before.
 */
#include <mlxb.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_MODULES 64

static volatile sig_atomic_t interrupted;

static void interrupt(int number) {
    (void)number;
    interrupted = 1;
}

static int32_t show(void *user_data, const mlxb_event *event) {
    int *shown = user_data;
    if (event->kind == MLXB_EVENT_QUANTIZE && event->total > 0) {
        int percent = (int)(100 * event->done / event->total);
        if (percent != *shown) {
            *shown = percent;
            fprintf(stderr, "\r%3d %%", percent);
        }
    }
    return interrupted ? MLXB_STOP : MLXB_CONTINUE;
}

/* The index of `name` in a list that ends with NULL; -1 if it is not there. */
static int index_of(const char *name, const char *const *list) {
    int index;
    for (index = 0; list[index] != NULL; index++) {
        if (strcmp(name, list[index]) == 0) {
            return index;
        }
    }
    return -1;
}

/* The arrays that the options point to. */
typedef struct {
    const char *paths[MOST_MODULES];
    int32_t bits[MOST_MODULES];
} modules;

/* The text to report on; NULL: convert. */
static const char *report_text;

/* Cuts "PATH,BITS" in two; 0 if it is not that. */
static int add_module(char *text, modules *modules, mlxb_quantize_options *options) {
    char *comma = strrchr(text, ',');
    if (comma == NULL || options->module_count == MOST_MODULES) {
        return 0;
    }
    *comma = '\0';
    modules->paths[options->module_count] = text;
    modules->bits[options->module_count] = atoi(comma + 1);
    options->module_count++;
    return 1;
}

/* Whether the argument was understood. */
static int read_option(char *argument, modules *modules, mlxb_quantize_options *options) {
    /* In the order of the header's enums. */
    static const char *const modes[] = {"none", "affine", "mxfp4", "mxfp8", "nvfp4", "reverse", NULL};
    static const char *const dtypes[] = {"default", "float32", "float16", "bfloat16", NULL};
    char *value = strchr(argument, '=');
    if (value == NULL) {
        return 0;
    }
    *value++ = '\0';
    if (strcmp(argument, "bits") == 0) {
        options->bits = atoi(value);
    } else if (strcmp(argument, "group_size") == 0) {
        options->group_size = atoi(value);
    } else if (strcmp(argument, "mode") == 0) {
        return (options->mode = index_of(value, modes)) >= 0;
    } else if (strcmp(argument, "dtype") == 0) {
        return (options->dtype = index_of(value, dtypes)) >= 0;
    } else if (strcmp(argument, "recipe") == 0) {
        options->recipe = value;
    } else if (strcmp(argument, "module") == 0) {
        return add_module(value, modules, options);
    } else if (strcmp(argument, "report") == 0) {
        report_text = value;
    } else if (strcmp(argument, "overwrite") == 0) {
        options->overwrite = atoi(value) != 0;
    } else {
        return 0;
    }
    return 1;
}

int main(int argc, char **argv) {
    mlxb_quantize_options options;
    mlxb_quantize_result result = {.struct_size = sizeof result};
    mlxb_error *error = NULL;
    modules modules = {{0}, {0}};
    mlxb_status status;
    int index, shown = -1;

    if (argc < 3) {
        fprintf(stderr, "usage: quantize SOURCE TARGET [NAME=VALUE ...]\n");
        return 2;
    }
    mlxb_quantize_options_init(&options, sizeof options);
    options.module_paths = modules.paths;
    options.module_bits = modules.bits;
    options.on_progress = show;
    options.user_data = &shown;
    for (index = 3; index < argc; index++) {
        if (!read_option(argv[index], &modules, &options)) {
            fprintf(stderr, "quantize: not a setting: argument %d\n", index);
            return 2;
        }
    }

    signal(SIGINT, interrupt);
    if (report_text != NULL) {
        char *report = NULL;
        status = mlxb_quantize_report(argv[1], &options, report_text, strlen(report_text), &report,
                                      &error);
        if (status == MLXB_OK) {
            printf("%s\n", report);
        }
        mlxb_string_free(report);
    } else {
        status = mlxb_quantize(argv[1], argv[2], &options, &result, &error);
        if (status == MLXB_OK) {
            printf("%s: %.1f MB, %.3f bits per weight, %u matrices packed, %u plain\n", argv[2],
                   (double)result.tensor_bytes / 1e6, result.bits_per_weight,
                   (unsigned)result.packed_count, (unsigned)result.plain_count);
        }
    }
    if (shown >= 0) {
        fprintf(stderr, "\n");
    }
    if (status != MLXB_OK) {
        fprintf(stderr, "quantize: %s\n", mlxb_error_message(error));
        mlxb_error_free(error);
        return 1;
    }
    return 0;
}
