/* locate.c - look-ups under way, and who waits for them.
 * Way:     route -> [locate] -> directory, placement -> route
 * Threads: shard locks; the task of a look-up is the only one to take its entry out. */
#include "locate.h"

#include <stdlib.h>
#include <string.h>
#include "directory.h"
#include "grains.h"
#include "node/task.h"
#include "placement.h"
#include "route.h"

void teffi_locate_init(teffi_grains *grains)
{
    teffi_locate *locate = &grains->locate;
    for (int i = 0; i < TEFFI_LOCATE_SHARDS; i++)
        pthread_mutex_init(&locate->shards[i].lock, NULL);
}

static void free_entry(teffi_locating *entry)
{
    teffi_qnode *n;
    while ((n = teffi_queue_pop(&entry->waiting)))
        teffi_msg_free(teffi_container(n, teffi_msg, link));
    free(entry);
}

void teffi_locate_fini(teffi_grains *grains)
{
    teffi_locate *locate = &grains->locate;
    for (int i = 0; i < TEFFI_LOCATE_SHARDS; i++) {
        teffi_locate_shard *shard = &locate->shards[i];
        size_t at = 0;
        teffi_tnode *next = NULL, *node;
        while ((node = teffi_table_each(&shard->table, &at, &next)))
            free_entry(teffi_container(node, teffi_locating, node));
        teffi_table_fini(&shard->table);
        pthread_mutex_destroy(&shard->lock);
    }
}

static teffi_locate_shard *shard_of(teffi_grains *grains, uint64_t hash)
{
    return &grains->locate.shards[(hash >> 8) % TEFFI_LOCATE_SHARDS];
}

/* Shard's lock held. */
static void count(teffi_grains *grains, uint64_t hash, uint32_t more)
{
    /* release: pairs with teffi_locate_may_wait */
    atomic_fetch_add_explicit(teffi_locate_count(&grains->locate, hash), more,
                              memory_order_release);
}

static teffi_locating *find(teffi_locate_shard *shard, const teffi_ident *ident)
{
    teffi_tnode *node = teffi_table_first(&shard->table, ident->hash);
    for (; node; node = teffi_table_next(node)) {
        teffi_locating *entry = teffi_container(node, teffi_locating, node);
        if (teffi_ident_is(&entry->ident, ident))
            return entry;
    }
    return NULL;
}

bool teffi_locating_any(teffi_grains *grains)
{
    bool any = false;
    for (int i = 0; i < TEFFI_LOCATE_SHARDS && !any; i++) {
        teffi_locate_shard *shard = &grains->locate.shards[i];
        pthread_mutex_lock(&shard->lock);
        any = shard->table.count > 0;
        pthread_mutex_unlock(&shard->lock);
    }
    return any;
}

/* None when somebody came back and wants another look-up first. */
static teffi_queue take_waiting(teffi_locating *entry)
{
    teffi_locate_shard *shard = shard_of(entry->grains, entry->ident.hash);
    teffi_queue waiting = {0};
    pthread_mutex_lock(&shard->lock);
    if (entry->pause_ms == 0)
        teffi_queue_move(&waiting, &entry->waiting);
    pthread_mutex_unlock(&shard->lock);
    return waiting;
}

/* true: nobody waits, and the entry is out of the table. */
static bool over(teffi_locating *entry)
{
    teffi_locate_shard *shard = shard_of(entry->grains, entry->ident.hash);
    pthread_mutex_lock(&shard->lock);
    bool none = entry->waiting.count == 0;
    if (none) {
        teffi_table_del(&shard->table, &entry->node);
        count(entry->grains, entry->ident.hash, (uint32_t)-1);
    }
    pthread_mutex_unlock(&shard->lock);
    return none;
}

static uint32_t take_pause(teffi_locating *entry)
{
    teffi_locate_shard *shard = shard_of(entry->grains, entry->ident.hash);
    pthread_mutex_lock(&shard->lock);
    uint32_t pause_ms = entry->pause_ms;
    entry->pause_ms = 0;
    pthread_mutex_unlock(&shard->lock);
    return pause_ms;
}

/* A directory entry that names us although the catalog holds nothing: the activation has ended and
 * its unregistration met a change of owner. */
static teff_err look_up(teff_ctx *ctx, teffi_locating *entry, teffi_pid *holder)
{
    teffi_grains *grains = entry->grains;
    if (grains->closed)
        return teffi_ctx_fail(ctx, TEFF_E_UNAVAILABLE, "the silo is closing; the call did not run");
    teff_err err = teffi_directory_lookup(ctx, &entry->ident, holder);
    if (err || !teffi_node_is(holder->node, ctx->node->id) ||
        teffi_catalog_has(grains, &entry->ident))
        return err;
    err = teffi_directory_unregister(ctx, &entry->ident, *holder);
    return err ? err : TEFF_E_NOT_FOUND;
}

