/* test_interrupt.c - a fiber interrupted on one thread goes on in another: each thread keeps its
 * own signal mask and signal stack. Signals of others go to the handler that was there before. */
#include "test.h"
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include "fiber/fiber.h"
#include "fiber/sanitize.h"
#include "os/thread.h"

static teffi_fiber_pool *pool;
static teffi_fiber *fiber;
static _Atomic bool spins, back, suspended, over;
static sigset_t of_fiber;

static void on_interrupt(void *context)
{
    teffi_interrupt_allow();
    teffi_fiber_suspend(fiber);
    teffi_interrupt_rebind_to_this_thread(context);
    atomic_store_explicit(&back, true, memory_order_relaxed);
}

static void spin(void *arg)
{
    atomic_store(&spins, true);
    while (!atomic_load_explicit(&back, memory_order_relaxed))
        ;
    pthread_sigmask(SIG_SETMASK, NULL, &of_fiber);
}

typedef struct side {
    int blocked; /* beside what teffi_thread_start leaves blocked */
    bool ended;
    sigset_t before, after;
    bool own_stack; /* afterwards */
} side;

static void resume(void *arg)
{
    side *s = arg;
    sigset_t open;
    stack_t before, after;
    sigemptyset(&open);
    sigaddset(&open, SIGUSR1);
    sigaddset(&open, SIGUSR2);
    sigdelset(&open, s->blocked);
    pthread_sigmask(SIG_UNBLOCK, &open, NULL);
    teffi_interrupt_allow();
    (void)teffi_fiber_thread_enter_pool(pool);
    sigaltstack(NULL, &before);
    pthread_sigmask(SIG_SETMASK, NULL, &s->before);
    s->ended = teffi_fiber_resume(fiber);
    pthread_sigmask(SIG_SETMASK, NULL, &s->after);
    sigaltstack(NULL, &after);
    s->own_stack = before.ss_sp == after.ss_sp && !(after.ss_flags & SS_DISABLE);
    atomic_store(&suspended, true);
    while (!s->ended && !atomic_load(&over))
        teffi_thread_yield();
    teffi_fiber_thread_leave_pool();
}

static void same(const sigset_t *a, const sigset_t *b)
{
    for (int n = 1; n < SIGRTMAX; n++)
        if (sigismember(a, n) != sigismember(b, n))
            fail_msg("signal %d is blocked %s", n, sigismember(a, n) ? "now" : "no more");
}

static void test_each_thread_keeps_its_mask_and_stack(void **state)
{
    teffi_thread thread;
    side first = {.blocked = SIGUSR1}, second = {.blocked = SIGUSR2};
    pool = teffi_fiber_pool_new(0, 0);
    fiber = teffi_fiber_new(pool, spin, NULL);
    teffi_interrupt_install(on_interrupt);
    assert_int_equal(teffi_thread_start(&thread, "first", resume, &first), TEFF_OK);
    while (!atomic_load(&spins))
        teffi_thread_yield();
    teffi_interrupt_thread(&thread);
    while (!atomic_load(&suspended)) /* both threads live, so their stacks are two */
        teffi_thread_yield();
    teffi_thread other;
    assert_int_equal(teffi_thread_start(&other, "second", resume, &second), TEFF_OK);
    teffi_thread_join(&other);
    atomic_store(&over, true);
    teffi_thread_join(&thread);
    assert_false(first.ended);
    assert_true(second.ended);
    assert_true(first.own_stack && second.own_stack);
    assert_true(sigismember(&first.before, SIGUSR1) && !sigismember(&first.before, SIGUSR2));
    assert_true(sigismember(&second.before, SIGUSR2) && !sigismember(&second.before, SIGUSR1));
    same(&first.after, &first.before);
    same(&second.after, &second.before);
    same(&of_fiber, &second.before);
    teffi_fiber_pool_free(pool);
}

/* ---- handlers of others ---- */

static volatile sig_atomic_t ours, theirs;

static void note_ours(void *context)
{
    ours++;
}

static void note_plain(int signal)
{
    theirs += signal == SIGURG;
}

static void note_with_info(int signal, siginfo_t *info, void *context)
{
    theirs += signal == SIGURG && info->si_pid == getpid() && context;
}

/* In a process of its own, as the handler is installed once. out: the exit status: signals that
 * reached the handler before ours, of one that others sent; plus 10 for one of ours. */
static int signals_with(const struct sigaction *before)
{
    sigaction(SIGURG, before, NULL);
    teffi_interrupt_install(note_ours);
    kill(getpid(), SIGURG);
    raise(SIGURG); /* as teffi_interrupt_thread sends it */
    return theirs + 10 * ours;
}

static void test_the_handler_before_gets_others_signals(void **state)
{
    const struct {
        struct sigaction before;
        int status;
    } rows[] = {
        {{.sa_handler = SIG_DFL}, 10},
        {{.sa_handler = SIG_IGN}, 10},
        {{.sa_handler = note_plain}, 11},
        {{.sa_sigaction = note_with_info, .sa_flags = SA_SIGINFO}, 11},
    };
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        pid_t child = fork();
        if (child == 0)
            _exit(signals_with(&rows[i].before));
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), rows[i].status);
    }
}

int main(void)
{
#ifdef TEFFI_TSAN
    return 77; /* it delivers a signal at the next call it knows of: the loop has none */
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_handler_before_gets_others_signals), /* before ours is there */
        cmocka_unit_test(test_each_thread_keeps_its_mask_and_stack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
