/* thread_index.h - a small number unique among live threads, for per-thread cells in tables.
 * Way:     memory/slab, budget -> [thread_index]
 * Threads: any. A thread sees the writes of an earlier thread with the same index. */
#pragma once

#include "base/local.h"

enum { TEFFI_THREAD_INDEXES = 128 };

/* This thread's index + 1; 0: none yet; TEFFI_THREAD_INDEXES + 1: none was free. */
TEFFI_LOCAL_EXTERN unsigned teffi_own_thread_index;

/* teffi_thread_index_take - slow path of teffi_thread_index(): takes an index. */
unsigned teffi_thread_index_take(void);

/* teffi_thread_index - this thread's index, the same until the thread ends and its destructors run.
 * out:  0 .. TEFFI_THREAD_INDEXES - 1; TEFFI_THREAD_INDEXES: the thread has no index, so it cannot
 *       use a cell of its own.
 * runs: in functions that are not inlined and do not suspend: see base/local.h. */
static inline unsigned teffi_thread_index(void)
{
    return teffi_own_thread_index ? teffi_own_thread_index - 1 : teffi_thread_index_take();
}
