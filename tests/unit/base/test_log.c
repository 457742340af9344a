/* test_log.c - lines: level, cutting, control characters. */
#include "base/log.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels),
        cmocka_unit_test(nowhere_to_write),
        cmocka_unit_test(control_characters),
        cmocka_unit_test(long_lines_are_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