/* Those that wait go where the look-up said. One that cannot be taken there comes back to the
 * entry, with a pause before the next look-up. */
static void locate_once(teff_ctx *ctx, teffi_locating *entry)
{
    teffi_grains *grains = entry->grains;
    teffi_pid holder = {0};
    teffi_node_id placed = {0};
    teffi_qnode *n;
    teff_err err = look_up(ctx, entry, &holder);
    for (teffi_queue waiting = {0}; (waiting = take_waiting(entry)).count > 0;)
        while ((n = teffi_queue_pop(&waiting))) {
            teffi_msg *msg = teffi_container(n, teffi_msg, link);
            if (err == TEFF_OK)
                teffi_route_to(grains, &entry->ident, msg, holder.node);
            else if (err != TEFF_E_NOT_FOUND)
                teffi_node_answer(ctx->node, msg, err, teff_error(ctx));
            else /* one choice for all that wait, or they would race each other */
                teffi_route_place(grains, &entry->ident, msg, &placed);
        }
}

static void locate_task(teff_ctx *ctx, void *arg)
{
    teffi_locating *entry = arg;
    do {
        uint32_t pause_ms = take_pause(entry);
        if (pause_ms)
            teffi_ctx_sleep(ctx, pause_ms);
        locate_once(ctx, entry);
    } while (!over(entry));
    free(entry);
}

static teffi_locating *new_entry(teffi_grains *grains, const teffi_ident *ident, uint32_t pause_ms)
{
    teffi_locating *entry = calloc(1, sizeof *entry + ident->key_len);
    if (!entry)
        return NULL;
    entry->grains = grains;
    entry->ident = *ident;
    entry->ident.key = entry->bytes;
    entry->pause_ms = pause_ms;
    memcpy(entry->bytes, ident->key, ident->key_len);
    return entry;
}

static teff_err begin(teffi_grains *grains, teffi_locate_shard *shard, const teffi_ident *ident,
                      teffi_msg *msg, uint32_t pause_ms)
{
    teffi_locating *entry = new_entry(grains, ident, pause_ms);
    if (!entry)
        return TEFF_E_NOMEM;
    if (!teffi_table_add(&shard->table, &entry->node, ident->hash)) {
        free(entry);
        return TEFF_E_NOMEM;
    }
    teffi_queue_push(&entry->waiting, &msg->link);
    teff_err err = teffi_task_start(grains->node, locate_task, entry, "locate a grain");
    if (err) {
        teffi_table_del(&shard->table, &entry->node);
        free(entry);
        return err;
    }
    count(grains, ident->hash, 1);
    return TEFF_OK;
}

static teff_err join_wait(teffi_locating *entry, teffi_msg *msg, uint32_t pause_ms)
{
    if (entry->waiting.count >= TEFFI_QUEUE_DEFAULT)
        return TEFF_E_OVERLOADED;
    teffi_queue_push(&entry->waiting, &msg->link);
    if (entry->pause_ms < pause_ms)
        entry->pause_ms = pause_ms;
    return TEFF_OK;
}

static void refuse(teffi_grains *grains, teffi_msg *msg, teff_err err)
{
    teffi_node_answer(grains->node, msg, err, "too many requests wait for this grain's place");
}

bool teffi_locate_waits(teffi_grains *grains, const teffi_ident *ident)
{
    teffi_locate_shard *shard = shard_of(grains, ident->hash);
    pthread_mutex_lock(&shard->lock);
    bool waits = find(shard, ident) != NULL;
    pthread_mutex_unlock(&shard->lock);
    return waits;
}

bool teffi_locate_join(teffi_grains *grains, const teffi_ident *ident, teffi_msg *msg)
{
    teffi_locate_shard *shard = shard_of(grains, ident->hash);
    pthread_mutex_lock(&shard->lock);
    teffi_locating *entry = find(shard, ident);
    teff_err err = entry ? join_wait(entry, msg, 0) : TEFF_OK;
    pthread_mutex_unlock(&shard->lock);
    if (err)
        refuse(grains, msg, err);
    return entry != NULL;
}

void teffi_locate_msg(teffi_grains *grains, const teffi_ident *ident, teffi_msg *msg,
                      uint32_t pause_ms)
{
    teffi_locate_shard *shard = shard_of(grains, ident->hash);
    teff_err err = TEFF_OK;
    pthread_mutex_lock(&shard->lock);
    teffi_locating *entry = find(shard, ident);
    if (!entry)
        err = begin(grains, shard, ident, msg, pause_ms);
    else
        err = join_wait(entry, msg, pause_ms);
    pthread_mutex_unlock(&shard->lock);
    if (err)
        refuse(grains, msg, err);
}
