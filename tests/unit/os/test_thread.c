/* test_thread.c - names and signals of threads, locks that exclude, parkers that keep a token. A
 * thread that waits for a spinlock leaves its core to others. */
#include "os/thread.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
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

/* ---- exclusion ---- */

enum { HOLDERS = 4, TIMES = 300 };
static unsigned holders, most, holds; /* guarded by the lock */

/* Yields inside, so that the others come to wait for long. */
static void hold_often(void *arg)
{
    for (int i = 0; i < TIMES; i++) {
        teffi_spinlock_lock(&lock);
        holds++;
        most = ++holders > most ? holders : most;
        teffi_thread_yield();
        holders--;
        teffi_spinlock_unlock(&lock);
    }
}

static void one_thread_at_a_time_holds_a_lock(void **state)
{
    teffi_thread thread[HOLDERS];
    most = holds = 0;
    for (int i = 0; i < HOLDERS; i++)
        assert_int_equal(teffi_thread_start(&thread[i], "holder", hold_often, NULL), TEFF_OK);
    for (int i = 0; i < HOLDERS; i++)
        teffi_thread_join(&thread[i]);
    assert_int_equal(most, 1);
    assert_int_equal(holds, HOLDERS * TIMES);
}

/* ---- threads ---- */

static char name_seen[16];
static sigset_t blocked_there;

static void note_thread(void *arg)
{
    pthread_getname_np(pthread_self(), name_seen, sizeof name_seen);
    pthread_sigmask(SIG_SETMASK, NULL, &blocked_there);
}

/* Signals of the process go to the program's own threads; a thread's own faults to itself. */
static void a_thread_has_a_name_and_blocks_signals_of_the_process(void **state)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT, SIGPROF};
    teffi_thread thread;
    sigset_t before, after;
    char name[] = "words";
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    assert_int_equal(teffi_thread_start(&thread, name, note_thread, NULL), TEFF_OK);
    name[0] = 'x'; /* it was copied */
    teffi_thread_join(&thread);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    for (int i = 1; i < 32; i++)
        assert_int_equal(sigismember(&before, i), sigismember(&after, i));
    assert_string_equal(name_seen, "words");
    assert_true(sigismember(&blocked_there, SIGTERM) && sigismember(&blocked_there, SIGURG));
    for (unsigned i = 0; i < sizeof faults / sizeof faults[0]; i++)
        assert_false(sigismember(&blocked_there, faults[i]));
}

static void preemptions_are_counted_by_the_system(void **state)
{
    struct rusage before, after;
    getrusage(RUSAGE_THREAD, &before);
    uint64_t n = teffi_thread_count_preemptions();
    getrusage(RUSAGE_THREAD, &after);
    assert_in_range(n, before.ru_nivcsw, after.ru_nivcsw);
}

static _Atomic bool usage_read;

static void run_until_read(void *arg)
{
    while (!atomic_load(&usage_read))
        sched_yield();
}

/* The kernel's own account, if it has one, of a thread that has run for a while; of none that has
 * not begun, or is over. */
static void usage_of_a_thread_is_what_the_system_says(void **state)
{
    teffi_thread thread = {0};
    uint64_t ran_ns = 1, delayed_ns = 1, before_ns = 0;
    assert_false(teffi_thread_read_run_times(&thread, &ran_ns, &delayed_ns));
    atomic_store(&usage_read, false);
    uint64_t cpu_ns = teffi_os_process_cpu_ns();
    assert_int_equal(teffi_thread_start(&thread, "runs", run_until_read, NULL), TEFF_OK);
    while (teffi_os_process_cpu_ns() - cpu_ns < 5000000) /* a tick of the kernel, and more */
        if (teffi_thread_read_run_times(&thread, &ran_ns, &delayed_ns)) {
            assert_true(ran_ns >= before_ns);
            before_ns = ran_ns;
        }
    atomic_store(&usage_read, true);
    teffi_thread_join(&thread);
    while (
        teffi_thread_read_run_times(&thread, &ran_ns, &delayed_ns)) /* it leaves after the join */
        sched_yield();
}

enum { QUERY = 0, PRIVATE_EXPEDITED = 1 << 3 };

static _Atomic unsigned barriers;

long __real_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f);

long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    barriers += number == SYS_membarrier && a == PRIVATE_EXPEDITED;
    return __real_syscall(number, a, b, c, d, e, f);
}

static void a_barrier_of_all_threads_is_there_if_the_system_has_it(void **state)
{
    long has = syscall(SYS_membarrier, QUERY, 0, 0);
    bool expected = has > 0 && has & PRIVATE_EXPEDITED;
    assert_int_equal(teffi_barrier_register_process(), expected);
    barriers = 0;
    if (expected)
        teffi_barrier_run_on_all_threads();
    assert_int_equal(barriers, expected);
}

/* ---- parkers ---- */

