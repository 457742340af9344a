/* slab.c - segments that double, lists of blocks by state, free entries by thread, aging.
 * Threads: see slab.h. The list of slabs has a lock, held while they age. */
#include "memory/slab.h"

#include <stdlib.h>
#include <string.h>

enum { BATCH = TEFFI_SLAB_BLOCK, FIRST_BLOCKS = TEFFI_SLAB_FIRST / TEFFI_SLAB_BLOCK };

/* A block whose `passed` is not less than this is not decommitted, because its other entries would
 * skip as many generations (see slab.h). */
static const uint32_t passed_max = UINT32_C(1) << 31;
static const uint64_t age_ns = TEFFI_SLAB_AGE_MS * UINT64_C(1000000);

struct teffi_slab_block {
    _Atomic uint64_t mark;
    char *entries; /* immutable */
    uint32_t no;   /* immutable */
    /* Written under the lock; relaxed: teffi_slab_next_committed() reads it without. */
    _Atomic teffi_slab_state state;
    /* guarded by the lock */
    LIST_ENTRY(teffi_slab_block) link; /* in the list of its state */
    uint64_t free;                     /* one bit per entry: it is free, and in no thread's list */
    uint32_t begun;                    /* generation from which its entries continued */
    uint32_t passed; /* most generations since `begun`, among entries that were in `free` */
};

/* ---- by number ---- */

/* out: the number of the segment's first block. */
static uint32_t segment_first_block(unsigned segment)
{
    return FIRST_BLOCKS * ((1u << segment) - 1);
}

static size_t block_bytes(const teffi_slab *slab)
{
    return slab->type->bytes * TEFFI_SLAB_BLOCK;
}

static size_t segment_bytes(const teffi_slab *slab, unsigned segment)
{
    return ((size_t)FIRST_BLOCKS << segment) * block_bytes(slab);
}

/* out: the address of the segment's first entry. base[segment] is lower by the size of all
 * entries in the earlier segments, so the segment's entry with slot n is at base[segment] +
 * n * type->bytes. */
static char *segment_entries(teffi_slab *slab, unsigned segment)
{
    uintptr_t base = atomic_load_explicit(&slab->base[segment], memory_order_relaxed);
    return (char *)(base + segment_first_block(segment) * block_bytes(slab));
}

/* in: the number of a block in a reserved segment. The caller holds the lock, or has read `used`
 * with acquire and found that the block exists. */
static teffi_slab_block *block_at(teffi_slab *slab, uint32_t no)
{
    unsigned s = teffi_slab_segment_of(no * TEFFI_SLAB_BLOCK);
    return atomic_load_explicit(&slab->blocks[s], memory_order_relaxed) +
           (no - segment_first_block(s));
}

static teffi_slab_link *link_of(const teffi_slab *slab, void *entry)
{
    return (teffi_slab_link *)(void *)((char *)entry + slab->type->link);
}

uint32_t teffi_slab_block_count(teffi_slab *slab)
{
    /* acquire: pairs with add_block() */
    return atomic_load_explicit(&slab->used, memory_order_acquire) / TEFFI_SLAB_BLOCK;
}

_Atomic uint64_t *teffi_slab_get_block_mark(teffi_slab *slab, uint32_t no)
{
    return &block_at(slab, no)->mark;
}

/* ---- states of blocks ---- */

static teffi_slab_state block_state(const teffi_slab_block *block)
{
    return atomic_load_explicit(&block->state, memory_order_relaxed);
}

uint32_t teffi_slab_next_committed(teffi_slab *slab, uint32_t no)
{
    uint32_t end = teffi_slab_block_count(slab);
    while (no < end && block_state(block_at(slab, no)) == TEFFI_SLAB_DECOMMITTED)
        no++;
    return no;
}

/* lock held. Sets a block's state, moves the block to the list of that state, and updates the
 * counts slab->n[] and slab->low. */
static void set_block_state(teffi_slab *slab, teffi_slab_block *block, teffi_slab_state to)
{
    LIST_REMOVE(block, link);
    LIST_INSERT_HEAD(&slab->list[to], block, link);
    slab->n[block_state(block)]--;
    slab->n[to]++;
    if (slab->n[TEFFI_SLAB_FREE] < slab->low)
        slab->low = slab->n[TEFFI_SLAB_FREE];
    atomic_store_explicit(&block->state, to, memory_order_relaxed);
}

/* lock held. Called after block->free was changed. Sets the block's state: IN_USE if no entry is
 * free; FREE if all entries are free and the block may be decommitted; otherwise PARTLY_FREE. */
