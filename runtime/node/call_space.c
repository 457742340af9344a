/* call_space.c - segments that double, blocks in them, and which of those hold memory.
 * Way:     call_table, call_trim -> [call_space] -> platform/pages
 * Threads: see the header. */
#include "node/call_space.h"

#include <stdlib.h>
#include <string.h>
#include "node/call.h"
#include "platform/pages.h"

enum { GROUP = 64, GENERATION_SHIFT = 32 };

static const uint32_t passed_max = UINT32_C(1) << 31;

/* ---- by number ---- */

/* Segment s begins at FIRST * (2^s - 1). */
static unsigned segment_of(uint32_t slot)
{
    return 31u - (unsigned)__builtin_clz(slot / TEFFI_CALL_FIRST + 1);
}

static uint32_t begin_of(unsigned segment)
{
    return TEFFI_CALL_FIRST * ((1u << segment) - 1);
}

static uint32_t blocks_of(unsigned segment)
{
    return (uint32_t)(TEFFI_CALL_FIRST / TEFFI_CALL_BLOCK) << segment;
}

/* in: slot, below used, which the caller has read with acquire: so relaxed is enough here. */
static teffi_call_segment *segment_at(teffi_call_space *space, unsigned segment)
{
    return atomic_load_explicit(&space->segments[segment], memory_order_relaxed);
}

teffi_call *teffi_call_at(teffi_call_space *space, uint32_t slot)
{
    /* acquire: pairs with add: the entry is there */
    if (slot >= atomic_load_explicit(&space->used, memory_order_acquire))
        return NULL;
    unsigned segment = segment_of(slot);
    return &segment_at(space, segment)->calls[slot - begin_of(segment)];
}

uint32_t teffi_call_blocks(teffi_call_space *space)
{
    /* acquire: as in teffi_call_at */
    return atomic_load_explicit(&space->used, memory_order_acquire) / TEFFI_CALL_BLOCK;
}

teffi_call_block teffi_call_block_at(teffi_call_space *space, uint32_t block)
{
    unsigned segment = segment_of(block * TEFFI_CALL_BLOCK);
    teffi_call_segment *s = segment_at(space, segment);
    uint32_t nth = block - begin_of(segment) / TEFFI_CALL_BLOCK;
    return (teffi_call_block){&s->calls[(size_t)nth * TEFFI_CALL_BLOCK], &s->earliest[nth]};
}

/* ---- states ---- */

typedef struct place { /* of a block in its segment */
    teffi_call_segment *segment;
    uint32_t nth, n; /* n: blocks of the segment */
} place;

static place place_of(teffi_call_space *space, uint32_t block)
{
    unsigned segment = segment_of(block * TEFFI_CALL_BLOCK);
    return (place){segment_at(space, segment), block - begin_of(segment) / TEFFI_CALL_BLOCK,
                   blocks_of(segment)};
}

static uint64_t load(_Atomic uint64_t *bits)
{
    return atomic_load_explicit(bits, memory_order_relaxed); /* see the header */
}

/* The lowest n bits, n <= 64. */
static uint64_t low_bits(uint32_t n)
{
    return n < 64 ? (UINT64_C(1) << n) - 1 : UINT64_MAX;
}

/* out: the first block at or behind this one that is in the state (others: is not in it).
 * teffi_call_blocks or more: there is none. */
static uint32_t find(teffi_call_space *space, uint32_t block, teffi_call_state state, bool others)
{
    uint32_t end = teffi_call_blocks(space);
    while (block < end) {
        place at = place_of(space, block);
        uint32_t bit = at.nth % GROUP, left = at.n - at.nth;
        if (left > GROUP - bit)
            left = GROUP - bit;
        uint64_t bits = load(&at.segment->groups[at.nth / GROUP].in[state]);
        bits = (others ? ~bits : bits) >> bit & low_bits(left);
        if (bits)
            return block + (uint32_t)__builtin_ctzll(bits);
        block += left;
    }
    return block;
}

uint32_t teffi_call_held(teffi_call_space *space, uint32_t block)
{
    return find(space, block, TEFFI_CALL_GONE, true);
}

static uint32_t lowest(teffi_call_space *space, teffi_call_state state)
{
    return space->from[state] = find(space, space->from[state], state, false);
}

static void set_bit(teffi_call_group *group, teffi_call_state state, uint64_t bit, bool on)
{
    if (state == TEFFI_CALL_LENT)
        return;
    uint64_t bits = load(&group->in[state]);
    atomic_store_explicit(&group->in[state], on ? bits | bit : bits & ~bit, memory_order_relaxed);
}

