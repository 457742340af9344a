/* test_login.c - options of a store's address: what is taken, and what each refusal says. */
#include "store/login.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "scratch.h"
#include "setup.h"

static teffi_login login;

static void expect_taken(const char *options, bool tls)
{
    char text[TEFF_TEXT_MAX];
    if (teffi_login_parse(&login, options, tls, text) != TEFF_OK)
        fail_msg("%s: %s", options, text);
}

static void each_option_is_taken(void **state)
{
    expect_taken("", false);
    assert_string_equal(login.user, "");
    assert_string_equal(login.password_file, "");
    expect_taken("?password-file=/etc/a=b/c?d,e&user=me", false);
    assert_string_equal(login.user, "me");
    assert_string_equal(login.password_file, "/etc/a=b/c?d,e");
    expect_taken("?ca-file=ca&cert-file=cert", true);
    assert_string_equal(login.user, "");
    assert_string_equal(login.ca_file, "ca");
    assert_string_equal(login.cert_file, "cert");
}

static void expect_refused(const char *options, bool tls, const char *why)
{
    char text[TEFF_TEXT_MAX];
    assert_int_equal(teffi_login_parse(&login, options, tls, text), TEFF_E_INVALID);
    if (!strstr(text, why))
        fail_msg("%s: %s expected", text, why);
}

static void others_are_refused(void **state)
{
    static const char one_value[] = "option user of the store: one value of 1 to 256 bytes";
    char options[512];
    expect_refused("?", false, "option '' of the store: user or password-file expected");
    expect_refused("?pass=x", false, "option 'pass' of the store: user or password-file expected");
    expect_refused("?users=x", false, "option 'users' of the store");
    expect_refused("?use=x", true, "user, password-file, ca-file or cert-file expected");
    expect_refused("?ca-file=x", false, "option 'ca-file' of the store: user or password-file");
    expect_refused("?password-file=a&", false, "option '' of the store");
    expect_refused("?user", false, one_value);
    expect_refused("?user=", false, one_value);
    expect_refused("?user=a&user=b", false, one_value);
    expect_refused("?user=a", false, "option user of the store: password-file expected, too");
    expect_refused("?cert-file=a", true, "option cert-file of the store: ca-file expected, too");
    snprintf(options, sizeof options, "?password-file=x&user=%0256d", 0);
    expect_taken(options, false);
    snprintf(options, sizeof options, "?password-file=x&user=%0257d", 0);
    expect_refused(options, false, one_value);
}

static void the_password_is_read_each_time(void **state)
{
    static const char *const passwords[] = {"one\n", "x"};
    char path[SCRATCH_PATH_MAX], options[512], text[TEFF_TEXT_MAX];
    teffi_secret *password = NULL;
    scratch_path(path, "password");
    snprintf(options, sizeof options, "?password-file=%s", path);
    expect_taken(options, false);
    assert_int_equal(teffi_login_read_password(&login, &password, text), TEFF_E_INVALID);
    for (int i = 0; i < 2; i++) {
        scratch_write(path, passwords[i], strlen(passwords[i]));
        assert_int_equal(chmod(path, 0600), 0);
        assert_int_equal(teffi_login_read_password(&login, &password, text), TEFF_OK);
        assert_int_equal(password->len, strcspn(passwords[i], "\n"));
        assert_memory_equal(password->bytes, passwords[i], password->len);
        teffi_secret_free(password);
    }
    expect_taken("", false);
    assert_int_equal(teffi_login_read_password(&login, &password, text), TEFF_OK);
    assert_null(password);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_option_is_taken),
        cmocka_unit_test(others_are_refused),
        cmocka_unit_test(the_password_is_read_each_time),
    };
    if (scratch_open() != 0)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_close();
    return failed;
}
