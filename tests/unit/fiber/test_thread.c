/* test_thread.c - the signal stack of a thread that runs fibers: from its entry until it ends. */
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include "fiber/fiber.h"
/* cmocka comes after these. */
#include "test.h"

static int setup(void **state)
{
    *state = teffi_fiber_pool_new(0, 0);
    return *state ? 0 : -1;
}

static int teardown(void **state)
{
    teffi_fiber_pool_free(*state);
    return 0;
}

static void *enter_with_own_signal_stack(void *pool)
{
    static char own[65536];
    stack_t now, first, before = {.ss_sp = own, .ss_size = sizeof own};
    sigaltstack(&before, &first);
    (void)teffi_fiber_thread_enter_pool(pool);
    sigaltstack(&first, &now); /* a sanitizer frees its own when the thread ends */
    teffi_fiber_thread_leave_pool();
    return now.ss_sp == own ? own : NULL;
}

static void *enter_without_signal_stack(void *pool)
{
    stack_t now, none = {.ss_flags = SS_DISABLE};
    sigaltstack(&none, NULL); /* of a sanitizer */
    (void)teffi_fiber_thread_enter_pool(pool);
    sigaltstack(NULL, &now);
    teffi_fiber_thread_leave_pool();
    return now.ss_flags & SS_DISABLE ? NULL : pool;
}

static void test_a_thread_gets_a_signal_stack_unless_it_has_one(void **state)
{
    static void *(*const enter[])(void *pool) = {enter_with_own_signal_stack,
                                                 enter_without_signal_stack};
    for (unsigned i = 0; i < 2; i++) {
        pthread_t thread;
        void *right;
        assert_int_equal(pthread_create(&thread, NULL, enter[i], *state), 0);
        pthread_join(thread, &right);
        assert_non_null(right);
    }
}

static void note_signal_stack(void *found)
{
    sigaltstack(NULL, found);
}

static pthread_key_t last_key; /* younger than the runtime's: destructors run by age */

static void *enter_and_note_at_end(void *state)
{
    static stack_t found;
    assert_non_null(enter_without_signal_stack(state));
    assert_int_equal(pthread_key_create(&last_key, note_signal_stack), 0);
    assert_int_equal(pthread_setspecific(last_key, &found), 0);
    return &found;
}

static void test_a_signal_stack_is_left_before_it_is_unmapped(void **state)
{
    pthread_t thread;
    void *found;
    assert_int_equal(pthread_create(&thread, NULL, enter_and_note_at_end, *state), 0);
    pthread_join(thread, &found);
    assert_true(((stack_t *)found)->ss_flags & SS_DISABLE);
    pthread_key_delete(last_key);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_thread_gets_a_signal_stack_unless_it_has_one),
        cmocka_unit_test(test_a_signal_stack_is_left_before_it_is_unmapped),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
