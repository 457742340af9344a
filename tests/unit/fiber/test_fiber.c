/* test_fiber.c - switching, nesting, moving between threads, reuse, limits, overflow reports. */
#include "../death.h"
#include <fcntl.h>
#include <fenv.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <teff/errno.h>
#include <unistd.h>
#include "fiber/fiber.h"
#include "os/thread.h"

static int setup(void **state)
{
    *state = teffi_fiber_pool_new(0, 0);
    (void)teffi_fiber_thread_enter_pool(*state);
    return *state ? 0 : -1;
}

static int teardown(void **state)
{
    teffi_fiber_thread_leave_pool();
    teffi_fiber_pool_free(*state);
    return 0;
}

static void count_thrice(void *arg)
{
    int *n = arg;
    for (int i = 0; i < 3; i++) {
        ++*n;
        teffi_fiber_suspend(teffi_fiber_current());
    }
}

static void test_suspend_and_resume(void **state)
{
    int n = 0;
    teffi_fiber *fiber = teffi_fiber_new(*state, count_thrice, &n);
    assert_null(teffi_fiber_current());
    for (int i = 1; i <= 3; i++) {
        assert_false(teffi_fiber_resume(fiber));
        assert_int_equal(n, i);
        assert_null(teffi_fiber_current());
    }
    assert_true(teffi_fiber_resume(fiber));
    assert_int_equal(n, 3);
}

static teffi_fiber_pool *nest_pool;

static void nest(void *arg)
{
    int *depth = arg;
    teffi_fiber *self = teffi_fiber_current();
    if (++*depth < 50) {
        teffi_fiber *inner = teffi_fiber_new(nest_pool, nest, depth);
        if (!teffi_fiber_resume(inner) && !teffi_fiber_resume(inner))
            *depth = -1000;
    }
    if (teffi_fiber_current() != self)
        *depth = -1000;
    teffi_fiber_suspend(self);
}

static void test_nested(void **state)
{
    int depth = 0;
    nest_pool = *state;
    teffi_fiber *outer = teffi_fiber_new(*state, nest, &depth);
    assert_false(teffi_fiber_resume(outer));
    assert_int_equal(depth, 50);
    assert_true(teffi_fiber_resume(outer));
}

static void note_address(void *arg)
{
    volatile char here = 0;
    *(uintptr_t *)arg = (uintptr_t)&here + (uintptr_t)here;
}

static void test_newest_stack_is_reused(void **state)
{
    uintptr_t a = 0, b = 0;
    assert_true(teffi_fiber_resume(teffi_fiber_new(*state, note_address, &a)));
    assert_true(teffi_fiber_resume(teffi_fiber_new(*state, note_address, &b)));
    assert_true(a == b && a != 0);
}

static void take_address(void *arg)
{
    void **a = arg; /* the pool, then where its stack lies */
    uintptr_t at = 0;
    if (teffi_fiber_resume(teffi_fiber_new(a[0], note_address, &at)))
        a[1] = (void *)at;
}

static uintptr_t address_elsewhere(teffi_fiber_pool *pool)
{
    teffi_thread thread;
    void *a[2] = {pool, NULL};
    assert_int_equal(teffi_thread_start(&thread, "elsewhere", take_address, a), TEFF_OK);
    teffi_thread_join(&thread);
    return (uintptr_t)a[1];
}

/* From enter to leave a thread keeps the stack for itself; then others have it. */
static void enter_and_leave(void *arg)
{
    uintptr_t a = 0, b = 0;
    teffi_fiber_pool *pool = arg;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(teffi_fiber_thread_enter_pool(pool), i == 0);
        assert_true(teffi_fiber_resume(teffi_fiber_new(pool, note_address, &a)));
        assert_true(address_elsewhere(pool) != a);
        assert_true(teffi_fiber_resume(teffi_fiber_new(pool, note_address, &b)));
        assert_true(b == a);
        teffi_fiber_thread_leave_pool();
        assert_true(address_elsewhere(pool) == a);
    }
}

static void test_a_thread_keeps_stacks_until_it_leaves(void **state)
{
    teffi_thread thread; /* a new one, which has not entered before */
    teffi_fiber_pool *pool = teffi_fiber_pool_new(0, 0);
    assert_int_equal(teffi_thread_start(&thread, "enters", enter_and_leave, pool), TEFF_OK);
    teffi_thread_join(&thread);
    teffi_fiber_pool_free(pool);
}

/* ---- what a fiber begins with, and how it ends ---- */

static char used[3];

