/* route.c - where each request for a grain goes next.
 * Way:     reference, node (arriving) -> [route] -> catalog | net | locate */
#include "route.h"

#include "cluster.pb-c.h"
#include "cluster/membership.h"
#include "grains.h"
#include "placement.h"

/* How long a request whose target could not be reached waits for a new view to be adopted. */
enum { RETRY_MS = 10 };

static void refuse(teffi_grains *grains, teffi_msg *msg, teff_err err)
{
    static const char *const full = "the grain's queue is full";
    static const char *const large = "the request is larger than a frame may be";
    const char *text = err == TEFF_E_OVERLOADED ? full : err == TEFF_E_TOO_LARGE ? large : NULL;
    teffi_node_answer(grains->node, msg, err, text);
}

/* Whoever sent it to us by a hint shall forget the hint. */
static void tell_moved(teffi_grains *grains, const teffi_ident *ident, const teffi_msg *msg)
{
    teffi_node_id to = teffi_node_none(msg->via) ? msg->src : msg->via;
    if (teffi_node_is(to, grains->node->id) || (to.silo & TEFFI_CLIENT_BIT))
        return;
    Teff__Cluster__Moved moved = TEFF__CLUSTER__MOVED__INIT;
    Teff__Cluster__Pid pid = TEFF__CLUSTER__PID__INIT;
    Teff__Cluster__Node node = TEFF__CLUSTER__NODE__INIT;
    node.silo = grains->node->id.silo;
    node.incarnation = grains->node->id.incarnation;
    pid.node = &node;
    moved.type = ident->type;
    moved.key.data = (uint8_t *)(uintptr_t)ident->key;
    moved.key.len = ident->key_len;
    moved.pid = &pid;
    teffi_msg *hint = teffi_msg_new(TEFFI_MSG_ONEWAY);
    if (!hint)
        return;
    hint->src = grains->node->id;
    hint->to = (teffi_pid){.node = to, .slot = TEFFI_SLOT_DIRECTORY};
    hint->method_id = TEFFI_METHOD_MOVED;
    hint->body = &moved.base; /* packed before send returns */
    if (teffi_node_send(grains->node, to, hint))
        teffi_msg_free(hint);
}

/* It stays here, for whoever wants it later. out: false: it was answered. */
static bool keep(teffi_grains *grains, teffi_msg *msg)
{
    if (teffi_msg_own(msg))
        return true;
    teffi_node_answer(grains->node, msg, TEFF_E_NOMEM, "out of memory for a request");
    return false;
}

static bool expired(teffi_grains *grains, const teffi_msg *msg)
{
    return msg->deadline_ns && teffi_now(grains->node->platform) >= msg->deadline_ns;
}

static void forward(teffi_grains *grains, const teffi_ident *ident, teffi_msg *msg,
                    teffi_node_id to)
{
    teffi_node *node = grains->node;
    if (msg->hops++ >= TEFFI_HOPS_MAX) {
        teffi_node_answer(node, msg, TEFF_E_UNAVAILABLE, "the request was forwarded too often");
        return;
    }
    msg->to = (teffi_pid){.node = to};
    if (teffi_node_is(msg->src, node->id) && msg->item.kind == TEFFI_MSG_REQUEST)
        teffi_call_sent_to(node, msg->call_slot, msg->call_generation, to);
    teff_err err = node->net->ops->send(node->net, to, msg);
    if (err == TEFF_E_CLOSED || err == TEFF_E_UNREACHABLE) { /* surely not sent */
        msg->hops--;
        teffi_hint_drop(&grains->hints, ident->hash, to);
        msg->flags &= (uint16_t)~TEFFI_MSG_PLACED;
        if (keep(grains, msg))
            teffi_locate_msg(grains, ident, msg, RETRY_MS);
    } else if (err) {
        refuse(grains, msg, err);
    }
}

/* true: msg is taken care of. */
static bool try_here(teffi_grains *grains, const teffi_ident *ident, teffi_msg *msg, bool create)
{
    teff_err err = teffi_catalog_push(grains, ident, msg, create);
    if (err == TEFF_E_NOT_FOUND)
        return false;
    if (err)
        refuse(grains, msg, err);
    return true;
}

