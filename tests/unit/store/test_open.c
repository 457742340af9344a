/* test_open.c - which addresses are taken. */
#include "store/store.h"

#include <string.h>
#include "setup.h"

static void addresses(void **state)
{
    static const char *const bad[] = {NULL, "", "memory:", "sqlit:x", "postgre:x", "sqlite", " "};
    char text[TEFF_TEXT_MAX];
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        teffi_store *store = (teffi_store *)1;
        assert_int_equal(teffi_store_open(bad[i], &store, text), TEFF_E_INVALID);
        assert_null(store);
        assert_non_null(strstr(text, teffi_store_check_address(bad[i])));
        assert_int_equal(teffi_store_open(bad[i], &store, NULL), TEFF_E_INVALID);
    }
    teffi_store *store;
    assert_int_equal(teffi_store_open("sqlite:", &store, text), TEFF_E_INVALID);
    assert_non_null(strstr(text, "file name"));
    assert_null(teffi_store_check_address("memory"));
    assert_null(teffi_store_check_address("sqlite:x"));
    teffi_store_close(NULL);
}

static void only_what_may_hold_a_password_is_hidden(void **state)
{
    static const struct {
        const char *address, *shown;
    } rows[] = {
        {"sqlite:a/b.db", "sqlite:a/b.db"},
        {"redis:h:1/n?user=u&password-file=f", "redis:h:1/n?user=u&password-file=f"},
        {"redis:h:1?password-file=/password", "redis:h:1?password-file=/password"},
        {"postgres:host=h password = y", "postgres:..."},
        {"postgres:host=h password\t= y", "postgres:..."},
        {"redis:h:1?password-file=f&password=y", "redis:..."},
        {"postgres:dbname=x PASSWORD=y", "postgres:..."},
        {"postgres://u:y@h/x", "postgres:..."},
        {"nothing@all", "nothing:..."},
    };
    char shown[TEFFI_STORE_SHOWN_MAX], longest[1000];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_string_equal(teffi_store_mask_address(rows[i].address, shown), rows[i].shown);
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    assert_int_equal(strlen(teffi_store_mask_address(longest, shown)), 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(addresses),
                                       cmocka_unit_test(only_what_may_hold_a_password_is_hidden)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