static void use_fields(void *arg)
{
    teffi_fiber *fiber = teffi_fiber_current();
    bool new = !*teffi_fiber_newest_join_pointer() && !*teffi_fiber_local(fiber);
    *(bool *)arg = new &&strcmp(teffi_fiber_get_label(fiber), "a turn") == 0;
    *teffi_fiber_newest_join_pointer() = &used[0];
    *teffi_fiber_local(fiber) = &used[1];
    teffi_fiber_set_label(fiber, "used");
    assert_string_equal(teffi_fiber_get_label(fiber), "used");
}

static void test_a_fiber_on_a_used_stack_begins_anew(void **state)
{
    for (int i = 0; i < 3; i++) {
        bool new = false;
        assert_true(teffi_fiber_resume(teffi_fiber_new(*state, use_fields, &new)));
        assert_true(new);
    }
}

static void leave_early(void *arg)
{
    ++*(int *)arg;
    teffi_fiber_exit();
}

static void test_exit_ends_a_fiber(void **state)
{
    int n = 0;
    for (int i = 0; i < 3; i++)
        assert_true(teffi_fiber_resume(teffi_fiber_new(*state, leave_early, &n)));
    assert_int_equal(n, 3);
}

/* ---- preemptible regions ---- */

static void look_at_region(void *arg)
{
    teffi_fiber *fiber = teffi_fiber_current();
    static char elsewhere;
    char here;
    bool *in = arg;
    in[0] = teffi_fiber_may_be_preempted(fiber, &here);
    teffi_fiber_set_preemptible(fiber, true);
    in[1] = teffi_fiber_may_be_preempted(fiber, &here);
    in[2] = teffi_fiber_may_be_preempted(fiber, &elsewhere);
    in[3] = teffi_fiber_may_be_preempted(fiber, (void *)UINTPTR_MAX);
    in[4] = teffi_fiber_may_be_preempted(fiber, NULL);
    teffi_fiber_set_preemptible(fiber, false);
    in[5] = teffi_fiber_may_be_preempted(fiber, &here);
}

static void test_a_region_is_on_the_fibers_own_stack(void **state)
{
    static const bool expected[6] = {false, true, false, false, false, false};
    bool in[6];
    assert_true(teffi_fiber_resume(teffi_fiber_new(*state, look_at_region, in)));
    assert_memory_equal(in, expected, sizeof in);
}

static void begin_region(void *arg)
{
    void (*then)(teffi_fiber * fiber) = *(void (**)(teffi_fiber * fiber)) arg;
    teffi_fiber_set_label(teffi_fiber_current(), "words.Word.Add");
    teffi_fiber_set_preemptible(teffi_fiber_current(), true);
    if (then)
        then(teffi_fiber_current());
}

static void exit_fiber(teffi_fiber *fiber)
{
    teffi_fiber_exit();
}

static void resume_running(teffi_fiber *fiber)
{
    (void)teffi_fiber_resume(fiber);
}

static void (*in_region)(teffi_fiber *fiber);

static void run_region(void)
{
    teffi_fiber_pool *pool = teffi_fiber_pool_new(0, 0);
    (void)teffi_fiber_resume(teffi_fiber_new(pool, begin_region, &in_region));
}

static void test_a_broken_rule_ends_the_process_with_its_name(void **state)
{
    static const struct {
        void (*then)(teffi_fiber *fiber);
        const char *line;
    } rows[] = {
        {NULL, "words.Word.Add: it returned after teff_preemptible_begin"},
        {exit_fiber, "words.Word.Add: it ended after teff_preemptible_begin"},
        {teffi_fiber_suspend, "words.Word.Add: it waits between teff_preemptible_begin"},
        {resume_running, "bug at"},
    };
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        in_region = rows[i].then;
        assert_true(dies_with(run_region, rows[i].line));
    }
}

enum { MANY = 1000 };

static void test_many_at_once(void **state)
{
    static teffi_fiber *fiber[MANY];
    int n = 0;
    for (unsigned i = 0; i < MANY; i++) {
        fiber[i] = teffi_fiber_new(*state, count_thrice, &n);
        assert_non_null(fiber[i]);
        assert_false(teffi_fiber_resume(fiber[i]));
    }
    for (unsigned round = 0; round < 3; round++)
        for (unsigned i = 0; i < MANY; i++)
            assert_int_equal(teffi_fiber_resume(fiber[i]), round == 2);
    assert_int_equal(n, 3 * MANY);
}

