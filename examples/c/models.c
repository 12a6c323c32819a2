/* The models on this machine: which there are, which one is meant, and what can go.
 *
 *   models list
 *   models resolve QUERY
 *   models gc [--yes] [--force]      without --yes, only says what would go
 *
 * The hub is where huggingface_hub has it: HF_HUB_CACHE, or HF_HOME, or ~/.cache/huggingface/hub.
 */
#include <mlxb.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "1.2 GB"; `text` holds at least 16 bytes. */
static const char *size_text(uint64_t bytes, char *text) {
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    double size = (double)bytes;
    size_t unit = 0;
    while (size >= 999.5 && unit + 1 < sizeof units / sizeof *units) {
        size /= 1000;
        unit++;
    }
    snprintf(text, 16, unit == 0 || size >= 99.5 ? "%.0f %s" : "%.1f %s", size, units[unit]);
    return text;
}

/* "7.6B", as models are called; "-" when it is not known. */
static const char *count_text(int64_t count, char *text) {
    if (count < 0) {
        return "-";
    }
    if (count >= 1000000000) {
        snprintf(text, 16, "%.1fB", (double)count / 1e9);
    } else if (count >= 1000000) {
        snprintf(text, 16, "%.0fM", (double)count / 1e6);
    } else {
        snprintf(text, 16, "%.0fK", (double)count / 1e3);
    }
    return text;
}

static void print_model(const mlxb_model_record *model) {
    char size[16], count[16], bits[16] = "-";
    if (model->quant_bits > 0) {
        snprintf(bits, sizeof bits, "%d-bit", (int)model->quant_bits);
    }
    printf("%9s  %6s  %6s  %s%s%s%s%s\n", size_text(model->size_bytes, size),
           count_text(model->parameter_count, count), bits, model->repo_id,
           model->is_complete ? "" : "  [incomplete]",
           model->is_supported ? "" : "  [not supported]", model->is_drafter ? "  [drafter]" : "",
           model->vision_capable ? "  [vision]" : "");
}

static int list(mlxb_error **error) {
    mlxb_registry *registry = NULL;
    mlxb_model_list *models = NULL;
    mlxb_list_options options;
    size_t index, count;
    uint64_t bytes = 0;
    char text[16];
    int failed = 1;

    mlxb_list_options_init(&options, sizeof options);
    options.canonical_only = 1;
    if (mlxb_registry_open(NULL, &registry, error) != MLXB_OK ||
        mlxb_registry_scan(registry, NULL, NULL, NULL, error) != MLXB_OK ||
        mlxb_registry_list(registry, &options, &models, error) != MLXB_OK) {
        goto done;
    }
    count = mlxb_model_list_count(models);
    for (index = 0; index < count; index++) {
        mlxb_model_record model = {.struct_size = sizeof model};
        if (mlxb_model_list_get(models, index, &model, error) != MLXB_OK) {
            goto done;
        }
        print_model(&model);
        bytes += model.size_bytes + model.sidecar_bytes;
    }
    printf("%zu models, %s\n", count, size_text(bytes, text));
    failed = 0;

done:
    mlxb_model_list_free(models);
    mlxb_registry_close(registry);
    return failed;
}

static int resolve(const char *query, mlxb_error **error) {
    mlxb_registry *registry = NULL;
    mlxb_model_list *found = NULL;
    mlxb_model_record model = {.struct_size = sizeof model};
    int failed = 1;

    if (mlxb_registry_open(NULL, &registry, error) == MLXB_OK &&
        mlxb_registry_scan(registry, NULL, NULL, NULL, error) == MLXB_OK &&
        mlxb_registry_resolve(registry, query, &found, error) == MLXB_OK &&
        mlxb_model_list_get(found, 0, &model, error) == MLXB_OK) {
        print_model(&model);
        printf("%s\n", model.path);
        failed = 0;
    }
    mlxb_model_list_free(found);
    mlxb_registry_close(registry);
    return failed;
}

