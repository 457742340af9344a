/* deadline.c - the earliest deadline of each block, and the timer of the next sweep. A new call
 * takes the lock only if its deadline is before its block's earliest and before timer_ns, which is
 * UINT64_MAX during a sweep. */
#include "call/deadline.h"

#include <string.h>
#include "call/home.h"

/* ---- the timer; the lock is held ---- */

static void set_sweep_timer(teffi_deadlines *deadlines, uint64_t due_ns)
{
    teffi_exec *exec = deadlines->home->exec;
    exec->ops->timer_set(exec, &deadlines->timer, due_ns);
}

/* Sets the timer to deadline_ns, or to not_before_ns if that is later, unless the timer is due
 * earlier. A timer that cannot be cancelled is firing: after this thread releases the lock, a sweep
 * visits every block, so the timer need not be set. */
static void set_sweep_timer_if_earlier(teffi_deadlines *deadlines, uint64_t deadline_ns)
{
    teffi_exec *exec = deadlines->home->exec;
    uint64_t due = deadline_ns;
    uint64_t before = atomic_load_explicit(&deadlines->timer_ns, memory_order_relaxed);
    if (due < deadlines->not_before_ns)
        due = deadlines->not_before_ns;
    if (due >= before)
        return;
    if (before != UINT64_MAX && !exec->ops->timer_cancel(exec, &deadlines->timer))
        return;
    /* relaxed: another thread may still read the previous value, which is a later time. That thread
     * then calls request_sweep, which takes the lock and compares again. */
    atomic_store_explicit(&deadlines->timer_ns, due, memory_order_relaxed);
    set_sweep_timer(deadlines, due);
}

/* Sets the timer so that a sweep runs soon after deadline_ns. During a sweep the deadline is only
 * recorded: teffi_deadline_sweep_end_slice sets the timer at the sweep's end. */
static __attribute__((noinline)) void request_sweep(teffi_deadlines *deadlines,
                                                    uint64_t deadline_ns)
{
    pthread_mutex_lock(&deadlines->lock);
    if (!deadlines->sweeping)
        set_sweep_timer_if_earlier(deadlines, deadline_ns);
    else if (deadline_ns < deadlines->asked_ns)
        deadlines->asked_ns = deadline_ns;
    pthread_mutex_unlock(&deadlines->lock);
}

/* ---- a new call ---- */

bool teffi_deadline_lower(_Atomic uint64_t *earliest, uint64_t to_ns)
{
    /* seq_cst: see deadline.h */
    uint64_t was = atomic_load_explicit(earliest, memory_order_seq_cst);
    while (to_ns < was)
        if (atomic_compare_exchange_weak_explicit(earliest, &was, to_ns, memory_order_seq_cst,
                                                  memory_order_seq_cst))
            return true;
    return false;
}

void teffi_deadline_watch(teffi_deadlines *deadlines, uint32_t slot, uint64_t deadline_ns)
{
    teffi_slab *slab = &deadlines->home->calls.slab;
    if (teffi_deadline_lower(teffi_slab_get_block_mark(slab, slot / TEFFI_SLAB_BLOCK),
                             deadline_ns) &&
        deadline_ns < atomic_load_explicit(&deadlines->timer_ns, memory_order_seq_cst))
        request_sweep(deadlines, deadline_ns);
}

/* ---- the sweep ---- */

void teffi_deadline_sweep_begin(teffi_deadlines *deadlines)
{
    pthread_mutex_lock(&deadlines->lock);
    if (!deadlines->sweeping) {
        uint64_t now = teffi_now(deadlines->home->exec->platform);
        deadlines->sweeping = true;
        deadlines->at = 0;
        deadlines->least_ns = deadlines->asked_ns = UINT64_MAX;
        deadlines->not_before_ns = now + TEFFI_CALL_GAP_MS * (uint64_t)1000000;
        /* seq_cst: see deadline.h */
        atomic_store_explicit(&deadlines->timer_ns, UINT64_MAX, memory_order_seq_cst);
    }
    pthread_mutex_unlock(&deadlines->lock);
}

/* Ends a slice of the sweep: sets the timer for the next slice or, after the last slice, for the
 * next sweep. in: over: true: this slice was the sweep's last one. */
void teffi_deadline_sweep_end_slice(teffi_deadlines *deadlines, bool over)
{
    pthread_mutex_lock(&deadlines->lock);
    uint64_t asked = deadlines->asked_ns;
    if (over) {
        deadlines->sweeping = false;
        set_sweep_timer_if_earlier(deadlines,
                                   asked < deadlines->least_ns ? asked : deadlines->least_ns);
    } else { /* the next slice runs at the wheel's next tick, after other timers that are due */
        set_sweep_timer(deadlines, teffi_now(deadlines->home->exec->platform));
    }
    pthread_mutex_unlock(&deadlines->lock);
}

/* ---- */

void teffi_deadlines_init(teffi_deadlines *deadlines, teffi_home *home,
                          void (*sweep)(teffi_timer *timer))
{
    memset(deadlines, 0, sizeof *deadlines);
    deadlines->home = home;
    deadlines->timer.fire = sweep;
    atomic_init(&deadlines->timer_ns, UINT64_MAX);
    pthread_mutex_init(&deadlines->lock, NULL);
}
