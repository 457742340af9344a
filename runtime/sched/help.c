/* help.c - what a peer's batch of messages makes READY is run by the worker that took the batch
 * apart. Others are let in when its turns take long, or go on for long.
 * Way:     exec op (bring) -> ready -> [help] ... find (each pick) -> [help] -> wake_one
 * Threads: the slot's owner; who takes a slot from its worker, and the monitor, let others in, too.
 * Why:     a group that another core takes over brings its cache lines along, as does each message,
 *          answer and pending call. Where turns are short that costs more than it gains, the more
 *          where cores share no cache (tests/bench/RESULTS.md). And the other core has something
 *          to do: the peer is often there, or the next connection's batch.
 *
 * Until then the slot keeps what is in its deque: thieves pass it by, and who goes to sleep does
 * not count it as work. Whatever else the owner puts there ends that until the deque is empty. How
 * long turns take is looked at behind some of them. Some look long for other reasons, so it takes
 * several looks in a row, or one very long turn. One that does not end is the monitor's. Who was
 * found to need help keeps nothing for a while: where one turn of a thousand takes very long all is
 * as if there were no keeping. */
#include "sched/worker.h"

/* Long are turns that take TURN_NS each, and SLACK_NS beside, for a write or a lock that was taken;
 * the first ones START_NS. Longer than SURE_NS takes nothing else, but the system, which tells.
 * DRY_NS: for so long it has not run dry. Chosen so that short calls of a peer hardly ever open a
 * slot (BENCH=remote-call-1024). */
enum { TURN_NS = 2000, SLACK_NS = 6000, START_NS = 20000, SURE_NS = 200000, DRY_NS = 4000000 };
#ifndef TEFFI_HELP_SOON /* the explorer's: one slow turn is rare there, and batches are small */
enum { SLOW = 3, OPEN_FOR = 1024 };
#else
enum { SLOW = 1, OPEN_FOR = 2 };
#endif
enum { FIRST = 2, LOOK_EVERY = 4 };

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
    return !atomic_load_explicit(&slot->keeps, memory_order_relaxed) &&
           teffi_deque_count(&slot->deque) > 1;
}

void teffi_help_later(teffi_worker *w)
{
    teffi_alone *alone = &w->slot->alone;
    if (!alone->brought)
        alone->picks = 0;
    alone->brought = true;
    if (alone->open || is_open(w->slot))
        teffi_wake_one(w->real);
    else /* relaxed: who does not see it yet may take something */
        atomic_store_explicit(&w->slot->keeps, true, memory_order_relaxed);
}

/* Has this thread's core been another's since it asked last? */
static bool was_preempted(teffi_worker *w)
{
    uint64_t before = w->preempted;
    w->preempted = teffi_thread_preempted();
    return w->preempted != before;
}

/* n picks ended by now, of them turns since the last look, in ns. */
static bool turns_are_slow(teffi_worker *w, uint32_t n, uint64_t turns, uint64_t ns)
{
    teffi_alone *alone = &w->slot->alone;
    if (ns <= (n > FIRST ? SLACK_NS : START_NS) + turns * TURN_NS) {
        alone->slow = 0;
        return false;
    }
    return ++alone->slow >= SLOW || (ns > SURE_NS && !was_preempted(w));
}

static bool wants_help(teffi_worker *w, uint32_t n, uint64_t now)
{
    teffi_alone *alone = &w->slot->alone;
    uint32_t turns = n - alone->looked;
    alone->open -= alone->open < turns ? alone->open : turns;
    return turns_are_slow(w, n, turns, now - alone->looked_ns) || now - alone->since_ns > DRY_NS;
}

void teffi_help_look(teffi_worker *w)
{
    teffi_alone *alone = &w->slot->alone;
    uint32_t n = alone->picks++;
    if ((n & (n - 1)) && n % LOOK_EVERY) /* behind 0, 1, 2, 4, 8, 12 and so on */
        return;
    uint64_t now = teffi_now(w->real->exec.platform);
    if (!n)
        alone->since_ns = now;
    else if (wants_help(w, n, now))
        alone->open = OPEN_FOR;
    if (alone->open)
        (void)teffi_keeps_not(w->slot);
    alone->looked_ns = now;
    alone->looked = n;
    if (teffi_deque_count(&w->slot->deque) && !teffi_keeps(w->slot))
        teffi_wake_one(w->real);
}
