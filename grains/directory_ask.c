/* directory_ask.c - register, look up, unregister: find the owner, ask it, follow the view.
 * Way:     activation, locate -> [directory_ask] -> directory here, or the owner's system target
 * Threads: in a turn or task; suspends it. */
#include "cluster.pb-c.h"
#include "cluster/membership.h"
#include "directory.h"
#include "grains.h"

enum { ASK_TIMEOUT_MS = 5000, ASK_DEADLINE_MS = 25000, PAUSE_FIRST_MS = 1, PAUSE_MAX_MS = 200 };

typedef struct ask {
    uint32_t method;
    const teffi_ident *ident;
    teffi_pid pid;
    teffi_pid holder;    /* out */
    teffi_node_id owner; /* out: who answered */
    uint64_t view;       /* out: of the view that named the owner */
} ask;

static teff_err ask_remote(teff_ctx *ctx, const teffi_view *view, ask *a)
{
    Teff__Cluster__DirectoryAsk msg = TEFF__CLUSTER__DIRECTORY_ASK__INIT;
    Teff__Cluster__Pid pid = TEFF__CLUSTER__PID__INIT;
    Teff__Cluster__Node node = TEFF__CLUSTER__NODE__INIT;
    ProtobufCMessage *reply;
    node.silo = a->pid.node.silo;
    node.incarnation = a->pid.node.incarnation;
    pid.node = &node;
    pid.slot = a->pid.slot;
    pid.generation = a->pid.generation;
    msg.view = view->version;
    msg.type = a->ident->type;
    msg.key.data = (uint8_t *)(uintptr_t)a->ident->key;
    msg.key.len = a->ident->key_len;
    msg.pid = &pid;
    teff_err err =
        teffi_ctx_rpc(ctx, a->owner, TEFFI_SLOT_DIRECTORY, a->method, &msg.base, ASK_TIMEOUT_MS,
                      &teff__cluster__directory_answer__descriptor, &reply);
    if (err) { /* the owner may be gone: look at the table before the next try */
        (void)!teffi_membership_refresh(ctx, 0);
        return TEFF_E_UNAVAILABLE;
    }
    const Teff__Cluster__DirectoryAnswer *answer = (const Teff__Cluster__DirectoryAnswer *)reply;
    if (answer->result == TEFF__CLUSTER__DIRECTORY_ANSWER__RESULT__REFRESH) {
        (void)!teffi_membership_refresh(ctx, answer->view);
        return TEFF_E_UNAVAILABLE;
    }
    if (answer->result != TEFF__CLUSTER__DIRECTORY_ANSWER__RESULT__HELD || !answer->pid ||
        !answer->pid->node)
        return TEFF_E_NOT_FOUND;
    a->holder.node = (teffi_node_id){answer->pid->node->silo, answer->pid->node->incarnation};
    a->holder.slot = answer->pid->slot;
    a->holder.generation = answer->pid->generation;
    return TEFF_OK;
}

/* One try. TEFF_E_UNAVAILABLE, TEFF_E_CLOSED: not now. */
static teff_err ask_once(teff_ctx *ctx, ask *a)
{
    teffi_node *node = ctx->node;
    const teffi_view *view = teffi_view_get(node);
    teff_err err = TEFF_E_UNAVAILABLE;
    a->view = view ? view->version : 0;
    a->owner = view ? teffi_view_owner(view, teffi_partition(a->ident->hash)) : (teffi_node_id){0};
    if (teffi_node_is(a->owner, node->id))
        err = teffi_directory_apply(node->grains, a->method, a->ident, a->pid, &a->holder, NULL);
    else if (!teffi_node_none(a->owner))
        err = ask_remote(ctx, view, a);
    else if (a->method == TEFFI_METHOD_UNREGISTER) /* the last silo leaves: nobody keeps entries */
        err = TEFF_E_NOT_FOUND;
    teffi_view_unref(view);
    return err;
}

static teff_err ask_until(teff_ctx *ctx, ask *a)
{
    uint64_t deadline = teffi_now(ctx->node->platform) + ASK_DEADLINE_MS * 1000000ull;
    uint32_t pause = PAUSE_FIRST_MS;
    for (;;) {
        teff_err err = ask_once(ctx, a);
        if (err != TEFF_E_UNAVAILABLE && err != TEFF_E_CLOSED)
            return err;
        if (ctx->node->grains->closed)
            return teffi_ctx_fail(ctx, TEFF_E_UNAVAILABLE, "the silo is closing");
        if (teffi_now(ctx->node->platform) >= deadline ||
            teffi_membership_ousted(ctx->node->membership))
            return teffi_ctx_fail(ctx, TEFF_E_UNAVAILABLE,
                                  "the directory's owner for this grain cannot be reached");
        teffi_ctx_sleep(ctx, pause);
        pause = pause * 2 < PAUSE_MAX_MS ? pause * 2 : PAUSE_MAX_MS;
    }
}

/* The version counts, not the owner: one that lost the partition and got it back has
 * forgotten us. */
static bool still_owner(teffi_node *node, uint64_t version)
{
    const teffi_view *view = teffi_view_get(node);
    bool same = view->version == version;
    teffi_view_unref(view);
    return same;
}

/* The order matters: first say "registered" where recovery looks, then look at the view. Either a
 * recovery of the next owner has listed us, or we see the view that made it owner. */
teff_err teffi_directory_register(teff_ctx *ctx, teffi_activation *act, teffi_pid *holder)
{
    teffi_ident ident = teffi_activation_ident(act);
    ask a = {.method = TEFFI_METHOD_REGISTER, .ident = &ident, .pid = teffi_activation_pid(act)};
    do {
        teffi_catalog_registered(ctx->node->grains, act, false);
        teff_err err = ask_until(ctx, &a);
        if (err)
            return err;
        *holder = a.holder;
        if (!teffi_node_is(a.holder.node, a.pid.node) || a.holder.slot != a.pid.slot ||
            a.holder.generation != a.pid.generation)
            return TEFF_E_EXISTS;
        teffi_catalog_registered(ctx->node->grains, act, true);
    } while (!still_owner(ctx->node, a.view));
    return TEFF_OK;
}

teff_err teffi_directory_lookup(teff_ctx *ctx, const teffi_ident *ident, teffi_pid *holder)
{
    ask a = {.method = TEFFI_METHOD_LOOKUP, .ident = ident};
    teff_err err = ask_until(ctx, &a);
    *holder = a.holder;
    return err;
}

teff_err teffi_directory_unregister(teff_ctx *ctx, const teffi_ident *ident, teffi_pid pid)
{
    ask a = {.method = TEFFI_METHOD_UNREGISTER, .ident = ident, .pid = pid};
    teff_err err = ask_until(ctx, &a);
    return err == TEFF_E_NOT_FOUND ? TEFF_OK : err;
}

teff_err teffi_directory_peek(teffi_grains *grains, const teffi_ident *ident, teffi_pid *holder)
{
    teff_err err =
        teffi_directory_apply(grains, TEFFI_METHOD_LOOKUP, ident, (teffi_pid){0}, holder, NULL);
    return err == TEFF_E_CLOSED ? TEFF_E_UNAVAILABLE : err;
}
