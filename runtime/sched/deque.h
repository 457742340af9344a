/* deque.h - a worker's own run queue: the owner pushes and pops at the bottom, thieves take a batch
 * from the top.
 * Way:     worker -> [deque] -> the same worker (newest first) | a thief (oldest first, half)
 * Threads: push, pop: the owner. steal, count: any thread.
 * Source:  Chase and Lev 2005; steal-half as DESIGN "Scheduling" asks; tests/model/deque.pml
 *
 * Why taking n with one CAS is sound. top is {index, tag}; a thief reads top, then bottom, claims
 * n <= TEFFI_STEAL_MAX indices from index on, by one CAS on the whole of top. The owner first
 * lowers bottom to i, then reads top = {t, tag}:
 *  - i >= t + TEFFI_STEAL_MAX: no thief that read this top can claim i. A thief that reads a later
 *    top reads bottom after the owner lowered it (both sides seq_cst) and claims below i.
 *  - else the owner replaces {t, tag} by {t, tag + 1}. That fails if a thief was faster (look
 *    again), and makes every claim from the old top fail. Later claims see the lowered bottom.
 * A claim could only go wrong by a thief sleeping through exactly 2^32 tags at an unmoved index. */
#ifndef TEFFI_SCHED_DEQUE_H
#define TEFFI_SCHED_DEQUE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { TEFFI_STEAL_MAX = 32 };

typedef struct teffi_ring teffi_ring;

typedef struct teffi_deque {
    _Alignas(64) _Atomic uint64_t top;    /* {index, tag}: thieves and the owner, by CAS */
    _Alignas(64) _Atomic uint32_t bottom; /* the owner; indices wrap */
    teffi_ring *_Atomic ring;             /* the owner replaces it when full */
} teffi_deque;

/* teffi_deque_init - empty, room for 256. errs: false when memory is out. */
bool teffi_deque_init(teffi_deque *deque);
void teffi_deque_fini(teffi_deque *deque);

/* teffi_deque_push - at the bottom; grows when full.
 * out:  false: memory is out, item was not taken. */
bool teffi_deque_push(teffi_deque *deque, void *item);

/* teffi_deque_pop - the newest item, NULL when empty. */
void *teffi_deque_pop(teffi_deque *deque);

/* teffi_deque_steal - the oldest items: half of them (rounded up), at most max and TEFFI_STEAL_MAX.
 * out:  how many, oldest first; 0 when empty or when another was faster.
 * runs: any thread; the owner may take its own oldest with it. */
unsigned teffi_deque_steal(teffi_deque *deque, void **out, unsigned max);

/* teffi_deque_count - how many items, a guess while others work on it; seq_cst, so that after
 * announcing to park a worker sees every push that did not see the announcement. */
unsigned teffi_deque_count(teffi_deque *deque);

#endif
