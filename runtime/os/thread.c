/* thread.c - threads, parking and yielding on Linux. */
#include "os/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "base/bug.h"
#include "base/queue.h"

static void *run_thread(void *arg)
{
    teffi_thread *thread = arg;
    atomic_store_explicit(&thread->tid, gettid(), memory_order_relaxed);
    /* The name is only for debuggers, so a failure is ignored. */
    (void)pthread_setname_np(pthread_self(), thread->name);
    thread->fn(thread->arg);
    return NULL;
}

/* Sets *set to all signals except those that report a fault of the thread itself, and except
 * SIGPROF, which profilers use. */
static void fill_signals_to_block(sigset_t *set)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT, SIGPROF};
    sigfillset(set);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(set, faults[i]);
}

teff_err teffi_thread_start(teffi_thread *thread, const char *name, void (*fn)(void *arg),
                            void *arg)
{
    sigset_t block, before;
    thread->fn = fn;
    thread->arg = arg;
    atomic_store_explicit(&thread->tid, 0, memory_order_relaxed);
    snprintf(thread->name, sizeof thread->name, "%s", name);
    fill_signals_to_block(&block);
    pthread_sigmask(SIG_BLOCK, &block, &before); /* the new thread inherits the mask */
    int failed = pthread_create(&thread->id, NULL, run_thread, thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed ? TEFF_E_IO : TEFF_OK;
}

void teffi_thread_join(teffi_thread *thread)
{
    teffi_bug_if(pthread_join(thread->id, NULL) != 0);
}

void teffi_thread_yield(void)
{
    (void)sched_yield();
}

uint64_t teffi_thread_count_preemptions(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_THREAD, &usage) == 0 ? (uint64_t)usage.ru_nivcsw : 0;
}

bool teffi_thread_read_run_times(const teffi_thread *thread, uint64_t *ran_ns, uint64_t *delayed_ns)
{
    char text[64];
    int tid = atomic_load_explicit(&thread->tid, memory_order_relaxed);
    snprintf(text, sizeof text, "/proc/self/task/%d/schedstat", tid);
    int fd = tid ? open(text, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return false;
    ssize_t n = read(fd, text, sizeof text - 1);
    (void)close(fd);
    text[n > 0 ? n : 0] = '\0';
    char *second;
    *ran_ns = strtoull(text, &second, 10);
    *delayed_ns = strtoull(second, NULL, 10);
    return *ran_ns > 0; /* 0: the kernel does not record run times */
}

uint64_t teffi_os_process_cpu_ns(void)
{
    struct timespec t;
    teffi_bug_if(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) != 0);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

enum { SPINS = 64, YIELDS = 64 };
#define DOZE_NS 50000u

void teffi_spinlock_lock_slow(teffi_spinlock *lock)
{
    teffi_parker doze = {0}; /* never woken */
    for (unsigned round = 0;; round++) {
        /* While the lock is held, only reads it, so that the holder keeps the cache line.
         * acquire: pairs with teffi_spinlock_unlock() */
        if (!atomic_load_explicit(&lock->held, memory_order_relaxed) &&
            !atomic_exchange_explicit(&lock->held, 1, memory_order_acquire))
            return;
        if (round < SPINS)
            teffi_cpu_relax();
        else if (round < SPINS + YIELDS)
            teffi_thread_yield();
        else
            teffi_parker_wait(&doze, DOZE_NS);
    }
}

static long call_membarrier(int command)
{
    return syscall(SYS_membarrier, command, 0, 0);
}

bool teffi_barrier_register_process(void)
{
    return call_membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0;
}

void teffi_barrier_run_on_all_threads(void)
{
    teffi_bug_if(call_membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0);
}

enum { EMPTY = 0, ASLEEP = TEFFI_PARKER_ASLEEP, POLLING = TEFFI_PARKER_POLLING };

/* Sleeps while *word is value, at most timeout_ns; UINT64_MAX: no limit. May return early. */
static void futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t timeout_ns)
{
    struct timespec ts = {(time_t)(timeout_ns / 1000000000u), (long)(timeout_ns % 1000000000u)};
    long rc = syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value,
                      timeout_ns == UINT64_MAX ? NULL : &ts, NULL, 0);
    teffi_bug_if(rc != 0 && errno != EAGAIN && errno != EINTR && errno != ETIMEDOUT);
}

