/* catalog.c - activations by identity, and the pool they come from.
 * Way:     route -> [catalog] -> activation's group
 * Threads: shard locks; pool_lock inside them. */
#include "catalog.h"

#include <stdlib.h>
#include <string.h>
#include "base/bug.h"
#include "grains.h"
#include "life.h"
#include "placement.h"

bool teffi_catalog_init(teffi_catalog *catalog, teffi_grains *grains)
{
    memset(catalog, 0, sizeof *catalog);
    for (int i = 0; i < TEFFI_PARTITIONS; i++)
        pthread_mutex_init(&catalog->shards[i].lock, NULL);
    return teffi_slab_init(&catalog->slab, grains);
}

void teffi_catalog_fini(teffi_catalog *catalog)
{
    teffi_slab_fini(&catalog->slab);
    for (int i = 0; i < TEFFI_PARTITIONS; i++) {
        teffi_index_fini(&catalog->shards[i].index);
        pthread_mutex_destroy(&catalog->shards[i].lock);
    }
}

void teffi_catalog_keep(teffi_grains *grains, teffi_activation *act)
{
    teffi_slab_give(&grains->catalog.slab, act);
}

/* ---- shards ---- */

static teffi_catalog_shard *shard_of(teffi_grains *grains, const teffi_ident *ident)
{
    return &grains->catalog.shards[teffi_partition(ident->hash)];
}

teffi_activation *teffi_catalog_find_locked(teffi_grains *grains, const teffi_ident *ident)
{
    teffi_probe probe;
    uint32_t slot = teffi_index_first(&probe, &shard_of(grains, ident)->index, ident->hash);
    for (; slot; slot = teffi_index_next(&probe)) {
        teffi_activation *act = teffi_slab_at(&grains->catalog.slab, slot);
        teffi_ident found = teffi_activation_ident(act);
        if (teffi_ident_is(&found, ident))
            return act;
    }
    return NULL;
}

teffi_activation *teffi_catalog_find(teffi_grains *grains, const teffi_ident *ident, bool *certain)
{
    teffi_catalog_shard *shard = shard_of(grains, ident);
    teffi_probe probe;
    *certain = false;
    /* relaxed: who comes too early is sent back here by the activation */
    if (atomic_load_explicit(&shard->twins, memory_order_relaxed))
        return NULL;
    uint32_t slot = teffi_index_first(&probe, &shard->index, ident->hash);
    for (; slot; slot = teffi_index_next(&probe)) {
        teffi_activation *act = teffi_slab_at(&grains->catalog.slab, slot);
        /* relaxed: a hint; whoever handles the request looks again */
        if (atomic_load_explicit(&act->hash, memory_order_relaxed) == ident->hash)
            return act;
    }
    *certain = teffi_index_certain(&probe);
    return NULL;
}

void teffi_catalog_twins(teffi_grains *grains, uint64_t hash)
{
    atomic_store_explicit(&grains->catalog.shards[teffi_partition(hash)].twins, true,
                          memory_order_relaxed);
}

/* in: claimed, may be NULL. out: *claimed: its group is, and it is valid already; else a pusher
 * that was late for another grain came first. */
static teff_err create(teffi_grains *grains, const teffi_ident *ident, bool registered,
                       bool *claimed, teffi_activation **out)
{
    teffi_catalog_shard *shard = shard_of(grains, ident);
    const teff_grain_type *type = teffi_type_find(grains, ident->type);
    if (!type || !grains->accepting)
        return TEFF_E_NOT_FOUND;
    teffi_activation *act = teffi_slab_take(&grains->catalog.slab);
    if (!act)
        return TEFF_E_NOMEM;
    teff_err err =
        teffi_index_reserve(&shard->index) ? teffi_activation_born(act, type, ident) : TEFF_E_NOMEM;
    if (err) {
        teffi_catalog_keep(grains, act);
        return err;
    }
    act->registered = registered;
    if (claimed && (*claimed = teffi_group_claim(&act->group)))
        act->phase = TEFFI_VALID;
    bool added = teffi_index_add(&shard->index, ident->hash, act->slot);
    teffi_bug_if(!added);
    /* relaxed: a leaving silo polls it until it is 0, after accepting went false */
    atomic_fetch_add_explicit(&grains->catalog.count, 1, memory_order_relaxed);
    *out = act;
    return TEFF_OK;
}

/* relaxed counter: a bound on memory, not an order. Signed: see activation.h. */
static bool room(teffi_activation *act, const teff_grain_type *type, uint32_t *before)
{
    uint32_t max = type ? teffi_queue_max(type->info) : TEFFI_QUEUE_DEFAULT;
    *before = atomic_fetch_add_explicit(&act->queued, 1, memory_order_relaxed);
    if ((int32_t)*before < (int32_t)max)
        return true;
    atomic_fetch_sub_explicit(&act->queued, 1, memory_order_relaxed);
    return false;
}

/* out: *deep: so many wait in it now that it is worth a warning; else 0. errs: TEFF_E_OVERLOADED;
 * TEFF_E_CLOSED: its life is over. */
static teff_err push(teffi_grains *grains, teffi_activation *act, const teffi_ident *ident,
                     teffi_msg *msg, uint32_t *deep)
{
    uint32_t before;
    *deep = 0;
    if (!room(act, teffi_type_find(grains, ident->type), &before))
        return TEFF_E_OVERLOADED;
    if (!teffi_group_push(&act->group, &msg->item)) {
        atomic_fetch_sub_explicit(&act->queued, 1, memory_order_relaxed);
        return TEFF_E_CLOSED;
    }
    if (before == grains->node->exec->warn.queue_warn)
        *deep = before + 1;
    return TEFF_OK;
}

