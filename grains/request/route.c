/* route.c - choose the next step of each request for a grain. */
#include "request/route.h"

#include "cluster/membership.h"
#include "directory/client.h"
#include "directory/location_cache.h"
#include "directory/partition.h"
#include "node/deliver.h"
#include "request/locate.h"

void teffi_route_unsent(teffi_grains *grains, teffi_msg *msg, teffi_node_id to)
{
    teffi_ident ident = teffi_ident_msg(&grains->secret, msg);
    if (grains->closed)
        teffi_node_respond(grains->node, msg, TEFF_E_UNAVAILABLE,
                           "the silo is closing; the call did not run");
    else if (!teffi_forward_take_back(grains, &ident, msg, to))
        teffi_locate_again(grains, &ident, msg);
}

void teffi_route_to_winner(teffi_grains *grains, teffi_msg *msg, teffi_node_id winner)
{
    teffi_ident ident = teffi_ident_msg(&grains->secret, msg);
    if (!teffi_forward_to_holder(grains, &ident, msg, winner))
        teffi_locate_again(grains, &ident, msg);
}

/* Route by this silo's partitions of the directory if they have the grain; else start a look-up. */
static void route_by_directory(teffi_grains *grains, const teffi_ident *ident, teffi_msg *msg)
{
    teffi_pid holder;
    teffi_node_id placed = {0};
    bool done = true;
    teff_err err = teffi_partition_begin(grains, ident, msg, &placed);
    if (err == TEFF_OK)
        return;
    if (err == TEFF_E_UNAVAILABLE)
        err = teffi_partition_apply(grains, TEFFI_METHOD_LOOKUP, ident, (teffi_pid){0}, &holder,
                                    NULL);
    if (err == TEFF_E_NOT_FOUND)
        done = teffi_forward_to_place(grains, ident, msg, &placed);
    else if (err == TEFF_OK && !teffi_node_is(holder.node, grains->node->id))
        done = teffi_forward_to_holder(grains, ident, msg, holder.node);
    else if (err == TEFF_OK || err == TEFF_E_UNAVAILABLE)
        teffi_locate_msg(grains, ident, msg);
    else
        teffi_forward_refuse(grains, msg, err);
    if (!done)
        teffi_locate_again(grains, ident, msg);
}

/* The grain is not here. location, if set, is a silo of the view: one that has left the view must
 * get no requests, though its last connections may still accept messages. */
static void send_elsewhere(teffi_grains *grains, const teffi_ident *ident, teffi_msg *msg,
                           teffi_node_id location)
{
    if (teffi_node_none(location)) {
        if (teffi_forward_own(grains, msg))
            route_by_directory(grains, ident, msg);
    } else if (!teffi_forward_to_silo(grains, ident, msg, location)) {
        teffi_locate_again(grains, ident, msg);
    }
}

void teffi_route(teffi_grains *grains, teffi_msg *msg)
{
    teffi_ident ident = teffi_ident_msg(&grains->secret, msg);
    bool placed = msg->flags & TEFFI_MSG_PLACED;
    /* Not checked on the first two hops: a fresh request has hardly expired, and the activation
     * checks again before the turn. */
    if (msg->hops > 1 && teffi_forward_expired(grains, msg)) {
        teffi_node_respond(grains->node, msg, TEFF_E_TIMEOUT, "expired before it could run");
        return;
    }
    if (grains->node->membership->ousted) {
        teffi_node_respond(grains->node, msg, TEFF_E_UNAVAILABLE, "the silo was declared dead");
        return;
    }
    if (!placed && teffi_locate_may_wait(grains->lookups, ident.hash) &&
        teffi_locate_join(grains, &ident, msg))
        return;
    if (teffi_forward_here(grains, &ident, msg, placed))
        return;
    if (msg->hops && !placed)
        teffi_directory_tell_moved(grains, &ident, msg->src);
    msg->flags &= (uint16_t)~TEFFI_MSG_PLACED;
    teffi_node_id location = {0};
    if (!msg->hops)
        location = teffi_location_get(grains->location_cache, ident.hash);
    send_elsewhere(grains, &ident, msg, location);
}

/* If the grain was activated here since then, the directory or that silo routes it back. */
void teffi_route_elsewhere(teffi_grains *grains, teffi_msg *msg, teffi_node_id location)
{
    teffi_ident ident = teffi_ident_msg(&grains->secret, msg);
    send_elsewhere(grains, &ident, msg, location);
}

void teffi_route_again(teffi_grains *grains, teffi_msg *msg)
{
    if (msg->hops++ >= TEFFI_HOPS_MAX) {
        teffi_node_respond(grains->node, msg, TEFF_E_UNAVAILABLE, "the grain keeps ending");
        return;
    }
    msg->flags &= (uint16_t)~TEFFI_MSG_PLACED;
    teffi_route(grains, msg);
}
