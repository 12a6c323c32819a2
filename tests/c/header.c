/* The header is self-contained, may be included twice, and describes the layout that the library
 * was built with (layout.h fails to compile otherwise, and has its twin in Rust). Also compiled
 * as C++ by tools/check-abi. */
#include "mlxb.h"
#include "mlxb.h"
#include "layout.h"

#include "check.h"

static void the_library_knows_a_status_of_the_header(void) {
    CHECK_STR("MLXB_OK", mlxb_status_name(MLXB_OK));
}

int main(void) {
    RUN(the_library_knows_a_status_of_the_header);
    return check_summary();
}