static void test_limit(void **state)
{
    int n = 0;
    teffi_fiber_pool *pool = teffi_fiber_pool_new(16384, 20);
    teffi_fiber *fiber[20];
    for (unsigned i = 0; i < 20; i++)
        assert_non_null(fiber[i] = teffi_fiber_new(pool, count_thrice, &n));
    assert_null(teffi_fiber_new(pool, count_thrice, &n));
    for (unsigned i = 0; i < 20; i++)
        while (!teffi_fiber_resume(fiber[i]))
            ;
    assert_non_null(fiber[0] = teffi_fiber_new(pool, count_thrice, &n));
    while (!teffi_fiber_resume(fiber[0]))
        ;
    teffi_fiber_pool_free(pool);
}

/* ---- a thread's cache ---- */

enum { OWN = 100 };

/* out: how many stacks there are for this thread. */
static unsigned count_stacks(teffi_fiber_pool *pool)
{
    teffi_fiber *fiber[OWN];
    unsigned n = 0;
    int ignored = 0;
    while (n < OWN && (fiber[n] = teffi_fiber_new(pool, count_thrice, &ignored)))
        n++;
    for (unsigned i = 0; i < n; i++)
        while (!teffi_fiber_resume(fiber[i]))
            ;
    return n;
}

static void count_elsewhere(void *arg)
{
    void **a = arg;
    *(unsigned *)a[1] = count_stacks(a[0]);
}

/* A full cache gives the older half of its 64 stacks to the others. */
static void test_a_thread_keeps_64_stacks_at_most(void **state)
{
    teffi_thread thread;
    unsigned n = 0;
    teffi_fiber_pool *pool = teffi_fiber_pool_new(16384, OWN);
    void *a[2] = {pool, &n};
    teffi_fiber_thread_leave_pool();
    (void)teffi_fiber_thread_enter_pool(pool);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(count_stacks(pool), OWN);
        assert_int_equal(teffi_thread_start(&thread, "elsewhere", count_elsewhere, a), TEFF_OK);
        teffi_thread_join(&thread);
        assert_int_equal(n, 64);
    }
    teffi_fiber_thread_leave_pool();
    assert_int_equal(count_stacks(pool), OWN);
    teffi_fiber_pool_free(pool);
    (void)teffi_fiber_thread_enter_pool(*state);
}

/* ---- after a peak ---- */

enum { PEAK = 1000, FREE_MIN = 256, FREE_MAX = 400 };
static const uint64_t second_ns = 1000000000;

static void wait_on_stack(void *arg)
{
    *(void **)arg = __builtin_frame_address(0);
    teffi_fiber_suspend(teffi_fiber_current());
}

static void peak(teffi_fiber_pool *pool, void **at)
{
    static teffi_fiber *fiber[PEAK];
    for (unsigned i = 0; i < PEAK; i++) {
        assert_non_null(fiber[i] = teffi_fiber_new(pool, wait_on_stack, &at[i]));
        assert_false(teffi_fiber_resume(fiber[i]));
    }
    for (unsigned i = 0; i < PEAK; i++)
        assert_true(teffi_fiber_resume(fiber[i]));
}

static unsigned in_memory(void **at)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    unsigned n = 0;
    for (unsigned i = 0; i < PEAK; i++) {
        unsigned char in;
        assert_int_equal(mincore((void *)((uintptr_t)at[i] & ~(page - 1)), page, &in), 0);
        n += in & 1;
    }
    return n;
}

/* Stacks that nobody needs for long hold no memory, and serve again. */
static void test_after_a_peak(void **state)
{
    static void *at[PEAK];
    uint64_t now_ns = second_ns;
    unsigned calls = 0;
    teffi_fiber_pool *pool = teffi_fiber_pool_new(0, PEAK);
    for (int round = 0; round < 3; round++, now_ns += second_ns) {
        peak(pool, at);
        assert_int_equal(in_memory(at), PEAK);
        assert_true(teffi_fiber_pool_reclaim(pool, now_ns)); /* it looks, and sees them there */
        assert_int_equal(in_memory(at), PEAK);
        now_ns += second_ns;
        while (teffi_fiber_pool_reclaim(pool, now_ns))
            assert_true(++calls < 100);
        assert_in_range(in_memory(at), FREE_MIN, FREE_MAX);
    }
    assert_true(calls > 3); /* in slices */
    teffi_fiber_pool_free(pool);
}

