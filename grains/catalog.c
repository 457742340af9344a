/* catalog.c - activations by identity, and the pool they come from.
 * Way:     route -> [catalog] -> activation's group
 * Threads: shard locks; pool_lock inside them. */
#include "catalog.h"

#include <stdlib.h>
#include <string.h>
#include "grains.h"

void teffi_catalog_init(teffi_catalog *catalog)
{
    memset(catalog, 0, sizeof *catalog);
    for (int i = 0; i < TEFFI_PARTITIONS; i++)
        pthread_mutex_init(&catalog->shards[i].lock, NULL);
    pthread_mutex_init(&catalog->pool_lock, NULL);
}

void teffi_catalog_fini(teffi_catalog *catalog)
{
    for (uint32_t i = 0; i < catalog->n_all; i++) {
        teffi_activation_discard(catalog->all[i]);
        free(catalog->all[i]);
    }
    free(catalog->all);
    for (int i = 0; i < TEFFI_PARTITIONS; i++) {
        teffi_table_fini(&catalog->shards[i].table);
        pthread_mutex_destroy(&catalog->shards[i].lock);
    }
    pthread_mutex_destroy(&catalog->pool_lock);
}

/* ---- pool ---- */

static bool grow_all(teffi_catalog *catalog)
{
    uint32_t max = catalog->all_max ? catalog->all_max * 2 : 64;
    teffi_activation **all = realloc(catalog->all, max * sizeof *all);
    if (!all)
        return false;
    catalog->all = all;
    catalog->all_max = max;
    return true;
}

static teffi_activation *make(teffi_grains *grains)
{
    teffi_catalog *catalog = &grains->catalog;
    if (catalog->n_all == catalog->all_max && !grow_all(catalog))
        return NULL;
    teffi_activation *act = calloc(1, sizeof *act);
    if (!act)
        return NULL;
    /* Slots of grains begin behind the system's. */
    teffi_activation_init(act, grains, catalog->n_all + TEFFI_SLOT_SYSTEM_END);
    catalog->all[catalog->n_all++] = act;
    return act;
}

static teffi_activation *take(teffi_grains *grains)
{
    teffi_catalog *catalog = &grains->catalog;
    pthread_mutex_lock(&catalog->pool_lock);
    teffi_activation *act = catalog->free;
    if (act)
        catalog->free = act->next_free;
    else
        act = make(grains);
    pthread_mutex_unlock(&catalog->pool_lock);
    return act;
}

void teffi_catalog_keep(teffi_grains *grains, teffi_activation *act)
{
    teffi_catalog *catalog = &grains->catalog;
    pthread_mutex_lock(&catalog->pool_lock);
    act->next_free = catalog->free;
    catalog->free = act;
    pthread_mutex_unlock(&catalog->pool_lock);
}

/* ---- shards ---- */

static teffi_catalog_shard *shard_of(teffi_grains *grains, const teffi_ident *ident)
{
    return &grains->catalog.shards[teffi_partition(ident->hash)];
}

static teffi_activation *find(teffi_catalog_shard *shard, const teffi_ident *ident)
{
    teffi_tnode *node = teffi_table_first(&shard->table, ident->hash);
    for (; node; node = teffi_table_next(node)) {
        teffi_activation *act = teffi_container(node, teffi_activation, node);
        if (teffi_ident_is(&act->ident, ident))
            return act;
    }
    return NULL;
}

static teff_err create(teffi_grains *grains, teffi_catalog_shard *shard, const teffi_ident *ident,
                       teffi_activation **out)
{
    const teff_grain_type *type = teffi_type_find(grains, ident->type);
    if (!type || !grains->accepting)
        return TEFF_E_NOT_FOUND;
    teffi_activation *act = take(grains);
    if (!act)
        return TEFF_E_NOMEM;
    if (!teffi_table_add(&shard->table, &act->node, ident->hash)) {
        teffi_catalog_keep(grains, act);
        return TEFF_E_NOMEM;
    }
    teff_err err = teffi_activation_born(act, type, ident);
    if (err) {
        teffi_table_del(&shard->table, &act->node);
        teffi_catalog_keep(grains, act);
        return err;
    }
    /* relaxed: a leaving silo polls it until it is 0, after accepting went false */
    atomic_fetch_add_explicit(&grains->catalog.count, 1, memory_order_relaxed);
    *out = act;
    return TEFF_OK;
}

