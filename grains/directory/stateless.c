/* stateless.c - find an idle activation of a pool, make a new one, or choose the shortest queue. */
#include "directory/stateless.h"

#include "activation/turn.h"

unsigned teffi_pool_max(const teffi_grains *grains, const teff_type_info *info)
{
    unsigned max = info->pool_max ? info->pool_max : grains->node->home.exec->workers;
    return max < 1 ? 1 : max < TEFFI_POOL_MAX ? max : TEFFI_POOL_MAX;
}

/* ---- idle activations, without a lock ---- */

/* Is act an activation of the grain, and may it start any request at once? in: act is claimed. */
static bool is_idle_activation_of(const teffi_activation *act, const teffi_ident *ident)
{
    return teffi_activation_is_valid_for(act, ident) && act->running == 0 &&
           teffi_activation_admits(act, TEFFI_EXCLUSIVE) &&
           (int32_t)atomic_load_explicit(&act->queued, memory_order_relaxed) <= 0;
}

/* out: the first idle activation of the grain, claimed. NULL: none was found; a rebuild of the
 * index may have hidden some. */
static teffi_activation *claim_idle_activation(teffi_grains *grains, const teffi_ident *ident)
{
    teffi_probe probe;
    const teffi_index *index = &teffi_shard_of(grains, ident->hash)->index;
    uint32_t slot = teffi_index_find_first(&probe, index, ident->hash);
    for (; slot; slot = teffi_index_find_next(&probe)) {
        teffi_activation *act = teffi_activation_at(&grains->shards->memory, slot);
        /* relaxed: the identity is compared after the claim */
        if (atomic_load_explicit(&act->hash, memory_order_relaxed) != ident->hash ||
            !teffi_group_claim(&act->group))
            continue;
        if (is_idle_activation_of(act, ident))
            return act;
        teffi_group_release_claim(&act->group);
    }
    return NULL;
}

/* ---- the pool, under the shard's lock ---- */

typedef struct pool {
    unsigned n;                 /* activations */
    teffi_activation *shortest; /* one with the fewest queued requests; NULL: n is 0 */
} pool;

/* Counts the grain's activations, and finds the one with the shortest queue. Of several with equal
 * queues it takes a random one: turns that are suspended are in no queue, so without this, all
 * requests that may interleave would go to the same activation. */
static pool survey_pool(teffi_grains *grains, const teffi_ident *ident)
{
    const teffi_platform *platform = grains->node->platform;
    teffi_probe probe;
    pool p = {0};
    int32_t least = INT32_MAX;
    uint64_t ties = 0;
    uint32_t slot =
        teffi_index_find_first(&probe, &teffi_shard_of(grains, ident->hash)->index, ident->hash);
    for (; slot; slot = teffi_index_find_next(&probe)) {
        teffi_activation *act = teffi_activation_at(&grains->shards->memory, slot);
        teffi_ident found = teffi_activation_ident(act);
        if (!teffi_ident_equals(&found, ident))
            continue;
        p.n++;
        int32_t queued = (int32_t)atomic_load_explicit(&act->queued, memory_order_relaxed);
        ties = queued < least ? 1 : ties + (queued == least);
        if (queued < least || (queued == least && platform->random(platform->arg) % ties == 0))
            p.shortest = act;
        least = queued < least ? queued : least;
    }
    return p;
}

/* Makes an activation and pushes msg to it; if the pool may not grow, or there is no room for
 * another activation, pushes msg to the shortest queue. Does all of this under the shard's lock, so
 * that the activation does not end before the push. out: *act; *deep, as teffi_activation_push().
 * errs: as teffi_stateless_push_request(). */
static teff_err push_to_new_or_shortest(teffi_grains *grains, const teff_grain_type *type,
                                        const teffi_ident *ident, teffi_msg *msg,
                                        teffi_activation **act, uint32_t *deep)
{
    pthread_mutex_t *lock = &teffi_shard_of(grains, ident->hash)->lock;
    teff_err err = TEFF_OK;
    pthread_mutex_lock(lock);
    pool p = survey_pool(grains, ident);
    *act = p.shortest;
    if (p.n < teffi_pool_max(grains, type->info))
        err = teffi_shard_create_activation(grains, ident, false, NULL, act);
    if ((err == TEFF_E_OVERLOADED || err == TEFF_E_NOMEM) && p.shortest) {
        *act = p.shortest;
        err = TEFF_OK;
    }
    if (!err)
        err = teffi_activation_push(*act, type, msg, deep);
    pthread_mutex_unlock(lock);
    return err;
}

teff_err teffi_stateless_push_request(teffi_grains *grains, const teffi_ident *ident,
                                      teffi_msg *msg)
{
    const teff_grain_type *type = teffi_type_find(grains, ident->type);
    uint32_t deep = 0;
    teff_err err;
    teffi_activation *act = claim_idle_activation(grains, ident);
    if (act) {
        err = teffi_activation_push(act, type, msg, &deep);
        teffi_group_release_claim(&act->group);
    } else
        err = push_to_new_or_shortest(grains, type, ident, msg, &act, &deep);
    if (deep)
        teffi_warn_long_queue(&act->group, deep);
    return err;
}

teffi_activation *teffi_stateless_claim_activation(teffi_grains *grains, const teffi_ident *ident)
{
    const teff_grain_type *type = teffi_type_find(grains, ident->type);
    bool claimed = false;
    if (!type || !teffi_type_is_stateless(type))
        return NULL;
    teffi_activation *act = claim_idle_activation(grains, ident);
    if (act || !teffi_type_activates_at_once(type))
        return act;
    pthread_mutex_t *lock = &teffi_shard_of(grains, ident->hash)->lock;
    pthread_mutex_lock(lock);
    if (survey_pool(grains, ident).n < teffi_pool_max(grains, type->info) &&
        teffi_shard_create_activation(grains, ident, false, &claimed, &act) != TEFF_OK)
        act = NULL;
    pthread_mutex_unlock(lock);
    return claimed ? act : NULL; /* not claimed: see teffi_partition_create_claimed_activation() */
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
