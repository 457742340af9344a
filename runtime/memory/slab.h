/* slab.h - type-stable entries of one type: found by slot, never unmapped while the slab lives,
 * decommitted in blocks of 64 after a peak.
 * Way:     take: own list -> own batch -> blocks -> os/pages; put: the reverse
 * States:  of a block: IN_USE <-> PARTLY_FREE <-> FREE -> IN_USE;
 *          FREE -decommit-> DECOMMITTED -> IN_USE
 * Threads: any. A thread's lists are its own; the states of blocks are guarded by the lock.
 * Source:  Bonwick and Adams, "Magazines and Vmem" (2001)
 * Model:   tests/model/slab.pml
 *
 * Rules: a late reader finds a free entry as in the image (zeros if there is none) or as its last
 * user left it; both must mean "not in use". A block is decommitted only while its 64 entries are
 * all free; it then reads as the image and keeps only its state, its mark and its entries' highest
 * generation. Entries continue from there, so a {slot, generation} pair repeats after 2^31 uses of
 * the block's entries at the earliest. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include "base/thread_index.h"
#include "os/pages.h"

enum {
    TEFFI_SLAB_BLOCK = 64,    /* entries of a block, and of a batch */
    TEFFI_SLAB_FIRST = 1024,  /* entries of the first segment; each next has twice */
    TEFFI_SLAB_SEGMENTS = 20, /* 1 G entries */
    TEFFI_SLAB_KEEPS = 16,    /* free blocks that are not decommitted */
    TEFFI_SLAB_AGE_MS = 100,  /* blocks free for this long are decommitted */
    TEFFI_SLAB_SLICE = 1024,  /* most blocks of a slab decommitted by one teffi_slab_reclaim() */
};

/* In an entry while it is free. */
typedef struct teffi_slab_link {
    void *next;
} teffi_slab_link;

typedef struct teffi_slab_use {
    uint32_t slot, generation;
} teffi_slab_use;

typedef struct teffi_slab_type {
    size_t bytes; /* of an entry; blocks are decommitted only if 64 entries are whole pages */
    size_t link;  /* offset of the teffi_slab_link, read only by the owner of the entry */
    bool stays;   /* blocks are never decommitted */
    uint32_t entries_max; /* rounded up to whole blocks */
    /* Make a free entry from one that is as in the image; it continues from generation. Called
     * under the slab's lock, and must take no lock. */
    void (*begin)(void *entry, uint32_t slot, uint32_t generation, void *owner);
    /* Slot and generation of a free entry. */
    teffi_slab_use (*last_use)(const void *entry);
} teffi_slab_type;

typedef enum teffi_slab_state { /* of blocks */
                                TEFFI_SLAB_IN_USE = 0,
                                TEFFI_SLAB_PARTLY_FREE,
                                TEFFI_SLAB_FREE,
                                TEFFI_SLAB_DECOMMITTED,
                                TEFFI_SLAB_STATES
} teffi_slab_state;

typedef struct teffi_slab_block teffi_slab_block;

/* A thread's free entries; room keeps the fields of two threads in different cache lines. */
typedef struct teffi_slab_lists {
    void *free, *full; /* full: a batch of TEFFI_SLAB_BLOCK entries, or NULL */
    uint32_t n;        /* entries in free */
    char room[96 - 2 * sizeof(void *) - sizeof(uint32_t)];
} teffi_slab_lists;

