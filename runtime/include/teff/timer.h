/* timer.h - timers of a grain's activation: each calls a one-way method of the same grain.
 * Way:     generated <package>_<service>_<method>_timer() -> [timer] -> grains/activation
 * Threads: in a turn of the activation that has the timer. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <teff/grain.h>

TEFF_BEGIN_C

/* For each method with the option one_way, x.teff.h has a function that starts a timer:
 *
 *     teff_err <package>_<service>_<method>_timer(teff_ctx *ctx, [const <message> *in,]
 *                                                 const teff_timer_options *options,
 *                                                 teff_timer *timer);
 *
 * A *tick* of the timer is a turn of this method, with a copy of the message `in`.
 *   - A tick is admitted like a request for the method: by default, it waits until no other turn of
 *     the grain runs; read_only, always_interleave and reentrant have their usual meaning. The
 *     limit queue_max does not count ticks. If ticks and requests wait for the grain, both get to
 *     run: after a tick, a request that waits comes first.
 *   - Ticks of one timer never overlap. The next tick is due period_ms after the end of the
 *     previous tick, so ticks that were late are not made up for. Ticks of two timers are compared
 *     like any two requests.
 *   - A tick has no caller and no deadline. If the method returns an error, or its turn ends as
 *     described at teff_alloc, the log says so, with method, key and text. The timer goes on.
 *   - If a tick cannot begin because the silo is out of stacks, it is tried again after period_ms,
 *     or after 100 ms if the timer has no period.
 *   - While a transaction has locked the grain, ticks wait. Timers are not part of a transaction: a
 *     timer that was started, changed or stopped by a turn of the transaction stays so, even if the
 *     transaction is rolled back.
 *   - All timers stop when the activation begins to end, before on_deactivate: because it is idle,
 *     because of teff_deactivate, because its silo stops, for any other teff_reason, because
 *     on_activate failed or a turn ended as described at teff_alloc. While the silo has no lease,
 *     no tick begins. Timers are not stored: start them in on_activate if each activation shall
 *     have them. */

/* A handle to a timer. Zeroed = none. A stale handle, of a timer that has ended or belongs to
 * another activation, is safe: the functions below then do nothing. But do not save a handle in the
 * stored state, since another silo may give the same number to a timer of its own. */
typedef struct teff_timer {
    uint64_t id;
} teff_timer;

/* Options of a timer. Zeroed, except size: one tick, as soon as possible. */
typedef struct teff_timer_options {
    size_t size;        /* sizeof(teff_timer_options) */
    uint32_t due_ms;    /* from the start of the timer to its first tick */
    uint32_t period_ms; /* from the end of a tick to the next one; 0: the timer has one tick */
    /* 0: ticks do not keep the activation in memory: if no request comes for the type's idle time,
     * the activation ends with its timers. 1: each tick counts as a use of the activation, like a
     * request; let the period be shorter than the idle time. */
    uint32_t keep_alive;
} teff_timer_options;

/* teff_timer_stop - stop a timer: no tick begins any more. A tick whose turn has begun goes on.
 * in:   ctx, of a turn of the timer's activation, also of the timer's own tick.
 * out:  true: the timer was stopped; false: the activation has no such timer.
 * runs: in that turn, not in a part that it has forked (teff/fork.h: the process aborts). Does not
 *       wait. With the context of a thread or process: false.
 * from: Orleans IGrainTimer.Dispose; Erlang erlang:cancel_timer. */
TEFF_API bool teff_timer_stop(teff_ctx *ctx, teff_timer timer);

/* teff_timer_change - change when a timer is due, and its period.
 * in:   ctx, as for teff_timer_stop. due_ms, from now to the next tick; if a tick is under way,
 *       from the end of that tick. period_ms, from the end of that next tick on; 0: that tick is
 *       the last one. A timer with one tick can be changed until the end of that tick.
 * out:  true: the timer was changed; false: the activation has no such timer.
 * runs: as teff_timer_stop.
 * from: Orleans IGrainTimer.Change. */
TEFF_API bool teff_timer_change(teff_ctx *ctx, teff_timer timer, uint32_t due_ms,
                                uint32_t period_ms);

TEFF_END_C
