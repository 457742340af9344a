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
 * not count it as work. Whatever else the owner puts there ends that. A turn that takes long is
 * seen when it ends; one that does not end, by the monitor's second tick. A long time now and then
 * is the system's, which gave the core to somebody else: two of three looks must see one. */
#include "sched/worker.h"

enum { TURN_NS = 2000, START_NS = 20000 }; /* a look finds it slow: more than so long a turn, beside */
enum { BACKLOG_NS = 1000000 };             /* what waits would take this worker as long */
enum { LOOK_EVERY = 4, KNOWN = 16, SLOW = 3, SLOW_MAX = 8 };

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

void teffi_help_later(teffi_worker *w)
{
    teffi_alone *alone = &w->slot->alone;
    alone->brought = true;
    alone->picks = 0;
    if (alone->slow >= SLOW)
        teffi_wake_one(w->real);
    else /* relaxed: who does not see it yet may take something */
        atomic_store_explicit(&alone->keeps, true, memory_order_relaxed);
}

/* n picks ended by now, left are in the deque. */
static bool wants_help(teffi_alone *alone, uint32_t n, uint64_t now, uint64_t left)
{
    bool slow = now - alone->looked_ns > START_NS + (uint64_t)(n - alone->looked) * TURN_NS;
    if (!slow)
        alone->slow -= alone->slow > 0;
    else
        alone->slow = alone->slow + 2 < SLOW_MAX ? alone->slow + 2 : SLOW_MAX;
    if (alone->slow >= SLOW)
        return true;
    return n >= KNOWN && (now - alone->since_ns) / n * left > BACKLOG_NS;
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
    else if (wants_help(alone, n, now, left) || !left)
        teffi_keeps_not(w->slot);
    alone->looked_ns = now;
    alone->looked = n;
    alone->brought = left > 0;
    if (left && !teffi_keeps(w->slot))
        teffi_wake_one(w->real);
}
