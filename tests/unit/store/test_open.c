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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(addresses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