static void change(teffi_call_space *space, uint32_t block, teffi_call_state from,
                   teffi_call_state to)
{
    place at = place_of(space, block);
    teffi_call_group *group = &at.segment->groups[at.nth / GROUP];
    uint64_t bit = UINT64_C(1) << at.nth % GROUP;
    set_bit(group, from, bit, false);
    set_bit(group, to, bit, true);
    space->n[from]--;
    space->n[to]++;
    if (to != TEFFI_CALL_LENT && block < space->from[to])
        space->from[to] = block;
}

static teffi_call_rest *rest_of(teffi_call_space *space, uint32_t block)
{
    place at = place_of(space, block);
    return &at.segment->rests[at.nth];
}

static teffi_call_state state_of(const teffi_call_rest *rest)
{
    if (!rest->here)
        return TEFFI_CALL_LENT;
    bool whole = rest->here == UINT64_MAX && rest->passed < passed_max;
    return whole ? TEFFI_CALL_WHOLE : TEFFI_CALL_SOME;
}

/* ---- growth ---- */

static teffi_call_segment *segment_new(unsigned segment)
{
    size_t n = blocks_of(segment), n_groups = (n + GROUP - 1) / GROUP;
    size_t head = sizeof(teffi_call_segment) + n * sizeof(uint64_t);
    size_t groups = n_groups * sizeof(teffi_call_group);
    teffi_call_segment *s = calloc(1, head + groups + n * sizeof(teffi_call_rest));
    if (!s)
        return NULL;
    s->groups = (teffi_call_group *)(void *)((char *)s + head);
    s->rests = (teffi_call_rest *)(void *)((char *)s + head + groups);
    s->calls = teffi_pages_zeros(n * TEFFI_CALL_BLOCK * sizeof(teffi_call));
    if (s->calls)
        return s;
    free(s);
    return NULL;
}

/* out: the segment that holds the entry; NULL: there is no room. */
static teffi_call_segment *grow(teffi_call_space *space, uint32_t slot)
{
    unsigned segment = segment_of(slot);
    if (segment >= TEFFI_CALL_SEGMENTS)
        return NULL;
    teffi_call_segment *s = segment_at(space, segment);
    if (!s && (s = segment_new(segment))) /* relaxed: used publishes it */
        atomic_store_explicit(&space->segments[segment], s, memory_order_relaxed);
    return s;
}

/* Entries of zeros become free ones that go on from a generation. Who comes late may look at their
 * words meanwhile: neither is pending. */
static teffi_call *make(teffi_call_space *space, uint32_t nth, uint32_t generation)
{
    teffi_call_block block = teffi_call_block_at(space, nth);
    uint64_t word = (uint64_t)generation << GENERATION_SHIFT;
    for (uint32_t i = 0; i < TEFFI_CALL_BLOCK; i++) {
        teffi_call *call = &block.calls[i];
        call->node = space->node;
        call->slot = nth * TEFFI_CALL_BLOCK + i;
        call->next = i + 1 < TEFFI_CALL_BLOCK ? call + 1 : NULL;
        atomic_store_explicit(&call->word, word, memory_order_relaxed); /* ours until it is new */
    }
    return block.calls;
}

/* out: one block of new entries, as a list. */
static teffi_call *add(teffi_call_space *space)
{
    uint32_t from = atomic_load_explicit(&space->used, memory_order_relaxed);
    if (!grow(space, from))
        return NULL;
    uint32_t nth = from / TEFFI_CALL_BLOCK;
    teffi_call *calls = make(space, nth, 0);
    teffi_call_block block = teffi_call_block_at(space, nth);
    space->n[TEFFI_CALL_LENT]++;
    atomic_store_explicit(block.earliest, UINT64_MAX, memory_order_relaxed);
    /* release: pairs with teffi_call_at and teffi_call_blocks */
    atomic_store_explicit(&space->used, from + TEFFI_CALL_BLOCK, memory_order_release);
    return calls;
}

/* ---- take ---- */

/* Of one block, onto the list, until that has enough. */
static teffi_call *take_of(teffi_call_space *space, uint32_t nth, teffi_call *list, uint32_t *n)
{
    teffi_call_rest *rest = rest_of(space, nth);
    teffi_call_state before = state_of(rest);
    teffi_call_block block = teffi_call_block_at(space, nth);
    for (; rest->here && *n < TEFFI_CALL_BLOCK; (*n)++) {
        teffi_call *call = &block.calls[__builtin_ctzll(rest->here)];
        rest->here &= rest->here - 1;
        call->next = list;
        list = call;
    }
    change(space, nth, before, state_of(rest));
    return list;
}

static teffi_call *take_gone(teffi_call_space *space)
{
    uint32_t nth = lowest(space, TEFFI_CALL_GONE);
    teffi_call_rest *rest = rest_of(space, nth);
    rest->begun += rest->passed;
    rest->passed = 0;
    rest->here = 0;
    change(space, nth, TEFFI_CALL_GONE, TEFFI_CALL_LENT);
    return make(space, nth, rest->begun);
}