void teffi_route_to(teffi_grains *grains, const teffi_ident *ident, teffi_msg *msg,
                    teffi_node_id to)
{
    if (!teffi_node_is(to, grains->node->id)) {
        teffi_hint_put(&grains->hints, ident->hash, to);
        forward(grains, ident, msg, to);
    } else if (!try_here(grains, ident, msg, false)) {
        teffi_locate_msg(grains, ident, msg, RETRY_MS);
    }
}

void teffi_route_place(teffi_grains *grains, const teffi_ident *ident, teffi_msg *msg,
                       teffi_node_id *placed)
{
    if (teffi_node_none(*placed))
        *placed = teffi_place(grains, ident, teffi_placement_of(msg->flags));
    if (teffi_node_none(*placed)) {
        teffi_node_answer(grains->node, msg, TEFF_E_NOT_FOUND,
                          "no silo of the cluster hosts this grain type");
        return;
    }
    msg->flags |= TEFFI_MSG_PLACED;
    if (!teffi_node_is(*placed, grains->node->id)) {
        /* Later requests follow this one there, rather than being placed anew meanwhile. */
        teffi_hint_put(&grains->hints, ident->hash, *placed);
        forward(grains, ident, msg, *placed);
    } else if (!try_here(grains, ident, msg, true)) {
        teffi_locate_msg(grains, ident, msg, RETRY_MS);
    }
}

/* Not here: a hint, our own part of the directory, or a look-up that waits. Hints lead to silos of
 * the view only: one that has left may still take messages while its last connections close. */
static void elsewhere(teffi_grains *grains, const teffi_ident *ident, teffi_msg *msg,
                      teffi_node_id hint)
{
    teffi_pid holder;
    if (!teffi_node_none(hint)) {
        forward(grains, ident, msg, hint);
        return;
    }
    if (!keep(grains, msg))
        return;
    teffi_node_id placed = {0};
    teff_err err = teffi_catalog_begin(grains, ident, msg, &placed);
    if (err == TEFF_OK)
        return;
    if (err == TEFF_E_UNAVAILABLE)
        err = teffi_directory_peek(grains, ident, &holder);
    if (err == TEFF_E_NOT_FOUND)
        teffi_route_place(grains, ident, msg, &placed);
    else if (err == TEFF_OK && !teffi_node_is(holder.node, grains->node->id))
        teffi_route_to(grains, ident, msg, holder.node);
    else if (err == TEFF_OK || err == TEFF_E_UNAVAILABLE)
        teffi_locate_msg(grains, ident, msg, 0);
    else
        refuse(grains, msg, err);
}

void teffi_route(teffi_grains *grains, teffi_msg *msg)
{
    teffi_ident ident = teffi_ident_msg(msg);
    bool placed = msg->flags & TEFFI_MSG_PLACED;
    /* One that was just made or has just come is not; the activation looks before it runs it. */
    if (msg->hops > 1 && expired(grains, msg)) {
        teffi_node_answer(grains->node, msg, TEFF_E_TIMEOUT, "expired before it could run");
        return;
    }
    if (teffi_membership_ousted(grains->node->membership)) {
        teffi_node_answer(grains->node, msg, TEFF_E_UNAVAILABLE, "the silo was declared dead");
        return;
    }
    if (!placed && teffi_locate_may_wait(&grains->locate, ident.hash) &&
        teffi_locate_join(grains, &ident, msg))
        return;
    if (try_here(grains, &ident, msg, placed))
        return;
    if (msg->hops && !placed)
        tell_moved(grains, &ident, msg);
    msg->flags &= (uint16_t)~TEFFI_MSG_PLACED;
    teffi_node_id hint = {0};
    if (!msg->hops)
        hint = teffi_hint_get(&grains->hints, ident.hash);
    elsewhere(grains, &ident, msg, hint);
}

/* Should it have come here since, its place in the directory or who is sent to knows that. */
void teffi_route_elsewhere(teffi_grains *grains, teffi_msg *msg, teffi_node_id hint)
{
    teffi_ident ident = teffi_ident_msg(msg);
    elsewhere(grains, &ident, msg, hint);
}

void teffi_route_again(teffi_grains *grains, teffi_msg *msg)
{
    if (msg->hops++ >= TEFFI_HOPS_MAX) {
        teffi_node_answer(grains->node, msg, TEFF_E_UNAVAILABLE, "the grain keeps ending");
        return;
    }
    msg->flags &= (uint16_t)~TEFFI_MSG_PLACED;
    teffi_route(grains, msg);
}
