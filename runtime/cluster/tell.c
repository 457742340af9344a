/* tell.c - pushes this silo's view to the other silos, and adopts theirs on request. */
#include "cluster/join.h"
#include "cluster/promise.h"

#include "call/task.h"
#include "cluster.pb-c.h"
#include "node/ask.h"

enum { PUSH_TIMEOUT_MS = 5000 };

/* ---- whom to tell ---- */

static bool is_listed(const teffi_node_id *silos, size_t n, teffi_node_id silo)
{
    for (size_t i = 0; i < n; i++)
        if (teffi_node_equals(silos[i], silo))
            return true;
    return false;
}

/* Lists the silos that may still forward requests although they have left. These are the silos in
 * follow.departed and all outsiders: a silo that left before this silo joined is known only as an
 * outsider. out: how many. */
static size_t list_departed_and_outsiders(teffi_membership *m, teffi_node_id *to)
{
    teffi_node_id outsiders[TEFFI_OUTSIDERS_MAX];
    size_t n = 0, n_outsiders = teffi_outsiders_list(m, outsiders);
    pthread_mutex_lock(&m->follow.lock);
    for (size_t i = 0; i < m->follow.n_departed; i++)
        if (!teffi_node_equals(m->follow.departed[i].node, m->node->id))
            to[n++] = m->follow.departed[i].node;
    pthread_mutex_unlock(&m->follow.lock);
    for (size_t i = 0; i < n_outsiders; i++)
        if (!is_listed(to, n, outsiders[i]))
            to[n++] = outsiders[i];
    return n;
}

/* Lists the other members and, if departed_too, silos that left; a silo may be listed twice.
 * in: to, with room for n_members + TEFFI_DEPARTED_MAX + TEFFI_OUTSIDERS_MAX. out: how many. */
static size_t list_others(teffi_membership *m, const teffi_view *view, bool departed_too,
                          teffi_node_id *to)
{
    size_t n = 0;
    for (size_t i = 0; i < view->n_members; i++)
        if (!teffi_node_equals(view->members[i].node, m->node->id))
            to[n++] = view->members[i].node;
    return departed_too ? n + list_departed_and_outsiders(m, to + n) : n;
}

/* ---- tell ---- */

/* Sends VIEW_AT_LEAST to all silos before it waits for the first response. Logs only silos that do
 * not respond in time. An unreachable member is not logged: from now on its heartbeat is watched,
 * and it is declared dead if the heartbeat has stopped. An unreachable silo that is no member needs
 * no view: it has left, or it reads the table when it joins. */
void teffi_membership_push_view(teff_ctx *ctx, bool departed_too)
{
    teffi_node *node = ctx->node;
    const teffi_view *view = teffi_view_ref_current(node);
    Teff__Cluster__ViewAtLeast ask = TEFF__CLUSTER__VIEW_AT_LEAST__INIT;
    ask.version = view->version;
    size_t room = view->n_members + TEFFI_DEPARTED_MAX + TEFFI_OUTSIDERS_MAX;
    teffi_node_id *to = teff_alloc(ctx, room * sizeof *to);
    teffi_call **calls = teff_alloc(ctx, room * sizeof *calls);
    size_t n = list_others(node->membership, view, departed_too, to);
    for (size_t i = 0; i < n; i++)
        calls[i] =
            teffi_ctx_start_rpc(ctx, to[i], TEFFI_SLOT_MEMBERSHIP, TEFFI_METHOD_VIEW_AT_LEAST,
                                &ask.base, PUSH_TIMEOUT_MS, &teff__cluster__view_is__descriptor);
    for (size_t i = 0; i < n; i++) {
        const teffi_member *member = teffi_view_find_member(view, to[i]);
        teff_err err = calls[i] ? teffi_ctx_await_call(ctx, calls[i], NULL) : TEFF_E_NOMEM;
        if (err == TEFF_E_UNREACHABLE && member)
            teffi_membership_record_connection_state(node->membership, to[i], false);
        if (err == TEFF_E_TIMEOUT)
            teffi_logf(&node->platform->log, TEFF_LOG_WARN,
                       "membership: %s did not adopt view %llu: %s",
                       member ? member->address : "a silo that left",
                       (unsigned long long)view->version, teff_error(ctx));
    }
    teffi_view_unref(view);
}

/* The task of a VIEW_AT_LEAST request. */
static void adopt_view_and_respond(teff_ctx *ctx, void *arg)
{
    teffi_msg *msg = arg; /* unpacked by teffi_membership_handle_request() */
    Teff__Cluster__ViewIs is = TEFF__CLUSTER__VIEW_IS__INIT;
    const Teff__Cluster__ViewAtLeast *ask = (const Teff__Cluster__ViewAtLeast *)msg->body;
    teff_err err = teffi_membership_refresh(ctx, ask->version);
    if (err) {
        teffi_node_respond_with_err(ctx->node, msg, err, teff_error(ctx));
        return;
    }
    is.version = teffi_membership_version(ctx->node);
    teffi_node_respond_with_body(ctx->node, msg, &is.base);
}

static teff_err give_promise_and_respond(teffi_node *node, teffi_msg *msg)
{
    const Teff__Cluster__Promised response = TEFF__CLUSTER__PROMISED__INIT;
    teff_err err = teffi_msg_unpack(msg, &teff__cluster__promise__descriptor);
    if (err)
        return err;
    const Teff__Cluster__Promise *ask = (const Teff__Cluster__Promise *)msg->body;
    const char *why = teffi_promise_give(node->membership, msg->src, ask->beat);
    if (why)
        teffi_node_respond_with_err(node, msg, TEFF_E_REFUSED, why);
    else
        teffi_node_respond_with_body(node, msg, &response.base);
    return TEFF_OK;
}

static teff_err consent_to_deaths_and_respond(teffi_node *node, teffi_msg *msg)
{
    Teff__Cluster__Consented response = TEFF__CLUSTER__CONSENTED__INIT;
    teff_err err = teffi_msg_unpack(msg, &teff__cluster__consent__descriptor);
    if (!err && !teffi_view_current_has_member(node, msg->src))
        err = TEFF_E_REFUSED;
    if (err)
        return err;
    response.given = teffi_membership_consent_to_deaths(node->membership,
                                                        (const Teff__Cluster__Consent *)msg->body);
    teffi_node_respond_with_body(node, msg, &response.base);
    return TEFF_OK;
}

void teffi_membership_handle_request(teffi_node *node, teffi_msg *msg)
{
    teff_err err = TEFF_E_NOT_FOUND;
    if (msg->method_id == TEFFI_METHOD_PROBE) {
        const Teff__Cluster__Probed response = TEFF__CLUSTER__PROBED__INIT;
        teffi_node_respond_with_body(node, msg, &response.base);
        return;
    }
    if (msg->method_id == TEFFI_METHOD_PROMISE) {
        err = give_promise_and_respond(node, msg);
    } else if (msg->method_id == TEFFI_METHOD_CONSENT) {
        err = consent_to_deaths_and_respond(node, msg);
    } else if (msg->method_id == TEFFI_METHOD_VIEW_AT_LEAST) {
        err = teffi_msg_unpack(msg, &teff__cluster__view_at_least__descriptor);
        if (!err)
            err = teffi_task_start(&node->home, adopt_view_and_respond, msg,
                                   "membership: adopt a view", true);
    }
    if (err)
        teffi_node_respond_with_err(node, msg, err, "membership: cannot take this request");
}
