/* notices.c - a silo as the gateway of observers, and as the silo of grains that notify them. */
#include "hosting/notices.h"

#include <string.h>
#include <teff/observer.h>
#include "cluster.pb-c.h"
#include "cluster/view.h"
#include "directory/shard.h"
#include "message/notice.h"
#include "node/deliver.h"

static bool is_client(teffi_node_id node)
{
    return node.silo & TEFFI_CLIENT_BIT;
}

/* ---- seals and tags ---- */

/* Responds to a client with the seal of its id. */
static void respond_with_seal(teffi_node *node, teffi_msg *msg)
{
    Teff__Cluster__Sealed body = TEFF__CLUSTER__SEALED__INIT;
    uint8_t seal[TEFFI_SEAL_BYTES];
    if (msg->method_id != TEFFI_SEAL || !is_client(msg->src)) {
        teffi_node_respond_with_err(node, msg, TEFF_E_NOT_FOUND, "no such request about observers");
        return;
    }
    if (!teffi_seal_make(node->grains->seal_key, msg->src, seal)) {
        teffi_node_respond_with_err(node, msg, TEFF_E_NOMEM, "the client's id cannot be sealed");
        return;
    }
    body.seal = (ProtobufCBinaryData){sizeof seal, seal};
    teffi_node_respond_with_body(node, msg, &body.base);
}

/* Replaces the seal by a tag, which proves to this gateway that it has sent the head to client. */
static void set_tag(const teffi_grains *grains, teffi_node_id client, teffi_notice_head *head)
{
    struct {
        uint64_t client;
        teffi_notice_head head;
    } tagged = {teffi_node_to_word(client), *head};
    memset(tagged.head.seal, 0, sizeof tagged.head.seal);
    memset(head->seal, 0, sizeof head->seal);
    uint64_t tag = teffi_siphash(&grains->secret, &tagged, sizeof tagged);
    memcpy(head->seal, &tag, sizeof tag);
}

static bool has_valid_tag(const teffi_grains *grains, teffi_node_id client,
                          const teffi_notice_head *head)
{
    teffi_notice_head own = *head;
    set_tag(grains, client, &own);
    return memcmp(own.seal, head->seal, sizeof own.seal) == 0;
}

/* ---- back to the activation ---- */

/* Pushes the bounce to the activation that has sent the notification. The memory of the activation
 * may have been reused since: then the numbers of generation and subscription differ, and the
 * bounce has no effect. Owns msg. */
static void push_bounce(teffi_node *node, teffi_msg *msg, const teffi_notice_head *head)
{
    teffi_activation *act = teffi_activation_at(&node->grains->shards->memory, head->slot);
    msg->item.kind = TEFFI_ITEM_BOUNCE;
    teffi_msg_charge(msg, node->budget);
    bool fits = msg->system || !teffi_budget_is_exceeded(node->budget);
    if (!act || !fits || !teffi_group_push(&act->group, &msg->item))
        teffi_msg_free(msg);
}

/* Sends a bounce for a notification with this head to the silo that has sent it. in: system: send
 * it although many messages wait. */
static void send_bounce(teffi_node *node, const teffi_notice_head *head, teff_drop_reason why,
                        bool system)
{
    teffi_node_id to = teffi_node_from_word(head->notifier);
    teffi_msg *bounce =
        head->slot && !is_client(to) ? teffi_notice_new(node->id, to, head, 0, why, NULL, 0) : NULL;
    if (!bounce)
        return;
    bounce->system = system;
    if (teffi_node_equals(to, node->id))
        push_bounce(node, bounce, head);
    else if (teffi_node_send(node, to, bounce))
        teffi_node_drop_message(node, bounce);
}

/* Sends a bounce for msg, a notification that was not delivered; a drop has none. Owns msg. */
static void bounce_notification(teffi_node *node, teffi_msg *msg, const teffi_notice_head *head,
                                teff_drop_reason why)
{
    if (msg->method_id)
        send_bounce(node, head, why, true);
    teffi_node_drop_message(node, msg);
}

/* Handles a bounce of a client or of a gateway. That of a client goes on to the silo that has
 * notified it, as a new message: whatever else the client has put into it does not. Owns msg. */
static void handle_bounce(teffi_node *node, teffi_msg *msg, const teffi_notice_head *head)
{
    bool from_client = is_client(msg->src);
    bool has_reason = msg->method_id == TEFF_DROPPED_GONE || msg->method_id == TEFF_DROPPED_SLOW;
    if (!from_client && teffi_node_equals(teffi_node_from_word(head->notifier), node->id)) {
        push_bounce(node, msg, head);
        return;
    }
    if (from_client && has_reason && has_valid_tag(node->grains, msg->src, head))
        send_bounce(node, head, (teff_drop_reason)msg->method_id, false);
    teffi_node_drop_message(node, msg);
}

/* ---- to the client ---- */

/* Passes a notification or a drop on to the client. Owns msg on TEFF_OK.
 * errs: TEFF_E_CLOSED: the client is not connected, or the seal is not of this silo; as net.h's
 *       send. */
static teff_err send_to_client(teffi_node *node, teffi_msg *msg, const teffi_notice_head *head)
{
    teffi_notice_head tagged = *head;
    teffi_node_id client;
    if (!teffi_seal_open(node->grains->seal_key, head->seal, &client) || !is_client(client))
        return TEFF_E_CLOSED;
    msg->system = !msg->method_id;
    if (!msg->system && teffi_budget_is_exceeded(node->budget))
        return TEFF_E_OVERLOADED;
    set_tag(node->grains, client, &tagged);
    msg->key = teff_arena_copy(&msg->arena, &tagged, sizeof tagged);
    if (!msg->key)
        return TEFF_E_NOMEM;
    msg->src = node->id;
    msg->to.node = client;
    return node->home.net->ops->send(node->home.net, client, msg);
}

static void pass_on_or_bounce(teffi_node *node, teffi_msg *msg, const teffi_notice_head *head)
{
    teff_err err = send_to_client(node, msg, head);
    if (err)
        bounce_notification(node, msg, head,
                            err == TEFF_E_CLOSED || err == TEFF_E_UNREACHABLE ? TEFF_DROPPED_GONE
                                                                              : TEFF_DROPPED_SLOW);
}

/* May this node send notifications? A silo must be in the view, or have left: what it has sent may
 * come after the news that it has. */
static bool may_notify(teffi_node *node, teffi_node_id from)
{
    if (teffi_node_equals(from, node->id))
        return true;
    const teffi_view *view = teffi_view_ref_current(node);
    teffi_standing standing = teffi_view_standing(view, from);
    teffi_view_unref(view);
    return !is_client(from) &&
           (standing == TEFFI_STANDING_MEMBER || standing == TEFFI_STANDING_LEFT);
}

void teffi_notices_handle(teffi_node *node, teffi_msg *msg, bool unsent)
{
    teffi_notice_head head;
    bool is_bounce = !msg->type_id;
    if (msg->item.kind == TEFFI_MSG_REQUEST) {
        respond_with_seal(node, msg);
        return;
    }
    bool valid = teffi_notice_read_head(msg, &head);
    if (valid && is_bounce && !unsent)
        handle_bounce(node, msg, &head);
    else if (valid && !is_bounce && unsent)
        bounce_notification(node, msg, &head, TEFF_DROPPED_GONE);
    else if (valid && !is_bounce && may_notify(node, msg->src))
        pass_on_or_bounce(node, msg, &head);
    else
        teffi_node_drop_message(node, msg);
}
