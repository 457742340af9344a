/* test_stack.c - guards of stacks as on kernels before 6.13: counted, given back, reported, and
 * never silently left out. */
#include "../faults.h"
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/poison.h"
#include "fiber/stack.h"
#include "os/pages.h"

enum { STACK = 16384, GUARDS = 40 };

static bool is_poisoned(char *from, size_t n)
{
#ifdef TEFFI_POISONS
    return __asan_region_is_poisoned(from, n) != NULL;
#else
    return false;
#endif
}

static int setup(void **state)
{
    teffi_guards_simulated = GUARDS;
    return 0;
}

static int teardown(void **state)
{
    teffi_guards_simulated = 0;
    return 0;
}

static void wait_once(void *arg)
{
    teffi_fiber_suspend(teffi_fiber_current());
}

/* Does the system fault when it reads there? */
static bool faults(const char *at)
{
    int fd[2];
    assert_int_equal(pipe(fd), 0);
    ssize_t n = write(fd[1], at, 1);
    bool fault = n < 0 && errno == EFAULT;
    close(fd[0]);
    close(fd[1]);
    return fault;
}

static bool guarded(const teffi_fiber *fiber)
{
    return faults(fiber->low - 1) && faults(fiber->low - TEFFI_GUARD_BYTES) && !faults(fiber->low);
}

/* out: how many of n fibers there were stacks for; all of those are guarded. */
static unsigned run_many(teffi_fiber_pool *pool, unsigned n)
{
    teffi_fiber *fiber[2 * GUARDS];
    unsigned made = 0;
    while (made < n && (fiber[made] = teffi_fiber_new(pool, wait_once, NULL)))
        assert_false(teffi_fiber_resume(fiber[made++]));
    for (unsigned i = 0; i < made; i++) {
        assert_true(guarded(fiber[i]));
        assert_true(teffi_fiber_resume(fiber[i]));
    }
    return made;
}

/* As many in all as ten times the limit. */
static void test_a_pool_gives_its_guards_back(void **state)
{
    for (unsigned round = 0; round < 10; round++) {
        teffi_fiber_pool *pool = teffi_fiber_pool_new(STACK, 0);
        for (unsigned again = 0; again < 3; again++)
            assert_int_equal(run_many(pool, GUARDS), GUARDS);
        teffi_fiber_pool_free(pool);
    }
}

static void test_no_stack_without_a_guard(void **state)
{
    teffi_fiber_pool *pool = teffi_fiber_pool_new(STACK, 0), *other;
    assert_int_equal(run_many(pool, GUARDS + 7), GUARDS);
    assert_int_equal(run_many(pool, GUARDS + 7), GUARDS); /* those serve again */
    assert_non_null(other = teffi_fiber_pool_new(STACK, 0));
    assert_int_equal(run_many(other, 1), 0);
    teffi_fiber_pool_free(pool);
    assert_int_equal(run_many(other, GUARDS + 7), GUARDS);
    teffi_fiber_pool_free(other);
}

static void test_a_reserved_pool_has_guards_of_its_own(void **state)
{
    enum { SOME = 10 };
    teffi_fiber_pool *pool = teffi_fiber_pool_new(STACK, 0);
    teffi_fiber_pool *system = teffi_fiber_pool_new(STACK, 0);
    teffi_fiber_pool_allow_reserved_guards(system);
    assert_int_equal(run_many(pool, GUARDS + SOME), GUARDS);
    assert_int_equal(run_many(system, SOME), SOME);
    teffi_fiber_pool_free(pool);
    teffi_fiber_pool_free(system);
}

/* Stacks whose memory was given back keep their guards. */
static void test_guards_stay_after_a_peak(void **state)
{
    enum { PEAK = 600 };
    static teffi_fiber *fiber[PEAK];
    uint64_t now_ns = 1;
    teffi_guards_simulated = PEAK;
    teffi_fiber_pool *pool = teffi_fiber_pool_new(STACK, 0);
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < PEAK; i++) {
            assert_non_null(fiber[i] = teffi_fiber_new(pool, wait_once, NULL));
            assert_false(teffi_fiber_resume(fiber[i]));
            assert_true(guarded(fiber[i]));
        }
        assert_null(teffi_fiber_new(pool, wait_once, NULL));
        for (unsigned i = 0; i < PEAK; i++)
            assert_true(teffi_fiber_resume(fiber[i]));
        for (now_ns += 1000000000; teffi_fiber_pool_reclaim(pool, now_ns); now_ns += 200000000)
            ;
    }
    teffi_fiber_pool_free(pool);
}

/* ---- memory ---- */

enum { ALL = 1100 };

