/* locate.c - a table of look-ups under way, with the requests that wait for each.
 * Threads: under a shard's lock; only a look-up's own task removes its entry. */
#include "request/locate.h"

#include <stdlib.h>
#include "activation/type.h"
#include "call/task.h"
#include "cluster/membership.h"
#include "directory/client.h"
#include "directory/shard.h"
#include "node/deliver.h"
#include "request/route.h"

void teffi_lookups_init(teffi_lookups *lookups)
{
    for (int i = 0; i < TEFFI_LOCATE_SHARDS; i++)
        pthread_mutex_init(&lookups->shards[i].lock, NULL);
}

static void free_lookup(teffi_lookup *entry)
{
    teffi_qnode *n;
    while ((n = teffi_queue_pop(&entry->waiting)))
        teffi_msg_free(teffi_container(n, teffi_msg, link));
    free(entry);
}

void teffi_lookups_fini(teffi_lookups *lookups)
{
    for (int i = 0; i < TEFFI_LOCATE_SHARDS; i++) {
        teffi_lookup_shard *shard = &lookups->shards[i];
        size_t at = 0;
        teffi_tnode *next = NULL, *node;
        while ((node = teffi_table_each(&shard->table, &at, &next)))
            free_lookup(teffi_container(node, teffi_lookup, node));
        teffi_table_fini(&shard->table);
        pthread_mutex_destroy(&shard->lock);
    }
}

static teffi_lookup_shard *get_lookup_shard(teffi_grains *grains, uint64_t hash)
{
    return &grains->lookups->shards[(hash >> 8) % TEFFI_LOCATE_SHARDS];
}

/* Shard's lock held. */
static void change_count(teffi_grains *grains, uint64_t hash, uint32_t more)
{
    /* release: pairs with teffi_locate_may_wait() */
    atomic_fetch_add_explicit(teffi_locate_count(grains->lookups, hash), more,
                              memory_order_release);
}

static teffi_lookup *find_lookup(teffi_lookup_shard *shard, const teffi_ident *ident)
{
    teffi_tnode *node = teffi_table_first(&shard->table, ident->hash);
    for (; node; node = teffi_table_next(node)) {
        teffi_lookup *entry = teffi_container(node, teffi_lookup, node);
        if (teffi_ident_is(&entry->ident, ident))
            return entry;
    }
    return NULL;
}

bool teffi_lookups_any(teffi_lookups *lookups)
{
    for (uint64_t i = 0; i < TEFFI_LOCATE_COUNTS; i++)
        if (teffi_locate_may_wait(lookups, i << 8))
            return true;
    return false;
}

/* Take the requests that wait, if the directory was asked and none of them was located again: else
 * all wait for another look-up. out: *tries, entry->tries; false: none waits, the entry was removed
 * from the table. */
static bool take_waiting(teffi_lookup *entry, bool asked, teffi_queue *waiting, unsigned *tries)
{
    teffi_lookup_shard *shard = get_lookup_shard(entry->grains, entry->ident.hash);
    pthread_mutex_lock(&shard->lock);
    bool any = entry->waiting.count > 0;
    *tries = entry->tries;
    entry->tries = 0;
    if (!any) {
        teffi_table_del(&shard->table, &entry->node);
        change_count(entry->grains, entry->ident.hash, (uint32_t)-1);
    } else if (asked && *tries == 0) {
        teffi_queue_move(waiting, &entry->waiting);
    }
    pthread_mutex_unlock(&shard->lock);
    return any;
}

typedef struct outcome { /* of a look-up, for all its requests */
    teff_err err;
    teffi_node_id holder; /* if TEFF_OK */
    teffi_node_id
        placed; /* if TEFF_E_NOT_FOUND: one silo for all requests, so that they do not race */
} outcome;

/* If the directory names this silo but no activation is here, its unregistration was lost in a
 * change of owner: unregister it now. */
static teff_err find_holder(teff_ctx *ctx, teffi_lookup *entry, teffi_pid *holder)
{
    teffi_grains *grains = entry->grains;
    if (grains->closed)
        return teffi_ctx_fail(ctx, TEFF_E_UNAVAILABLE, "the silo is closing; the call did not run");
    teff_err err = teffi_directory_lookup(ctx, &entry->ident, &entry->until_ns, holder);
    if (err || !teffi_node_is(holder->node, ctx->node->id) ||
        teffi_shard_has(grains, &entry->ident, NULL))
        return err;
    err = teffi_directory_unregister(ctx, &entry->ident, *holder);
    return err ? err : TEFF_E_NOT_FOUND;
}

static outcome ask_directory(teff_ctx *ctx, teffi_lookup *entry)
{
    teffi_pid holder = {0};
    teff_err err = find_holder(ctx, entry, &holder);
    return (outcome){.err = err, .holder = holder.node};
}

/* A request that cannot be forwarded waits for another look-up. */
static void send_located(teff_ctx *ctx, teffi_lookup *entry, teffi_msg *msg, outcome *o)
{
    teffi_grains *grains = entry->grains;
    bool done = true;
    if (teffi_forward_expired(grains, msg))
        teffi_node_respond(ctx->node, msg, TEFF_E_TIMEOUT,
                           "expired before its grain was found; the call did not run");
    else if (o->err == TEFF_E_TIMEOUT) /* it joined when the look-up was about to end */
        done = false;
    else if (o->err == TEFF_OK)
        done = teffi_forward_to_holder(grains, &entry->ident, msg, o->holder);
    else if (o->err == TEFF_E_NOT_FOUND)
        done = teffi_forward_to_place(grains, &entry->ident, msg, &o->placed);
    else
        teffi_node_respond(ctx->node, msg, o->err, teff_error(ctx));
    if (!done)
        teffi_locate_again(grains, &entry->ident, msg);
}

