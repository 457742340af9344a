/* interrupt.c - interrupts a thread by SIGURG.
 * Threads: the handler calls only what a signal handler may. */
#include "os/thread.h"

#include <signal.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>
#include "base/bug.h"

enum { KERNEL_MASK_BYTES = 8 }; /* 64 signals */

static struct sigaction before; /* the handler that was installed before */
static void (*_Atomic interrupted)(void *context);
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Calls the handler that was installed before; if there is none, ignores the signal, as SIGURG is
 * ignored by default. */
static void call_previous_handler(int signal, siginfo_t *info, void *context)
{
    if (before.sa_flags & SA_SIGINFO)
        before.sa_sigaction(signal, info, context);
    else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)
        before.sa_handler(signal);
}

/* The handler of SIGURG. If this process sent the signal by pthread_kill(), as
 * teffi_interrupt_thread() does, calls the function set by teffi_interrupt_install(). Passes every
 * other SIGURG to the handler that was installed before. */
static void handle_sigurg(int signal, siginfo_t *info, void *context)
{
    if (info->si_code == SI_TKILL && info->si_pid == getpid())
        atomic_load_explicit(&interrupted, memory_order_relaxed)(context);
    else
        call_previous_handler(signal, info, context);
}

/* Installs the handler without SA_ONSTACK, so that the signal's frame lies on the interrupted
 * stack. The function that the handler calls may switch to another stack. After such a switch, the
 * next signal would overwrite a frame on a signal stack. */
static void install_handler(void)
{
    struct sigaction ours = {.sa_sigaction = handle_sigurg, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigemptyset(&ours.sa_mask);
    teffi_bug_if(sigaction(SIGURG, &ours, &before) != 0);
}

void teffi_interrupt_install(void (*fn)(void *context))
{
    atomic_store_explicit(&interrupted, fn, memory_order_relaxed); /* the handler calls it */
    pthread_once(&once, install_handler);
}

void teffi_interrupt_allow(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGURG);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

void teffi_interrupt_thread(const teffi_thread *thread)
{
    (void)pthread_kill(thread->id, SIGURG);
}

/* Blocks SIGURG on the current thread until the handler returns. At the return, the kernel restores
 * the signal mask and the signal stack that are saved in the frame. They were saved when the
 * handler began, perhaps on another thread, so this function replaces them with those of the
 * current thread. The frame has room for the kernel's mask, not for a sigset_t. */
void teffi_interrupt_rebind_to_this_thread(void *context)
{
    ucontext_t *frame = context;
    sigset_t set, own;
    stack_t ours;
    sigemptyset(&set);
    sigaddset(&set, SIGURG);
    if (pthread_sigmask(SIG_BLOCK, &set, &own) == 0)
        memcpy(&frame->uc_sigmask, &own, KERNEL_MASK_BYTES);
    if (sigaltstack(NULL, &ours) == 0)
        frame->uc_stack = ours;
}
