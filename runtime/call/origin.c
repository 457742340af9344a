/* origin.c - lists of entries in buckets, by a keyed hash of node, slot, generation and cookie. The
 * hash is keyed, so a peer can fill one bucket only with equal entries. */
#include "call/origin.h"

typedef struct key {
    uint64_t node;
    teffi_origin origin;
} key;

_Static_assert(sizeof(key) == 24, "hashed as bytes, so without padding");

void teffi_origins_init(teffi_home *home)
{
    for (int i = 0; i < TEFFI_ORIGIN_LOCKS; i++)
        pthread_mutex_init(&home->calls.locks[i], NULL);
}

void teffi_origins_fini(teffi_home *home)
{
    for (int i = 0; i < TEFFI_ORIGIN_LOCKS; i++)
        pthread_mutex_destroy(&home->calls.locks[i]);
}

/* in: call: a relay, or a cancel that was kept. In both, call->out is the node that sent the
 * request, or the cancel, to this node. */
static key key_of(const teffi_call *call)
{
    return (key){.node = atomic_load_explicit(&call->out, memory_order_relaxed),
                 .origin = call->origin};
}

static uint32_t bucket_of(const teffi_home *home, const key *k)
{
    return (uint32_t)(teffi_siphash(&home->calls.key, k, sizeof *k) % TEFFI_ORIGIN_BUCKETS);
}

static pthread_mutex_t *lock_of(teffi_home *home, uint32_t bucket)
{
    return &home->calls.locks[bucket % TEFFI_ORIGIN_LOCKS];
}

/* Is k the key of the entry `call`, which is a relay or a kept cancel? */
static bool entry_has_key(const teffi_call *call, const key *k)
{
    const key own = key_of(call);
    return own.origin.slot == k->origin.slot && own.origin.generation == k->origin.generation &&
           own.origin.cookie == k->origin.cookie && own.node == k->node;
}

/* Finds an entry with the key k whose word has all of `bits` set. The bucket's lock is held.
 * out: false: there is no such entry. */
static bool find_entry(teffi_home *home, uint32_t bucket, const key *k, uint32_t bits,
                       teffi_slab_use *found)
{
    const teffi_call *call;
    LIST_FOREACH (call, &home->calls.buckets[bucket], in_bucket) {
        /* acquire: pairs with the store of a pending word */
        uint64_t word = atomic_load_explicit(&call->word, memory_order_acquire);
        if (!entry_has_key(call, k) || (word & bits) != bits)
            continue;
        *found = (teffi_slab_use){call->slot, call->generation};
        return true;
    }
    return false;
}

bool teffi_origins_find_entry(teffi_home *home, uint64_t node, teffi_origin origin, uint32_t bits,
                              teffi_slab_use *found)
{
    const key k = {node, origin};
    uint32_t bucket = bucket_of(home, &k);
    pthread_mutex_lock(lock_of(home, bucket));
    bool there = find_entry(home, bucket, &k, bits, found);
    pthread_mutex_unlock(lock_of(home, bucket));
    return there;
}

/* Finds an entry that prevents `call`, whose key is k, from being added. If `call` is a cancel, any
 * entry with the key k prevents it (a relay or an earlier cancel). If `call` is a relay, only a
 * pending cancel with the key k prevents it. The bucket's lock is held. A cancel is counted before
 * it is added (relay.c), so if the count is 0, there is no cancel to find. */
static bool find_conflicting_entry(const teffi_call *call, const key *k, teffi_slab_use *found)
{
    if (call->is_cancel)
        return find_entry(call->home, call->bucket, k, 0, found);
    return atomic_load_explicit(&call->home->calls.cancels, memory_order_relaxed) &&
           find_entry(call->home, call->bucket, k, TEFFI_CALL_PENDING | TEFFI_CALL_CANCEL, found);
}

bool teffi_origins_add_pending_entry(teffi_call *call, uint64_t pending, teffi_slab_use *found)
{
    const key k = key_of(call);
    teffi_home *home = call->home;
    call->bucket = bucket_of(home, &k);
    pthread_mutex_t *lock = lock_of(home, call->bucket);
    pthread_mutex_lock(lock);
    bool added = !find_conflicting_entry(call, &k, found);
    if (added) {
        LIST_INSERT_HEAD(&home->calls.buckets[call->bucket], call, in_bucket);
        /* seq_cst: see teffi_call.word */
        atomic_store_explicit(&call->word, pending, memory_order_seq_cst);
    }
    pthread_mutex_unlock(lock);
    return added;
}

void teffi_origins_remove_entry(teffi_call *call)
{
    pthread_mutex_t *lock = lock_of(call->home, call->bucket);
    pthread_mutex_lock(lock);
    LIST_REMOVE(call, in_bucket);
    pthread_mutex_unlock(lock);
}
