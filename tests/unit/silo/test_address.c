/* test_address.c - addresses and cluster ids as users write them. */
#include <stdio.h>
#include <string.h>
#include "test.h"
#include "silo/address.h"

static void good_addresses(void **state)
{
    static const char *const good[] = {
        "127.0.0.1:0", "localhost:65535", "[::1]:7000",        "[fe80::1%2]:1",
        "h:1",         "a-b.example:80",  "[::ffff:1.2.3.4]:5"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        if (!teffi_address_ok(good[i]))
            fail_msg("'%s' was refused", good[i]);
}

static void bad_addresses(void **state)
{
    static const char *const bad[] = {
        "",        ":",     "h",     "h:",        ":1",       "h:65536",   "h:99999",   "h:123456",
        "h:-1",    "h:1x",  "h: 1",  "h 1:2",     "::1:7000", "[::1:7000", "[]:1",      "[::1]",
        "[::g]:1", "a_b:1", "h/x:1", "tcp://h:1", "h:1\n",    "h:+1",      "\xc3\xa4:1"};
    char long_name[400];
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (teffi_address_ok(bad[i]))
            fail_msg("'%s' was taken", bad[i]);
    memset(long_name, 'a', sizeof long_name);
    memcpy(long_name + 395, ":1", 3);
    assert_false(teffi_address_ok(long_name));
}

static void who_can_reach_it(void **state)
{
    assert_true(teffi_address_loopback("127.0.0.1:1"));
    assert_true(teffi_address_loopback("127.9.9.9:1"));
    assert_true(teffi_address_loopback("[::1]:1"));
    assert_true(teffi_address_loopback("localhost:1"));
    assert_false(teffi_address_loopback("10.0.0.1:1"));
    assert_false(teffi_address_loopback("127.example.com:1"));
    assert_false(teffi_address_loopback("localhost.example.com:1"));
    assert_false(teffi_address_loopback("[::]:1"));
    assert_true(teffi_address_any("0.0.0.0:1"));
    assert_true(teffi_address_any("[::]:1"));
    assert_false(teffi_address_any("127.0.0.1:1"));
}

static void cluster_ids(void **state)
{
    static const char *const bad[] = {"", "a b", "a/b", "\xc3\xa4", "a\n"};
    char name[70];
    assert_true(teffi_cluster_ok("dev"));
    assert_true(teffi_cluster_ok("A-z_0.9"));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(teffi_cluster_ok(bad[i]));
    memset(name, 'c', sizeof name);
    name[65] = '\0';
    assert_false(teffi_cluster_ok(name));
    name[64] = '\0';
    assert_true(teffi_cluster_ok(name));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_addresses),
        cmocka_unit_test(bad_addresses),
        cmocka_unit_test(who_can_reach_it),
        cmocka_unit_test(cluster_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