/* What is taken between two looks is not given back. */
static void test_no_peak(void **state)
{
    static void *at[PEAK];
    teffi_fiber_pool *pool = teffi_fiber_pool_new(0, PEAK);
    peak(pool, at);
    assert_true(teffi_fiber_pool_reclaim(pool, second_ns));
    for (unsigned i = 2; i < 5; i++) {
        peak(pool, at);
        assert_true(teffi_fiber_pool_reclaim(pool, i * second_ns));
        assert_int_equal(in_memory(at), PEAK);
    }
    teffi_fiber_pool_free(pool);
}

/* Between two looks, 0.1 s apart, at most what the first one found is given back. */
static void test_a_look_is_for_a_tenth_of_a_second(void **state)
{
    static void *at[PEAK];
    teffi_fiber_pool *pool = teffi_fiber_pool_new(0, PEAK);
    assert_false(teffi_fiber_pool_reclaim(pool, second_ns)); /* it has none */
    peak(pool, at);
    for (unsigned ms = 0; ms < 100; ms += 9) {
        assert_true(teffi_fiber_pool_reclaim(pool, 2 * second_ns + ms * second_ns / 1000));
        assert_int_equal(in_memory(at), PEAK);
    }
    assert_true(teffi_fiber_pool_reclaim(pool, 2 * second_ns + second_ns / 10));
    assert_true(in_memory(at) < PEAK);
    teffi_fiber_pool_free(pool);
}

static void use_stack(void *arg)
{
    volatile char big[48 * 1024];
    unsigned sum = 0;
    for (size_t i = 0; i < sizeof big; i++)
        big[i] = (char)i;
    for (size_t i = 0; i < sizeof big; i++)
        sum += (unsigned char)big[i];
    *(unsigned *)arg = sum;
}

static void test_most_of_the_stack_is_usable(void **state)
{
    unsigned sum = 0;
    assert_true(teffi_fiber_resume(teffi_fiber_new(*state, use_stack, &sum)));
    assert_int_equal(sum, 48 * 4 * (255 * 128));
}

/* ---- what a switch keeps ---- */

static void round_up(void *arg)
{
    fesetround(FE_UPWARD);
    teffi_fiber_suspend(teffi_fiber_current());
    *(int *)arg = fegetround() == FE_UPWARD;
}

static void test_rounding_mode_is_the_fibers_own(void **state)
{
    int kept = 0;
    teffi_fiber *fiber = teffi_fiber_new(*state, round_up, &kept);
    assert_false(teffi_fiber_resume(fiber));
    assert_int_equal(fegetround(), FE_TONEAREST);
    assert_true(teffi_fiber_resume(fiber));
    assert_true(kept);
    assert_int_equal(fegetround(), FE_TONEAREST);
}

static void note_rounding(void *arg)
{
    *(int *)arg = fegetround();
    fesetround(FE_DOWNWARD); /* a fiber that ends takes its mode along */
}

typedef struct rounder {
    teffi_fiber_pool *pool;
    int inner, after;
} rounder;

static void round_up_and_run_another(void *arg)
{
    rounder *r = arg;
    fesetround(FE_UPWARD);
    (void)teffi_fiber_resume(teffi_fiber_new(r->pool, note_rounding, &r->inner));
    r->after = fegetround();
}

static void test_rounding_mode_is_not_inherited(void **state)
{
    rounder r = {.pool = *state, .inner = -1, .after = -1};
    for (int i = 0; i < 3; i++) {
        assert_true(teffi_fiber_resume(teffi_fiber_new(*state, round_up_and_run_another, &r)));
        assert_int_equal(r.inner, FE_TONEAREST);
        assert_int_equal(r.after, FE_UPWARD);
        assert_int_equal(fegetround(), FE_TONEAREST);
    }
}

static void many_locals(void *arg)
{
    volatile uint64_t seed = 7;
    uint64_t a = seed, b = a * 3, c = b * 5, d = c * 7, e = d * 11, f = e * 13, g = f * 17;
    double x = (double)seed * 1.5, y = x * 2.5;
    for (int i = 0; i < 100; i++) {
        teffi_fiber_suspend(teffi_fiber_current());
        a += b ^ c;
        d += e ^ f;
        g += a + d;
        x += y;
    }
    *(uint64_t *)arg = a + b + c + d + e + f + g + (uint64_t)x;
}

