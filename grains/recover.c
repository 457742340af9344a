/* recover.c - a new owner learns what a partition holds by asking every silo of the view.
 * Way:     directory (LOCKED) -> [recover] -> each silo's catalog -> directory (SERVING)
 * Threads: one task at a time asks; answers come from the catalog under its shard's lock.
 * Source:  ORLEANS 2.3, RecoverRegisteredActivations */
#include <string.h>
#include "base/log.h"
#include "cluster.pb-c.h"
#include "cluster/membership.h"
#include "directory.h"
#include "grains.h"
#include "node/task.h"

enum {
    RECOVER_TIMEOUT_MS = 10000,
    RETRY_MS = 20,
    RETRY_DOUBLINGS = 4,
    ANSWER_BYTES = 256 * 1024,
    ANSWER_ENTRIES = 4000
};

typedef struct round {
    const teffi_view *view;
    uint8_t set[TEFFI_PARTITIONS / 8];
    bool any;
    unsigned failed; /* rounds in a row */
} round_t;

static void find_locked(teffi_grains *grains, round_t *r)
{
    memset(r->set, 0, sizeof r->set);
    r->any = false;
    for (unsigned i = 0; i < TEFFI_PARTITIONS; i++) {
        teffi_partition_table *part = &grains->directory.parts[i];
        pthread_mutex_lock(&grains->catalog.shards[i].lock);
        bool locked = part->phase == TEFFI_LOCKED;
        pthread_mutex_unlock(&grains->catalog.shards[i].lock);
        if (locked)
            r->set[i / 8] |= (uint8_t)(1u << i % 8);
        r->any |= locked;
    }
}

/* ---- another silo's ---- */

static void merge_answer(teffi_grains *grains, teffi_node_id from,
                         const Teff__Cluster__Recovered *answer)
{
    for (size_t i = 0; i < answer->n_entries; i++) {
        const Teff__Cluster__Recovered__Entry *e = answer->entries[i];
        teffi_ident ident = teffi_ident_of(e->type, e->key.data, (uint32_t)e->key.len);
        teff_err err =
            teffi_directory_merge(grains, &ident, (teffi_pid){from, e->slot, e->generation});
        if (err)
            teffi_logf(&grains->node->platform->log, TEFFI_WARN,
                       "directory: an entry of silo %08x could not be taken: %s", from.silo,
                       teff_err_name(err));
    }
}

static teff_err recover_from(teff_ctx *ctx, const round_t *r, teffi_node_id from)
{
    Teff__Cluster__Recover ask = TEFF__CLUSTER__RECOVER__INIT;
    ProtobufCMessage *reply;
    ask.view = r->view->version;
    ask.partitions.data = (uint8_t *)(uintptr_t)r->set;
    ask.partitions.len = sizeof r->set;
    do {
        teff_err err =
            teffi_ctx_rpc(ctx, from, TEFFI_SLOT_DIRECTORY, TEFFI_METHOD_RECOVER, &ask.base,
                          RECOVER_TIMEOUT_MS, &teff__cluster__recovered__descriptor, &reply);
        if (err)
            return err;
        const Teff__Cluster__Recovered *answer = (const Teff__Cluster__Recovered *)reply;
        merge_answer(ctx->node->grains, from, answer);
        ask.cursor = answer->cursor;
    } while (ask.cursor);
    return TEFF_OK;
}

static teff_err recover_all(teff_ctx *ctx, const round_t *r)
{
    teff_err err = TEFF_OK;
    for (size_t i = 0; i < r->view->n_members && !err; i++) {
        teffi_node_id member = r->view->members[i].node;
        if (!teffi_node_is(member, ctx->node->id))
            err = recover_from(ctx, r, member);
    }
    return err; /* our own are in the catalog */
}

static void recover_round(teff_ctx *ctx, round_t *r)
{
    teffi_grains *grains = ctx->node->grains;
    teff_err err = recover_all(ctx, r);
    if (!err) {
        teffi_directory_unlock(grains, r->set, r->view->version);
        r->failed = 0;
        return;
    }
    if (r->failed == 0)
        teffi_logf(&grains->node->platform->log, TEFFI_WARN,
                   "directory: recovery for view %llu is tried again: %s",
                   (unsigned long long)r->view->version, teff_error(ctx));
    teffi_ctx_sleep(ctx, (uint32_t)RETRY_MS
                             << (r->failed < RETRY_DOUBLINGS ? r->failed : RETRY_DOUBLINGS));
    r->failed++;
    (void)!teffi_membership_refresh(ctx, 0);
}

