/* metrics.c - what has the scheduler done?
 * Way:     a program -> exec ops -> [metrics] -> the slots' counters
 * Threads: any; counters are read one by one while they change.
 * What is taken from the hand-off is not counted, being the hottest path of all: it is what is left
 * of the runs. */
#include "sched/worker.h"

static uint64_t get(const _Atomic uint64_t *count)
{
    return atomic_load_explicit(count, memory_order_relaxed);
}

static teff_sched_worker describe(const teffi_slot *slot)
{
    const teffi_counts *c = &slot->counts;
    teff_sched_worker one = {
        .local = get(&c->local),
        .global = get(&c->global),
        .stolen = get(&c->stolen),
        .steals = get(&c->steals),
        .parks = get(&c->parks),
        .wakes = get(&c->wakes),
        .requeues = get(&c->requeues),
    };
    for (unsigned l = 0; l < TEFF_SCHED_LEVELS; l++)
        one.level_ns[l] = get(&c->level_ns[l]);
    uint64_t others = one.local + one.global + one.stolen;
    /* Read after the others, which are counted before the run is; turns begin at 1. */
    one.runs = get(&slot->turns) - 1;
    if (one.runs < others)
        one.runs = others;
    one.next = one.runs - others;
    return one;
}

static teff_sched_metrics overall(teffi_real *real)
{
    teff_sched_metrics all = {
        .workers = real->n_slots,
        .active = atomic_load_explicit(&real->n_active, memory_order_relaxed),
        .threads = atomic_load_explicit(&real->threads, memory_order_relaxed),
        .ready = teffi_runqueue_count(&real->queue),
    };
    if (real->levels)
        all.level0_chance = atomic_load_explicit(&real->levels->chance, memory_order_relaxed) /
                            (double)TEFFI_CHANCE_ONE;
    if (real->ranks)
        all.evicted = get(&real->ranks->evicted);
    return all;
}

size_t teffi_metrics(teffi_exec *exec, teff_sched_metrics *all, teff_sched_worker *workers,
                     size_t max)
{
    teffi_real *real = (teffi_real *)(void *)exec;
    size_t n = max < real->n_slots ? max : real->n_slots;
    if (all)
        *all = overall(real);
    for (size_t i = 0; i < n; i++)
        workers[i] = describe(&real->slots[i]);
    return n;
}

size_t teffi_exec_metrics(teffi_exec *exec, teff_sched_metrics *all, teff_sched_worker *workers,
                          size_t max)
{
    if (exec->ops->metrics)
        return exec->ops->metrics(exec, all, workers, max);
    if (all)
        *all = (teff_sched_metrics){0};
    return 0;
}
