/* call_space.h - memory of pending calls: by slot, in blocks of 64, which hold memory or do not.
 * Way:     call_table, call_trim -> [call_space] -> platform/pages
 * States:  LENT <-> SOME (some of its entries lie here) <-> WHOLE (all) -forget-> GONE -> LENT
 * Threads: those by slot or block: any, without a lock. The others: under the table's lock.
 * Model:   tests/model/call.pml
 *
 * Entries stay where they are while the node lives, since an answer may come however late and look
 * at its own. Only a block whose entries all lie here is made GONE: it holds no memory then, and
 * its entries read as zeros, which is a word that is not pending. So who is late finds nobody,
 * before, while and after; nobody but the owner of an entry writes to one that is not pending.
 *
 * Generations go on: a block's entries begin behind the furthest that any of them was. What is kept
 * of a block that is GONE is that number, when its calls are due (never), and three bits. A block
 * of which an entry was used 2^31 times since it began stays, so that the same {slot,
 * generation} comes again after 2^31 uses of that slot at the earliest.
 *
 * GONE is taken back before any entry is handed out. Who looks at all pending calls passes over
 * blocks that are, and may do so on an old value: it misses calls only that it would have missed
 * before they were made. The sweep of deadlines does not ask, it goes by earliest. */
#ifndef TEFFI_NODE_CALL_SPACE_H
#define TEFFI_NODE_CALL_SPACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct teffi_node;
typedef struct teffi_call teffi_call;

/* Segments double: 1024 entries, 2048 ...; 14 of them hold 16.7 million. */
enum { TEFFI_CALL_BLOCK = 64, TEFFI_CALL_FIRST = 1024, TEFFI_CALL_SEGMENTS = 14 };

/* 64 entries in a row: looked at together when one is due, given back together. */
typedef struct teffi_call_block {
    teffi_call *calls;          /* the first of TEFFI_CALL_BLOCK */
    _Atomic uint64_t *earliest; /* none of them is due before; see call_late.h */
} teffi_call_block;

typedef enum teffi_call_state { /* of blocks */
                                TEFFI_CALL_SOME,
                                TEFFI_CALL_WHOLE,
                                TEFFI_CALL_GONE,
                                TEFFI_CALL_STATES, /* that have a bit; LENT is none of them */
                                TEFFI_CALL_LENT = TEFFI_CALL_STATES,
} teffi_call_state;

/* 64 blocks: in which state. Atomic, relaxed: GONE is read without the lock, see above. */
typedef struct teffi_call_group {
    _Atomic uint64_t in[TEFFI_CALL_STATES];
} teffi_call_group;

typedef struct teffi_call_rest { /* of a block; guarded by the lock */
    uint64_t here;               /* by entry: it lies here */
    uint32_t begun;              /* the generation that its entries went on from when it was made */
    uint32_t passed; /* the most generations since then, of those that lie here or did */
} teffi_call_rest;

typedef struct teffi_call_segment { /* immutable, but for what the arrays hold */
    teffi_call *calls;
    teffi_call_group *groups;
    teffi_call_rest *rests;
    _Atomic uint64_t earliest[]; /* by block; set when its entries are handed out */
} teffi_call_segment;

typedef struct teffi_call_space {
    struct teffi_node *node; /* immutable: its entries say so */
    teffi_call_segment *_Atomic segments[TEFFI_CALL_SEGMENTS];
    /* Entries that have been handed out so far; release under the lock: pairs with whoever reads it
     * and then looks at them. */
    _Atomic uint32_t used;
    /* guarded by the lock */
    uint32_t n[TEFFI_CALL_LENT + 1];  /* blocks in each state */
    uint32_t from[TEFFI_CALL_STATES]; /* no block before is in it */
} teffi_call_space;

void teffi_call_space_init(teffi_call_space *space, struct teffi_node *node);

/* teffi_call_space_fini - discards replies that nobody took, too. */
void teffi_call_space_fini(teffi_call_space *space);

/* ---- by number, any thread ---- */

/* teffi_call_at - in: slot, any number. out: its entry; NULL when there never was one. */
teffi_call *teffi_call_at(teffi_call_space *space, uint32_t slot);

/* teffi_call_blocks - blocks that have been handed out; teffi_call_block_at: one of them. */
uint32_t teffi_call_blocks(teffi_call_space *space);
teffi_call_block teffi_call_block_at(teffi_call_space *space, uint32_t block);

/* teffi_call_held - the first block at or behind this one that is not GONE.
 * out: teffi_call_blocks or more: there is none. */
uint32_t teffi_call_held(teffi_call_space *space, uint32_t block);

/* ---- under the lock ---- */

/* teffi_call_space_take - free entries, as a list: those that lie here first, the lowest slots
 * first, new ones last.
 * out:  *n of them, 1 .. TEFFI_CALL_BLOCK; NULL: 16.7 M are in use, or memory is out. */
teffi_call *teffi_call_space_take(teffi_call_space *space, uint32_t *n);

/* Entries to be laid here, as they were looked at without the lock. */
typedef struct teffi_call_lot {
    unsigned n;
    uint32_t slots[TEFFI_CALL_BLOCK], generations[TEFFI_CALL_BLOCK];
} teffi_call_lot;

void teffi_call_space_lay(teffi_call_space *space, const teffi_call_lot *lot);

/* Blocks in a row, in one segment. */
typedef struct teffi_call_run {
    uint32_t block, n;
} teffi_call_run;

/* teffi_call_space_claim - of the blocks that are WHOLE, but for so many, the highest in a row: now
 * they are LENT to the caller. out: n = 0: there is none. */
teffi_call_run teffi_call_space_claim(teffi_call_space *space, uint32_t but);

/* teffi_call_space_forget - WITHOUT the lock: their memory goes back to the system.
 * out: false: it cannot, nothing was changed. */
bool teffi_call_space_forget(teffi_call_space *space, teffi_call_run run);

/* teffi_call_space_return - blocks that were claimed: forgotten, they are GONE; else WHOLE. */
void teffi_call_space_return(teffi_call_space *space, teffi_call_run run, bool forgotten);

#endif
