/* test_main_types.c - teff_silo_main() when memory ran out while the types were made, wherever in
 * the list: it says so and starts nothing. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "lab.h"

enum { PATIENCE_S = 60 };

static const lab_turns_methods turns = {0};
static const lab_hashed_methods hashed = {0};
static bool out_of_memory;

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);

void *__wrap_calloc(size_t n, size_t size)
{
    return out_of_memory ? NULL : __real_calloc(n, size);
}

static teff_grain_type *turns_without_memory(void)
{
    out_of_memory = true;
    teff_grain_type *type = lab_turns_type(&turns, NULL);
    if (type)
        teff_grain_type_priority(type, 1);
    out_of_memory = false;
    return type;
}

/* out: what it said. A silo that starts would wait for a signal: the alarm ends it. */
static char *refused(teff_grain_type *first, teff_grain_type *second)
{
    static char text[1000];
    char name[] = "silo", silent[] = "--quiet", *argv[] = {name, silent, NULL};
    int fd[2], was = dup(STDERR_FILENO);
    assert_int_equal(pipe(fd), 0);
    assert_int_equal(dup2(fd[1], STDERR_FILENO), STDERR_FILENO);
    close(fd[1]);
    alarm(PATIENCE_S);
    int status = teff_silo_main(2, argv, first, second, NULL);
    alarm(0);
    assert_int_equal(dup2(was, STDERR_FILENO), STDERR_FILENO);
    close(was);
    ssize_t n = read(fd[0], text, sizeof text - 1);
    close(fd[0]);
    assert_int_equal(status, 1);
    text[n > 0 ? n : 0] = '\0';
    return text;
}

static void test_the_only_type_is_missing(void **state)
{
    assert_non_null(strstr(refused(turns_without_memory(), NULL), "TEFF_E_NOMEM"));
}

static void test_one_of_two_is_missing(void **state)
{
    assert_non_null(
        strstr(refused(lab_hashed_type(&hashed, NULL), turns_without_memory()), "TEFF_E_NOMEM"));
    assert_non_null(
        strstr(refused(turns_without_memory(), lab_hashed_type(&hashed, NULL)), "TEFF_E_NOMEM"));
}

static void test_no_type_at_all(void **state)
{
    assert_non_null(strstr(refused(NULL, NULL), "no grain type"));
}

static void test_a_silo_refuses_it(void **state)
{
    teff_silo *silo;
    teff_grain_type *type = turns_without_memory();
    assert_int_equal(teff_silo_new(NULL, &silo, NULL), TEFF_OK);
    assert_int_equal(teff_silo_host(silo, type), TEFF_E_NOMEM);
    teff_grain_type_free(type);
    teff_silo_free(silo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_only_type_is_missing),
        cmocka_unit_test(test_one_of_two_is_missing),
        cmocka_unit_test(test_no_type_at_all),
        cmocka_unit_test(test_a_silo_refuses_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