static void update_block_state(teffi_slab *slab, teffi_slab_block *block)
{
    bool may_decommit = block->free == UINT64_MAX && block->passed < passed_max;
    teffi_slab_state to = !block->free   ? TEFFI_SLAB_IN_USE
                          : may_decommit ? TEFFI_SLAB_FREE
                                         : TEFFI_SLAB_PARTLY_FREE;
    if (to != block_state(block))
        set_block_state(slab, block, to);
}

/* ---- growth ---- */

/* lock held. Reserves the segment that has the block with this number, unless it is reserved
 * already. out: false if out of memory, or if entries_max is reached. */
static bool reserve_segment_of(teffi_slab *slab, uint32_t no)
{
    unsigned s = teffi_slab_segment_of(no * TEFFI_SLAB_BLOCK);
    if (s >= TEFFI_SLAB_SEGMENTS || no * (uint64_t)TEFFI_SLAB_BLOCK >= slab->type->entries_max)
        return false;
    if (atomic_load_explicit(&slab->blocks[s], memory_order_relaxed))
        return true;
    teffi_slab_block *blocks = calloc((size_t)FIRST_BLOCKS << s, sizeof *blocks);
    char *entries = blocks ? teffi_pages_reserve(&slab->pages, segment_bytes(slab, s)) : NULL;
    if (!entries) {
        free(blocks);
        return false;
    }
    uintptr_t before = segment_first_block(s) * block_bytes(slab);
    atomic_store_explicit(&slab->base[s], (uintptr_t)entries - before, memory_order_relaxed);
    atomic_store_explicit(&slab->blocks[s], blocks, memory_order_relaxed);
    return true;
}

/* Makes each entry of the block a free entry. in: a block whose memory holds the slab's image, or
 * zeros if the slab has no image. out: the entries as a list. */
static void *init_and_link_entries(teffi_slab *slab, const teffi_slab_block *block)
{
    char *entry = block->entries;
    for (uint32_t i = 0; i < TEFFI_SLAB_BLOCK; i++, entry += slab->type->bytes) {
        slab->type->begin(entry, block->no * TEFFI_SLAB_BLOCK + i, block->begun, slab->owner);
        link_of(slab, entry)->next = i + 1 < TEFFI_SLAB_BLOCK ? entry + slab->type->bytes : NULL;
    }
    return block->entries;
}

/* lock held. Makes the next block. out: its entries, as a list; NULL: no memory, or entries_max is
 * reached. */
static void *add_block(teffi_slab *slab)
{
    uint32_t no = teffi_slab_block_count(slab);
    unsigned s = teffi_slab_segment_of(no * TEFFI_SLAB_BLOCK);
    if (!reserve_segment_of(slab, no))
        return NULL;
    size_t at = (no - segment_first_block(s)) * block_bytes(slab);
    char *segment = segment_entries(slab, s);
    if (!teffi_pages_commit(&slab->pages, segment, at, block_bytes(slab)))
        return NULL;
    teffi_slab_block *block = block_at(slab, no);
    block->no = no;
    block->entries = segment + at;
    atomic_store_explicit(&block->mark, UINT64_MAX, memory_order_relaxed);
    LIST_INSERT_HEAD(&slab->list[TEFFI_SLAB_IN_USE], block, link);
    slab->n[TEFFI_SLAB_IN_USE]++;
    void *list = init_and_link_entries(slab, block);
    /* release: pairs with teffi_slab_at and teffi_slab_block_count */
    atomic_store_explicit(&slab->used, (no + 1) * TEFFI_SLAB_BLOCK, memory_order_release);
    return list;
}

/* ---- batches ---- */

/* lock held. Moves free entries of one block to `list`, which has *n entries, until the list has
 * BATCH entries or the block has no free entry. out: the list, and *n: its new length. */
static void *take_entries_from_block(teffi_slab *slab, teffi_slab_block *block, void *list,
                                     uint32_t *n)
{
    for (; block->free && *n < BATCH; (*n)++) {
        unsigned i = (unsigned)__builtin_ctzll(block->free);
        void *entry = block->entries + i * slab->type->bytes;
        block->free &= block->free - 1;
        link_of(slab, entry)->next = list;
        list = entry;
    }
    update_block_state(slab, block);
    return list;
}

/* lock held. Takes all entries of a decommitted block, and initializes them. There must be a
 * decommitted block. The new state is stored before the entries are returned, because
 * teffi_slab_next_committed() reads the state without the lock. That function must not skip
 * a block if its caller has taken the block's entries.
 * out: the entries, as a list. */
static void *take_decommitted_block(teffi_slab *slab)
{
    teffi_slab_block *block = LIST_FIRST(&slab->list[TEFFI_SLAB_DECOMMITTED]);
    block->begun += block->passed;
    block->passed = 0;
    block->free = 0;
    set_block_state(slab, block, TEFFI_SLAB_IN_USE);
    return init_and_link_entries(slab, block);
}