static void a_token_waits_for_its_thread(void **state)
{
    teffi_parker parker = {0};
    assert_false(teffi_parker_wait(&parker, 0));
    teffi_parker_wake(&parker);
    teffi_parker_wake(&parker); /* one token */
    assert_true(teffi_parker_has_token(&parker, TEFFI_TOKEN));
    assert_true(teffi_parker_wait(&parker, UINT64_MAX));
    assert_false(teffi_parker_has_token(&parker, TEFFI_TOKEN));
    assert_false(teffi_parker_wait(&parker, 0));
    assert_false(teffi_parker_wait(&parker, 1000)); /* the time is over */
    teffi_parker_wake_with_token(&parker, TEFFI_TOKEN_GIVEN);
    assert_true(teffi_parker_wait(&parker, UINT64_MAX));
    teffi_parker_wake_with_token(&parker, TEFFI_TOKEN_GIVEN);
    teffi_parker_wake_with_token(&parker, TEFFI_TOKEN);
    assert_int_equal(teffi_parker_wait_for_tokens(&parker, UINT64_MAX),
                     TEFFI_TOKEN | TEFFI_TOKEN_GIVEN);
    assert_int_equal(parker.word, 0);
}

static teffi_parker bed;
static uint32_t taken;

static void sleep_there(void *arg)
{
    errno = 0;
    taken = teffi_parker_wait_for_tokens(&bed, UINT64_MAX);
}

static void a_sleeper_is_woken(void **state)
{
    static const uint32_t tokens[] = {TEFFI_TOKEN, TEFFI_TOKEN_GIVEN};
    for (unsigned i = 0; i < 2; i++) {
        teffi_thread thread;
        assert_int_equal(teffi_thread_start(&thread, "sleeper", sleep_there, NULL), TEFF_OK);
        while (atomic_load(&bed.word) != TEFFI_PARKER_ASLEEP)
            teffi_thread_yield();
        errno = 0;
        teffi_parker_wake_with_token(&bed, tokens[i]);
        teffi_thread_join(&thread);
        assert_int_equal(taken, tokens[i]);
    }
}

/* ---- parkers that poll ---- */

static struct {
    teffi_poller poller;
    teffi_poll_parker *parker;
    uint32_t leaves; /* the tokens that come during the wait */
    unsigned waits, wakes;
    uint64_t timeout_ns;
} polled;

static void wait_in_poller(teffi_poller *poller, uint64_t timeout_ns)
{
    assert_ptr_equal(poller, &polled.poller);
    polled.waits++;
    polled.timeout_ns = timeout_ns;
    for (uint32_t bit = 1; bit <= polled.leaves; bit *= 2)
        if (polled.leaves & bit)
            teffi_parker_wake_with_token(&polled.parker->parker, bit);
}

static void wake_in_poller(teffi_poller *poller)
{
    assert_ptr_equal(poller, &polled.poller);
    polled.wakes++;
}

static uint32_t poll_with(uint32_t before, uint32_t meanwhile)
{
    static teffi_poll_parker parker;
    memset(&polled, 0, sizeof polled);
    memset(&parker, 0, sizeof parker);
    polled.poller.wait = wait_in_poller;
    polled.poller.wake = wake_in_poller;
    polled.parker = &parker;
    polled.leaves = meanwhile;
    if (before)
        teffi_parker_wake_with_token(&parker.parker, before);
    return teffi_parker_wait_in_poller(&parker, &polled.poller, 1234);
}

static void a_thread_that_polls_is_woken_in_its_poller(void **state)
{
    assert_int_equal(poll_with(0, 0), 0);
    assert_int_equal(polled.timeout_ns, 1234);
    assert_int_equal(poll_with(0, TEFFI_TOKEN), TEFFI_TOKEN);
    assert_int_equal(polled.wakes, 1);
    assert_int_equal(poll_with(0, TEFFI_TOKEN_GIVEN), TEFFI_TOKEN_GIVEN);
    assert_int_equal(polled.wakes, 1);
    assert_int_equal(poll_with(0, TEFFI_TOKEN | TEFFI_TOKEN_GIVEN),
                     TEFFI_TOKEN | TEFFI_TOKEN_GIVEN);
    assert_int_equal(polled.wakes, 1);
    /* With a token it only looks. */
    assert_int_equal(poll_with(TEFFI_TOKEN, 0), TEFFI_TOKEN);
    assert_int_equal(polled.waits, 1);
    assert_int_equal(polled.timeout_ns, 0);
    assert_int_equal(poll_with(TEFFI_TOKEN, TEFFI_TOKEN_GIVEN), TEFFI_TOKEN | TEFFI_TOKEN_GIVEN);
    assert_int_equal(polled.wakes, 0);
}

static void without_a_poller_a_thread_sleeps(void **state)
{
    teffi_poll_parker parker = {0};
    assert_int_equal(teffi_parker_wait_in_poller(&parker, NULL, 1000), 0);
    teffi_parker_wake(&parker.parker);
    assert_int_equal(teffi_parker_wait_in_poller(&parker, NULL, UINT64_MAX), TEFFI_TOKEN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_waiter_sleeps_while_the_lock_is_held_for_long),
        cmocka_unit_test(one_thread_at_a_time_holds_a_lock),
        cmocka_unit_test(a_thread_has_a_name_and_blocks_signals_of_the_process),
        cmocka_unit_test(preemptions_are_counted_by_the_system),
        cmocka_unit_test(usage_of_a_thread_is_what_the_system_says),
        cmocka_unit_test(a_barrier_of_all_threads_is_there_if_the_system_has_it),
        cmocka_unit_test(a_token_waits_for_its_thread),
        cmocka_unit_test(a_sleeper_is_woken),
        cmocka_unit_test(a_thread_that_polls_is_woken_in_its_poller),
        cmocka_unit_test(without_a_poller_a_thread_sleeps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
