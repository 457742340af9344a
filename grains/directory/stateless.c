/* stateless.c - find an idle activation of a pool, make a new one, or choose the shortest queue. */
#include "directory/stateless.h"

#include "activation/turn.h"

unsigned teffi_pool_max(const teffi_grains *grains, const teff_type_info *info)
{
    unsigned max = info->pool_max ? info->pool_max : grains->node->home.exec->workers;
    return max < 1 ? 1 : max < TEFFI_POOL_MAX ? max : TEFFI_POOL_MAX;
}

/* ---- the search of a pool ---- */

typedef struct pool {
    unsigned n;                 /* activations; if idle is not NULL: so many were looked at */
    teffi_activation *idle;     /* claimed; NULL: none was found */
    teffi_activation *shortest; /* the one whose rank is lowest; NULL: n is 0 */
} pool;

/* Is act of the grain? in: locked: the shard's lock is held. Without it, only the hash can be
 * compared: the identity must not be read. */
static bool is_member(const teffi_activation *act, const teffi_ident *ident, bool locked)
{
    /* relaxed: without the lock, the identity is compared after the claim or the push */
    if (atomic_load_explicit(&act->hash, memory_order_relaxed) != ident->hash)
        return false;
    if (!locked)
        return true;
    teffi_ident found = teffi_activation_ident(act);
    return teffi_ident_equals(&found, ident);
}

/* May act start any request at once? in: act is claimed. */
static bool is_idle(const teffi_activation *act)
{
    return act->running == 0 && teffi_activation_admits(act, TEFFI_EXCLUSIVE) &&
           (int32_t)atomic_load_explicit(&act->queued, memory_order_relaxed) <= 0;
}

/* Claims act if it is idle. First looks without writing: a failed CAS, or a claim of an activation
 * whose turn is suspended, would disturb the worker that uses act. */
static bool claim_if_idle(teffi_activation *act, const teffi_ident *ident)
{
    if ((atomic_load_explicit(&act->marks, memory_order_relaxed) & TEFFI_SUSPENDED) ||
        teffi_group_state_of(&act->group) != TEFFI_GROUP_IDLE || !teffi_group_claim(&act->group))
        return false;
    bool same = teffi_activation_is_valid_for(act, ident);
    if (same && is_idle(act))
        return true;
    if (same && act->running)
        (void)atomic_fetch_or_explicit(&act->marks, TEFFI_SUSPENDED, memory_order_relaxed);
    teffi_group_release_claim(&act->group);
    return false;
}

/* out: the place of act among those to which a request may be pushed; the lowest is taken. An
 * activation that was asked to end comes last, since its requests will be routed again. Then the
 * number of queued requests counts. Among equals, the order is drawn anew for each search: turns
 * that are suspended are in no queue, so in a fixed order, all requests that may interleave would
 * go to the same activation. */
static uint64_t rank_for_push(const teffi_activation *act, uint64_t drawn)
{
    const uint64_t golden = 0x9e3779b97f4a7c15; /* odd: spreads neighbouring slots */
    int32_t queued = (int32_t)atomic_load_explicit(&act->queued, memory_order_relaxed);
    uint64_t ends = atomic_load_explicit(&act->end_reason, memory_order_relaxed) != 0;
    uint64_t slot = atomic_load_explicit(&act->slot, memory_order_relaxed);
    return ends << 63 | (uint64_t)(queued > 0 ? queued : 0) << 32 | ((slot ^ drawn) * golden) >> 32;
}

/* Looks for the first idle activation of the grain. If there is none, counts the activations, and
 * finds the one with the lowest rank. in: locked: the shard's lock is held. If not, a rebuild of
 * the index may hide some, and activations of another grain with the same hash may be counted. */
static pool search_pool(teffi_grains *grains, const teffi_ident *ident, bool locked)
{
    const teffi_platform *platform = grains->node->platform;
    teffi_probe probe;
    pool p = {0};
    uint64_t drawn = 0, least = UINT64_MAX;
    uint32_t slot =
        teffi_index_find_first(&probe, &teffi_shard_of(grains, ident->hash)->index, ident->hash);
    for (; slot; slot = teffi_index_find_next(&probe)) {
        teffi_activation *act = teffi_activation_at(&grains->shards->memory, slot);
        if (!is_member(act, ident, locked))
            continue;
        if (claim_if_idle(act, ident)) {
            p.idle = act;
            return p;
        }
        if (p.n++ == 0)
            drawn = platform->random(platform->arg);
        uint64_t own = rank_for_push(act, drawn);
        if (own < least) {
            least = own;
            p.shortest = act;
        }
    }
    return p;
}

/* ---- requests ---- */

