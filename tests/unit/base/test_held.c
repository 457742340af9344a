/* test_held.c - a lock that is held where a turn may be suspended ends the process; one that was
 * given back before does not. */
#include "test.h"
#include <signal.h>
#include <sys/wait.h>
#include <teff/sched.h>
#include <unistd.h>
#include "base/held.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void here(void)
{
    teffi_may_suspend();
}

static void in_library(void)
{
    (void)teff_yield_if_due();
}

static void under_lock(void (*suspends)(void))
{
    pthread_mutex_lock(&lock);
    suspends();
    pthread_mutex_unlock(&lock);
}

static void under_trylock(void (*suspends)(void))
{
    if (pthread_mutex_trylock(&lock) == 0)
        suspends();
}

static void nothing(void)
{
}

static void after_lock(void (*suspends)(void))
{
    under_lock(nothing);
    suspends();
}

static void *given_back(void *arg)
{
    pthread_mutex_unlock(&lock);
    return arg;
}

static void by_another_thread(void (*suspends)(void))
{
    pthread_t other;
    pthread_mutex_lock(&lock);
    pthread_create(&other, NULL, given_back, NULL);
    pthread_join(other, NULL);
    suspends();
}

/* out: did it end by abort? */
static int aborts(void (*how)(void (*suspends)(void)), void (*suspends)(void))
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(STDERR_FILENO);
        how(suspends);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void test_a_held_lock_is_seen(void **state)
{
    assert_true(aborts(under_lock, here));
    assert_true(aborts(under_trylock, here));
    assert_false(aborts(after_lock, here));
    assert_true(aborts(by_another_thread, here));
}

/* Only where the library counts: in builds for debuggers and sanitizers. */
static void test_a_call_that_may_suspend_looks(void **state)
{
    assert_int_equal(aborts(under_lock, in_library), LIBRARY_COUNTS);
    assert_false(aborts(after_lock, in_library));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_held_lock_is_seen),
        cmocka_unit_test(test_a_call_that_may_suspend_looks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
