/* locate.h - where does a grain live that is not here, when no hint tells? The directory is asked;
 * requests for one grain wait together for one answer.
 * Way:     route -> [locate] -> directory, placement -> route
 * Threads: a lock per shard of waiting requests; counts tell without it that nobody waits. */
#ifndef TEFFI_GRAINS_LOCATE_H
#define TEFFI_GRAINS_LOCATE_H

#include <pthread.h>
#include <stdatomic.h>
#include "base/queue.h"
#include "base/table.h"
#include "ident.h"

struct teffi_grains;

enum { TEFFI_LOCATE_SHARDS = 16, TEFFI_LOCATE_COUNTS = 1024 };

typedef struct teffi_locating { /* one grain being looked up */
    teffi_tnode node;
    struct teffi_grains *grains;
    teffi_ident ident;   /* key in bytes */
    teffi_queue waiting; /* teffi_msg.link */
    uint32_t pause_ms;   /* before the next look-up: a target could not be reached just now */
    uint8_t bytes[];
} teffi_locating;

typedef struct teffi_locate_shard {
    pthread_mutex_t lock;
    teffi_table table;
} teffi_locate_shard;

typedef struct teffi_locate {
    teffi_locate_shard shards[TEFFI_LOCATE_SHARDS];
    /* Entries in the shards by bits of the grain's hash; written under the shard's lock. Mostly 0:
     * one look tells that nobody waits for a grain. release: pairs with the look's acquire. */
    _Atomic uint32_t looking[TEFFI_LOCATE_COUNTS];
} teffi_locate;

/* Those of a grain's hash. */
static inline _Atomic uint32_t *teffi_locate_count(teffi_locate *locate, uint64_t hash)
{
    return &locate->looking[(hash >> 8) % TEFFI_LOCATE_COUNTS];
}

/* teffi_locate_may_wait - may somebody wait for a grain of this hash? Most often nobody does.
 * acquire: pairs with over(); after 0, whoever waited was sent before. A count that others have
 * just raised may be missed: their requests and ours have no order. Who sent an earlier one in this
 * turn sees its own. */
static inline bool teffi_locate_may_wait(teffi_locate *locate, uint64_t hash)
{
    return atomic_load_explicit(teffi_locate_count(locate, hash), memory_order_acquire) != 0;
}

void teffi_locate_init(struct teffi_grains *grains);
void teffi_locate_fini(struct teffi_grains *grains);

/* teffi_locate - find the grain of msg, owned, and send it there. pause_ms first when not 0. */
void teffi_locate_msg(struct teffi_grains *grains, const teffi_ident *ident, teffi_msg *msg,
                      uint32_t pause_ms);

/* teffi_locating_any - is any grain being looked up? */
bool teffi_locating_any(struct teffi_grains *grains);

/* teffi_locate_waits - do earlier requests for the grain wait to be located? To be asked when
 * teffi_locate_may_wait. */
bool teffi_locate_waits(struct teffi_grains *grains, const teffi_ident *ident);

/* teffi_locate_join - wait behind earlier requests for the grain, so that none is overtaken while
 * it is being looked up. As above. out: false: nobody waits, msg is still the caller's. */
bool teffi_locate_join(struct teffi_grains *grains, const teffi_ident *ident, teffi_msg *msg);

#endif