static void look_up(teff_ctx *ctx, void *arg)
{
    teffi_lookup *entry = arg;
    teffi_membership *membership = ctx->node->membership;
    uint64_t seen = membership->follow.changes.count;
    teffi_queue waiting = {0};
    teffi_qnode *n;
    outcome o = {.err = TEFF_OK};
    unsigned tries;
    for (bool asked = false; take_waiting(entry, asked, &waiting, &tries); asked = true) {
        while ((n = teffi_queue_pop(&waiting)))
            send_located(ctx, entry, teffi_container(n, teffi_msg, link), &o);
        if (asked && !tries)
            continue;
        if (tries)
            teffi_membership_wait(ctx, seen, tries + 1);
        seen = membership->follow.changes.count;
        o = ask_directory(ctx, entry);
    }
    free(entry);
}

static teffi_lookup *new_lookup(teffi_grains *grains, const teffi_ident *ident)
{
    teffi_lookup *entry = calloc(1, sizeof *entry + ident->key_len);
    if (!entry)
        return NULL;
    entry->grains = grains;
    entry->ident = *ident;
    entry->ident.key = entry->bytes;
    memcpy(entry->bytes, ident->key, ident->key_len);
    return entry;
}

static bool charge_is_over(teffi_grains *grains, teffi_msg *msg)
{
    teffi_msg_charge(msg, grains->node->budget);
    return teffi_budget_is_over(grains->node->budget);
}

/* Shard's lock held. */
static void add_waiting(teffi_lookup *entry, teffi_msg *msg)
{
    uint64_t until_ns = msg->deadline_ns ? msg->deadline_ns : UINT64_MAX;
    teffi_queue_push(&entry->waiting, &msg->link);
    if (entry->tries < msg->tries)
        entry->tries = msg->tries;
    if (until_ns > atomic_load_explicit(&entry->until_ns, memory_order_relaxed))
        atomic_store_explicit(&entry->until_ns, until_ns, memory_order_relaxed);
}

static teff_err begin_lookup(teffi_grains *grains, teffi_lookup_shard *shard,
                             const teffi_ident *ident, teffi_msg *msg)
{
    if (charge_is_over(grains, msg))
        return TEFF_E_OVERLOADED;
    teffi_lookup *entry = new_lookup(grains, ident);
    teff_err err = TEFF_E_NOMEM;
    if (entry && teffi_table_add(&shard->table, &entry->node, ident->hash)) {
        add_waiting(entry, msg);
        err = teffi_task_start(&grains->node->home, look_up, entry, "locate a grain");
        if (err)
            teffi_table_del(&shard->table, &entry->node);
    }
    if (err)
        free(entry);
    else
        change_count(grains, ident->hash, 1);
    return err;
}

static teff_err join_lookup(teffi_lookup *entry, teffi_msg *msg)
{
    if (entry->waiting.count >= TEFFI_QUEUE_DEFAULT || charge_is_over(entry->grains, msg))
        return TEFF_E_OVERLOADED;
    add_waiting(entry, msg);
    return TEFF_OK;
}

bool teffi_locate_waits(teffi_grains *grains, const teffi_ident *ident)
{
    teffi_lookup_shard *shard = get_lookup_shard(grains, ident->hash);
    pthread_mutex_lock(&shard->lock);
    bool waits = find_lookup(shard, ident) != NULL;
    pthread_mutex_unlock(&shard->lock);
    return waits;
}

/* Queue msg behind the requests that wait for the grain; if none waits, begin a look-up if begin.
 * out: false: none waits and none was begun. */
static bool wait_for_lookup(teffi_grains *grains, const teffi_ident *ident, teffi_msg *msg,
                            bool begin)
{
    teffi_lookup_shard *shard = get_lookup_shard(grains, ident->hash);
    pthread_mutex_lock(&shard->lock);
    teffi_lookup *entry = find_lookup(shard, ident);
    teff_err err = entry   ? join_lookup(entry, msg)
                   : begin ? begin_lookup(grains, shard, ident, msg)
                           : TEFF_OK;
    pthread_mutex_unlock(&shard->lock);
    if (err)
        teffi_node_respond(grains->node, msg, err,
                           "too many requests wait for this grain's place, or their bytes are over "
                           "message_bytes_max");
    return entry || begin;
}

bool teffi_locate_join(teffi_grains *grains, const teffi_ident *ident, teffi_msg *msg)
{
    return wait_for_lookup(grains, ident, msg, false);
}

void teffi_locate_msg(teffi_grains *grains, const teffi_ident *ident, teffi_msg *msg)
{
    (void)wait_for_lookup(grains, ident, msg, true);
}

void teffi_locate_again(teffi_grains *grains, const teffi_ident *ident, teffi_msg *msg)
{
    if (msg->tries < UINT8_MAX)
        msg->tries++;
    teffi_locate_msg(grains, ident, msg);
}