uint32_t teffi_parker_wait_for_tokens(teffi_parker *parker, uint64_t timeout_ns)
{
    uint32_t word = EMPTY;
    /* The exchange fails if a token is there. acquire: pairs with teffi_parker_wake_with_token() */
    if (timeout_ns && atomic_compare_exchange_strong_explicit(
                          &parker->word, &word, ASLEEP, memory_order_acquire, memory_order_acquire))
        futex_wait(&parker->word, ASLEEP, timeout_ns);
    /* acquire: pairs with teffi_parker_wake_with_token() */
    word = atomic_exchange_explicit(&parker->word, EMPTY, memory_order_acquire);
    return word & ~(uint32_t)ASLEEP;
}

uint32_t teffi_parker_wait_in_poller(teffi_poll_parker *p, teffi_poller *poller,
                                     uint64_t timeout_ns)
{
    uint32_t word = EMPTY;
    if (!poller)
        return teffi_parker_wait_for_tokens(&p->parker, timeout_ns);
    atomic_store_explicit(&p->poller, poller, memory_order_relaxed);
    /* If a token is there, the exchange fails, and poller->wait does not block. release: makes
     * p->poller visible; pairs with teffi_parker_wake_with_token() */
    bool sleeps = atomic_compare_exchange_strong_explicit(
        &p->parker.word, &word, POLLING, memory_order_release, memory_order_relaxed);
    poller->wait(poller, sleeps ? timeout_ns : 0);
    /* acquire: pairs with teffi_parker_wake_with_token() */
    word = atomic_exchange_explicit(&p->parker.word, EMPTY, memory_order_acquire);
    return word & ~(uint32_t)POLLING;
}

bool teffi_parker_has_token(const teffi_parker *parker, uint32_t token)
{
    /* relaxed: teffi_parker_wait_for_tokens() does the acquire */
    return atomic_load_explicit(&parker->word, memory_order_relaxed) & token;
}

/* Wakes the thread that sleeps on word. The parker may be freed already, but FUTEX_WAKE does not
 * access the word. */
static void wake_sleeper(_Atomic uint32_t *word)
{
    long rc = syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    /* EINVAL: the parker was freed, and its memory now holds a mutex with priority inheritance. */
    teffi_bug_if(rc < 0 && errno != EINVAL);
}

/* Returns the poller in which the parker's thread waits. in: parker: a member of a
 * teffi_poll_parker; the caller has seen POLLING in parker->word. */
static teffi_poller *load_parker_poller(teffi_parker *parker)
{
    teffi_poll_parker *p = teffi_container(parker, teffi_poll_parker, parker);
    return atomic_load_explicit(&p->poller, memory_order_relaxed);
}

void teffi_parker_wake_with_token(teffi_parker *parker, uint32_t token)
{
    teffi_poller *poller;
    /* acquire: makes p->poller visible; pairs with teffi_parker_wait_in_poller(). release: makes
     * this thread's writes visible; pairs with teffi_parker_wait_for_tokens() and
     * teffi_parker_wait_in_poller() */
    uint32_t word = atomic_load_explicit(&parker->word, memory_order_acquire);
    do
        poller = word & POLLING ? load_parker_poller(parker) : NULL;
    while (!atomic_compare_exchange_weak_explicit(&parker->word, &word, word | token,
                                                  memory_order_acq_rel, memory_order_acquire));
    /* The thread that takes the token may free the parker. So from here on, only the address of the
     * parker's word is used, and not its value. If the word already held a token, the thread is
     * awake, or the call that left the earlier token wakes it. */
    if (word == ASLEEP)
        wake_sleeper(&parker->word);
    else if (poller && word == POLLING)
        poller->wake(poller);
}

bool teffi_parker_wait(teffi_parker *parker, uint64_t timeout_ns)
{
    return teffi_parker_wait_for_tokens(parker, timeout_ns) != 0;
}

void teffi_parker_wake(teffi_parker *parker)
{
    teffi_parker_wake_with_token(parker, TEFFI_TOKEN);
}
