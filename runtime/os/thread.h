/* thread.h - threads, spinlocks, parking, yielding: the only place where teff starts threads;
 * interrupts of teff's threads, whose handler may switch to another stack.
 * Way:     sched/worker, sched/monitor, store/sqlite -> [thread] -> pthreads, futexes
 *          sched/monitor -> [interrupt] -> a signal -> fn on the thread's current stack
 * Threads: start, join: the owner. A parker is waited on by one thread and woken by any.
 *          interrupt_thread: any, until the target is joined. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <teff/error.h>
#include "base/held.h"
#include "os/poller.h"

typedef struct teffi_thread {
    pthread_t id;
    _Atomic int tid; /* the kernel's number, set by the thread; 0: it has not begun */
    void (*fn)(void *arg);
    void *arg;
    char name[16];
} teffi_thread;

/* teffi_thread_start - run fn(arg) on a new thread.
 * in:   thread, in use until joined. name, cut at 15 bytes, for debuggers.
 * runs: any thread. Signals that are sent to the process are blocked in the new thread.
 * errs: TEFF_E_IO: it did not start. */
TEFF_MUST_USE teff_err teffi_thread_start(teffi_thread *thread, const char *name,
                                          void (*fn)(void *arg), void *arg);

/* teffi_thread_join - wait until fn has returned. Once for each thread started. */
void teffi_thread_join(teffi_thread *thread);

/* teffi_thread_yield - let another thread have this core. */
void teffi_thread_yield(void);

/* teffi_thread_count_preemptions - how often the OS has preempted this thread. Yields to another
 * thread count, too. A system call. */
uint64_t teffi_thread_count_preemptions(void);

/* teffi_thread_read_run_times - how long a thread of this process has run, and was ready to run but
 * had no core, since it began. Three system calls.
 * out:  false: it has not begun, its thread is gone, or the kernel does not tell; then the results
 *       are not valid.
 * from: proc(5), /proc/PID/task/TID/schedstat */
bool teffi_thread_read_run_times(const teffi_thread *thread, uint64_t *ran_ns,
                                 uint64_t *delayed_ns);

/* teffi_os_process_cpu_ns - processor time of all threads of this process so far. A system call. */
uint64_t teffi_os_process_cpu_ns(void);

/* teffi_barrier_register_process - register this process with the kernel, as
 * teffi_barrier_run_on_all_threads() needs. out: false: this kernel does not support it. */
bool teffi_barrier_register_process(void);

/* teffi_barrier_run_on_all_threads - execute a full barrier on every thread of this process, so
 * that one side of a store-then-load handshake needs none. in: teffi_barrier_register_process() has
 * returned true. */
void teffi_barrier_run_on_all_threads(void);

/* teffi_cpu_relax - a hint to the core inside a spinning loop. */
static inline void teffi_cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* A spinlock for short critical sections (some dozen instructions) with little contention: one
 * atomic operation where a mutex needs two. A waiter spins, yields, then sleeps for 50 us at a
 * time, so that a preempted holder gets the core. Zeroed = free. The holder must not block. */
typedef struct teffi_spinlock {
    _Atomic uint32_t held;
} teffi_spinlock;

/* teffi_spinlock_lock_slow - slow path of teffi_spinlock_lock(), after the first try has failed. */
void teffi_spinlock_lock_slow(teffi_spinlock *lock);

static inline void teffi_spinlock_lock(teffi_spinlock *lock)
{
    /* acquire: pairs with unlock's release */
    if (__builtin_expect(atomic_exchange_explicit(&lock->held, 1, memory_order_acquire), 0))
        teffi_spinlock_lock_slow(lock);
#ifdef TEFFI_HELD
    teffi_held_locks_add(1);
#endif
}

static inline void teffi_spinlock_unlock(teffi_spinlock *lock)
{
#ifdef TEFFI_HELD
    teffi_held_locks_add(-1);
#endif
    /* release: pairs with lock's acquire */
    atomic_store_explicit(&lock->held, 0, memory_order_release);
}

/* A parker holds tokens: wake leaves one; wait takes all, or sleeps until one is there. Zeroed: no
 * token. */
typedef struct teffi_parker {
    _Atomic uint32_t word;
} teffi_parker;

/* Bits of a parker's word. Two tokens, for two reasons to wake: TOKEN_GIVEN is left by link/conn
 * only. Two states of its thread: ASLEEP; POLLING, only of the parker in a teffi_poll_parker. */
enum { TEFFI_TOKEN = 1, TEFFI_PARKER_ASLEEP = 2, TEFFI_TOKEN_GIVEN = 4, TEFFI_PARKER_POLLING = 8 };

/* A parker whose thread may wait in a poller. Zeroed = no token. */
typedef struct teffi_poll_parker {
    teffi_parker parker;
    teffi_poller *_Atomic poller; /* while POLLING */
} teffi_poll_parker;

/* teffi_parker_wait - wait for a token, at most timeout_ns. May return early.
 * in:   timeout_ns, UINT64_MAX = none.
 * out:  true: it took all tokens. The waker's earlier writes are visible, and the waker no longer
 *       touches the parker. */
bool teffi_parker_wait(teffi_parker *parker, uint64_t timeout_ns);

/* teffi_parker_wake - leave TEFFI_TOKEN; makes a system call only if the thread sleeps. */
void teffi_parker_wake(teffi_parker *parker);

/* teffi_parker_wait_for_tokens - as teffi_parker_wait(). out: the tokens taken; 0: none. */
uint32_t teffi_parker_wait_for_tokens(teffi_parker *parker, uint64_t timeout_ns);

/* teffi_parker_wait_in_poller - as teffi_parker_wait_for_tokens(), but wait in poller, and return
 * also when the poller has events. in: poller, claimed by this thread; NULL: as
 * teffi_parker_wait_for_tokens(). A waker may still call poller->wake after its token was taken, so
 * the poller must outlive all wakers. */
uint32_t teffi_parker_wait_in_poller(teffi_poll_parker *parker, teffi_poller *poller,
                                     uint64_t timeout_ns);

/* teffi_parker_has_token - has the parker this token? runs: the thread that takes its tokens. */
bool teffi_parker_has_token(const teffi_parker *parker, uint32_t token);

/* teffi_parker_wake_with_token - as teffi_parker_wake(), but leave this token. in: token, one
 * bit. */
void teffi_parker_wake_with_token(teffi_parker *parker, uint32_t token);

/* ---- interrupts ----
 * Source:  Go's src/runtime/signal_unix.go uses SIGURG: programs expect stray ones */

/* teffi_interrupt_install - set the function that interrupted threads of this process call; a later
 * call replaces it. fn runs on the interrupted stack, with the signal blocked. Between
 * teffi_interrupt_allow() and teffi_interrupt_rebind_to_this_thread() fn may switch to another
 * stack, and return much later on another thread. Signals from elsewhere go to the handler that was
 * installed before. */
void teffi_interrupt_install(void (*fn)(void *context));

/* teffi_interrupt_allow - allow interrupts of the calling thread; fn calls it before a switch of
 * stacks. */
void teffi_interrupt_allow(void);

/* teffi_interrupt_thread - interrupt a thread at any point; its system call may fail with EINTR. */
void teffi_interrupt_thread(const teffi_thread *thread);

/* teffi_interrupt_rebind_to_this_thread - called by fn after a switch of stacks: blocks interrupts
 * of the thread that continues fn, until fn returns. in: context, that of fn. */
void teffi_interrupt_rebind_to_this_thread(void *context);
