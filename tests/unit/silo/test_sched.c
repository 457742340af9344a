/* test_sched.c - a silo gives metrics of its scheduler, and changes the number of its workers. */
#include <teff/sched.h>
#include <teff/silo.h>
#include "lab.h"

static void do_nothing(void *arg)
{
}

static void a_silo_is_scaled_while_it_serves(void **state)
{
    const teff_sched_options sched = {.size = sizeof sched, .workers_max = 2};
    const teff_silo_options opt = {.size = sizeof opt, .silent = 1, .workers = 1, .sched = &sched};
    char text[TEFF_TEXT_MAX] = "";
    teff_sched_metrics all;
    teff_sched_worker workers[2];
    teff_silo *silo;
    assert_int_equal(teff_silo_new(&opt, &silo, text), TEFF_OK);
    assert_int_equal(teff_silo_scale(silo, 1), TEFF_E_CLOSED);
    assert_int_equal(teff_silo_sched_metrics(silo, &all, workers, 2), 0);
    assert_int_equal(all.workers, 0);
    if (teff_silo_start(silo, text))
        fail_msg("start: %s", text);
    assert_int_equal(teff_silo_scale(silo, 2), TEFF_OK);
    assert_int_equal(teff_silo_scale(silo, 3), TEFF_E_INVALID);
    assert_int_equal(teff_silo_sched_metrics(silo, &all, workers, 2), 2);
    assert_int_equal(all.active, 2);
    teff_ctx *ctx = teff_silo_new_ctx(silo);
    assert_int_equal(teff_post(ctx, do_nothing, NULL), TEFF_OK);
    lab_until(teff_silo_sched_metrics(silo, NULL, workers, 2) == 2 &&
              workers[0].runs + workers[1].runs > 0);
    teff_ctx_free(ctx);
    assert_int_equal(teff_silo_scale(silo, 1), TEFF_OK);
    assert_int_equal(teff_silo_stop(silo, 0), TEFF_OK);
    teff_silo_free(silo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_silo_is_scaled_while_it_serves)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