static void recover(teff_ctx *ctx, void *arg)
{
    teffi_grains *grains = arg;
    round_t r = {0};
    for (;;) {
        r.view = teffi_view_get(grains->node);
        find_locked(grains, &r);
        if (r.any && !teffi_membership_ousted(grains->node->membership))
            recover_round(ctx, &r);
        else
            grains->directory.recovering = false;
        bool again = grains->directory.recovering;
        teffi_view_unref(r.view);
        if (!again)
            break;
    }
    /* A view adopted after the last look may have locked more. */
    find_locked(grains, &r);
    if (r.any && !teffi_membership_ousted(grains->node->membership))
        teffi_recover_start(grains);
}

void teffi_recover_start(teffi_grains *grains)
{
    if (atomic_exchange(&grains->directory.recovering, true))
        return;
    if (teffi_task_start(grains->node, recover, grains, "directory: recover") == TEFF_OK)
        return;
    grains->directory.recovering = false;
    teffi_logf(&grains->node->platform->log, TEFFI_ERROR, "directory: out of memory to recover");
}

/* ---- answering ---- */

typedef struct listing {
    teffi_msg *msg; /* its arena holds the entries */
    Teff__Cluster__Recovered__Entry **entries;
    size_t n, bytes;
    bool failed;
} listing;

static bool list_one(void *arg, teffi_activation *act)
{
    listing *l = arg;
    if (!act->registered || l->failed)
        return true;
    teffi_ident ident = teffi_activation_ident(act);
    Teff__Cluster__Recovered__Entry *e = teff_arena_alloc(&l->msg->arena, sizeof *e);
    uint8_t *key = teff_arena_copy(&l->msg->arena, ident.key, ident.key_len);
    if (!e || !key || l->n >= ANSWER_ENTRIES * 2) {
        l->failed = true;
        return false;
    }
    teff__cluster__recovered__entry__init(e);
    e->type = ident.type;
    e->key = (ProtobufCBinaryData){ident.key_len, key};
    e->slot = act->slot;
    e->generation = act->generation;
    l->entries[l->n++] = e;
    l->bytes += ident.key_len + 24u;
    return l->n < ANSWER_ENTRIES && l->bytes < ANSWER_BYTES;
}

/* cursor: partition + 1 in the top 16 bits, 16 bits of the index's moves, 32 of the cell. */
static uint64_t to_cursor(unsigned part, uint64_t at)
{
    return (uint64_t)(part + 1) << 48 | (at & 0xffffffffffffu);
}

static unsigned part_of(uint64_t cursor)
{
    return cursor ? (unsigned)(cursor >> 48) - 1 : 0;
}

void teffi_recover_answer(teffi_grains *grains, teffi_msg *msg)
{
    const Teff__Cluster__Recover *ask = (const Teff__Cluster__Recover *)msg->body;
    Teff__Cluster__Recovered answer = TEFF__CLUSTER__RECOVERED__INIT;
    listing l = {.msg = msg};
    unsigned part = part_of(ask->cursor);
    uint64_t at = ask->cursor & 0xffffffffffffu;
    l.entries = teff_arena_alloc(&msg->arena, 2 * ANSWER_ENTRIES * sizeof *l.entries);
    if (!l.entries || ask->partitions.len != TEFFI_PARTITIONS / 8) {
        teffi_node_answer(grains->node, msg, TEFF_E_INVALID, "directory: not 256 partitions");
        return;
    }
    for (; part < TEFFI_PARTITIONS && !answer.cursor; part++, at = 0) {
        if (!(ask->partitions.data[part / 8] & (1u << part % 8)))
            continue;
        if (!teffi_catalog_each(grains, part, &at, list_one, &l))
            answer.cursor = to_cursor(part, at);
    }
    answer.entries = l.entries;
    answer.n_entries = l.n;
    if (l.failed)
        teffi_node_answer(grains->node, msg, TEFF_E_NOMEM, "directory: out of memory");
    else
        teffi_node_answer_with(grains->node, msg, &answer.base);
}
