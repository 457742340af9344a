/* test_secret_file.c - which files hold a secret, and what of them is the secret. */
#include "test.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "os/secret_file.h"

static char path[] = P_tmpdir "/teff-secret-XXXXXX";

static int make_file(void **state)
{
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state)
{
    return unlink(path);
}

static void write_file(const void *bytes, size_t n)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static void is_refused(const char *which, const char *why)
{
    char text[TEFF_TEXT_MAX] = "";
    teffi_secret *secret = (teffi_secret *)text;
    assert_int_equal(teffi_secret_read(which, TEFFI_SECRET_MIN, &secret, text), TEFF_E_INVALID);
    assert_null(secret);
    if (!strstr(text, which) || !strstr(text, why))
        fail_msg("'%s' does not name %s and '%s'", text, which, why);
    assert_int_equal(teffi_secret_read(which, TEFFI_SECRET_MIN, &secret, NULL), TEFF_E_INVALID);
}

/* out: the length of the secret in a file of n bytes, whose last ones are end. */
static size_t length_of(size_t n, const char *end)
{
    uint8_t bytes[TEFFI_SECRET_MAX + 16];
    char text[TEFF_TEXT_MAX] = "";
    teffi_secret *secret;
    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)(i % 200 + 32);
    memcpy(bytes + n, end, strlen(end));
    write_file(bytes, n + strlen(end));
    if (teffi_secret_read(path, TEFFI_SECRET_MIN, &secret, text))
        fail_msg("%s", text);
    size_t len = secret->len;
    assert_memory_equal(secret->bytes, bytes, len);
    teffi_secret_free(secret);
    return len;
}

static void one_newline_is_not_part_of_it(void **state)
{
    assert_int_equal(length_of(16, ""), 16);
    assert_int_equal(length_of(16, "\n"), 16);
    assert_int_equal(length_of(16, "\r\n"), 16);
    assert_int_equal(length_of(16, "\n\n"), 17);
    assert_int_equal(length_of(16, "\nx"), 18);
    assert_int_equal(length_of(TEFFI_SECRET_MAX, ""), TEFFI_SECRET_MAX);
    assert_int_equal(length_of(TEFFI_SECRET_MAX, "\r\n"), TEFFI_SECRET_MAX);
}

static void bytes_of_any_value_count(void **state)
{
    static const uint8_t bytes[16] = {0, 0, '\n', 0, 255};
    teffi_secret *secret;
    write_file(bytes, sizeof bytes);
    assert_int_equal(teffi_secret_read(path, TEFFI_SECRET_MIN, &secret, NULL), TEFF_OK);
    assert_int_equal(secret->len, sizeof bytes);
    assert_memory_equal(secret->bytes, bytes, sizeof bytes);
    teffi_secret_free(secret);
    teffi_secret_free(NULL);
}

static void wrong_lengths_are_refused(void **state)
{
    static uint8_t bytes[TEFFI_SECRET_MAX + 10];
    memset(bytes, 'x', sizeof bytes);
    write_file("", 0);
    is_refused(path, "empty");
    write_file("\n", 1);
    is_refused(path, "empty");
    write_file("\r\n", 2);
    is_refused(path, "empty");
    write_file(bytes, 15);
    is_refused(path, "fewer than 16 bytes");
    write_file("0123456789abcde\n", 16);
    is_refused(path, "fewer than 16 bytes");
    write_file(bytes, TEFFI_SECRET_MAX + 1);
    is_refused(path, "more than 1024 bytes");
    write_file(bytes, sizeof bytes);
    is_refused(path, "more than 1024 bytes");
    memcpy(bytes + TEFFI_SECRET_MAX, "\r\nx", 3); /* no newline at its end */
    write_file(bytes, TEFFI_SECRET_MAX + 3);
    is_refused(path, "more than 1024 bytes");
}

static void others_may_not_read_or_write_it(void **state)
{
    static const struct {
        mode_t mode;
        bool ok;
    } rows[] = {{0600, true},  {0400, true},  {0640, true},  {0660, true},  {0601, true},
                {0604, false}, {0602, false}, {0644, false}, {0666, false}, {0444, false}};
    teffi_secret *secret;
    write_file("0123456789abcdef", 16);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(chmod(path, rows[i].mode), 0);
        if (rows[i].ok) {
            assert_int_equal(teffi_secret_read(path, TEFFI_SECRET_MIN, &secret, NULL), TEFF_OK);
            teffi_secret_free(secret);
        } else {
            is_refused(path, "chmod 600");
        }
    }
    assert_int_equal(chmod(path, 0600), 0);
}

static void what_is_no_file_is_refused(void **state)
{
    char fifo[] = P_tmpdir "/teff-secret-fifo-XXXXXX";
    is_refused("/nowhere/at/all", "No such file");
    is_refused(P_tmpdir, "no regular file");
    is_refused("/dev/zero", "no regular file");
    assert_int_equal(rmdir(mkdtemp(fifo)), 0);
    assert_int_equal(mkfifo(fifo, 0600), 0); /* nobody writes: the open does not wait */
    is_refused(fifo, "no regular file");
    assert_int_equal(unlink(fifo), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_newline_is_not_part_of_it),
        cmocka_unit_test(bytes_of_any_value_count),
        cmocka_unit_test(wrong_lengths_are_refused),
        cmocka_unit_test(others_may_not_read_or_write_it),
        cmocka_unit_test(what_is_no_file_is_refused),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