teffi_call *teffi_call_space_take(teffi_call_space *space, uint32_t *n)
{
    teffi_call *list = NULL;
    *n = 0;
    while (space->n[TEFFI_CALL_SOME] && *n < TEFFI_CALL_BLOCK)
        list = take_of(space, lowest(space, TEFFI_CALL_SOME), list, n);
    if (list)
        return list;
    if (space->n[TEFFI_CALL_WHOLE])
        return take_of(space, lowest(space, TEFFI_CALL_WHOLE), NULL, n);
    list = space->n[TEFFI_CALL_GONE] ? take_gone(space) : add(space);
    *n = list ? TEFFI_CALL_BLOCK : 0;
    return list;
}

/* ---- lay, and give back ---- */

static void lay(teffi_call_space *space, uint32_t slot, uint32_t generation)
{
    uint32_t block = slot / TEFFI_CALL_BLOCK;
    teffi_call_rest *rest = rest_of(space, block);
    teffi_call_state before = state_of(rest);
    uint32_t passed = generation - rest->begun; /* generations go round */
    rest->here |= UINT64_C(1) << slot % TEFFI_CALL_BLOCK;
    if (passed > rest->passed)
        rest->passed = passed;
    if (state_of(rest) != before)
        change(space, block, before, state_of(rest));
}

void teffi_call_space_lay(teffi_call_space *space, const teffi_call_lot *lot)
{
    for (unsigned i = 0; i < lot->n; i++)
        lay(space, lot->slots[i], lot->generations[i]);
}

/* Those of one group that are in a row, down from the highest, at most so many. */
static teffi_call_run row(uint64_t bits, uint32_t first, uint32_t max)
{
    uint32_t top = 63u - (uint32_t)__builtin_clzll(bits), n = 1;
    while (n < max && n <= top && bits >> (top - n) & 1)
        n++;
    return (teffi_call_run){first + top + 1 - n, n};
}

static teffi_call_run highest(teffi_call_space *space, uint32_t max)
{
    for (uint32_t end = teffi_call_blocks(space); end > 0;) {
        place at = place_of(space, end - 1); /* segments are handed out from their beginning */
        uint32_t in = at.nth % GROUP;
        uint64_t bits = load(&at.segment->groups[at.nth / GROUP].in[TEFFI_CALL_WHOLE]);
        if (bits)
            return row(bits, end - 1 - in, max);
        end -= in + 1;
    }
    return (teffi_call_run){0, 0};
}

teffi_call_run teffi_call_space_claim(teffi_call_space *space, uint32_t but)
{
    uint32_t n = space->n[TEFFI_CALL_WHOLE];
    teffi_call_run run = {0, 0};
    if (n > but)
        run = highest(space, n - but);
    for (uint32_t i = 0; i < run.n; i++)
        change(space, run.block + i, TEFFI_CALL_WHOLE, TEFFI_CALL_LENT);
    return run;
}

bool teffi_call_space_forget(teffi_call_space *space, teffi_call_run run)
{
    teffi_call_block block = teffi_call_block_at(space, run.block);
    for (uint32_t i = 0; i < run.n; i++) /* relaxed: no call is pending there; early does no harm */
        atomic_store_explicit(&block.earliest[i], UINT64_MAX, memory_order_relaxed);
    return teffi_pages_zeros_again(block.calls,
                                   run.n * (size_t)TEFFI_CALL_BLOCK * sizeof(teffi_call));
}

void teffi_call_space_return(teffi_call_space *space, teffi_call_run run, bool forgotten)
{
    for (uint32_t i = 0; i < run.n; i++)
        change(space, run.block + i, TEFFI_CALL_LENT,
               forgotten ? TEFFI_CALL_GONE : TEFFI_CALL_WHOLE);
}

/* ---- */

void teffi_call_space_init(teffi_call_space *space, struct teffi_node *node)
{
    memset(space, 0, sizeof *space);
    space->node = node;
}

void teffi_call_space_fini(teffi_call_space *space)
{
    uint32_t end = teffi_call_blocks(space);
    for (uint32_t b = 0; (b = teffi_call_held(space, b)) < end; b++) {
        teffi_call_block block = teffi_call_block_at(space, b);
        for (int i = 0; i < TEFFI_CALL_BLOCK; i++) /* of turns that were dropped */
            teffi_msg_free(block.calls[i].reply);
    }
    for (unsigned s = 0; s < TEFFI_CALL_SEGMENTS; s++) {
        teffi_call_segment *segment = segment_at(space, s);
        if (segment)
            teffi_pages_zeros_free(segment->calls,
                                   (size_t)blocks_of(s) * TEFFI_CALL_BLOCK * sizeof(teffi_call));
        free(segment);
    }
}