static void test_registers_survive(void **state)
{
    uint64_t alone = 0, mixed[10] = {0};
    teffi_fiber *fiber[10], *one = teffi_fiber_new(*state, many_locals, &alone);
    while (!teffi_fiber_resume(one))
        ;
    for (unsigned i = 0; i < 10; i++)
        fiber[i] = teffi_fiber_new(*state, many_locals, &mixed[i]);
    for (unsigned round = 0; round <= 100; round++)
        for (unsigned i = 0; i < 10; i++)
            assert_int_equal(teffi_fiber_resume(fiber[i]), round == 100);
    for (unsigned i = 0; i < 10; i++)
        assert_true(mixed[i] == alone && alone != 0);
}

static void note_alignment(void *arg)
{
    *(uintptr_t *)arg = (uintptr_t)__builtin_frame_address(0) % 16;
}

static void test_stack_is_aligned(void **state)
{
    uintptr_t rest = 99;
    assert_true(teffi_fiber_resume(teffi_fiber_new(*state, note_alignment, &rest)));
    assert_int_equal(rest, 0);
}

/* ---- moving between threads ---- */

enum { MOVERS = 50, MOVES = 40 };

typedef struct mover {
    teffi_fiber *fiber;
    _Atomic int errors;
    int left;
} mover;

/* errno in grain code is a call: written on one thread, it must not show up on another. */
static void move(void *arg)
{
    mover *m = arg;
    for (m->left = MOVES; m->left > 0; m->left--) {
        int *before = teff_errno();
        errno = m->left;
        if (*before != m->left)
            atomic_fetch_add(&m->errors, 1);
        teffi_fiber_suspend(m->fiber);
        errno = 0;
        if (errno != 0)
            atomic_fetch_add(&m->errors, 1);
    }
}

typedef struct crew {
    pthread_mutex_t lock;
    mover *todo[MOVERS]; /* first in, first out: consecutive resumes are on different threads */
    unsigned head, count, left;
    teffi_fiber_pool *pool;
} crew;

static mover *take(crew *c)
{
    pthread_mutex_lock(&c->lock);
    mover *m = NULL;
    if (c->count) {
        m = c->todo[c->head];
        c->head = (c->head + 1) % MOVERS;
        c->count--;
    }
    pthread_mutex_unlock(&c->lock);
    return m;
}

static bool put(crew *c, mover *m, bool ended)
{
    pthread_mutex_lock(&c->lock);
    if (ended)
        c->left--;
    else
        c->todo[(c->head + c->count++) % MOVERS] = m;
    pthread_mutex_unlock(&c->lock);
    return true;
}

static bool all_done(crew *c)
{
    pthread_mutex_lock(&c->lock);
    bool done = c->left == 0;
    pthread_mutex_unlock(&c->lock);
    return done;
}

static void work(void *arg)
{
    crew *c = arg;
    (void)teffi_fiber_thread_enter_pool(c->pool);
    while (!all_done(c)) {
        mover *m = take(c);
        if (m)
            (void)put(c, m, teffi_fiber_resume(m->fiber));
        else
            teffi_thread_yield();
    }
    teffi_fiber_thread_leave_pool();
}

static void test_fibers_move_between_threads(void **state)
{
    static mover m[MOVERS];
    crew c = {.lock = PTHREAD_MUTEX_INITIALIZER, .pool = *state, .left = MOVERS, .count = MOVERS};
    teffi_thread thread[3];
    for (unsigned i = 0; i < MOVERS; i++) {
        m[i] = (mover){.fiber = teffi_fiber_new(*state, move, &m[i])};
        c.todo[i] = &m[i];
    }
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(teffi_thread_start(&thread[i], "mover", work, &c), TEFF_OK);
    for (unsigned i = 0; i < 3; i++)
        teffi_thread_join(&thread[i]);
    for (unsigned i = 0; i < MOVERS; i++) {
        assert_int_equal(m[i].left, 0);
        assert_int_equal(atomic_load(&m[i].errors), 0);
    }
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
    teffi_fiber_set_label(teffi_fiber_current(), arg);
    volatile int levels = 1000000;
    (void)eat_stack(&levels);
}

static void write_nowhere(void *arg)
{
    volatile uintptr_t nowhere = 16;
    *(volatile char *)nowhere = 1;
}

static void on_fault(int signal)
{
    _exit(signal == SIGSEGV ? 71 : 1);
}

static void on_fault_with_info(int signal, siginfo_t *info, void *context)
{
    _exit(info->si_addr == (void *)16 && context ? 72 : 1);
}

