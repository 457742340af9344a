/* slab.h - the memory of activations: by slot, dense, used again, and given back when many ended.
 * Way:     catalog -> [slab] -> platform/pages
 * Threads: take and give under the lock inside; at from any thread that has learnt of the slot.
 *
 * Memory comes in regions of 1 MiB, cut into blocks of 64 KiB. It stays mapped while the silo
 * lives, since whoever was slow may still look at an activation. One that is free refuses what is
 * pushed to it (its group is COMPLETE), so nobody writes there; a block in which all are free can
 * be made the image again, in which they are free as well, and holds no memory then. What is kept
 * are 64 bytes a block, and the generation that its activations go on from. */
#ifndef TEFFI_GRAINS_SLAB_H
#define TEFFI_GRAINS_SLAB_H

#include <pthread.h>
#include "activation.h"
#include "platform/pages.h"

enum {
    TEFFI_BLOCK_BYTES = 64 * 1024,
    TEFFI_REGION_BLOCKS = 16,
    TEFFI_BLOCK_ACTS = TEFFI_BLOCK_BYTES / sizeof(teffi_activation),
    TEFFI_BLOCK_SLOTS = 512, /* numbers a block: as many as it may have of activations, or more */
    TEFFI_REGION_SLOTS = TEFFI_REGION_BLOCKS * TEFFI_BLOCK_SLOTS,
    TEFFI_REGIONS_MAX = (1 << 17) - 1 /* slots stay below those of processes */
};

typedef struct teffi_block {
    struct teffi_block *next, **prev; /* of the list it is in */
    char *memory;
    teffi_activation *free; /* by nudge.next */
    uint32_t first_slot;
    uint32_t generation; /* the highest that any of it has had */
    uint16_t used;       /* behind them all are as in the image */
    uint16_t live;
} teffi_block;

typedef struct teffi_slab {
    pthread_mutex_t lock; /* guards the rest, but for what at() reads */
    teffi_pages pages;
    teffi_block *room;  /* some are live, some are not */
    teffi_block *empty; /* hold no memory */
    uint32_t n_regions;
    uint64_t live;
    /* By region; written before any slot of it is known to anybody. */
    char **memory;
    teffi_block **blocks;
} teffi_slab;

/* teffi_slab_init - errs: false: memory is out. */
bool teffi_slab_init(teffi_slab *slab, struct teffi_grains *grains);

/* teffi_slab_fini - discards what its activations hold. Zeroed memory is allowed. */
void teffi_slab_fini(teffi_slab *slab);

/* teffi_slab_take - a free activation: its slot and last generation are set. NULL: memory is out.
 */
teffi_activation *teffi_slab_take(teffi_slab *slab);

/* teffi_slab_give - it is free, and its group COMPLETE. */
void teffi_slab_give(teffi_slab *slab, teffi_activation *act);

/* teffi_slab_held - bytes of memory in use, by its own count. */
uint64_t teffi_slab_held(teffi_slab *slab);

/* teffi_slab_at - by a slot that take gave. */
static inline teffi_activation *teffi_slab_at(const teffi_slab *slab, uint32_t slot)
{
    uint32_t n = slot - TEFFI_SLOT_SYSTEM_END, in = n % TEFFI_REGION_SLOTS;
    char *block =
        slab->memory[n / TEFFI_REGION_SLOTS] + (size_t)(in / TEFFI_BLOCK_SLOTS) * TEFFI_BLOCK_BYTES;
    return (teffi_activation *)(void *)block + in % TEFFI_BLOCK_SLOTS;
}

#endif
