/* help.c - what a peer's batch of messages makes READY is run by the worker that took the batch
 * apart. Others are let in when its turns take long, or very many wait.
 * Way:     exec op (bring) -> ready -> [help] ... find (each pick) -> [help] -> wake_one
 * Threads: the slot's owner; who takes a slot from its worker, and the monitor, let others in, too.
 * Why:     a group that another core takes over brings its cache lines along, as does each message,
 *          answer and pending call: half a microsecond in all, and two where the cores share no
 *          cache, for a turn that takes a third of one. And the other core has something to do: the
 *          peer is often there, or the next connection's batch.
 *
 * Until then the slot keeps what is in its deque: thieves pass it by, and who goes to sleep does
 * not count it as work. Whatever else the owner puts there ends that until the deque is empty. How
 * long turns take is looked at behind some of them. One look may be wrong, since the system gave
 * the core to somebody else for a while: two in a row count. A turn that does not end is the
 * monitor's. */
#include "sched/worker.h"

enum { START_NS = 20000, TURN_NS = 2000 }; /* more in all, and each: it takes long */
enum { BACKLOG_NS = 1000000 };             /* as long would what waits take this worker */
enum { WAITED_NS = 4000000 };              /* so long something has waited, whatever was run */
#ifndef TEFFI_HELP_SOON /* the explorer's: one slow turn is rare there, and batches are small */
enum { KNOWN = 16, SLOW = 2 };
#else
enum { KNOWN = 1, SLOW = 1 };
#endif
enum { LOOK_EVERY = 4, SLOW_MAX = 8 };

void teffi_bring(teffi_exec *exec, void (*fn)(void *arg), void *arg)
{
    teffi_worker *w = teffi_worker_self();
    bool brings = w && &w->real->exec == exec && !w->brings;
    if (brings)
        w->brings = true;
    fn(arg);
    if (brings)
        w->brings = false;
}

/* Others may take what is there, besides the one just pushed: that is not hidden from them. */
static bool is_open(teffi_slot *slot)
{
    /* relaxed: its owner's own store, or somebody let others in */
    return !atomic_load_explicit(&slot->alone.keeps, memory_order_relaxed) &&
           teffi_deque_count(&slot->deque) > 1;
}

void teffi_help_later(teffi_worker *w)
{
    teffi_alone *alone = &w->slot->alone;
    if (!alone->brought)
        alone->picks = 0;
    alone->brought = true;
    if (alone->slow >= SLOW || is_open(w->slot))
        teffi_wake_one(w->real);
    else /* relaxed: who does not see it yet may take something */
        atomic_store_explicit(&alone->keeps, true, memory_order_relaxed);
}

/* n picks ended by now, left are in the deque. */
static bool wants_help(teffi_alone *alone, uint32_t n, uint64_t now, uint64_t left)
{
    uint64_t ns = now - alone->looked_ns, turns = n - alone->looked;
    uint64_t turn_ns = ns / turns, least_ns = turn_ns;
    if (least_ns > alone->turn_ns)
        least_ns = alone->turn_ns;
    alone->turn_ns = turn_ns;
    if (ns <= START_NS + turns * TURN_NS)
        alone->slow /= 2;
    else
        alone->slow += alone->slow < SLOW_MAX;
    return alone->slow >= SLOW || now - alone->since_ns > WAITED_NS ||
           (n >= KNOWN && least_ns * left > BACKLOG_NS);
}

void teffi_help_look(teffi_worker *w)
{
    teffi_alone *alone = &w->slot->alone;
    uint32_t n = alone->picks++;
    if ((n & (n - 1)) && n % LOOK_EVERY) /* behind 0, 1, 2, 4, 8, 12 and so on */
        return;
    uint64_t now = teffi_now(w->real->exec.platform);
    uint64_t left = teffi_deque_count(&w->slot->deque);
    if (!n)
        alone->since_ns = now;
    else if (wants_help(alone, n, now, left))
        (void)teffi_keeps_not(w->slot);
    alone->looked_ns = now;
    alone->looked = n;
    if (left && !teffi_keeps(w->slot))
        teffi_wake_one(w->real);
}