/* relaxed counter: a bound on memory, not an order */
static bool room(teffi_activation *act, uint32_t *before)
{
    uint32_t max = act->type->info->queue_max ? act->type->info->queue_max : TEFFI_QUEUE_DEFAULT;
    *before = atomic_fetch_add_explicit(&act->queued, 1, memory_order_relaxed);
    if (*before < max)
        return true;
    atomic_fetch_sub_explicit(&act->queued, 1, memory_order_relaxed);
    return false;
}

teff_err teffi_catalog_push(teffi_grains *grains, const teffi_ident *ident, teffi_msg *msg,
                            bool may_create)
{
    teffi_catalog_shard *shard = shard_of(grains, ident);
    teff_err err = TEFF_OK;
    uint32_t before, warn = grains->node->exec->warn.queue_warn;
    pthread_mutex_lock(&shard->lock);
    teffi_activation *act = find(shard, ident);
    bool made = !act;
    if (made)
        err = may_create ? create(grains, shard, ident, &act) : TEFF_E_NOT_FOUND;
    if (!err && !room(act, &before))
        err = TEFF_E_OVERLOADED;
    /* The first request goes in before the life that it began can end. */
    if (!err && made)
        (void)teffi_group_push(&act->group, &msg->item);
    pthread_mutex_unlock(&shard->lock);
    if (!err && !made)
        (void)teffi_group_push(&act->group, &msg->item);
    if (!err && before == warn)
        teffi_warn_long(&act->group, before + 1);
    return err;
}

bool teffi_catalog_has(teffi_grains *grains, const teffi_ident *ident)
{
    teffi_catalog_shard *shard = shard_of(grains, ident);
    pthread_mutex_lock(&shard->lock);
    bool has = find(shard, ident) != NULL;
    pthread_mutex_unlock(&shard->lock);
    return has;
}

void teffi_catalog_remove(teffi_grains *grains, teffi_activation *act)
{
    teffi_catalog_shard *shard = shard_of(grains, &act->ident);
    pthread_mutex_lock(&shard->lock);
    teffi_table_del(&shard->table, &act->node);
    act->registered = false;
    pthread_mutex_unlock(&shard->lock);
}

void teffi_catalog_registered(teffi_grains *grains, teffi_activation *act, bool yes)
{
    teffi_catalog_shard *shard = shard_of(grains, &act->ident);
    pthread_mutex_lock(&shard->lock);
    act->registered = yes;
    pthread_mutex_unlock(&shard->lock);
}

/* *at holds the table's size (top 32 bits) and the bucket to go on with. */
bool teffi_catalog_each(teffi_grains *grains, unsigned shard_no, uint64_t *at,
                        bool (*visit)(void *arg, teffi_activation *act), void *arg)
{
    teffi_catalog_shard *shard = &grains->catalog.shards[shard_no];
    bool more = true;
    pthread_mutex_lock(&shard->lock);
    size_t bucket = (*at >> 32) == shard->table.n_slots ? (uint32_t)*at : 0;
    for (; more && bucket < shard->table.n_slots; bucket++)
        for (teffi_tnode *node = shard->table.slots[bucket], *next; node; node = next) {
            next = node->next;
            more = visit(arg, teffi_container(node, teffi_activation, node)) && more;
        }
    *at = (uint64_t)shard->table.n_slots << 32 | bucket;
    bool whole = bucket >= shard->table.n_slots;
    pthread_mutex_unlock(&shard->lock);
    return whole;
}
