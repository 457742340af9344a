/* thread.c - threads that run fibers: each has a cache of hot stacks, and a signal stack on which a
 * stack overflow is reported: its handler writes the turn's name to stderr and aborts the process.
 * Way:     a worker -> [thread] -> stack.c; fault on a guard -> [handler] -> stderr -> abort
 * Threads: the calling one. The handler runs on the faulting thread; it calls only
 *          async-signal-safe functions. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>
#include "fiber/stack.h"

enum { SIGNAL_STACK_BYTES = 64 * 1024 };

static struct sigaction before; /* the handler that was installed before ours */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t stack_key; /* its destructor frees the signal stack of a thread that ends */
static bool has_stack_key;      /* without it that stack is leaked */
static TEFFI_LOCAL bool has_entered; /* this thread has entered a pool before */

/* Uses one writev, so that the lines of several threads do not mix. */
static void write_report(const char *what, const char *where)
{
    const char *part[] = {what, where, "\n"};
    struct iovec line[3];
    for (int i = 0; i < 3; i++)
        line[i] = (struct iovec){(void *)(uintptr_t)part[i], strlen(part[i])};
    ssize_t ignored = writev(STDERR_FILENO, line, 3);
    (void)ignored;
}

/* in: at, the address that faulted. */
static bool guard_was_hit(const teffi_fiber *fiber, const char *at)
{
    return fiber && at < fiber->low && at >= fiber->low - TEFFI_GUARD_BYTES;
}

/* Handles a SIGSEGV that is no stack overflow, as if our handler were not installed. */
static void pass_to_previous_handler(int signal, siginfo_t *info, void *context)
{
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(signal, info, context);
        return;
    }
    if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(signal);
        return;
    }
    bool sent = info->si_code <= 0; /* by kill() or the like; no instruction has faulted */
    if (sent && before.sa_handler == SIG_IGN)
        return;
    /* Restore the default action. If an instruction has faulted, it faults again, which ends the
     * process. A signal that was sent is raised again, and delivered when this handler returns. */
    struct sigaction dfl = {.sa_handler = SIG_DFL};
    sigaction(signal, &dfl, NULL);
    if (sent)
        (void)raise(signal);
}

/* Reports a fault on the guard of the running fiber, and aborts; passes other faults on. */
static void overflow_handler(int signal, siginfo_t *info, void *context)
{
    const teffi_fiber *fiber = teffi_fiber_current();
    if (!guard_was_hit(fiber, info->si_addr)) {
        pass_to_previous_handler(signal, info, context);
        return;
    }
    write_report("teff: stack overflow in ", teffi_fiber_get_label(fiber));
    abort();
}

/* SA_ONSTACK: the overflowed stack has no room for a handler. */
static void install_overflow_handler(void)
{
    struct sigaction ours = {.sa_sigaction = overflow_handler, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigemptyset(&ours.sa_mask);
    sigaction(SIGSEGV, NULL, &before);
    sigaction(SIGSEGV, &ours, NULL);
}

/* ---- signal stacks ---- */

/* Sets an alternate signal stack for this thread, unless it has one. out: the argument for
 * free_signal_stack(); NULL: none was set. */
static void *set_signal_stack(void)
{
    stack_t now;
    sigaltstack(NULL, &now);
    if (!(now.ss_flags & SS_DISABLE))
        return NULL; /* the thread has one, perhaps a sanitizer's */
    void *memory = mmap(NULL, SIGNAL_STACK_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    stack_t ours = {.ss_sp = memory, .ss_size = SIGNAL_STACK_BYTES};
    if (sigaltstack(&ours, NULL) != 0) {
        munmap(memory, SIGNAL_STACK_BYTES);
        return NULL;
    }
    return memory;
}

/* The destructor of stack_key. */
static void free_signal_stack(void *stack)
{
    if (!stack)
        return;
    stack_t none = {.ss_flags = SS_DISABLE};
    sigaltstack(&none, NULL);
    munmap(stack, SIGNAL_STACK_BYTES);
}

static void set_up_overflow_handling(void)
{
    install_overflow_handler();
    has_stack_key = !pthread_key_create(&stack_key, free_signal_stack);
}

bool teffi_fiber_thread_enter_pool(teffi_fiber_pool *pool)
{
    pthread_once(&once, set_up_overflow_handling);
    teffi_stacks_begin_cache(pool);
    if (has_entered)
        return false;
    has_entered = true;
    void *stack = set_signal_stack();
    if (has_stack_key)
        (void)pthread_setspecific(stack_key, stack);
    return true;
}

void teffi_fiber_thread_leave_pool(void)
{
    teffi_stacks_end_cache();
}
