/* call_late.c - the sweep over pending calls whose deadline may have passed.
 * Way:     watch: earliest, then the timer; timer -> slices of a sweep -> the timer
 * Threads: the lock is taken to set the timer, not for a call. */
#include "node/call_late.h"

#include <string.h>
#include "node/call.h"
#include "node/node.h"

enum { LOOK_EVERY = 64 }; /* blocks passed over between two looks at the clock */

static teffi_exec *exec_of(const teffi_call_late *late)
{
    return late->space->node->exec;
}

/* ---- the timer; the lock is held ---- */

static void set(teffi_call_late *late, uint64_t due_ns)
{
    teffi_exec *exec = exec_of(late);
    exec->ops->timer_set(exec, &late->timer, due_ns);
}

/* It cannot be cancelled: it fires now, waits for the lock, and will look at everything. */
static void set_earlier(teffi_call_late *late, uint64_t deadline_ns)
{
    teffi_exec *exec = exec_of(late);
    uint64_t due = deadline_ns > late->not_before_ns ? deadline_ns : late->not_before_ns;
    uint64_t before = atomic_load_explicit(&late->timer_ns, memory_order_relaxed);
    if (due >= before)
        return;
    if (before != UINT64_MAX && !exec->ops->timer_cancel(exec, &late->timer))
        return;
    /* relaxed: who reads the value before it asks again, under the lock */
    atomic_store_explicit(&late->timer_ns, due, memory_order_relaxed);
    set(late, due);
}

static __attribute__((noinline)) void ask(teffi_call_late *late, uint64_t deadline_ns)
{
    pthread_mutex_lock(&late->lock);
    if (!late->sweeping)
        set_earlier(late, deadline_ns);
    else if (deadline_ns < late->asked_ns)
        late->asked_ns = deadline_ns;
    pthread_mutex_unlock(&late->lock);
}

/* ---- a new call ---- */

/* out: it was later before. seq_cst: see the header. */
static bool lower(_Atomic uint64_t *earliest, uint64_t to_ns)
{
    uint64_t was = atomic_load_explicit(earliest, memory_order_seq_cst);
    while (to_ns < was)
        if (atomic_compare_exchange_weak_explicit(earliest, &was, to_ns, memory_order_seq_cst,
                                                  memory_order_seq_cst))
            return true;
    return false;
}

void teffi_call_late_watch(teffi_call_late *late, uint32_t slot, uint64_t deadline_ns)
{
    teffi_call_block block = teffi_call_block_at(late->space, slot / TEFFI_CALL_BLOCK);
    if (lower(block.earliest, deadline_ns) &&
        deadline_ns < atomic_load_explicit(&late->timer_ns, memory_order_seq_cst))
        ask(late, deadline_ns);
}

/* ---- the sweep ---- */

/* out: the earliest deadline that is left; *ended, how many were late. */
static uint64_t sweep_calls(teffi_call *calls, uint64_t now_ns, unsigned *ended)
{
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < TEFFI_CALL_BLOCK; i++) {
        uint64_t deadline_ns = teffi_call_due_ns(&calls[i]);
        if (deadline_ns > now_ns)
            least = deadline_ns < least ? deadline_ns : least;
        else
            *ended += teffi_call_end_late(&calls[i], now_ns);
    }
    return least;
}

/* out: nothing of the block is due before. */
static uint64_t sweep_block(teffi_call_block block, uint64_t now_ns, unsigned *ended)
{
    /* seq_cst, here and below: see the header */
    uint64_t earliest = atomic_load_explicit(block.earliest, memory_order_seq_cst);
    if (earliest > now_ns)
        return earliest;
    atomic_store_explicit(block.earliest, UINT64_MAX, memory_order_seq_cst);
    uint64_t least = sweep_calls(block.calls, now_ns, ended);
    (void)lower(block.earliest, least);
    return least;
}

/* From where it stands, until the end or until it has taken long enough. out: the end. */
static bool sweep(teffi_call_late *late)
{
    const teffi_platform *platform = exec_of(late)->platform;
    uint64_t from = teffi_now(platform), now = from;
    uint32_t n = teffi_call_blocks(late->space);
    for (unsigned ended = 0, passed = 0; late->at < n; late->at++) {
        if (ended >= TEFFI_CALL_BLOCK || passed++ >= LOOK_EVERY) {
            now = teffi_now(platform);
            if (now - from >= TEFFI_CALL_SLICE_US * 1000u)
                return false;
            ended = passed = 0;
        }
        uint64_t least = sweep_block(teffi_call_block_at(late->space, late->at), now, &ended);
        late->least_ns = least < late->least_ns ? least : late->least_ns;
    }
    return true;
}

static void begin(teffi_call_late *late)
{
    pthread_mutex_lock(&late->lock);
    if (!late->sweeping) {
        late->sweeping = true;
        late->at = 0;
        late->least_ns = late->asked_ns = UINT64_MAX;
        late->not_before_ns =
            teffi_now(exec_of(late)->platform) + TEFFI_CALL_GAP_MS * (uint64_t)1000000;
        atomic_store_explicit(&late->timer_ns, UINT64_MAX, memory_order_seq_cst);
    }
    pthread_mutex_unlock(&late->lock);
}

/* A slice has ended: the next one comes with the wheel's next tick, after what else is due. */
static void rest(teffi_call_late *late, bool over)
{
    pthread_mutex_lock(&late->lock);
    if (over) {
        late->sweeping = false;
        set_earlier(late, late->asked_ns < late->least_ns ? late->asked_ns : late->least_ns);
    } else {
        set(late, teffi_now(exec_of(late)->platform));
    }
    pthread_mutex_unlock(&late->lock);
}

static void fire(teffi_timer *timer)
{
    teffi_call_late *late = teffi_container(timer, teffi_call_late, timer);
    begin(late);
    rest(late, sweep(late));
}

/* ---- */

void teffi_call_late_init(teffi_call_late *late, teffi_call_space *space)
{
    memset(late, 0, sizeof *late);
    late->space = space;
    late->timer.fire = fire;
    atomic_init(&late->timer_ns, UINT64_MAX);
    pthread_mutex_init(&late->lock, NULL);
}

void teffi_call_late_fini(teffi_call_late *late)
{
    pthread_mutex_destroy(&late->lock);
}
