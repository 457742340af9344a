/* overflow.c - a turn that used up its stack ends the process with the turn's name, not silently.
 * Way:     fault on a guard -> [handler, on the thread's signal stack] -> stderr -> abort
 * Threads: the handler runs on the faulting thread; it calls only what a signal handler may. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/local.h"
#include "fiber/stack.h"

enum { SIGNAL_STACK_BYTES = 64 * 1024 };

static struct sigaction before; /* what was installed when we came */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void say(const char *text)
{
    ssize_t ignored = write(STDERR_FILENO, text, strlen(text));
    (void)ignored;
}

static bool in_guard(const teffi_fiber *fiber, const char *at)
{
    return fiber && at < fiber->low && at >= fiber->low - TEFFI_GUARD_BYTES;
}

static void chain(int signal, siginfo_t *info, void *context)
{
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(signal, info, context);
        return;
    }
    if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(signal);
        return;
    }
    /* Back to the default: the fault comes again and ends the process as without us. */
    struct sigaction dfl = {.sa_handler = SIG_DFL};
    sigaction(signal, &dfl, NULL);
}

static void handler(int signal, siginfo_t *info, void *context)
{
    const teffi_fiber *fiber = teffi_fiber_current();
    if (!in_guard(fiber, info->si_addr)) {
        chain(signal, info, context);
        return;
    }
    say("teff: stack overflow in ");
    say(fiber->label ? fiber->label : "a turn");
    say("\n");
    abort();
}

static void install(void)
{
    struct sigaction ours = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigemptyset(&ours.sa_mask);
    sigaction(SIGSEGV, NULL, &before);
    sigaction(SIGSEGV, &ours, NULL);
}

void teffi_overflow_install(void)
{
    pthread_once(&once, install);
}

void *teffi_overflow_stack(void)
{
    stack_t now;
    if (sigaltstack(NULL, &now) != 0 || !(now.ss_flags & SS_DISABLE))
        return NULL; /* somebody's, perhaps a sanitizer's: good enough */
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

/* ---- threads of others ---- */

static pthread_once_t visits_once = PTHREAD_ONCE_INIT;
static pthread_key_t visits_key;
static TEFFI_LOCAL int visits;

static void make_visits_key(void)
{
    (void)pthread_key_create(&visits_key, teffi_overflow_unstack);
}

bool teffi_overflow_visits(void)
{
    if (visits)
        return false;
    visits = 1;
    (void)pthread_once(&visits_once, make_visits_key);
    (void)pthread_setspecific(visits_key, teffi_overflow_stack());
    return true;
}

void teffi_overflow_unstack(void *stack)
{
    if (!stack)
        return;
    stack_t none = {.ss_flags = SS_DISABLE};
    sigaltstack(&none, NULL);
    munmap(stack, SIGNAL_STACK_BYTES);
}
