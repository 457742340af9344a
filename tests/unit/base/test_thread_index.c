/* test_thread_index.c - numbers of threads: their own while they live, used again after. */
#include "test.h"

#include <pthread.h>
#include <stdbool.h>
#include "base/thread_index.h"

enum { MANY = TEFFI_THREAD_INDEXES + 10 };

typedef struct runner {
    pthread_t thread;
    unsigned index, again;
} runner;

static pthread_barrier_t all_asked;
static int plain
    [TEFFI_THREAD_INDEXES]; /* each its thread's: a data race unless an index is reused in order */

static void *ask(void *arg)
{
    runner *r = arg;
    r->index = teffi_thread_index();
    if (r->index < TEFFI_THREAD_INDEXES)
        plain[r->index]++;
    (void)pthread_barrier_wait(&all_asked);
    r->again = teffi_thread_index();
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
    bool seen[TEFFI_THREAD_INDEXES] = {false};
    seen[teffi_thread_index()] = true;
    run(runners, 8);
    for (int i = 0; i < 8; i++) {
        assert_true(runners[i].index < TEFFI_THREAD_INDEXES && !seen[runners[i].index]);
        assert_int_equal(runners[i].again, runners[i].index);
        seen[runners[i].index] = true;
    }
}

static void a_thread_that_ended_leaves_its_number(void **state)
{
    runner one;
    run(&one, 1);
    unsigned index = one.index;
    for (int i = 0; i < 2 * TEFFI_THREAD_INDEXES; i++) {
        run(&one, 1);
        assert_int_equal(one.index, index);
    }
    assert_true(plain[index] > 2 * TEFFI_THREAD_INDEXES);
}

/* ---- the end of a thread ---- */

static pthread_key_t later; /* made after the indexes' own, so its destructor runs later */
static runner ending, meanwhile;

static void ask_at_the_end(void *arg)
{
    (void)arg;
    ending.again = teffi_thread_index();
    (void)pthread_create(&meanwhile.thread, NULL, ask, &meanwhile);
    pthread_join(meanwhile.thread, NULL);
}

static void *ask_now_and_at_the_end(void *arg)
{
    runner *r = arg;
    r->index = teffi_thread_index();
    (void)pthread_setspecific(later, r);
    return NULL;
}

static void a_destructor_may_ask(void **state)
{
    unsigned own = teffi_thread_index();
    assert_int_equal(pthread_key_create(&later, ask_at_the_end), 0);
    assert_int_equal(pthread_barrier_init(&all_asked, NULL, 1), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&ending.thread, NULL, ask_now_and_at_the_end, &ending), 0);
        pthread_join(ending.thread, NULL);
        assert_true(ending.again < TEFFI_THREAD_INDEXES && ending.again != own);
        assert_true(meanwhile.index != ending.again && meanwhile.index != own);
    }
    (void)pthread_barrier_destroy(&all_asked);
    (void)pthread_key_delete(later);
}

static void too_many_threads_share(void **state)
{
    static runner runners[MANY];
    int without = 0;
    unsigned own = teffi_thread_index();
    run(runners, MANY);
    for (int i = 0; i < MANY; i++) {
        without += runners[i].index == TEFFI_THREAD_INDEXES;
        assert_int_equal(runners[i].again, runners[i].index);
    }
    assert_int_equal(without, MANY - (TEFFI_THREAD_INDEXES - 1));
    assert_int_equal(teffi_thread_index(), own);
    run(runners, 1); /* and their numbers are back */
    assert_true(runners[0].index < TEFFI_THREAD_INDEXES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_living_thread_has_its_own),
        cmocka_unit_test(a_thread_that_ended_leaves_its_number),
        cmocka_unit_test(a_destructor_may_ask),
        cmocka_unit_test(too_many_threads_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
