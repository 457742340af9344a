/* client.c - find the owner of a partition, send it the request, retry after view changes. */
#include "directory/client.h"

#include "cluster/membership.h"
#include "directory/partition.h"
#include "node/ask.h"
#include "node/deliver.h"

enum { ASK_TIMEOUT_MS = 5000, ASK_DEADLINE_MS = 25000 };

typedef struct ask {
    uint32_t method;
    const teffi_ident *ident;
    teffi_pid pid;
    teffi_pid holder;    /* out */
    teffi_node_id owner; /* out: the silo that was asked */
    uint64_t view;       /* out: version of the view that named the owner */
    bool none_active;    /* out: this silo has joined, but no silo of that view is ACTIVE */
    const _Atomic uint64_t *until_ns; /* latest deadline of a look-up's requests; NULL: none */
} ask;

/* Has the latest deadline of the look-up's requests passed? relaxed: if a request with a later
 * deadline joins just after the load, forward_by_lookup_outcome() in route.c looks up its grain
 * again. */
static bool ask_is_late(const ask *a, uint64_t now_ns)
{
    return a->until_ns && now_ns >= atomic_load_explicit(a->until_ns, memory_order_relaxed);
}

/* out: the time left until the look-up's deadline; at least 1 ms, at most ASK_TIMEOUT_MS. */
static uint32_t get_ask_timeout_ms(const ask *a, uint64_t now_ns)
{
    uint64_t until_ns =
        a->until_ns ? atomic_load_explicit(a->until_ns, memory_order_relaxed) : UINT64_MAX;
    uint64_t left_ms = until_ns > now_ns ? (until_ns - now_ns) / 1000000u + 1 : 1;
    return left_ms < ASK_TIMEOUT_MS ? (uint32_t)left_ms : ASK_TIMEOUT_MS;
}

/* Sends a DirectoryAsk to silo `to` and waits for the response. */
static teff_err send_ask_and_await_response(teff_ctx *ctx, teffi_node_id to, uint32_t method,
                                            const teffi_ident *ident, teffi_pid pid,
                                            uint64_t version, uint32_t timeout_ms,
                                            const Teff__Cluster__DirectoryResponse **response)
{
    Teff__Cluster__DirectoryAsk msg = TEFF__CLUSTER__DIRECTORY_ASK__INIT;
    teffi_packed_pid packed;
    ProtobufCMessage *body = NULL;
    teffi_pid_pack(&packed, pid);
    msg.view = version;
    msg.type = ident->type;
    msg.key.data = (uint8_t *)(uintptr_t)ident->key;
    msg.key.len = ident->key_len;
    msg.pid = &packed.pid;
    teff_err err = teffi_ctx_run_rpc(ctx, to, TEFFI_SLOT_DIRECTORY, method, &msg.base, timeout_ms,
                                     &teff__cluster__directory_response__descriptor, &body);
    *response = (const Teff__Cluster__DirectoryResponse *)body;
    return err;
}

/* Asks the silo a->owner. out: a->holder. errs: TEFF_E_NOT_FOUND: no activation holds the grain.
 * TEFF_E_UNAVAILABLE: try again after teffi_membership_await_change(). TEFF_E_OVERLOADED: the
 * owner's directory, or the connection to it, has no room: do not try again. UNREGISTER must
 * succeed in the end, so it returns TEFF_E_UNAVAILABLE instead of TEFF_E_OVERLOADED. */
static teff_err ask_remote_owner(teff_ctx *ctx, ask *a)
{
    const Teff__Cluster__DirectoryResponse *response;
    teff_err err = send_ask_and_await_response(
        ctx, a->owner, a->method, a->ident, a->pid, a->view,
        get_ask_timeout_ms(a, teffi_now(ctx->node->platform)), &response);
    if (err == TEFF_E_OVERLOADED && a->method != TEFFI_METHOD_UNREGISTER)
        return err;
    if (err) { /* the owner may have died, and a newer view may name another owner */
        teffi_membership_refresh_soon(ctx->node->membership);
        return TEFF_E_UNAVAILABLE;
    }
    if (response->result == TEFF__CLUSTER__DIRECTORY_RESPONSE__RESULT__REFRESH) {
        (void)!teffi_membership_refresh(ctx, response->view);
        return TEFF_E_UNAVAILABLE;
    }
    if (response->result != TEFF__CLUSTER__DIRECTORY_RESPONSE__RESULT__HELD ||
        !teffi_pid_is_packed_grain(response->pid))
        return TEFF_E_NOT_FOUND;
    a->holder = teffi_pid_unpack(response->pid);
    return TEFF_OK;
}

/* Finds the partition's owner in the current view. out: a->owner (zero: none); a->view, the view's
 * version; a->none_active: this silo has joined, and the view has no ACTIVE silo. */
static void find_owner(teffi_node *node, ask *a)
{
    /* Read before the view, so that if `joined` is true, the view is at least as new as the one
     * with which this silo joined. */
    bool joined = node->membership->joined;
    const teffi_view *view = teffi_view_ref_current(node);
    a->view = view ? view->version : 0;
    a->owner =
        view ? teffi_view_owner(view, teffi_partition_of_hash(a->ident->hash)) : (teffi_node_id){0};
    a->none_active = joined && teffi_node_is_none(a->owner);
    teffi_view_unref(view);
}

/* Asks the partition's owner, which is this silo or another one. Holds no reference to a view while
 * it waits for the response: if this silo closes meanwhile, the caller's turn or task is never
 * resumed, and the reference would never be released.
 * errs: TEFF_E_UNAVAILABLE: try again after teffi_membership_await_change(). */
