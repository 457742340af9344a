/* test_options.c - options of older and newer callers, and of those that forgot the size. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <teff/error.h>
#include "base/options.h"

typedef struct old_options {
    size_t size;
    int a;
} old_options;

typedef struct options {
    size_t size;
    int a;
    long b;
} options;

typedef struct new_options {
    size_t size;
    int a;
    long b, c;
} new_options;

static bool take(options *to, const void *from, char *text)
{
    *to = (options){1, 2, 3};
    return teffi_options_check_and_copy(to, sizeof *to, from, "options", text);
}

static void members_that_are_not_there_are_zero(void **state)
{
    options to;
    old_options old = {sizeof old, 7};
    (void)state;
    assert_true(take(&to, &old, NULL));
    assert_int_equal(to.size, sizeof to);
    assert_int_equal(to.a, 7);
    assert_int_equal(to.b, 0);
    assert_true(take(&to, NULL, NULL));
    assert_int_equal(to.a, 0);
}

static void newer_members_must_not_be_set(void **state)
{
    options to;
    new_options new = {.size = sizeof new, .a = 7, .b = 8};
    char text[TEFF_TEXT_MAX] = "";
    (void)state;
    assert_true(take(&to, &new, text));
    assert_int_equal(to.b, 8);
    struct {
        new_options options;
        long behind;
    } larger = {.options = new, .behind = 1};
    assert_true(take(&to, &larger.options, text));
    new.c = 1;
    assert_false(take(&to, &new, text));
    assert_string_equal(text, "a member of options is set that this library does not have");
}

static void the_size_must_be_set(void **state)
{
    static const size_t wrong[] = {0, 1, sizeof(size_t) - 1, 1 << 20, SIZE_MAX};
    char text[TEFF_TEXT_MAX];
    options to, from = {.a = 7};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        from.size = wrong[i];
        assert_false(take(&to, &from, NULL));
    }
    from.size = 0;
    assert_false(take(&to, &from, text));
    assert_string_equal(text, "options.size is 0: set it to sizeof(options)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_that_are_not_there_are_zero),
        cmocka_unit_test(newer_members_must_not_be_set),
        cmocka_unit_test(the_size_must_be_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
