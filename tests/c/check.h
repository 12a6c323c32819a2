/* Checks. A test is a function that checks; a program RUNs its tests and ends with
 * `return check_summary();`. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int checks_failed, tests_passed, tests_failed;

/* Any thread may check. */
static inline int check_count(int passed) {
    if (!passed)
        __atomic_add_fetch(&checks_failed, 1, __ATOMIC_RELAXED);
    return passed;
}

/* A test passes when none of its checks fails; one that hangs ends the program. */
#define RUN(test) check_run(#test, test)
static inline void check_run(const char *name, void (*test)(void)) {
    int failed = checks_failed;
    alarm(300);
    test();
    alarm(0);
    if (checks_failed == failed) {
        tests_passed++;
    } else {
        tests_failed++;
        fprintf(stderr, "failed: %s\n", name);
    }
}

#define CHECK(condition)                                                             \
    (check_count((condition) ? 1 : 0)                                                \
         ? (void)0                                                                   \
         : (void)fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition))

#define CHECK_INT(expected, actual) \
    check_int(__FILE__, __LINE__, #actual, (long long)(expected), (long long)(actual))
static inline void check_int(const char *file, int line, const char *what, long long expected,
                             long long actual) {
    if (!check_count(expected == actual))
        fprintf(stderr, "%s:%d: %s is %lld, not %lld\n", file, line, what, actual, expected);
}

#define CHECK_STR(expected, actual) check_str(__FILE__, __LINE__, #actual, expected, actual)
static inline void check_str(const char *file, int line, const char *what, const char *expected,
                             const char *actual) {
    if (!check_count(actual && strcmp(expected, actual) == 0))
        fprintf(stderr, "%s:%d: %s is \"%s\", not \"%s\"\n", file, line, what,
                actual ? actual : "(NULL)", expected);
}

/* The folder of a test model: "f32", "bf16", "mlx4" or "tiny". */
static inline const char *test_model(const char *name) {
    static _Thread_local char path[4096]; /* threads load models, too */
    const char *models = getenv("MLXB_TEST_MODELS");
    if (!models) {
        fprintf(stderr, "MLXB_TEST_MODELS is not set: run tests/c/run\n");
        exit(2);
    }
    snprintf(path, sizeof path, "%s/%s", models, name);
    return path;
}

static inline int check_summary(void) {
    printf("%d passed, %d failed\n", tests_passed, tests_failed);
    return checks_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
