/* test_address.c - who can reach an address; cluster ids as users write them. */
#include <string.h>
#include "test.h"
#include "silo/address.h"

static void who_can_reach_it(void **state)
{
    assert_true(teffi_address_is_loopback("127.0.0.1:1"));
    assert_true(teffi_address_is_loopback("127.9.9.9:1"));
    assert_true(teffi_address_is_loopback("[::1]:1"));
    assert_true(teffi_address_is_loopback("localhost:1"));
    assert_false(teffi_address_is_loopback("10.0.0.1:1"));
    assert_false(teffi_address_is_loopback("127.example.com:1"));
    assert_false(teffi_address_is_loopback("localhost.example.com:1"));
    assert_false(teffi_address_is_loopback("[::]:1"));
    assert_true(teffi_address_is_wildcard("0.0.0.0:1"));
    assert_true(teffi_address_is_wildcard("[::]:1"));
    assert_false(teffi_address_is_wildcard("127.0.0.1:1"));
}

static void cluster_ids(void **state)
{
    static const char *const bad[] = {"", "a b", "a/b", "\xc3\xa4", "a\n"};
    char name[70];
    assert_true(teffi_cluster_id_is_valid("dev"));
    assert_true(teffi_cluster_id_is_valid("A-z_0.9"));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(teffi_cluster_id_is_valid(bad[i]));
    memset(name, 'c', sizeof name);
    name[65] = '\0';
    assert_false(teffi_cluster_id_is_valid(name));
    name[64] = '\0';
    assert_true(teffi_cluster_id_is_valid(name));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_can_reach_it),
        cmocka_unit_test(cluster_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
