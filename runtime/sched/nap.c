/* nap.c - does the second worker pay? One whose stealing only slowed the others down naps.
 * Way:     find (stole) -> [nap] ... find (nothing here) -> [nap] -> search
 * Threads: the worker's own, but for the wake-up.
 * Why:     a group that another core takes over brings its cache lines along, some 100 ns each.
 *          Where a message is handled in 20 ns a thief can halve what all of them get done.
 *
 * How it is found out. From its first steal on a worker keeps, until it has run dry and 50 us have
 * passed, what it and its victim have handled together. Then it naps for 100 us and sees what the
 * victim gets done alone. If together was no better by an eighth, the naps become longer, up to
 * 2 ms; else there is none for 10 ms. Items of more than half a microsecond are always worth it.
 *
 * A napping worker is no searcher and not idle: for the others it is one that runs and will look at
 * every queue before it parks. So a nap loses nothing and only delays: help for a busy worker. What
 * comes from outside, a timer, or a turn that the monitor finds stuck ends it. */
#include "sched/worker.h"

#ifndef TEFFI_NAP_ALWAYS /* the explorer's: time stands still there but for who sleeps */
#define PERIOD_NS 50000u
#define WORTH_IT_NS 500u /* an item that takes as long */
#else
#define PERIOD_NS 0u
#define WORTH_IT_NS 1000000000u
#endif
#define FRESH_NS 10000000u
#define NAP_MIN_NS 100000u
#define NAP_MAX_NS 2000000u

static uint64_t items(const teffi_slot *slot)
{
    return atomic_load_explicit(&slot->turns, memory_order_relaxed) +
           atomic_load_explicit(&slot->items, memory_order_relaxed);
}

static uint64_t rate(uint64_t n, uint64_t ns)
{
    return (n << 20) / (ns | 1);
}

void teffi_nap_stole(teffi_worker *w, teffi_slot *victim)
{
    teffi_pay *pay = &w->slot->pay;
    if (pay->since_ns)
        return;
    pay->since_ns = teffi_now(w->real->exec.platform);
    pay->victim = victim;
    pay->before = items(w->slot) + items(victim);
}

/* out: how long to nap; 0: it paid, or is not known yet. */
static uint64_t judge(teffi_slot *slot, uint64_t now)
{
    teffi_pay *pay = &slot->pay;
    if (!pay->since_ns || now - pay->since_ns < PERIOD_NS)
        return 0;
    uint64_t ns = now - pay->since_ns;
    uint64_t n = items(slot) + items(pay->victim) - pay->before;
    bool known = pay->alone_at_ns && now - pay->alone_at_ns < FRESH_NS;
    pay->since_ns = 0;
    if (n * WORTH_IT_NS < ns || (known && rate(n, ns) * 8 > pay->alone * 9))
        pay->nap_ns = 0;
    else if (!pay->nap_ns || !known)
        pay->nap_ns = NAP_MIN_NS;
    else if (pay->nap_ns < NAP_MAX_NS)
        pay->nap_ns *= 2;
    return pay->nap_ns;
}

static void sleep_at_most(teffi_worker *w, uint64_t nap_ns, uint64_t now)
{
    teffi_real *real = w->real;
    atomic_fetch_add_explicit(&real->nappers, 1, memory_order_relaxed);
    /* seq_cst: before the looks below; who sets a timer does so, then looks here */
    atomic_store_explicit(&w->napping, true, memory_order_seq_cst);
    uint64_t due = teffi_wheel_next(&w->slot->wheel);
    if (due < now + nap_ns)
        nap_ns = due > now ? due - now : 0;
    if (nap_ns && !atomic_load_explicit(&real->attention, memory_order_seq_cst))
        teffi_parker_wait(&w->parker, nap_ns);
    atomic_store_explicit(&w->napping, false, memory_order_relaxed);
    atomic_fetch_sub_explicit(&real->nappers, 1, memory_order_relaxed);
}

void teffi_nap(teffi_worker *w)
{
    teffi_pay *pay = &w->slot->pay;
    if (!pay->since_ns)
        return;
    uint64_t now = teffi_now(w->real->exec.platform);
    uint64_t nap_ns = judge(w->slot, now);
    if (!nap_ns)
        return;
    if (w->searching)
        teffi_search_end(w);
    uint64_t before = items(pay->victim);
    sleep_at_most(w, nap_ns, now);
    uint64_t slept = teffi_now(w->real->exec.platform) - now;
    if (slept < PERIOD_NS)
        return;
    pay->alone = rate(items(pay->victim) - before, slept);
    pay->alone_at_ns = now + slept;
}

void teffi_nap_end(teffi_real *real)
{
    /* seq_cst: after what the nap is ended for was made visible */
    if (!atomic_load_explicit(&real->nappers, memory_order_seq_cst))
        return;
    pthread_mutex_lock(&real->idle_lock);
    for (unsigned i = 0; i < real->n_slots; i++) {
        teffi_worker *w = real->slots[i].worker;
        if (w && atomic_load_explicit(&w->napping, memory_order_seq_cst))
            teffi_parker_wake(&w->parker);
    }
    pthread_mutex_unlock(&real->idle_lock);
}
