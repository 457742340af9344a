/* test_thread.c - a thread that waits for a spinlock leaves its core to others. */
#include "os/thread.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>
/* cmocka comes after these. */
#include "test.h"

enum { PATIENCE_S = 60, SLEEPS = 10 };

static teffi_spinlock lock;
static _Atomic int waiter; /* its id */

static void wait_for_lock(void *arg)
{
    atomic_store(&waiter, (int)gettid());
    teffi_spinlock_lock(&lock);
    teffi_spinlock_unlock(&lock);
}

/* How often a thread has gone to sleep; a yield is none. */
static unsigned long sleeps_of(int thread)
{
    char text[100];
    unsigned long n = 0;
    snprintf(text, sizeof text, "/proc/self/task/%d/status", thread);
    FILE *file = fopen(text, "r");
    assert_non_null(file);
    while (fgets(text, sizeof text, file) && sscanf(text, "voluntary_ctxt_switches: %lu", &n) != 1)
        ;
    fclose(file);
    return n;
}

static void a_waiter_sleeps_while_the_lock_is_held_for_long(void **state)
{
    teffi_thread thread;
    time_t end = time(NULL) + PATIENCE_S;
    teffi_spinlock_lock(&lock);
    assert_int_equal(teffi_thread_start(&thread, "waiter", wait_for_lock, NULL), TEFF_OK);
    while (!waiter)
        teffi_thread_yield();
    unsigned long before = sleeps_of(waiter), now;
    do
        now = sleeps_of(waiter);
    while (now < before + SLEEPS && time(NULL) < end);
    teffi_spinlock_unlock(&lock);
    teffi_thread_join(&thread);
    assert_true(now >= before + SLEEPS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_waiter_sleeps_while_the_lock_is_held_for_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