/* lock held. Takes entries from partly free blocks. If there are none, takes all entries of one
 * block: a free block, otherwise a decommitted block, otherwise a new block.
 * out: a list of *n entries, 1 .. BATCH; NULL if out of memory, or if entries_max is reached. */
static void *take_slab_batch(teffi_slab *slab, uint32_t *n)
{
    void *list = NULL;
    *n = 0;
    while (slab->n[TEFFI_SLAB_PARTLY_FREE] && *n < BATCH)
        list =
            take_entries_from_block(slab, LIST_FIRST(&slab->list[TEFFI_SLAB_PARTLY_FREE]), list, n);
    if (list)
        return list;
    if (slab->n[TEFFI_SLAB_FREE])
        return take_entries_from_block(slab, LIST_FIRST(&slab->list[TEFFI_SLAB_FREE]), NULL, n);
    list = slab->n[TEFFI_SLAB_DECOMMITTED] ? take_decommitted_block(slab) : add_block(slab);
    if (list)
        *n = BATCH;
    return list;
}

/* lock held. Marks an entry as free in its block. Raises block->passed to the number of generations
 * that the entry has passed since block->begun, if that number is greater. */
static void return_entry_to_block(teffi_slab *slab, teffi_slab_use use)
{
    teffi_slab_block *block = block_at(slab, use.slot / TEFFI_SLAB_BLOCK);
    uint32_t passed = use.generation - block->begun; /* generations wrap around */
    block->free |= UINT64_C(1) << use.slot % TEFFI_SLAB_BLOCK;
    if (passed > block->passed)
        block->passed = passed;
    update_block_state(slab, block);
}

/* Returns entries to their blocks. Reads all entries before it takes the lock, since these reads
 * may miss the CPU's cache. in: batch, a list of at most BATCH entries; NULL: none. */
static void put_slab_batch(teffi_slab *slab, void *batch)
{
    teffi_slab_use uses[BATCH];
    unsigned n = 0;
    for (void *entry = batch; entry; entry = link_of(slab, entry)->next)
        uses[n++] = slab->type->last_use(entry);
    pthread_mutex_lock(&slab->lock);
    for (unsigned i = 0; i < n; i++)
        return_entry_to_block(slab, uses[i]);
    pthread_mutex_unlock(&slab->lock);
}

/* ---- a thread's lists ---- */

static void *pop_entry(teffi_slab *slab, teffi_slab_lists *own)
{
    void *entry = own->free;
    if (!entry)
        return NULL;
    own->free = link_of(slab, entry)->next;
    own->n--;
    return entry;
}

/* Refills own->free, which is empty, and takes an entry from it. out: the entry; NULL if there is
 * none, for the same reasons as in teffi_slab_take(). */
static __attribute__((noinline)) void *refill_and_pop(teffi_slab *slab, teffi_slab_lists *own)
{
    own->free = own->full;
    own->n = own->full ? BATCH : 0;
    own->full = NULL;
    if (!own->free) {
        pthread_mutex_lock(&slab->lock);
        own->free = take_slab_batch(slab, &own->n);
        pthread_mutex_unlock(&slab->lock);
    }
    return pop_entry(slab, own);
}

/* Moves own->free, which is a complete batch, to own->full. If own->full already has a batch, first
 * returns the entries of that batch to their blocks. */
static __attribute__((noinline)) void move_free_to_full(teffi_slab *slab, teffi_slab_lists *own)
{
    if (own->full)
        put_slab_batch(slab, own->full);
    own->full = own->free;
    own->free = NULL;
    own->n = 0;
}

/* teffi_slab_take() for a thread without lists: takes a batch, keeps one entry of it, and returns
 * the others to their blocks. */
static __attribute__((noinline)) void *take_entry_without_lists(teffi_slab *slab)
{
    teffi_slab_lists own = {0};
    void *entry = refill_and_pop(slab, &own);
    put_slab_batch(slab, own.free);
    return entry;
}

/* teffi_slab_put() for a thread without lists: returns the entry to its block. */
static __attribute__((noinline)) void put_entry_without_lists(teffi_slab *slab, void *entry)
{
    link_of(slab, entry)->next = NULL;
    put_slab_batch(slab, entry);
}

void *teffi_slab_take(teffi_slab *slab)
{
    unsigned n = teffi_thread_index();
    if (n >= TEFFI_THREAD_INDEXES)
        return take_entry_without_lists(slab);
    void *entry = pop_entry(slab, &slab->lists[n]);
    return entry ? entry : refill_and_pop(slab, &slab->lists[n]);
}

