/* slab.c - regions, blocks, and which of them hold memory.
 * Way:     catalog -> [slab] -> platform/pages */
#include "slab.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "base/bug.h"
#include "grains.h"

enum { REGION_BYTES = TEFFI_BLOCK_BYTES * TEFFI_REGION_BLOCKS };

static_assert((int)TEFFI_BLOCK_ACTS <= (int)TEFFI_BLOCK_SLOTS, "a slot for each activation");
static_assert(TEFFI_REGIONS_MAX * (uint64_t)TEFFI_REGION_SLOTS < TEFFI_PROCESS_BIT - 16u,
              "slots of activations are not those of processes");

bool teffi_slab_init(teffi_slab *slab, teffi_grains *grains)
{
    char *image = calloc(1, REGION_BYTES);
    bool ok = false;
    pthread_mutex_init(&slab->lock, NULL);
    for (int b = 0; image && b < TEFFI_REGION_BLOCKS; b++)
        for (size_t i = 0; i < TEFFI_BLOCK_ACTS; i++)
            teffi_activation_init((teffi_activation *)(void *)(image + b * TEFFI_BLOCK_BYTES) + i,
                                  grains);
    if (image)
        ok = teffi_pages_init(&slab->pages, image, REGION_BYTES);
    free(image);
    slab->memory = calloc(TEFFI_REGIONS_MAX, sizeof *slab->memory);
    slab->blocks = calloc(TEFFI_REGIONS_MAX, sizeof *slab->blocks);
    return ok && slab->memory && slab->blocks;
}

static void discard(const teffi_block *block)
{
    for (uint16_t i = 0; i < block->used; i++)
        teffi_activation_discard((teffi_activation *)(void *)block->memory + i);
}

void teffi_slab_fini(teffi_slab *slab)
{
    for (uint32_t r = 0; r < slab->n_regions; r++) {
        for (int b = 0; b < TEFFI_REGION_BLOCKS; b++)
            discard(&slab->blocks[r][b]);
        teffi_pages_unmap(&slab->pages, slab->memory[r]);
        free(slab->blocks[r]);
    }
    free(slab->memory);
    free(slab->blocks);
    teffi_pages_fini(&slab->pages);
    pthread_mutex_destroy(&slab->lock);
}

/* ---- lists ---- */

static void enlist(teffi_block **list, teffi_block *block)
{
    block->next = *list;
    block->prev = list;
    if (block->next)
        block->next->prev = &block->next;
    *list = block;
}

static void leave(teffi_block *block)
{
    *block->prev = block->next;
    if (block->next)
        block->next->prev = block->prev;
}

/* ---- regions ---- */

static bool add_region(teffi_slab *slab)
{
    uint32_t r = slab->n_regions;
    if (r == TEFFI_REGIONS_MAX)
        return false;
    char *memory = teffi_pages_map(&slab->pages);
    teffi_block *blocks = calloc(TEFFI_REGION_BLOCKS, sizeof *blocks);
    if (!memory || !blocks) {
        if (memory)
            teffi_pages_unmap(&slab->pages, memory);
        free(blocks);
        return false;
    }
    slab->memory[r] = memory;
    slab->blocks[r] = blocks;
    for (uint32_t b = TEFFI_REGION_BLOCKS; b-- > 0;) {
        blocks[b].memory = memory + (size_t)b * TEFFI_BLOCK_BYTES;
        blocks[b].first_slot =
            r * TEFFI_REGION_SLOTS + b * TEFFI_BLOCK_SLOTS + TEFFI_SLOT_SYSTEM_END;
        enlist(&slab->empty, &blocks[b]);
    }
    slab->n_regions++;
    return true;
}

static teffi_block *with_room(teffi_slab *slab)
{
    if (slab->room)
        return slab->room;
    if (!slab->empty && !add_region(slab))
        return NULL;
    teffi_block *block = slab->empty;
    leave(block);
    enlist(&slab->room, block);
    return block;
}

/* ---- activations ---- */

static teffi_activation *take_of(teffi_block *block)
{
    teffi_activation *act = block->free;
    if (act) {
        block->free = (teffi_activation *)(void *)act->nudge.next;
        return act;
    }
    act = (teffi_activation *)(void *)block->memory + block->used;
    /* relaxed: who learns of the slot learns it from what the activation does */
    atomic_store_explicit(&act->slot, block->first_slot + block->used, memory_order_relaxed);
    act->generation = block->generation;
    block->used++;
    return act;
}

teffi_activation *teffi_slab_take(teffi_slab *slab)
{
    pthread_mutex_lock(&slab->lock);
    teffi_block *block = with_room(slab);
    teffi_activation *act = block ? take_of(block) : NULL;
    if (act) {
        slab->live++;
        if (++block->live == TEFFI_BLOCK_ACTS)
            leave(block);
    }
    pthread_mutex_unlock(&slab->lock);
    return act;
}

static teffi_block *block_of(const teffi_slab *slab, const teffi_activation *act)
{
    uint32_t n = act->slot - TEFFI_SLOT_SYSTEM_END;
    return &slab->blocks[n / TEFFI_REGION_SLOTS][n % TEFFI_REGION_SLOTS / TEFFI_BLOCK_SLOTS];
}

/* All of it are free. The only one with room stays as it is, and so do all where pages cannot be
 * given back. */
static void empty(teffi_slab *slab, teffi_block *block)
{
    if (slab->room == block && !block->next)
        return;
    if (!teffi_pages_forget(&slab->pages, block->memory, TEFFI_BLOCK_BYTES))
        return;
    block->used = 0;
    block->free = NULL;
    leave(block);
    enlist(&slab->empty, block);
}

void teffi_slab_give(teffi_slab *slab, teffi_activation *act)
{
    pthread_mutex_lock(&slab->lock);
    teffi_block *block = block_of(slab, act);
    if (block->live == TEFFI_BLOCK_ACTS)
        enlist(&slab->room, block);
    act->nudge.next = (teffi_item *)(void *)block->free;
    block->free = act;
    if (act->generation > block->generation)
        block->generation = act->generation;
    slab->live--;
    if (--block->live == 0)
        empty(slab, block);
    pthread_mutex_unlock(&slab->lock);
}

uint64_t teffi_slab_held(teffi_slab *slab)
{
    uint64_t blocks = 0;
    pthread_mutex_lock(&slab->lock);
    for (uint32_t r = 0; r < slab->n_regions; r++)
        for (int b = 0; b < TEFFI_REGION_BLOCKS; b++)
            blocks += slab->blocks[r][b].used > 0;
    pthread_mutex_unlock(&slab->lock);
    return blocks * TEFFI_BLOCK_BYTES;
}