static teff_err ask_owner_once(teff_ctx *ctx, ask *a)
{
    teffi_node *node = ctx->node;
    find_owner(node, a);
    if (teffi_node_equals(a->owner, node->id))
        return teffi_partition_execute_directory_method(node->grains, a->method, a->ident, a->pid,
                                                        &a->holder, NULL);
    if (!teffi_node_is_none(a->owner))
        return ask_remote_owner(ctx, a);
    /* Without an owner there is no entry to remove. */
    return a->method == TEFFI_METHOD_UNREGISTER ? TEFF_E_NOT_FOUND : TEFF_E_UNAVAILABLE;
}

/* Repeats ask_owner_once() while it returns TEFF_E_UNAVAILABLE. Gives up if the look-up's deadline
 * or ASK_DEADLINE_MS has passed, if this silo is closing or its lease is over, or if no silo is
 * ACTIVE. */
static teff_err ask_owner_with_retries(teff_ctx *ctx, ask *a)
{
    uint64_t deadline = teffi_now(ctx->node->platform) + ASK_DEADLINE_MS * 1000000ull;
    for (unsigned tries = 0;; tries++) {
        /* read before the try, so that a change during the try ends the wait below */
        uint64_t seen = ctx->node->membership->follow.changes.count;
        teff_err err = ask_owner_once(ctx, a);
        uint64_t now_ns = teffi_now(ctx->node->platform);
        if (err != TEFF_E_UNAVAILABLE)
            return err;
        if (ask_is_late(a, now_ns))
            return TEFF_E_TIMEOUT;
        if (ctx->node->grains->closed)
            return teff_fail(ctx, TEFF_E_UNAVAILABLE, "the silo is closing");
        if (a->none_active)
            return teff_fail(ctx, TEFF_E_UNAVAILABLE,
                             "the silo leaves and no other is active; the call did not run");
        if (now_ns >= deadline || teffi_lease_is_over(&ctx->home->lease))
            return teff_fail(ctx, TEFF_E_UNAVAILABLE,
                             "the directory's owner for this grain cannot be reached");
        teffi_membership_await_change(ctx, seen, tries);
    }
}

/* Does the current view still have this version? It is not enough to compare the owners: an owner
 * that lost the partition and got it back no longer has the partition's entries. */
static bool view_is_current(teffi_node *node, uint64_t version)
{
    const teffi_view *view = teffi_view_ref_current(node);
    bool same = view->version == version;
    teffi_view_unref(view);
    return same;
}

/* Sets `registered` to true before it calls view_is_current(). So if the partition gets a new owner
 * meanwhile, either this silo lists the activation when the new owner recovers the partition, or
 * view_is_current() returns false and the loop asks the new owner. */
teff_err teffi_directory_register(teff_ctx *ctx, teffi_activation *act, teffi_pid *holder)
{
    teffi_ident ident = teffi_activation_ident(act);
    ask a = {.method = TEFFI_METHOD_REGISTER, .ident = &ident, .pid = teffi_activation_pid(act)};
    do {
        (void)teffi_activation_set_registered(act, false);
        teff_err err = ask_owner_with_retries(ctx, &a);
        if (err)
            return err;
        *holder = a.holder;
        if (!teffi_pid_equals(a.holder, a.pid))
            return TEFF_E_EXISTS;
        (void)teffi_activation_set_registered(act, true);
    } while (!view_is_current(ctx->node, a.view));
    return TEFF_OK;
}

teff_err teffi_directory_lookup(teff_ctx *ctx, const teffi_ident *ident,
                                const _Atomic uint64_t *until_ns, teffi_pid *holder)
{
    ask a = {.method = TEFFI_METHOD_LOOKUP, .ident = ident, .until_ns = until_ns};
    teff_err err = ask_owner_with_retries(ctx, &a);
    *holder = a.holder;
    return err;
}

teff_err teffi_directory_unregister(teff_ctx *ctx, const teffi_ident *ident, teffi_pid pid)
{
    ask a = {.method = TEFFI_METHOD_UNREGISTER, .ident = ident, .pid = pid};
    teff_err err = ask_owner_with_retries(ctx, &a);
    return err == TEFF_E_NOT_FOUND ? TEFF_OK : err;
}

teff_err teffi_directory_deactivate_loser(teff_ctx *ctx, const teffi_ident *ident, teffi_pid pid,
                                          uint64_t version, uint32_t timeout_ms)
{
    const Teff__Cluster__DirectoryResponse *response;
    return send_ask_and_await_response(ctx, pid.node, TEFFI_METHOD_DEACTIVATE, ident, pid, version,
                                       timeout_ms, &response);
}

void teffi_directory_send_moved_message(teffi_grains *grains, const teffi_ident *ident,
                                        teffi_node_id to)
{
    if (teffi_node_equals(to, grains->node->id) || (to.silo & TEFFI_CLIENT_BIT))
        return;
    Teff__Cluster__Moved moved = TEFF__CLUSTER__MOVED__INIT;
    teffi_packed_pid packed;
    teffi_pid_pack(&packed, (teffi_pid){.node = grains->node->id});
    moved.type = ident->type;
    moved.key.data = (uint8_t *)(uintptr_t)ident->key;
    moved.key.len = ident->key_len;
    moved.pid = &packed.pid;
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_ONEWAY);
    if (!msg)
        return;
    msg->src = grains->node->id;
    msg->to = (teffi_pid){.node = to, .slot = TEFFI_SLOT_DIRECTORY};
    msg->method_id = TEFFI_METHOD_MOVED;
    msg->body = &moved.base;
    msg->borrows = true;
    if (teffi_node_send(grains->node, to, msg))
        teffi_msg_free(msg);
}
