/* interrupt.c - interrupting a thread by SIGURG.
 * Way:     sched/monitor -> [interrupt] -> pthread_kill -> handler -> fn
 * Threads: as interrupt.h says; the handler calls only what a signal handler may. */
#include "platform/interrupt.h"

#include <signal.h>
#include <ucontext.h>
#include <unistd.h>
#include "base/bug.h"

static struct sigaction before; /* what was installed when we came */
static void (*_Atomic interrupted)(void *context);
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void chain(int signal, siginfo_t *info, void *context)
{
    if (before.sa_flags & SA_SIGINFO)
        before.sa_sigaction(signal, info, context);
    else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)
        before.sa_handler(signal);
}

static void handler(int signal, siginfo_t *info, void *context)
{
    if (info->si_code == SI_TKILL && info->si_pid == getpid())
        atomic_load_explicit(&interrupted, memory_order_relaxed)(context);
    else
        chain(signal, info, context);
}

/* On the stack in use, not the signal stack: a frame there could not be left and come back to. */
static void install(void)
{
    struct sigaction ours = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigemptyset(&ours.sa_mask);
    teffi_bug_if(sigaction(SIGURG, &ours, &before) != 0);
}

void teffi_interrupt_install(void (*fn)(void *context))
{
    atomic_store_explicit(&interrupted, fn, memory_order_relaxed); /* before the handler is there */
    pthread_once(&once, install);
}

static void mask(int how)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGURG);
    pthread_sigmask(how, &set, NULL);
}

void teffi_interrupt_allow(void)
{
    mask(SIG_UNBLOCK);
}

void teffi_interrupt_thread(const teffi_thread *thread)
{
    (void)pthread_kill(thread->id, SIGURG);
}

void teffi_interrupt_leaves(void)
{
    mask(SIG_UNBLOCK);
}

/* The return from the handler unblocks the signal together with everything else. It also sets the
 * thread's signal stack to what the frame says, which is the other thread's. */
void teffi_interrupt_is_back(void *context)
{
    ucontext_t *frame = context;
    stack_t ours;
    mask(SIG_BLOCK);
    if (sigaltstack(NULL, &ours) == 0)
        frame->uc_stack = ours;
}
