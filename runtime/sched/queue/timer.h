/* timer.h - a hierarchical timer wheel: 1 ms ticks, six levels of 64 buckets (2 years).
 * Way:     exec timer_set -> [wheel] -> timer->fire, on the thread that advances it
 * Threads: any; one lock a wheel. next_due_ns is read without it. A timer's field where names the
 *          wheel that holds it, and changes only under that wheel's lock, so cancel finds it.
 * Source:  Varghese and Lauck 1987 */
#pragma once

#include "os/thread.h"
#include "group/exec.h"

enum { TEFFI_WHEEL_LEVELS = 6, TEFFI_WHEEL_BUCKETS = 64 };

#define TEFFI_TICK_NS 1000000u

typedef LIST_HEAD(teffi_timers, teffi_timer) teffi_timers;

typedef struct teffi_wheel {
    /* When to call teffi_wheel_fire_due_timers: not later than the earliest timer, maybe earlier;
     * UINT64_MAX: no timer is set. seq_cst store under the lock, pairs with a parking worker's
     * load. */
    _Atomic uint64_t next_due_ns;
    _Atomic uint32_t count;              /* timers set; written under the lock */
    uint32_t id;                         /* immutable: the wheel's index in its array, plus 1 */
    teffi_spinlock lock;                 /* guards the rest */
    uint64_t tick;                       /* all ticks before it have been fired */
    uint64_t filled[TEFFI_WHEEL_LEVELS]; /* a bit for each bucket that holds a timer */
    teffi_timers bucket[TEFFI_WHEEL_LEVELS * TEFFI_WHEEL_BUCKETS]; /* level by level */
} teffi_wheel;

/* teffi_wheel_init - empty. in: id, the index in the array given to teffi_wheel_cancel_timer, plus
 * 1. */
void teffi_wheel_init(teffi_wheel *wheel, uint32_t id, uint64_t now_ns);

/* teffi_wheel_set_timer - insert a timer that is in no wheel.
 * out:  true: it is now the wheel's earliest: a thread that sleeps until next_due_ns must wake. */
bool teffi_wheel_set_timer(teffi_wheel *wheel, teffi_timer *timer, uint64_t due_ns);

/* teffi_wheel_cancel_timer - cancel a timer, whichever wheel of the array holds it.
 * in:   wheels: the array; the wheel with id 1 is its first. stride: the bytes from one wheel to
 *       the next.
 * out:  false: it is not set, or fire has run, is running, or is about to run on another thread. */
bool teffi_wheel_cancel_timer(teffi_wheel *wheels, size_t stride, teffi_timer *timer);

/* teffi_wheel_fire_due_timers - fire due timers one by one, at most 1024; fire runs without the
 * lock. Any thread: the wheel's owner, and the monitor when they are overdue. */
void teffi_wheel_fire_due_timers(teffi_wheel *wheel, uint64_t now_ns);

/* teffi_wheel_move_timers - move all timers of a wheel to another wheel of the same array. It holds
 * both wheels' locks, so that a cancel finds each timer in one of them. Of the two, the lock of the
 * wheel with the lower id is taken first.
 * out:  true: the wheel `to` has a new earliest timer. */
bool teffi_wheel_move_timers(teffi_wheel *from, teffi_wheel *to);

/* teffi_wheel_count - how many timers are set. A hint, because it is read without the lock. */
static inline uint32_t teffi_wheel_count(teffi_wheel *wheel)
{
    return atomic_load_explicit(&wheel->count, memory_order_relaxed);
}

/* teffi_wheel_next_due - read next_due_ns, without the lock. */
static inline uint64_t teffi_wheel_next_due(teffi_wheel *wheel)
{
    return atomic_load_explicit(&wheel->next_due_ns, memory_order_seq_cst);
}
