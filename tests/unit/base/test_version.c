/* test_version.c - the headers, the library and the build say the same version; teff.h leaves errno
 * alone. */
#include "test.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <teff/teff.h>

static void all_say_the_same(void **state)
{
    char text[64];
    snprintf(text, sizeof text, "%d.%d.%d", TEFF_VERSION_MAJOR, TEFF_VERSION_MINOR,
             TEFF_VERSION_PATCH);
    assert_string_equal(text, PROJECT_VERSION);
    assert_int_equal(teff_version(), TEFF_VERSION);
}

static void versions_can_be_compared(void **state)
{
    assert_true(TEFF_VERSION_OF(0, 2, 0) > TEFF_VERSION_OF(0, 1, 999));
    assert_true(TEFF_VERSION_OF(1, 0, 0) > TEFF_VERSION_OF(0, 999, 999));
}

#define SPELLED(x) SPELLED_AS(x)
#define SPELLED_AS(x) #x

static void errno_is_the_c_librarys(void **state)
{
    assert_null(strstr(SPELLED(errno), "teff"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_say_the_same),
        cmocka_unit_test(versions_can_be_compared),
        cmocka_unit_test(errno_is_the_c_librarys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
