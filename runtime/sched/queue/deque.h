/* deque.h - a processor's own run queue: the owner pushes and pops at the bottom, thieves take half
 * of it from the top.
 * Threads: push, pop: the owner. steal, count: any thread.
 * Source:  Chase and Lev 2005; tests/model/deque.pml */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { TEFFI_STEAL_MAX = 32 };

/* Why one CAS may take n items. top is {index, tag}. A thief loads top, then bottom, and claims
 * n <= TEFFI_STEAL_MAX items from index on by a CAS on top. The owner first lowers bottom to i,
 * then loads top = {t, tag}:
 *  - If i >= t + TEFFI_STEAL_MAX, no thief that loaded this top can claim i. A thief that loads a
 *    later top loads bottom after it was lowered (both sides seq_cst), and claims items below i.
 *  - Else the owner replaces {t, tag} by {t, tag + 1}. If a thief was faster, that fails, and the
 *    owner tries again. Otherwise every claim from the old top fails, and later thieves see the
 *    lowered bottom.
 * A claim goes wrong only if top has changed and returned to exactly the same {index, tag} while
 * the thief was preempted; each of the two has 32 bits. */
typedef struct teffi_ring teffi_ring;

typedef struct teffi_deque {
    _Alignas(64) _Atomic uint64_t top; /* {index, tag}; changed by thieves and the owner, by CAS */
    _Alignas(64) _Atomic uint32_t bottom; /* written by the owner; indices wrap */
    teffi_ring *_Atomic ring;             /* the owner replaces it when full */
} teffi_deque;

/* teffi_deque_init - empty, room for 256. out: false: memory is out; the caller may call fini. */
bool teffi_deque_init(teffi_deque *deque);
void teffi_deque_fini(teffi_deque *deque);

/* teffi_deque_push - at the bottom; grows when full.
 * out:  false: memory is out, item was not taken. */
bool teffi_deque_push(teffi_deque *deque, void *item);

/* teffi_deque_pop - the newest item, NULL when empty. */
void *teffi_deque_pop(teffi_deque *deque);

/* teffi_deque_steal - the oldest items: half of them (rounded up), at most max and TEFFI_STEAL_MAX.
 * out:  how many, oldest first; 0: it is empty, or another thread was faster.
 * runs: any thread, also the owner, to take its oldest item. */
unsigned teffi_deque_steal(teffi_deque *deque, void **out, unsigned max);

/* teffi_deque_count - how many items; a hint while other threads use it. seq_cst: a worker that has
 * announced that it parks sees every push whose pusher did not see the announcement. */
unsigned teffi_deque_count(teffi_deque *deque);
