/* test_error.c - the names of errors; their numbers are on the wire and never change. */
#include "base/error.h"

#include <stdio.h>
#include <string.h>
/* cmocka comes after these. */
#include "test.h"

static void every_error_has_its_name(void **state)
{
    char previous[32] = "";
    assert_string_equal(teff_err_name(TEFF_OK), "TEFF_OK");
    for (int i = TEFF_E_INVALID; i <= TEFF_E_ABORTED; i++) {
        const char *name = teff_err_name((teff_err)i);
        assert_non_null(name);
        assert_int_equal(strncmp(name, "TEFF_E_", 7), 0);
        assert_string_not_equal(name, previous);
        snprintf(previous, sizeof previous, "%s", name);
    }
    assert_string_equal(teff_err_name((teff_err)(TEFF_E_ABORTED + 1)), "TEFF_E_INVALID");
}

static void a_text_is_written_if_there_is_room_for_one(void **state)
{
    char text[TEFF_TEXT_MAX];
    assert_int_equal(teffi_fail(text, TEFF_E_IO, "file %s: %d", "a", 7), TEFF_E_IO);
    assert_string_equal(text, "file a: 7");
    assert_int_equal(teffi_fail(NULL, TEFF_E_NOMEM, "%s", "b"), TEFF_E_NOMEM);
    assert_int_equal(teffi_fail(text, TEFF_E_IO, "%600s", ""), TEFF_E_IO);
    assert_int_equal(strlen(text), TEFF_TEXT_MAX - 1);
}

static void numbers_stay(void **state)
{
    assert_int_equal(TEFF_E_TIMEOUT, 3);
    assert_int_equal(TEFF_E_UNKNOWN, 5);
    assert_int_equal(TEFF_E_CONFLICT, 13);
    assert_int_equal(TEFF_E_DEADLOCK, 19);
    assert_int_equal(TEFF_E_USER, 1000);
}

static void user_errors(void **state)
{
    const char *zero = teff_err_name(TEFF_E_USER), *more = teff_err_name(TEFF_E_USER(77));
    assert_string_equal(zero, "user error 0");
    assert_string_equal(more, "user error 77");
    assert_string_equal(teff_err_name(TEFF_E_MAX), "user error 64535");
    assert_ptr_equal(teff_err_name(TEFF_E_USER), zero); /* and both stay */
    assert_string_equal(more, "user error 77");
    assert_int_equal(TEFF_E_USER(0), TEFF_E_USER);
    assert_string_equal(teff_err_name((teff_err)(TEFF_E_USER - 1)), "TEFF_E_INVALID");
    assert_string_equal(teff_err_name((teff_err)(TEFF_E_MAX + 1)), "TEFF_E_INVALID");
}

static void unknown_outcomes(void **state)
{
    for (int i = TEFF_OK; i <= TEFF_E_ABORTED; i++) {
        int unknown = i == TEFF_E_TIMEOUT || i == TEFF_E_UNREACHABLE || i == TEFF_E_UNKNOWN ||
                      i == TEFF_E_CANCELLED;
        assert_int_equal(teff_call_may_have_run((teff_err)i) != 0, unknown);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_error_has_its_name),
        cmocka_unit_test(a_text_is_written_if_there_is_room_for_one),
        cmocka_unit_test(numbers_stay),
        cmocka_unit_test(user_errors),
        cmocka_unit_test(unknown_outcomes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