/* Found or made under the shard's lock. The first request goes in before the life that it began can
 * end. */
static teff_err push_locked(teffi_grains *grains, const teffi_ident *ident, teffi_msg *msg,
                            bool may_create, teffi_activation **act, uint32_t *deep)
{
    teffi_catalog_shard *shard = shard_of(grains, ident);
    teff_err err = TEFF_OK;
    pthread_mutex_lock(&shard->lock);
    *act = teffi_catalog_find_locked(grains, ident);
    if (!*act)
        err = may_create ? create(grains, ident, false, NULL, act) : TEFF_E_NOT_FOUND;
    if (!err)
        err = push(grains, *act, ident, msg, deep);
    pthread_mutex_unlock(&shard->lock);
    return err;
}

static teff_err begin_locked(teffi_grains *grains, const teffi_ident *ident, teffi_msg *msg,
                             teffi_node_id *placed, teffi_activation **act)
{
    *act = teffi_catalog_find_locked(grains, ident);
    if (*act)
        return TEFF_OK;
    if (!teffi_directory_nobody(grains, ident))
        return TEFF_E_UNAVAILABLE;
    *placed = teffi_place(grains, ident, teffi_placement_of(msg->flags));
    if (!teffi_node_is(*placed, grains->node->id))
        return TEFF_E_NOT_FOUND;
    msg->flags |= TEFFI_MSG_PLACED;
    return create(grains, ident, true, NULL, act);
}

teff_err teffi_catalog_begin(teffi_grains *grains, const teffi_ident *ident, teffi_msg *msg,
                             teffi_node_id *placed)
{
    teffi_catalog_shard *shard = shard_of(grains, ident);
    teffi_activation *act;
    uint32_t deep = 0;
    pthread_mutex_lock(&shard->lock);
    teff_err err = begin_locked(grains, ident, msg, placed, &act);
    if (!err)
        err = push(grains, act, ident, msg, &deep);
    pthread_mutex_unlock(&shard->lock);
    if (deep)
        teffi_warn_long(&act->group, deep);
    return err;
}

teffi_activation *teffi_catalog_claim_new(teffi_grains *grains, const teffi_ident *ident)
{
    const teff_grain_type *type = teffi_type_find(grains, ident->type);
    teffi_activation *act = NULL;
    bool claimed = false;
    if (!type || !teffi_life_is_bare(type))
        return NULL;
    pthread_mutex_t *lock = &shard_of(grains, ident)->lock;
    pthread_mutex_lock(lock);
    if (!teffi_catalog_find_locked(grains, ident) && teffi_directory_nobody(grains, ident) &&
        teffi_node_is(teffi_place(grains, ident, type->info->placement), grains->node->id) &&
        create(grains, ident, true, &claimed, &act) != TEFF_OK)
        act = NULL;
    pthread_mutex_unlock(lock);
    return claimed ? act : NULL;
}

teff_err teffi_catalog_push(teffi_grains *grains, const teffi_ident *ident, teffi_msg *msg,
                            bool may_create)
{
    uint32_t deep = 0;
    bool certain;
    teffi_activation *act = teffi_catalog_find(grains, ident, &certain);
    teff_err err = act ? push(grains, act, ident, msg, &deep) : TEFF_E_CLOSED;
    if (certain && !may_create)
        return TEFF_E_NOT_FOUND;
    if (err == TEFF_E_CLOSED)
        err = push_locked(grains, ident, msg, may_create, &act, &deep);
    if (deep)
        teffi_warn_long(&act->group, deep);
    return err;
}

bool teffi_catalog_has(teffi_grains *grains, const teffi_ident *ident)
{
    teffi_catalog_shard *shard = shard_of(grains, ident);
    pthread_mutex_lock(&shard->lock);
    bool has = teffi_catalog_find_locked(grains, ident) != NULL;
    pthread_mutex_unlock(&shard->lock);
    return has;
}

void teffi_catalog_remove(teffi_grains *grains, teffi_activation *act)
{
    teffi_ident ident = teffi_activation_ident(act);
    teffi_catalog_shard *shard = shard_of(grains, &ident);
    pthread_mutex_lock(&shard->lock);
    teffi_index_del(&shard->index, ident.hash, act->slot);
    act->registered = false;
    pthread_mutex_unlock(&shard->lock);
}

void teffi_catalog_registered(teffi_grains *grains, teffi_activation *act, bool yes)
{
    teffi_ident ident = teffi_activation_ident(act);
    teffi_catalog_shard *shard = shard_of(grains, &ident);
    pthread_mutex_lock(&shard->lock);
    act->registered = yes;
    pthread_mutex_unlock(&shard->lock);
}

/* *at holds 16 bits of the index's moves, and below them the cell to go on with. */
bool teffi_catalog_each(teffi_grains *grains, unsigned shard_no, uint64_t *at,
                        bool (*visit)(void *arg, teffi_activation *act), void *arg)
{
    teffi_catalog_shard *shard = &grains->catalog.shards[shard_no];
    uint32_t slot = 0;
    bool more = true;
    pthread_mutex_lock(&shard->lock);
    uint32_t moves = atomic_load_explicit(&shard->index.moves, memory_order_relaxed) & 0xffff;
    uint32_t cell = (*at >> 32) == moves ? (uint32_t)*at : 0;
    while (more && (slot = teffi_index_each(&shard->index, &cell)))
        more = visit(arg, teffi_slab_at(&grains->catalog.slab, slot));
    *at = (uint64_t)moves << 32 | cell;
    pthread_mutex_unlock(&shard->lock);
    return slot == 0;
}
