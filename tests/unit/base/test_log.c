/* test_log.c - lines: level, cutting, control characters. */
#include "base/log.h"

#include <stdio.h>
#include <string.h>
/* cmocka comes after these. */
#include "test.h"

/* What was written. */
typedef struct page {
    char line[2000];
    teff_log_level level;
    unsigned lines;
} page;

static void note(void *arg, teff_log_level level, const char *line)
{
    page *p = arg;
    strncpy(p->line, line, sizeof p->line - 1);
    p->level = level;
    p->lines++;
}

static void levels(void **state)
{
    page p = {0};
    teffi_log log = {.write = note, .arg = &p, .level = TEFF_LOG_WARN};
    teffi_logf(&log, TEFF_LOG_ERROR, "%s %d", "error", 1);
    assert_string_equal(p.line, "error 1");
    assert_int_equal(p.level, TEFF_LOG_ERROR);
    teffi_logf(&log, TEFF_LOG_WARN, "warn");
    assert_string_equal(p.line, "warn");
    teffi_logf(&log, TEFF_LOG_INFO, "info");
    assert_int_equal(p.lines, 2);
}

static void nowhere_to_write(void **state)
{
    teffi_log log = {.level = TEFF_LOG_INFO};
    teffi_logf(NULL, TEFF_LOG_ERROR, "lost");
    teffi_logf(&log, TEFF_LOG_ERROR, "lost");
}

static void control_characters(void **state)
{
    page p = {0};
    teffi_log log = {.write = note, .arg = &p, .level = TEFF_LOG_INFO};
    teffi_logf(&log, TEFF_LOG_INFO, "a\nb\x1b[31m\x7f\r\t \xc3\xa4");
    assert_string_equal(p.line, "a?b?[31m??? \xc3\xa4");
}

static void long_lines_are_cut(void **state)
{
    page p = {0};
    teffi_log log = {.write = note, .arg = &p, .level = TEFF_LOG_INFO};
    char text[1500];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    teffi_logf(&log, TEFF_LOG_INFO, "%s", text);
    assert_int_equal(strlen(p.line), 999);
}

static void note_line(void *arg, const char *line)
{
    note(arg, TEFF_LOG_INFO, line);
}

static void lines_of_a_report(void **state)
{
    page p = {0};
    const teffi_lines to = {note_line, &p};
    teffi_lines_write_line(&to, "%s\n%d", "a", 7);
    assert_string_equal(p.line, "a?7");
    teffi_lines_write_line(&to, "%02000d", 7);
    assert_int_equal(p.lines, 2);
    assert_int_equal(strlen(p.line), TEFFI_LINE_MAX - 1);
}

static void a_line_is_printed_to_a_file(void **state)
{
    char text[20] = "";
    FILE *file = tmpfile();
    assert_non_null(file);
    teff_line_print(file, "one");
    teff_line_print(file, "two");
    rewind(file);
    assert_int_equal(fread(text, 1, sizeof text - 1, file), 8);
    assert_string_equal(text, "one\ntwo\n");
    assert_int_equal(fclose(file), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels),
        cmocka_unit_test(nowhere_to_write),
        cmocka_unit_test(control_characters),
        cmocka_unit_test(long_lines_are_cut),
        cmocka_unit_test(lines_of_a_report),
        cmocka_unit_test(a_line_is_printed_to_a_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