/* In a process of its own, since cmocka takes SIGSEGV for itself. */
static int fault(const char *how)
{
    static char label[] = "words.Word.Add teff";
    if (strcmp(how, "siginfo") == 0)
        sigaction(SIGSEGV,
                  &(struct sigaction){.sa_sigaction = on_fault_with_info, .sa_flags = SA_SIGINFO},
                  NULL);
    else if (strcmp(how, "handler") == 0)
        (void)signal(SIGSEGV, on_fault);
    else if (strcmp(how, "ignored") == 0)
        (void)signal(SIGSEGV, SIG_IGN);
    teffi_fiber_pool *pool = teffi_fiber_pool_new(0, 0);
    (void)teffi_fiber_thread_enter_pool(pool);
    alarm(60);
    if (strcmp(how, "overflow") == 0)
        (void)teffi_fiber_resume(teffi_fiber_new(pool, overflow, label));
    else if (strcmp(how, "in a fiber") == 0)
        (void)teffi_fiber_resume(teffi_fiber_new(pool, write_nowhere, NULL));
    else if (strcmp(how, "sent") == 0 || strcmp(how, "ignored") == 0)
        (void)kill(getpid(), SIGSEGV); /* by another process, say */
    else
        write_nowhere(NULL);
    return 0;
}

/* out: stderr in text, with a '|' behind each write; the wait status. */
static int run_fault(const char *how, char *text, size_t size)
{
    int fd[2], status = 0;
    size_t got = 0;
    ssize_t n;
    assert_int_equal(pipe2(fd, O_DIRECT), 0); /* a read ends where a write did */
    pid_t child = fork();
    if (child == 0) {
        dup2(fd[1], STDERR_FILENO);
        execl("/proc/self/exe", "test_fiber", how, (char *)NULL);
        _exit(0);
    }
    close(fd[1]);
    while (got < size - 2 && (n = read(fd[0], text + got, size - 2 - got)) > 0) {
        got += (size_t)n;
        text[got++] = '|';
    }
    text[got] = 0;
    close(fd[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void test_overflow_names_the_turn(void **state)
{
    char text[4000];
    int status = run_fault("overflow", text, sizeof text);
    /* One write, so that lines of other threads stay whole too. */
    assert_non_null(strstr(text, "teff: stack overflow in words.Word.Add teff\n|"));
    assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_false(WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM);
}

/* Any other fault ends the process as it would have without us. */
static void test_other_faults_are_passed_on(void **state)
{
    static const char *const hows[] = {"other", "in a fiber", "sent"};
    char text[4000];
    for (unsigned i = 0; i < sizeof hows / sizeof hows[0]; i++) {
        int status = run_fault(hows[i], text, sizeof text);
        assert_null(strstr(text, "stack overflow"));
        assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        assert_false(WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM);
    }
}

static void test_an_ignored_signal_stays_ignored(void **state)
{
    char text[4000];
    int status = run_fault("ignored", text, sizeof text);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void test_a_handler_that_was_there_gets_other_faults(void **state)
{
    char text[4000];
    int status = run_fault("handler", text, sizeof text);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 71);
    status = run_fault("siginfo", text, sizeof text);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 72);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return fault(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_suspend_and_resume, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nested, setup, teardown),
        cmocka_unit_test_setup_teardown(test_newest_stack_is_reused, setup, teardown),
        cmocka_unit_test(test_a_thread_keeps_stacks_until_it_leaves),
        cmocka_unit_test_setup_teardown(test_a_fiber_on_a_used_stack_begins_anew, setup, teardown),
        cmocka_unit_test_setup_teardown(test_exit_ends_a_fiber, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_region_is_on_the_fibers_own_stack, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_broken_rule_ends_the_process_with_its_name, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_thread_keeps_64_stacks_at_most, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_limit, setup, teardown),
        cmocka_unit_test(test_after_a_peak),
        cmocka_unit_test(test_no_peak),
        cmocka_unit_test(test_a_look_is_for_a_tenth_of_a_second),
        cmocka_unit_test_setup_teardown(test_most_of_the_stack_is_usable, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rounding_mode_is_the_fibers_own, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rounding_mode_is_not_inherited, setup, teardown),
        cmocka_unit_test_setup_teardown(test_registers_survive, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stack_is_aligned, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fibers_move_between_threads, setup, teardown),
        cmocka_unit_test_setup_teardown(test_overflow_names_the_turn, setup, teardown),
        cmocka_unit_test_setup_teardown(test_other_faults_are_passed_on, setup, teardown),
        cmocka_unit_test_setup_teardown(test_an_ignored_signal_stays_ignored, setup, teardown),
        cmocka_unit_test(test_a_handler_that_was_there_gets_other_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
