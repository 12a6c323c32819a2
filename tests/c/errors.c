/* Statuses and error objects without a call that failed. */
#include "mlxb.h"

#include "check.h"

static void statuses_have_names(void) {
    CHECK_STR("MLXB_INVALID_ARGUMENT", mlxb_status_name(MLXB_INVALID_ARGUMENT));
    CHECK_STR("MLXB_BACKEND", mlxb_status_name(MLXB_BACKEND));
    CHECK_STR("MLXB_POISONED", mlxb_status_name(MLXB_POISONED));
}

static void numbers_that_are_no_status_are_unknown(void) {
    CHECK_STR("MLXB_UNKNOWN", mlxb_status_name(-1));
    CHECK_STR("MLXB_UNKNOWN", mlxb_status_name(10));
    CHECK_STR("MLXB_UNKNOWN", mlxb_status_name(INT32_MAX));
    CHECK_STR("MLXB_UNKNOWN", mlxb_status_name(INT32_MIN));
}

static void no_error_is_an_empty_error(void) {
    CHECK_INT(MLXB_OK, mlxb_error_status(NULL));
    CHECK_STR("", mlxb_error_message(NULL));
    CHECK(mlxb_error_detail(NULL) == NULL);
    mlxb_error_free(NULL);
}

int main(void) {
    RUN(statuses_have_names);
    RUN(numbers_that_are_no_status_are_unknown);
    RUN(no_error_is_an_empty_error);
    return check_summary();
}