typedef struct teffi_slab {
    /* immutable */
    const teffi_slab_type *type;
    void *owner;
    teffi_pages pages;
    /* Written under the lock before an entry of the segment is used. base: the address that slot 0
     * would have if the segment were extended downwards to slot 0. relaxed: `used` publishes
     * both. */
    _Atomic uintptr_t base[TEFFI_SLAB_SEGMENTS];
    teffi_slab_block *_Atomic blocks[TEFFI_SLAB_SEGMENTS];
    _Atomic uint32_t used; /* entries ever made; release: pairs with teffi_slab_at() */
    /* guarded by lock */
    pthread_mutex_t lock;
    uint32_t low;                  /* the fewest FREE blocks since looked_ns */
    uint32_t spare;                /* blocks still to be decommitted */
    uint64_t looked_ns;            /* begin of the present period of TEFFI_SLAB_AGE_MS */
    bool keeps_all;                /* type->stays, or pages cannot be decommitted */
    uint32_t n[TEFFI_SLAB_STATES]; /* blocks in each state */
    LIST_HEAD(, teffi_slab_block) list[TEFFI_SLAB_STATES];
    /* each is used only by the thread with this index; a thread without an index has none */
    teffi_slab_lists lists[TEFFI_THREAD_INDEXES];
    LIST_ENTRY(teffi_slab) link; /* all slabs of this process; guarded by slab.c's lock of them */
} teffi_slab;

/* teffi_slab_init - make an empty slab. in: type, borrowed. image, copied: NULL, or the initial
 * contents of image_entries free entries (a power of two, a multiple of TEFFI_SLAB_BLOCK, at most
 * TEFFI_SLAB_FIRST; together whole pages). image_entries is 0 if image is NULL.
 * out: false, with errno: as teffi_pages_init(); teffi_slab_fini() is allowed. */
bool teffi_slab_init(teffi_slab *slab, const teffi_slab_type *type, void *owner, const void *image,
                     uint32_t image_entries);

/* teffi_slab_fini - free a slab, which no thread uses any more. in: discard, called for each entry,
 * used or free, of the blocks that are not decommitted; may be NULL. Zeroed memory is allowed. */
void teffi_slab_fini(teffi_slab *slab, void (*discard)(void *entry));

/* teffi_slab_take - take a free entry. out: NULL if out of memory, or if entries_max entries are in
 *       use or in the lists of other threads.
 * teffi_slab_put - free an entry, which reads as "not in use" already. */
void *teffi_slab_take(teffi_slab *slab);
void teffi_slab_put(teffi_slab *slab, void *entry);

/* teffi_slab_reclaim - in each slab of this process, decommit a slice of the blocks that stayed
 * free for TEFFI_SLAB_AGE_MS, except TEFFI_SLAB_KEEPS of them. Call it at each tick. */
void teffi_slab_reclaim(uint64_t now_ns);

/* teffi_slab_segment_of - the segment of a slot; segment n begins at slot
 * TEFFI_SLAB_FIRST * (2^n - 1). */
static inline unsigned teffi_slab_segment_of(uint32_t slot)
{
    return 31u - (unsigned)__builtin_clz(slot / TEFFI_SLAB_FIRST + 1);
}

/* teffi_slab_at - get the entry of a slot, in use or free. in: slot, any number.
 * out: NULL: no entry was ever made for this slot. */
static inline void *teffi_slab_at(teffi_slab *slab, uint32_t slot)
{
    /* acquire: pairs with add_block(), which makes the entry before it stores `used` */
    if (slot >= atomic_load_explicit(&slab->used, memory_order_acquire))
        return NULL;
    uintptr_t base =
        atomic_load_explicit(&slab->base[teffi_slab_segment_of(slot)], memory_order_relaxed);
    return (void *)(base + slot * slab->type->bytes);
}

/* ---- blocks ---- */

/* teffi_slab_block_count - number of blocks ever made.
 * teffi_slab_next_committed - find the first block, from `block` on, that is not decommitted. out:
 *       if there is none, at least teffi_slab_block_count(). May miss a block recommitted just
 *       now. */
uint32_t teffi_slab_block_count(teffi_slab *slab);
uint32_t teffi_slab_next_committed(teffi_slab *slab, uint32_t block);

/* teffi_slab_get_block_mark - get the block's mark: a word for the slab's user, valid also while
 * the block is decommitted. The mark is set to UINT64_MAX when the block is made and when it is
 * decommitted. */
_Atomic uint64_t *teffi_slab_get_block_mark(teffi_slab *slab, uint32_t block);
