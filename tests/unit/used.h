/* used.h - how many bytes a budget counts: exact while no thread counts. */
#pragma once

#include "base/budget.h"

static inline int64_t bytes_used(const teffi_budget *budget)
{
    int64_t n = atomic_load_explicit(&budget->total, memory_order_relaxed);
    for (unsigned i = 0; i < TEFFI_THREAD_INDEXES; i++)
        n += atomic_load_explicit(&budget->cells[i].bytes, memory_order_relaxed);
    return n;
}