void teffi_slab_put(teffi_slab *slab, void *entry)
{
    unsigned n = teffi_thread_index();
    if (n >= TEFFI_THREAD_INDEXES) {
        put_entry_without_lists(slab, entry);
        return;
    }
    teffi_slab_lists *own = &slab->lists[n];
    if (own->n == BATCH)
        move_free_to_full(slab, own);
    link_of(slab, entry)->next = own->free;
    own->free = entry;
    own->n++;
}

/* ---- aging ---- */

static pthread_mutex_t slabs_lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, teffi_slab) slabs = LIST_HEAD_INITIALIZER(slabs); /* guarded by slabs_lock */

/* Decommits one spare block, and resets its mark. The block is IN_USE during the system call, so
 * that no thread takes its entries. In the slab of calls the mark is the earliest deadline in the
 * block. A sweep of deadlines (call/calls.c) may lower the mark after the reset. At worst a later
 * sweep visits the block needlessly. If the system call fails, the slab no longer decommits blocks.
 * out: false: the system call failed, or no block may be decommitted. */
static bool decommit_spare_block(teffi_slab *slab)
{
    teffi_slab_block *block = NULL;
    pthread_mutex_lock(&slab->lock);
    if (!slab->keeps_all && slab->spare && slab->n[TEFFI_SLAB_FREE] > TEFFI_SLAB_KEEPS) {
        block = LIST_FIRST(&slab->list[TEFFI_SLAB_FREE]);
        set_block_state(slab, block, TEFFI_SLAB_IN_USE);
        slab->spare--;
    }
    pthread_mutex_unlock(&slab->lock);
    if (!block)
        return false;
    atomic_store_explicit(&block->mark, UINT64_MAX, memory_order_relaxed);
    bool gone = teffi_pages_decommit(block->entries, block_bytes(slab));
    pthread_mutex_lock(&slab->lock);
    set_block_state(slab, block, gone ? TEFFI_SLAB_DECOMMITTED : TEFFI_SLAB_FREE);
    slab->keeps_all |= !gone;
    pthread_mutex_unlock(&slab->lock);
    return gone;
}

/* If the period (age_ns) is over, sets slab->spare to the lowest number of FREE blocks during the
 * period, and begins the next period. */
static void update_spare_count_if_period_over(teffi_slab *slab, uint64_t now_ns)
{
    pthread_mutex_lock(&slab->lock);
    if (now_ns - slab->looked_ns >= age_ns) {
        slab->spare = slab->low;
        slab->looked_ns = now_ns;
        slab->low = slab->n[TEFFI_SLAB_FREE];
    }
    pthread_mutex_unlock(&slab->lock);
}

void teffi_slab_reclaim(uint64_t now_ns)
{
    if (pthread_mutex_trylock(&slabs_lock) != 0)
        return; /* another thread does it */
    for (teffi_slab *slab = LIST_FIRST(&slabs); slab; slab = LIST_NEXT(slab, link)) {
        update_spare_count_if_period_over(slab, now_ns);
        for (int i = 0; i < TEFFI_SLAB_SLICE && decommit_spare_block(slab); i++)
            continue;
    }
    pthread_mutex_unlock(&slabs_lock);
}

/* ---- the slab ---- */

bool teffi_slab_init(teffi_slab *slab, const teffi_slab_type *type, void *owner, const void *image,
                     uint32_t image_entries)
{
    memset(slab, 0, sizeof *slab);
    slab->type = type;
    slab->owner = owner;
    pthread_mutex_init(&slab->lock, NULL);
    slab->keeps_all = type->stays;
    pthread_mutex_lock(&slabs_lock);
    LIST_INSERT_HEAD(&slabs, slab, link);
    pthread_mutex_unlock(&slabs_lock);
    return teffi_pages_init(&slab->pages, image, image_entries * type->bytes);
}

void teffi_slab_fini(teffi_slab *slab, void (*discard)(void *entry))
{
    if (!slab->type)
        return;
    pthread_mutex_lock(&slabs_lock);
    LIST_REMOVE(slab, link);
    pthread_mutex_unlock(&slabs_lock);
    uint32_t end = discard ? teffi_slab_block_count(slab) : 0;
    for (uint32_t no = 0; (no = teffi_slab_next_committed(slab, no)) < end; no++)
        for (uint32_t i = 0; i < TEFFI_SLAB_BLOCK; i++)
            discard(block_at(slab, no)->entries + i * slab->type->bytes);
    for (unsigned s = 0; s < TEFFI_SLAB_SEGMENTS && slab->blocks[s]; s++) {
        teffi_pages_release(segment_entries(slab, s), segment_bytes(slab, s));
        free(slab->blocks[s]);
    }
    teffi_pages_fini(&slab->pages);
    pthread_mutex_destroy(&slab->lock);
    slab->type = NULL;
}
