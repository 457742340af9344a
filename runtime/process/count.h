/* count.h - the counters of a process, and those of the worker that it runs on.
 * Way:     turn, step, wait -> [count] -> list (metrics)
 * Threads: the process's turn; teffi_own_cell_index: any. Readers see the counters change one by
 * one. */
#pragma once

#include "process/process.h"

/* teffi_own_cell_index - the index of this thread's cell: the number of the processor that the
 * thread holds. 0: the thread is not a worker, its turn has lost the processor, or its turn is in a
 * blocking region. */
static inline unsigned teffi_own_cell_index(const teff_process_system *system)
{
    teffi_exec *exec = system->exec;
    return exec->ops->worker ? exec->ops->worker(exec) : 0;
}

/* teffi_count_add - add to a counter that has one writer, and so needs no atomic addition. If this
 * thread loses its processor between load and store, additions of the next holder may be lost. */
static inline void teffi_count_add(_Atomic uint64_t *count, uint64_t n)
{
    uint64_t now = atomic_load_explicit(count, memory_order_relaxed);
    atomic_store_explicit(count, now + n, memory_order_relaxed);
}

/* teffi_process_add_counts - add to the counters of the process and of this thread's cell. */
static inline void teffi_process_add_counts(teff_process *p, uint64_t turns, uint64_t events,
                                            uint64_t run_ns)
{
    unsigned own = teffi_own_cell_index(p->system);
    teffi_cell *cell = &p->system->cells[own];
    teffi_count_add(&p->turns, turns);
    teffi_count_add(&p->events, events);
    if (run_ns)
        teffi_count_add(&p->run_ns, run_ns);
    if (own == 0) { /* shared by all threads that hold no processor */
        atomic_fetch_add_explicit(&cell->turns, turns, memory_order_relaxed);
        atomic_fetch_add_explicit(&cell->events, events, memory_order_relaxed);
        atomic_fetch_add_explicit(&cell->run_ns, run_ns, memory_order_relaxed);
        return;
    }
    teffi_count_add(&cell->turns, turns);
    teffi_count_add(&cell->events, events);
    if (run_ns)
        teffi_count_add(&cell->run_ns, run_ns);
}
