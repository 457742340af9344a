/* forward.c - push requests to an activation here, or send them to another silo. */
#include "request/route.h"

#include "call/call.h"
#include "directory/location_cache.h"
#include "directory/placement.h"
#include "directory/shard.h"
#include "node/deliver.h"

void teffi_forward_refuse(teffi_grains *grains, teffi_msg *msg, teff_err err)
{
    const char *full = teffi_budget_is_over(grains->node->budget)
                           ? "the silo's messages take more memory than message_bytes_max allows"
                           : "the grain's queue is full";
    static const char *const large = "the request is larger than a frame may be";
    const char *text = err == TEFF_E_OVERLOADED ? full : err == TEFF_E_TOO_LARGE ? large : NULL;
    teffi_node_respond(grains->node, msg, err, text);
}

bool teffi_forward_own(teffi_grains *grains, teffi_msg *msg)
{
    if (teffi_msg_own(msg))
        return true;
    teffi_node_respond(grains->node, msg, TEFF_E_NOMEM, "out of memory for a request");
    return false;
}

bool teffi_forward_expired(const teffi_grains *grains, const teffi_msg *msg)
{
    return msg->deadline_ns && teffi_now(grains->node->platform) >= msg->deadline_ns;
}

bool teffi_forward_take_back(teffi_grains *grains, const teffi_ident *ident, teffi_msg *msg,
                             teffi_node_id to)
{
    msg->hops--;
    msg->flags &= (uint16_t)~TEFFI_MSG_PLACED;
    teffi_location_drop(grains->location_cache, ident->hash, to);
    return !teffi_forward_own(grains, msg);
}

bool teffi_forward_to_silo(teffi_grains *grains, const teffi_ident *ident, teffi_msg *msg,
                           teffi_node_id to)
{
    teffi_node *node = grains->node;
    if (msg->hops++ >= TEFFI_HOPS_MAX) {
        teffi_node_respond(node, msg, TEFF_E_UNAVAILABLE, "the request was forwarded too often");
        return true;
    }
    teff_err err = teffi_relay_begin(node, msg);
    if (err) {
        teffi_node_respond(node, msg, err,
                           "too many requests of the caller's are under way through this silo");
        return true;
    }
    msg->to = (teffi_pid){.node = to};
    if (msg->item.kind == TEFFI_MSG_REQUEST)
        teffi_call_sign(&node->home, msg);
    err = node->home.net->ops->send(node->home.net, to, msg);
    if (err == TEFF_E_CLOSED || err == TEFF_E_UNREACHABLE)
        return teffi_forward_take_back(grains, ident, msg, to);
    if (err == TEFF_E_OVERLOADED && !teffi_budget_is_over(node->budget))
        teffi_node_respond(node, msg, err,
                           "more waits for the grain's silo than connection_bytes_max allows");
    else if (err)
        teffi_forward_refuse(grains, msg, err);
    return true;
}

bool teffi_forward_here(teffi_grains *grains, const teffi_ident *ident, teffi_msg *msg, bool create)
{
    teff_err err = teffi_shard_push(grains, ident, msg, create);
    if (err == TEFF_E_NOT_FOUND)
        return false;
    if (err)
        teffi_forward_refuse(grains, msg, err);
    return true;
}

bool teffi_forward_to_holder(teffi_grains *grains, const teffi_ident *ident, teffi_msg *msg,
                             teffi_node_id holder)
{
    if (teffi_node_is(holder, grains->node->id))
        return teffi_forward_here(grains, ident, msg, false);
    teffi_location_put(grains->location_cache, ident->hash, holder);
    return teffi_forward_to_silo(grains, ident, msg, holder);
}

bool teffi_forward_to_place(teffi_grains *grains, const teffi_ident *ident, teffi_msg *msg,
                            teffi_node_id *placed)
{
    if (teffi_node_none(*placed))
        *placed = teffi_place(grains, ident, teffi_placement_of(msg->flags));
    if (teffi_node_none(*placed)) {
        teffi_node_respond(grains->node, msg, TEFF_E_NOT_FOUND,
                           "no silo of the cluster hosts this grain type");
        return true;
    }
    msg->flags |= TEFFI_MSG_PLACED;
    if (teffi_node_is(*placed, grains->node->id))
        return teffi_forward_here(grains, ident, msg, true);
    /* Cached, so that later requests go there too instead of being placed again. */
    teffi_location_put(grains->location_cache, ident->hash, *placed);
    return teffi_forward_to_silo(grains, ident, msg, *placed);
}