static int print_plan(const mlxb_gc_plan *plan, mlxb_error **error) {
    size_t index, count = mlxb_gc_plan_count(plan);
    char text[16];
    for (index = 0; index < count; index++) {
        mlxb_gc_item item = {.struct_size = sizeof item};
        if (mlxb_gc_plan_get(plan, index, &item, error) != MLXB_OK) {
            return 1;
        }
        switch (item.kind) {
        case MLXB_GC_KEPT:
            printf("keep  %9s  %s %.12s (%s)\n", size_text(item.bytes, text), item.repo_id,
                   item.revision, item.reason);
            break;
        case MLXB_GC_SKIPPED:
            printf("skip  %9s  %s %.12s (%s)\n", size_text(item.bytes, text), item.repo_id,
                   item.revision, item.reason);
            break;
        case MLXB_GC_PRUNED:
            printf("prune %9s  %s %.12s\n", size_text(item.bytes, text), item.repo_id,
                   item.revision);
            break;
        case MLXB_GC_DEAD_BLOB:
            printf("blob  %9s  %s\n", size_text(item.bytes, text), item.path);
            break;
        case MLXB_GC_LEFT:
            printf("leave            %s (%s)\n", item.path, item.reason);
            break;
        default: /* a later version's */
            break;
        }
    }
    return 0;
}

static int collect(bool execute, bool force, mlxb_error **error) {
    mlxb_gc_plan *plan = NULL;
    mlxb_gc_result result = {.struct_size = sizeof result};
    char text[16];
    int failed = 1;

    if (mlxb_gc_plan_create(NULL, NULL, force, &plan, error) != MLXB_OK ||
        print_plan(plan, error) != 0) {
        goto done;
    }
    if (!execute) {
        printf("would free %s; nothing was deleted: add --yes\n",
               size_text(mlxb_gc_plan_bytes(plan), text));
        failed = 0;
        goto done;
    }
    if (mlxb_gc_plan_execute(plan, &result, error) != MLXB_OK) {
        goto done;
    }
    printf("freed %s: %llu snapshots, %llu blobs\n", size_text(result.bytes, text),
           (unsigned long long)result.snapshot_count, (unsigned long long)result.blob_count);
    if (result.left_count > 0) {
        char *report = NULL;
        printf("%llu things are still there:\n", (unsigned long long)result.left_count);
        if (mlxb_gc_plan_report(plan, &report, error) != MLXB_OK) {
            goto done;
        }
        printf("%s\n", report);
        mlxb_string_free(report);
    }
    failed = 0;

done:
    mlxb_gc_plan_free(plan);
    return failed;
}

static int usage(void) {
    fprintf(stderr, "usage: models list | resolve QUERY | gc [--yes] [--force]\n");
    return 2;
}

int main(int argument_count, char **arguments) {
    mlxb_error *error = NULL;
    const char *command = argument_count > 1 ? arguments[1] : "";
    int failed;

    if (strcmp(command, "list") == 0 && argument_count == 2) {
        failed = list(&error);
    } else if (strcmp(command, "resolve") == 0 && argument_count == 3) {
        failed = resolve(arguments[2], &error);
    } else if (strcmp(command, "gc") == 0) {
        bool execute = false, force = false;
        int index;
        for (index = 2; index < argument_count; index++) {
            if (strcmp(arguments[index], "--yes") == 0) {
                execute = true;
            } else if (strcmp(arguments[index], "--force") == 0) {
                force = true;
            } else {
                return usage();
            }
        }
        failed = collect(execute, force, &error);
    } else {
        return usage();
    }
    if (error != NULL) {
        const char *detail = mlxb_error_detail(error);
        fprintf(stderr, "models: %s\n", mlxb_error_message(error));
        if (detail != NULL) {
            fprintf(stderr, "%s\n", detail);
        }
        mlxb_error_free(error);
    }
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