/* Pushes msg to an idle activation, else to a new one; if the pool may not grow, or there is no
 * room for another activation, to the shortest queue. Does all of this under the shard's lock, so
 * that the activation does not end before the push. out: *act; *deep, as teffi_activation_push().
 * errs: as teffi_stateless_push_request(). */
static teff_err push_to_pool_under_lock(teffi_grains *grains, const teff_grain_type *type,
                                        const teffi_ident *ident, teffi_msg *msg,
                                        teffi_activation **act, uint32_t *deep)
{
    pthread_mutex_t *lock = &teffi_shard_of(grains, ident->hash)->lock;
    teff_err err = TEFF_OK;
    pthread_mutex_lock(lock);
    pool p = search_pool(grains, ident, true);
    *act = p.idle ? p.idle : p.shortest;
    if (!p.idle && p.n < teffi_pool_max(grains, type->info))
        err = teffi_shard_create_activation(grains, ident, false, NULL, act);
    if ((err == TEFF_E_OVERLOADED || err == TEFF_E_NOMEM) && p.shortest) {
        *act = p.shortest;
        err = TEFF_OK;
    }
    if (!err)
        err = teffi_activation_push(*act, type, msg, deep);
    pthread_mutex_unlock(lock);
    if (p.idle)
        teffi_group_release_claim(&p.idle->group);
    return err;
}

/* May the request be pushed to p.shortest without the lock? If two grains have the same hash,
 * p.shortest may be of the other one. */
static bool may_push_without_lock(teffi_grains *grains, const teff_type_info *info,
                                  const teffi_ident *ident, const pool *p)
{
    /* relaxed: as in teffi_shard_find_activation_without_lock() */
    return p->n >= teffi_pool_max(grains, info) &&
           !atomic_load_explicit(&teffi_shard_of(grains, ident->hash)->hash_collision,
                                 memory_order_relaxed);
}

teff_err teffi_stateless_push_request(teffi_grains *grains, const teffi_ident *ident,
                                      teffi_msg *msg)
{
    const teff_grain_type *type = teffi_type_find(grains, ident->type);
    uint32_t deep = 0;
    pool p = search_pool(grains, ident, false);
    teffi_activation *act = p.idle ? p.idle : p.shortest;
    teff_err err = TEFF_E_CLOSED; /* act has ended, or another one may be made */
    if (p.idle || may_push_without_lock(grains, type->info, ident, &p))
        err = teffi_activation_push(act, type, msg, &deep);
    if (p.idle)
        teffi_group_release_claim(&p.idle->group);
    if (err == TEFF_E_CLOSED)
        err = push_to_pool_under_lock(grains, type, ident, msg, &act, &deep);
    if (deep)
        teffi_warn_long_queue(&act->group, deep);
    return err;
}

teffi_activation *teffi_stateless_claim_activation(teffi_grains *grains, const teffi_ident *ident,
                                                   uint32_t version)
{
    const teff_grain_type *type = teffi_type_find(grains, ident->type);
    if (!type || !teffi_type_is_stateless(type) || type->info->version < version)
        return NULL;
    pool p = search_pool(grains, ident, false);
    unsigned max = teffi_pool_max(grains, type->info);
    if (p.idle || p.n >= max || !teffi_type_activates_at_once(type))
        return p.idle;
    teffi_activation *act = NULL;
    bool claimed = false;
    pthread_mutex_t *lock = &teffi_shard_of(grains, ident->hash)->lock;
    pthread_mutex_lock(lock);
    p = search_pool(grains, ident, true);
    if (!p.idle && p.n < max &&
        teffi_shard_create_activation(grains, ident, false, &claimed, &act) != TEFF_OK)
        claimed = false;
    pthread_mutex_unlock(lock);
    return p.idle    ? p.idle
           : claimed ? act
                     : NULL; /* not claimed: see teffi_partition_create_claimed_activation() */
}

bool teffi_stateless_push_to_next(teffi_activation *act, teffi_item *item)
{
    if (!teffi_type_is_stateless(act->type))
        return false;
    teffi_ident ident = teffi_activation_ident(act);
    teffi_shard *shard = teffi_shard_of(act->grains, ident.hash);
    teffi_probe probe;
    bool passed = false, pushed = false;
    pthread_mutex_lock(&shard->lock);
    uint32_t slot = teffi_index_find_first(&probe, &shard->index, ident.hash);
    for (; slot && !pushed; slot = teffi_index_find_next(&probe)) {
        teffi_activation *next = teffi_activation_at(&act->grains->shards->memory, slot);
        teffi_ident found = teffi_activation_ident(next);
        if (passed && teffi_ident_equals(&found, &ident))
            pushed = teffi_group_push(&next->group, item);
        passed |= next == act;
    }
    pthread_mutex_unlock(&shard->lock);
    return pushed;
}
