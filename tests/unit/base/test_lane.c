/* test_lane.c - numbers of threads: their own while they live, used again after. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdbool.h>
#include "base/lane.h"

enum { MANY = TEFFI_LANES + 10 };

typedef struct runner {
    pthread_t thread;
    unsigned lane, again;
} runner;

static pthread_barrier_t all_asked;
static int
    plain[TEFFI_LANES]; /* each its lane's: a data race unless lanes are handed on in order */

static void *ask(void *arg)
{
    runner *r = arg;
    r->lane = teffi_lane();
    if (r->lane < TEFFI_LANES)
        plain[r->lane]++;
    (void)pthread_barrier_wait(&all_asked);
    r->again = teffi_lane();
    return NULL;
}

static void run(runner *runners, int n)
{
    assert_int_equal(pthread_barrier_init(&all_asked, NULL, (unsigned)n), 0);
    for (int i = 0; i < n; i++)
        assert_int_equal(pthread_create(&runners[i].thread, NULL, ask, &runners[i]), 0);
    for (int i = 0; i < n; i++)
        pthread_join(runners[i].thread, NULL);
    (void)pthread_barrier_destroy(&all_asked);
}

static void each_living_thread_has_its_own(void **state)
{
    runner runners[8];
    bool seen[TEFFI_LANES] = {false};
    (void)state;
    seen[teffi_lane()] = true;
    run(runners, 8);
    for (int i = 0; i < 8; i++) {
        assert_true(runners[i].lane < TEFFI_LANES && !seen[runners[i].lane]);
        assert_int_equal(runners[i].again, runners[i].lane);
        seen[runners[i].lane] = true;
    }
}

static void a_thread_that_ended_leaves_its_number(void **state)
{
    runner one;
    (void)state;
    run(&one, 1);
    unsigned lane = one.lane;
    for (int i = 0; i < 2 * TEFFI_LANES; i++) {
        run(&one, 1);
        assert_int_equal(one.lane, lane);
    }
    assert_true(plain[lane] > 2 * TEFFI_LANES);
}

static void too_many_threads_share(void **state)
{
    static runner runners[MANY];
    int without = 0;
    (void)state;
    unsigned own = teffi_lane();
    run(runners, MANY);
    for (int i = 0; i < MANY; i++) {
        without += runners[i].lane == TEFFI_LANES;
        assert_int_equal(runners[i].again, runners[i].lane);
    }
    assert_int_equal(without, MANY - (TEFFI_LANES - 1));
    assert_int_equal(teffi_lane(), own);
    run(runners, 1); /* and their numbers are back */
    assert_true(runners[0].lane < TEFFI_LANES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_living_thread_has_its_own),
        cmocka_unit_test(a_thread_that_ended_leaves_its_number),
        cmocka_unit_test(too_many_threads_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
