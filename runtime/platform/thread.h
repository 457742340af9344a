/* thread.h - threads, parking and yielding: the only place that makes threads or lets them sleep.
 * Way:     sched/worker, sched/monitor, store/sqlite -> [thread] -> pthreads, futexes
 * Threads: start, join: the owner. A parker is waited on by one thread and woken by any. */
#ifndef TEFFI_PLATFORM_THREAD_H
#define TEFFI_PLATFORM_THREAD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <teff/error.h>

typedef struct teffi_thread {
    pthread_t id;
    void (*fn)(void *arg);
    void *arg;
    char name[16];
} teffi_thread;

/* teffi_thread_start - run fn(arg) on a new thread.
 * in:   thread, in use until joined. name, cut at 15 bytes, for debuggers.
 * errs: TEFF_E_IO: it did not start. Signals that are sent to the process are blocked in it. */
TEFF_MUST_USE teff_err teffi_thread_start(teffi_thread *thread, const char *name,
                                          void (*fn)(void *arg), void *arg);

/* teffi_thread_join - wait until fn has returned. Once for each thread started. */
void teffi_thread_join(teffi_thread *thread);

/* teffi_thread_yield - let another thread have this core. */
void teffi_thread_yield(void);

/* teffi_thread_preempted - how often the system has taken the core from this thread while it had
 * something to do. A system call. */
uint64_t teffi_thread_preempted(void);

/* teffi_barrier_start - make teffi_barrier_all work. out: false: this kernel cannot do it. */
bool teffi_barrier_start(void);

/* teffi_barrier_all - a full barrier on every thread of this process, between two of its
 * instructions: so that one side of a store-then-load handshake needs none of its own.
 * in:   teffi_barrier_start has said true. */
void teffi_barrier_all(void);

/* teffi_cpu_count - the cores this process may use, at least 1. */
unsigned teffi_cpu_count(void);

/* teffi_cpu_relax - a hint to the core inside a spinning loop. */
static inline void teffi_cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* A lock for some dozen instructions that hardly ever meet others: one atomic step where a mutex
 * takes two. Who meets it held spins, yields, then sleeps for 50 us at a time, so that a holder
 * that the system has put aside goes on. Zeroed = free. Nothing that blocks is done under it. */
typedef struct teffi_brief {
    _Atomic uint32_t held;
} teffi_brief;

/* teffi_brief_wait - the lock was held: until it is taken. */
void teffi_brief_wait(teffi_brief *lock);

static inline void teffi_brief_lock(teffi_brief *lock)
{
    /* acquire: pairs with unlock's release */
    if (__builtin_expect(atomic_exchange_explicit(&lock->held, 1, memory_order_acquire), 0))
        teffi_brief_wait(lock);
}

static inline void teffi_brief_unlock(teffi_brief *lock)
{
    /* release: what was done under it */
    atomic_store_explicit(&lock->held, 0, memory_order_release);
}

/* One token: wake leaves it, wait takes it or sleeps until it is there. Zeroed = no token. */
typedef struct teffi_parker {
    _Atomic uint32_t word;
} teffi_parker;

/* Bits of a parker's word: the tokens, one for each reason to wake, and that its thread sleeps. */
enum { TEFFI_TOKEN = 1, TEFFI_PARKER_ASLEEP = 2, TEFFI_TOKEN_GIVEN = 4 };

/* teffi_parker_wait - return when woken (also by a wake before), or after timeout_ns.
 * in:   timeout_ns, UINT64_MAX = none. May return early; the caller looks again.
 * out:  did it take the token? What the waker did before its wake is seen then, and the waker does
 *       not touch the parker's memory any more. */
bool teffi_parker_wait(teffi_parker *parker, uint64_t timeout_ns);

/* teffi_parker_wake - leave the token; a system call only when somebody sleeps. */
void teffi_parker_wake(teffi_parker *parker);

/* teffi_parker_take - as wait. out: the tokens that were there; 0: none. */
uint32_t teffi_parker_take(teffi_parker *parker, uint64_t timeout_ns);

/* teffi_parker_has - the sleeper's own: is this token there, for its next take? */
bool teffi_parker_has(const teffi_parker *parker, uint32_t token);

/* teffi_parker_leave - as wake, beside the tokens that are there. in: token, one. */
void teffi_parker_leave(teffi_parker *parker, uint32_t token);

#endif