/* A pool, all of its stacks in use at once. */
static teff_err use_all(void)
{
    static teffi_fiber *fiber[ALL];
    long mapped = atomic_load(&faults_mapped);
    teffi_fiber_pool *pool = teffi_fiber_pool_new(STACK, ALL);
    if (!pool)
        return TEFF_E_NOMEM;
    unsigned n = 0;
    while (n < ALL && (fiber[n] = teffi_fiber_new(pool, wait_once, NULL)))
        assert_false(teffi_fiber_resume(fiber[n++]));
    if (n == ALL)
        assert_int_equal(faults_mapped - mapped, (long)ALL * (STACK + TEFFI_GUARD_BYTES));
    for (unsigned i = 0; i < n; i++)
        assert_true(teffi_fiber_resume(fiber[i]));
    teffi_fiber_pool_free(pool);
    return n == ALL ? TEFF_OK : TEFF_E_NOMEM;
}

/* Regions of 16, 32, 64, 128, 256, 256, 256 and 92 stacks, three requests for each; the pool. */
static void test_stacks_are_mapped_in_regions_that_grow(void **state)
{
    assert_int_equal(fault_sweep(use_all, true), 8 * 3 + 1);
}

/* ---- AddressSanitizer ---- */

static void suspend_for_good(void *arg)
{
    volatile char frame[64]; /* with poison around it */
    *(volatile char **)arg = frame;
    frame[0] = 1;
    teffi_fiber_suspend(teffi_fiber_current());
    frame[1] = frame[0];
}

/* Other memory may be mapped there later. */
static void test_an_unmapped_stack_leaves_no_poison(void **state)
{
    volatile char *frame = NULL;
    teffi_fiber_pool *pool = teffi_fiber_pool_new(STACK, 0);
    teffi_fiber *fiber = teffi_fiber_new(pool, suspend_for_good, &frame);
    assert_non_null(fiber);
    assert_false(teffi_fiber_resume(fiber));
    char *low = fiber->low;
    size_t bytes = (size_t)((char *)fiber - low);
    assert_true(frame > low && frame < low + bytes);
    assert_int_equal(is_poisoned(low, bytes), TEFFI_POISONING);
    teffi_fiber_pool_free(pool);
    assert_false(is_poisoned(low, bytes));
}

/* ---- overflow ---- */

static int eat_stack(volatile int *levels)
{
    volatile char frame[512];
    frame[0] = 1;
    --*levels;
    return *levels ? eat_stack(levels) + frame[0] : 0; /* not a tail call */
}

static void overflow(void *arg)
{
    volatile int levels = 1000000;
    teffi_fiber_set_label(teffi_fiber_current(), arg);
    (void)eat_stack(&levels);
}

/* In a process of its own, since cmocka takes SIGSEGV for itself. */
static int overflow_here(void)
{
    static char label[] = "words.Word.Add";
    alarm(60);
    teffi_guards_simulated = GUARDS;
    teffi_fiber_pool *pool = teffi_fiber_pool_new(0, 0);
    (void)teffi_fiber_thread_enter_pool(pool);
    (void)teffi_fiber_resume(teffi_fiber_new(pool, overflow, label));
    return 0;
}

static void test_overflow_is_reported(void **state)
{
    int fd[2], status = 0;
    char text[4000];
    size_t got = 0;
    ssize_t n;
    assert_int_equal(pipe(fd), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(fd[1], STDERR_FILENO);
        execl("/proc/self/exe", "test_stack", "overflow", (char *)NULL);
        _exit(0);
    }
    close(fd[1]);
    while (got < sizeof text - 1 && (n = read(fd[0], text + got, sizeof text - 1 - got)) > 0)
        got += (size_t)n;
    text[got] = 0;
    close(fd[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_non_null(strstr(text, "stack overflow in words.Word.Add"));
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

/* The usable size is whole pages, as many as the option needs. */
static void test_sizes_are_rounded_up_to_pages(void **state)
{
    static const size_t sizes[][2] = {{65535, 65536}, {65536, 65536}, {65537, 69632}};
    assert_int_equal(sysconf(_SC_PAGESIZE), 4096);
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        teffi_fiber_pool *pool = teffi_fiber_pool_new(sizes[i][0], 0);
        teffi_fiber *fiber = teffi_fiber_new(pool, wait_once, NULL);
        assert_false(teffi_fiber_resume(fiber));
        assert_int_equal(fiber->high - fiber->low, sizes[i][1]);
        assert_true(teffi_fiber_resume(fiber));
        teffi_fiber_pool_free(pool);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return overflow_here();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_pool_gives_its_guards_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_stack_without_a_guard, setup, teardown),
        cmocka_unit_test_setup_teardown(test_an_unmapped_stack_leaves_no_poison, setup, teardown),
        cmocka_unit_test_setup_teardown(test_guards_stay_after_a_peak, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_reserved_pool_has_guards_of_its_own, setup,
                                        teardown),
        cmocka_unit_test(test_stacks_are_mapped_in_regions_that_grow),
        cmocka_unit_test(test_overflow_is_reported),
        cmocka_unit_test(test_sizes_are_rounded_up_to_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
