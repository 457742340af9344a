/* test_address.c - addresses as users write them: an option accepts what a transport can open. */
#include <string.h>
#include "test.h"
#include "message/hello.h"
#include "stream/stream.h"

static void good_addresses(void **state)
{
    static const char *const good[] = {"127.0.0.1:0",    "localhost:65535",     "[::1]:7000", "h:1",
                                       "a-b.example:80", "[::ffff:1.2.3.4]:5",  "a_b:1",      "_:1",
                                       "h:00001",        "unix:/run/teff.sock", "unix:/a"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        if (!teffi_address_is_valid(good[i]))
            fail_msg("'%s' was refused", good[i]);
}

static void bad_addresses(void **state)
{
    static const char *const bad[] = {"",
                                      ":",
                                      "h",
                                      "h:",
                                      ":1",
                                      "h:65536",
                                      "h:99999",
                                      "h:-1",
                                      "h:1x",
                                      "h: 1",
                                      "h 1:2",
                                      "::1:7000",
                                      "[::1:7000",
                                      "[]:1",
                                      "[::g]:1",
                                      "h/x:1",
                                      "tcp://h:1",
                                      "h:1\n",
                                      "h:+1",
                                      "[::1]",
                                      "h:123456",
                                      "h%2:1",
                                      "[fe80::1%2]:1",
                                      "[%]:1",
                                      "[::1_]:1",
                                      "\xc3\xa4:1",
                                      "unix:",
                                      "unix:/",
                                      "unix:a",
                                      "unix:/a b",
                                      "unix:/a,b",
                                      "unix:/a\n",
                                      "unix:/a\x7f",
                                      "unix:1"};
    char long_name[400];
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (teffi_address_is_valid(bad[i]))
            fail_msg("'%s' was taken", bad[i]);
    memset(long_name, 'a', sizeof long_name);
    memcpy(long_name, "unix:/", 6);
    long_name[5 + 108] = '\0'; /* one byte too long */
    assert_false(teffi_address_is_valid(long_name));
    long_name[5 + 107] = '\0';
    assert_true(teffi_address_is_valid(long_name));
    memset(long_name, 'a', sizeof long_name);
    memcpy(long_name + 395, ":1", 3);
    assert_false(teffi_address_is_valid(long_name));
    memcpy(long_name + TEFFI_ADDRESS_MAX - 1, ":1", 3); /* one byte too long */
    assert_false(teffi_address_is_valid(long_name));
    memcpy(long_name + TEFFI_ADDRESS_MAX - 2, ":1", 3);
    assert_true(teffi_address_is_valid(long_name));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_addresses),
        cmocka_unit_test(bad_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
