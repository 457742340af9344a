/* deque.c - Chase-Lev deque with a sound steal-half; the argument is in deque.h.
 * Way:     worker's ready groups -> [deque] -> owner's pop | thief's steal
 * Threads: as deque.h says. Slots are atomic since a thief may read one that the owner reuses; its
 *          CAS then fails and the value is dropped. */
#include "sched/deque.h"

#include <stddef.h>
#include <stdlib.h>

/* How near to the top the owner may pop without CAS. The test's mutant sets 1, as a plain deque. */
#ifndef TEFFI_DEQUE_NEAR
#define TEFFI_DEQUE_NEAR TEFFI_STEAL_MAX
#endif

enum { ROOM_FIRST = 256 };

struct teffi_ring {
    uint32_t mask;
    teffi_ring *older; /* a thief may still read it: kept until fini; all together < the newest */
    void *_Atomic slot[];
};

static teffi_ring *ring_new(uint32_t room, teffi_ring *older)
{
    teffi_ring *ring = calloc(1, sizeof *ring + room * sizeof ring->slot[0]);
    if (ring) {
        ring->mask = room - 1;
        ring->older = older;
    }
    return ring;
}

static uint32_t index_of(uint64_t top)
{
    return (uint32_t)(top >> 32);
}

static uint64_t moved(uint64_t top, uint32_t by)
{
    return (uint64_t)(index_of(top) + by) << 32 | (uint32_t)top;
}

static uint64_t retagged(uint64_t top)
{
    return (uint64_t)index_of(top) << 32 | (uint32_t)(top + 1);
}

static void *slot_get(const teffi_ring *ring, uint32_t i)
{
    return atomic_load_explicit(&ring->slot[i & ring->mask], memory_order_relaxed);
}

static void slot_set(teffi_ring *ring, uint32_t i, void *item)
{
    atomic_store_explicit(&ring->slot[i & ring->mask], item, memory_order_relaxed);
}

bool teffi_deque_init(teffi_deque *deque)
{
    atomic_init(&deque->top, 0);
    atomic_init(&deque->bottom, 0);
    atomic_init(&deque->ring, ring_new(ROOM_FIRST, NULL));
    return atomic_load_explicit(&deque->ring, memory_order_relaxed) != NULL;
}

void teffi_deque_fini(teffi_deque *deque)
{
    teffi_ring *ring = atomic_load_explicit(&deque->ring, memory_order_relaxed);
    while (ring) {
        teffi_ring *older = ring->older;
        free(ring);
        ring = older;
    }
    atomic_store_explicit(&deque->ring, NULL, memory_order_relaxed);
}

static teffi_ring *grow(teffi_deque *deque, teffi_ring *old, uint32_t from, uint32_t to)
{
    teffi_ring *ring = ring_new((old->mask + 1) * 2, old);
    if (!ring)
        return NULL;
    for (uint32_t i = from; i != to; i++)
        slot_set(ring, i, slot_get(old, i));
    /* release: the copies, pairs with steal's acquire of ring */
    atomic_store_explicit(&deque->ring, ring, memory_order_release);
    return ring;
}

bool teffi_deque_push(teffi_deque *deque, void *item)
{
    uint32_t bottom = atomic_load_explicit(&deque->bottom, memory_order_relaxed);
    /* acquire: a thief's claim, so that its slot may be used again */
    uint32_t top = index_of(atomic_load_explicit(&deque->top, memory_order_acquire));
    teffi_ring *ring = atomic_load_explicit(&deque->ring, memory_order_relaxed);
    if (bottom - top > ring->mask && !(ring = grow(deque, ring, top, bottom)))
        return false;
    slot_set(ring, bottom, item);
    /* seq_cst: publishes the slot to steal, and comes before the pusher's look for sleepers
     * (idle.c); pairs with steal and teffi_deque_count */
    atomic_store_explicit(&deque->bottom, bottom + 1, memory_order_seq_cst);
    return true;
}

static bool far(uint64_t top, uint32_t i)
{
    return (int32_t)(i - index_of(top)) >= TEFFI_DEQUE_NEAR;
}

/* bottom is already lowered to i: make every claim on i fail, or find that it is gone. */
static bool keep(teffi_deque *deque, uint64_t top, uint32_t i)
{
    while ((int32_t)(i - index_of(top)) >= 0) {
        if (far(top, i))
            return true;
        /* release: the lowered bottom, for thieves that read the new tag; acquire: see push */
        if (atomic_compare_exchange_strong_explicit(&deque->top, &top, retagged(top),
                                                    memory_order_seq_cst, memory_order_seq_cst))
            return true;
    }
    return false;
}

void *teffi_deque_pop(teffi_deque *deque)
{
    uint32_t bottom = atomic_load_explicit(&deque->bottom, memory_order_relaxed);
    uint64_t top = atomic_load_explicit(&deque->top, memory_order_relaxed);
    if ((int32_t)(bottom - index_of(top)) <= 0)
        return NULL; /* top only rises: surely empty */
    uint32_t i = bottom - 1;
    if (far(top, i)) {
        /* seq_cst on both: lower bottom before reading top; pairs with steal's top before bottom */
        atomic_store_explicit(&deque->bottom, i, memory_order_seq_cst);
        top = atomic_load_explicit(&deque->top, memory_order_seq_cst);
    } else {
        /* Near by an old top is near by the newest: keep's CAS publishes it. */
        atomic_store_explicit(&deque->bottom, i, memory_order_relaxed);
    }
    if (keep(deque, top, i))
        return slot_get(atomic_load_explicit(&deque->ring, memory_order_relaxed), i);
    /* Thieves took it: bottom goes back to where top is now. */
    atomic_store_explicit(&deque->bottom, bottom, memory_order_relaxed);
    return NULL;
}

unsigned teffi_deque_steal(teffi_deque *deque, void **out, unsigned max)
{
    /* seq_cst, in this order: see pop */
    uint64_t top = atomic_load_explicit(&deque->top, memory_order_seq_cst);
    uint32_t bottom = atomic_load_explicit(&deque->bottom, memory_order_seq_cst);
    int32_t count = (int32_t)(bottom - index_of(top));
    if (count <= 0)
        return 0;
    unsigned n = ((unsigned)count + 1) / 2;
    if (n > max)
        n = max;
    if (n > TEFFI_STEAL_MAX)
        n = TEFFI_STEAL_MAX;
    /* acquire: pairs with grow */
    const teffi_ring *ring = atomic_load_explicit(&deque->ring, memory_order_acquire);
    for (unsigned k = 0; k < n; k++)
        out[k] = slot_get(ring, index_of(top) + k);
    if (!atomic_compare_exchange_strong_explicit(&deque->top, &top, moved(top, n),
                                                 memory_order_seq_cst, memory_order_relaxed))
        return 0;
    return n;
}

unsigned teffi_deque_count(teffi_deque *deque)
{
    uint32_t top = index_of(atomic_load_explicit(&deque->top, memory_order_seq_cst));
    uint32_t bottom = atomic_load_explicit(&deque->bottom, memory_order_seq_cst);
    return (int32_t)(bottom - top) > 0 ? bottom - top : 0;
}
