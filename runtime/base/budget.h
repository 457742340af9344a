/* budget.h - bytes in use against a limit, counted by many threads without a shared cache line.
 * Way:     messages, connections -> [budget] -> OVERLOADED
 * Threads: any. A thread counts in the cell of its index and moves that to the total at
 *          TEFFI_BUDGET_STEP, so the total is exact to TEFFI_BUDGET_STEP per thread index.
 * Source:  Linux's lib/percpu_counter.c */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/thread_index.h"

enum { TEFFI_BUDGET_STEP = 32 * 1024 };

typedef struct teffi_budget {
    int64_t max_bytes; /* immutable after init */
    _Alignas(64) _Atomic int64_t total;
    struct {
        _Alignas(64) _Atomic int64_t bytes; /* written by the index's thread only; relaxed */
    } cells[TEFFI_THREAD_INDEXES];
} teffi_budget;

void teffi_budget_init(teffi_budget *budget, size_t max_bytes);

/* teffi_budget_add - count n more bytes in use; n may be negative. in: budget may be NULL. */
void teffi_budget_add(teffi_budget *budget, int64_t n);

/* teffi_budget_is_exceeded - is the total over max_bytes? Bytes that are still in the threads'
 * cells are not counted. out: false if budget is NULL. relaxed: this load orders no other
 * memory. */
static inline bool teffi_budget_is_exceeded(const teffi_budget *budget)
{
    return budget && atomic_load_explicit(&budget->total, memory_order_relaxed) > budget->max_bytes;
}
