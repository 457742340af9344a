/* deque.c - Chase-Lev deque with steal-half; deque.h says why it is sound.
 * Cells are atomic, since a thief may load a cell that the owner writes; the thief's CAS fails
 * then. */
#include "sched/queue/deque.h"

#include <stddef.h>
#include <stdlib.h>

/* If fewer items are left below the popped one, the owner pops by a CAS on top. */
#define TEFFI_DEQUE_NEAR TEFFI_STEAL_MAX

enum { ROOM_FIRST = 256 };

struct teffi_ring {
    uint32_t mask;
    teffi_ring *older; /* kept until fini, since thieves may still read it; smaller than this one */
    void *_Atomic cell[];
};

/* in: room, a power of two. out: NULL: memory is out. */
static teffi_ring *ring_new(uint32_t room, teffi_ring *older)
{
    teffi_ring *ring = calloc(1, sizeof *ring + room * sizeof ring->cell[0]);
    if (ring) {
        ring->mask = room - 1;
        ring->older = older;
    }
    return ring;
}

/* top is {index, tag}, 32 bits each. */
static uint32_t top_index(uint64_t top)
{
    return (uint32_t)(top >> 32);
}

/* out: top with its index raised by `by`, and the same tag. */
static uint64_t top_with_raised_index(uint64_t top, uint32_t by)
{
    return (uint64_t)(top_index(top) + by) << 32 | (uint32_t)top;
}

/* out: top with the same index and the next tag. */
static uint64_t top_with_next_tag(uint64_t top)
{
    return (uint64_t)top_index(top) << 32 | (uint32_t)(top + 1);
}

static void *cell_get(const teffi_ring *ring, uint32_t i)
{
    return atomic_load_explicit(&ring->cell[i & ring->mask], memory_order_relaxed);
}

static void cell_set(teffi_ring *ring, uint32_t i, void *item)
{
    atomic_store_explicit(&ring->cell[i & ring->mask], item, memory_order_relaxed);
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

/* Replace `old`, the deque's ring, by a ring of twice the room, and copy the items with indices
 * [from, to) into it. out: the new ring; NULL: memory is out, and nothing has changed. */
static teffi_ring *ring_grow(teffi_deque *deque, teffi_ring *old, uint32_t from, uint32_t to)
{
    teffi_ring *ring = ring_new((old->mask + 1) * 2, old);
    if (!ring)
        return NULL;
    for (uint32_t i = from; i != to; i++)
        cell_set(ring, i, cell_get(old, i));
    /* release: publishes the copied cells; pairs with teffi_deque_steal's acquire load of ring */
    atomic_store_explicit(&deque->ring, ring, memory_order_release);
    return ring;
}

bool teffi_deque_push(teffi_deque *deque, void *item)
{
    uint32_t bottom = atomic_load_explicit(&deque->bottom, memory_order_relaxed);
    /* acquire: this thread must not reuse a claimed cell before the thief has read it; pairs with
     * the CAS in teffi_deque_steal */
    uint32_t top = top_index(atomic_load_explicit(&deque->top, memory_order_acquire));
    teffi_ring *ring = atomic_load_explicit(&deque->ring, memory_order_relaxed);
    if (bottom - top > ring->mask && !(ring = ring_grow(deque, ring, top, bottom)))
        return false;
    cell_set(ring, bottom, item);
    /* seq_cst: publishes the cell to thieves, and comes before the pusher's load of idle_word
     * (idle.c); pairs with teffi_deque_steal and teffi_deque_count */
    atomic_store_explicit(&deque->bottom, bottom + 1, memory_order_seq_cst);
    return true;
}

/* Is item i out of reach for all thieves that have loaded this top? */
static bool item_is_out_of_thieves_reach(uint64_t top, uint32_t i)
{
    return (int32_t)(i - top_index(top)) >= TEFFI_DEQUE_NEAR;
}

/* Claim item i for the owner, which has lowered bottom to i. If a thief that has loaded top may
 * claim item i too, change top's tag, so that the thief's claim fails. out: false: a thief has
 * claimed item i first. */
static bool claim_bottom_item(teffi_deque *deque, uint64_t top, uint32_t i)
{
    while ((int32_t)(i - top_index(top)) >= 0) {
        if (item_is_out_of_thieves_reach(top, i))
            return true;
        /* seq_cst includes release, which publishes the lowered bottom to thieves that load the new
         * tag, and acquire, which pairs with the CAS in teffi_deque_steal. */
        if (atomic_compare_exchange_strong_explicit(&deque->top, &top, top_with_next_tag(top),
                                                    memory_order_seq_cst, memory_order_seq_cst))
            return true;
    }
    return false;
}

void *teffi_deque_pop(teffi_deque *deque)
{
    uint32_t bottom = atomic_load_explicit(&deque->bottom, memory_order_relaxed);
    uint64_t top = atomic_load_explicit(&deque->top, memory_order_relaxed);
    if ((int32_t)(bottom - top_index(top)) <= 0)
        return NULL; /* the deque is empty, since top's index only rises */
    uint32_t i = bottom - 1;
    if (item_is_out_of_thieves_reach(top, i)) {
        /* seq_cst on both: this thread lowers bottom, then loads top; teffi_deque_steal loads top,
         * then bottom */
        atomic_store_explicit(&deque->bottom, i, memory_order_seq_cst);
        top = atomic_load_explicit(&deque->top, memory_order_seq_cst);
    } else {
        /* relaxed: top only rises, so item i stays within thieves' reach. Therefore
         * claim_bottom_item claims it only by a CAS, which publishes bottom. */
        atomic_store_explicit(&deque->bottom, i, memory_order_relaxed);
    }
    if (claim_bottom_item(deque, top, i))
        return cell_get(atomic_load_explicit(&deque->ring, memory_order_relaxed), i);
    /* Thieves took the last item: restore bottom, which equals top now. */
    atomic_store_explicit(&deque->bottom, bottom, memory_order_relaxed);
    return NULL;
}

unsigned teffi_deque_steal(teffi_deque *deque, void **out, unsigned max)
{
    /* seq_cst: this thread loads top, then bottom; teffi_deque_pop lowers bottom, then loads top */
    uint64_t top = atomic_load_explicit(&deque->top, memory_order_seq_cst);
    uint32_t bottom = atomic_load_explicit(&deque->bottom, memory_order_seq_cst);
    int32_t count = (int32_t)(bottom - top_index(top));
    if (count <= 0)
        return 0;
    unsigned n = ((unsigned)count + 1) / 2;
    if (n > max)
        n = max;
    if (n > TEFFI_STEAL_MAX)
        n = TEFFI_STEAL_MAX;
    /* acquire: pairs with ring_grow */
    const teffi_ring *ring = atomic_load_explicit(&deque->ring, memory_order_acquire);
    for (unsigned k = 0; k < n; k++)
        out[k] = cell_get(ring, top_index(top) + k);
    if (!atomic_compare_exchange_strong_explicit(&deque->top, &top, top_with_raised_index(top, n),
                                                 memory_order_seq_cst, memory_order_relaxed))
        return 0;
    return n;
}

unsigned teffi_deque_count(teffi_deque *deque)
{
    uint32_t top = top_index(atomic_load_explicit(&deque->top, memory_order_seq_cst));
    uint32_t bottom = atomic_load_explicit(&deque->bottom, memory_order_seq_cst);
    return (int32_t)(bottom - top) > 0 ? bottom - top : 0;
}
