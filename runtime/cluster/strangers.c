/* strangers.c - messages of silos that the view does not know: they are kept until the table has
 * been read, since such a silo may have joined. */
#include "cluster/membership.h"

#include "call/task.h"

enum { LOOK_APART_MS = 100 };

/* Delivers a held message, or refuses it if its sender is still a stranger, or is dead. */
static void deliver_or_refuse_held_message(teffi_membership *m, teffi_msg *msg)
{
    teffi_node_id from = msg->src;
    const teffi_view *view = teffi_view_ref_current(m->node);
    teffi_standing standing = teffi_view_standing(view, from);
    teffi_view_unref(view);
    if (standing == TEFFI_STANDING_MEMBER || standing == TEFFI_STANDING_LEFT)
        teffi_node_deliver(m->node, msg);
    else
        teffi_node_respond_with_err(
            m->node, msg, TEFF_E_UNAVAILABLE,
            "the sender is not in the view of the silo that it has reached");
    teffi_outsiders_decrement_held_count(m, from);
}

static void deliver_or_refuse_held_messages(teffi_membership *m, teffi_queue *held)
{
    for (teffi_qnode *node; (node = teffi_queue_pop(held));)
        deliver_or_refuse_held_message(m, teffi_container(node, teffi_msg, link));
}

static bool have_strangers(teffi_membership *m)
{
    return teffi_outsiders_have_stranger(m, (teffi_node_id){0});
}

/* Runs as the task that delivers the held messages. It takes them, refreshes the view if there are
 * strangers, and then delivers or refuses each message. It repeats this until no message is held.
 * If strangers remain, it sleeps before the next refresh. If the membership table cannot be read,
 * the senders remain strangers, and their messages are refused. */
static void refresh_view_and_deliver_held_messages(teff_ctx *ctx, void *arg)
{
    teffi_membership *m = arg;
    for (teffi_queue held = teffi_outsiders_take_held_messages(m); held.count;
         held = teffi_outsiders_take_held_messages(m)) {
        if (have_strangers(m))
            (void)!teffi_membership_refresh(ctx, 0);
        deliver_or_refuse_held_messages(m, &held);
        if (have_strangers(m))
            teffi_ctx_sleep(ctx, LOOK_APART_MS);
    }
}

/* Starts the task that delivers the held messages. If there is no memory for the task, delivers or
 * refuses the messages here by the current view, without refreshing the view first. */
static void start_delivering_held_messages(teffi_membership *m)
{
    if (!teffi_task_start(&m->node->home, refresh_view_and_deliver_held_messages, m,
                          "membership: messages of unknown silos", true))
        return;
    for (teffi_queue held = teffi_outsiders_take_held_messages(m); held.count;
         held = teffi_outsiders_take_held_messages(m))
        deliver_or_refuse_held_messages(m, &held);
}

/* Holds a message that must not be delivered yet, or refuses it if too many are held.
 * out: true: the message was held or refused; false: the caller delivers it. */
bool teffi_membership_hold_msg_if_needed(teffi_node *node, teffi_msg *msg)
{
    bool first = false;
    teff_err err = teffi_outsiders_hold_msg_if_needed(node->membership, msg, &first);
    if (first)
        start_delivering_held_messages(node->membership);
    if (err == TEFF_E_OVERLOADED)
        teffi_node_respond_with_err(node, msg, err,
                                    "too many messages of silos outside the view wait");
    return err != TEFF_E_NOT_FOUND;
}
