/* locate.h - look up grains with unknown location in the directory; the requests for one grain
 * share one look-up.
 * Way:     route -> [locate] -> directory/client -> forward
 * Threads: a lock per shard of look-ups; counters tell without the lock that no request waits. */
#ifndef TEFFI_REQUEST_LOCATE_H
#define TEFFI_REQUEST_LOCATE_H

#include <pthread.h>
#include <stdatomic.h>
#include "activation/grains.h"
#include "activation/ident.h"
#include "base/table.h"

enum { TEFFI_LOCATE_SHARDS = 16, TEFFI_LOCATE_COUNTS = 1024 };

typedef struct teffi_lookup { /* the look-up of one grain */
    teffi_tnode node;
    teffi_grains *grains;
    teffi_ident ident;   /* its key is in bytes */
    teffi_queue waiting; /* requests (teffi_msg.link) */
    /* latest deadline of the requests; written under the lock; relaxed: it only rises */
    _Atomic uint64_t until_ns;
    /* highest msg->tries of requests located again since the last look-up; over 0: pause first */
    uint8_t tries;
    uint8_t bytes[];
} teffi_lookup;

typedef struct teffi_lookup_shard {
    pthread_mutex_t lock;
    teffi_table table;
} teffi_lookup_shard;

typedef struct teffi_lookups {
    teffi_lookup_shard shards[TEFFI_LOCATE_SHARDS];
    /* Number of look-ups, by bits of the grain's hash; written under the shard's lock with release,
     * pairs with teffi_locate_may_wait(). Mostly 0, so that one load is enough. */
    _Atomic uint32_t looking[TEFFI_LOCATE_COUNTS];
} teffi_lookups;

/* teffi_locate_count - the counter for a grain's hash. */
static inline _Atomic uint32_t *teffi_locate_count(teffi_lookups *lookups, uint64_t hash)
{
    return &lookups->looking[(hash >> 8) % TEFFI_LOCATE_COUNTS];
}

/* teffi_locate_may_wait - may requests for a grain of this hash wait? If false, all that waited
 * were sent before (acquire: pairs with change_count()). A turn sees the counters that it raised
 * itself; missing another thread's is harmless, as its requests have no order with ours. */
static inline bool teffi_locate_may_wait(teffi_lookups *lookups, uint64_t hash)
{
    return atomic_load_explicit(teffi_locate_count(lookups, hash), memory_order_acquire) != 0;
}

/* teffi_lookups_init - in zeroed memory. */
void teffi_lookups_init(teffi_lookups *lookups);
void teffi_lookups_fini(teffi_lookups *lookups);

/* teffi_locate_msg - look up the grain of msg and forward msg to it. Owns msg.
 * teffi_locate_again - the same, after forwarding failed: first waits for a change of the cluster,
 * at most for a pause that grows with each try (teffi_membership_wait). */
void teffi_locate_msg(teffi_grains *grains, const teffi_ident *ident, teffi_msg *msg);
void teffi_locate_again(teffi_grains *grains, const teffi_ident *ident, teffi_msg *msg);

/* teffi_lookups_any - is any grain being looked up? */
bool teffi_lookups_any(teffi_lookups *lookups);

/* teffi_locate_waits - do earlier requests for the grain wait? Exact; takes the lock: call
 * teffi_locate_may_wait first. */
bool teffi_locate_waits(teffi_grains *grains, const teffi_ident *ident);

/* teffi_locate_join - if earlier requests for the grain wait, queue msg behind them, to keep their
 * order. Call teffi_locate_may_wait first. out: false: none waits, the caller still owns msg. */
bool teffi_locate_join(teffi_grains *grains, const teffi_ident *ident, teffi_msg *msg);

#endif
