/* help.c - a batch of messages from another node is no reason to wake a second worker, unless their
 * turns take long.
 * Way:     exec op (bring) -> ready -> [help] ... find (each pick) -> [help] -> wake_one
 * Threads: the slot's owner.
 * Why:     a group that another core takes over brings its cache lines along, as does each message
 *          and answer: a microsecond, and two where the cores share no cache. */
#include "sched/worker.h"

enum { TURN_NS = 2000, START_NS = 20000, BACKLOG_NS = 1000000 };
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

void teffi_help_later(teffi_real *real, teffi_slot *slot)
{
    teffi_alone *alone = &slot->alone;
    alone->brought = true;
    alone->picks = 0;
    if (alone->slow >= SLOW)
        teffi_wake_one(real);
    else if (!atomic_load_explicit(&alone->keeps, memory_order_relaxed))
        atomic_store_explicit(&alone->keeps, true, memory_order_relaxed);
}

static bool wants_help(teffi_alone *alone, uint32_t n, uint64_t now, uint64_t left)
{
    bool slow = now - alone->looked_ns > START_NS + (uint64_t)(n - alone->looked) * TURN_NS;
    if (!slow)
        alone->slow -= alone->slow > 0;
    else
        alone->slow = alone->slow + 2 < SLOW_MAX ? alone->slow + 2 : SLOW_MAX;
    return alone->slow >= SLOW ||
           (n >= KNOWN && (now - alone->since_ns) / n * left > BACKLOG_NS);
}

void teffi_help_look(teffi_worker *w)
{
    teffi_alone *alone = &w->slot->alone;
    uint32_t n = alone->picks++; /* that have ended */
    if ((n & (n - 1)) && n % LOOK_EVERY)
        return;
    uint64_t now = teffi_now(w->real->exec.platform);
    uint64_t left = teffi_deque_count(&w->slot->deque);
    if (!n)
        alone->since_ns = now;
    else if (wants_help(alone, n, now, left) || !left) {
        teffi_keeps_not(w->slot);
        if (left)
            teffi_wake_one(w->real);
    }
    alone->looked_ns = now;
    alone->looked = n;
    alone->brought = left > 0;
}
