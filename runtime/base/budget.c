/* budget.c - bytes in use: cells by thread, and a total. */
#include "base/budget.h"

void teffi_budget_init(teffi_budget *budget, size_t max_bytes)
{
    budget->max_bytes = (int64_t)(max_bytes < INT64_MAX ? max_bytes : INT64_MAX);
    atomic_init(&budget->total, 0);
    for (unsigned i = 0; i < TEFFI_THREAD_INDEXES; i++)
        atomic_init(&budget->cells[i].bytes, 0);
}

/* Adds n to the cell of this thread, whose index is given. If the cell's sum then reaches
 * TEFFI_BUDGET_STEP or -TEFFI_BUDGET_STEP, moves that sum to the total. If the index has no cell,
 * adds n to the total.
 * relaxed: the counters order no other memory, and only this thread writes its cell. */
static inline void add_to_cell_or_total(teffi_budget *budget, unsigned index, int64_t n)
{
    if (index < TEFFI_THREAD_INDEXES) {
        _Atomic int64_t *cell = &budget->cells[index].bytes;
        n += atomic_load_explicit(cell, memory_order_relaxed);
        bool small = n < TEFFI_BUDGET_STEP && n > -TEFFI_BUDGET_STEP;
        atomic_store_explicit(cell, small ? n : 0, memory_order_relaxed);
        if (small)
            return;
    }
    atomic_fetch_add_explicit(&budget->total, n, memory_order_relaxed);
}

/* Takes an index for this thread, which has none yet, and adds n. Not inlined, so that
 * teffi_budget_add() need not save registers for this rare call. */
__attribute__((noinline)) static void take_index_and_add(teffi_budget *budget, int64_t n)
{
    add_to_cell_or_total(budget, teffi_thread_index_take(), n);
}

void teffi_budget_add(teffi_budget *budget, int64_t n)
{
    if (!budget)
        return;
    if (teffi_own_thread_index)
        add_to_cell_or_total(budget, teffi_own_thread_index - 1, n);
    else
        take_index_and_add(budget, n);
}
