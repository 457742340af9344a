/* sim_cancel.c - which cancels have arrived where: a request does not begin after its cancel.
 * Way:     sim_conn (arriving) -> [sim_cancel] <- grains (a turn begins)
 * Knows the bytes of the wire only, not what a node keeps of them. */
#include <string.h>
#include "call/relay.h"
#include "sim_net.h"

static bool is_cancel(const teffi_msg *msg)
{
    return msg->item.kind == TEFFI_MSG_ONEWAY && msg->to.slot == TEFFI_SLOT_CANCEL;
}

void sim_cancel_arrives(sim_net *net, teffi_node_id from, teffi_msg *msg)
{
    sim *s = net->node->sim;
    teffi_origin origin;
    if (!is_cancel(msg))
        return;
    memcpy(&origin, msg->raw, sizeof origin);
    s->cancelled[s->n_cancelled++ % SIM_CANCELLED] =
        (sim_cancelled){.node = net->node,
                        .at = teffi_node_to_word(net->self.node),
                        .from = teffi_node_to_word(from),
                        .slot = origin.slot,
                        .generation = origin.generation,
                        .cookie = origin.cookie,
                        .until_ns = msg->deadline_ns};
    sim_trace_add(&s->trace, s->now_ns, net->node->name, "cancel", origin.slot, origin.generation);
    if (s->plant == SIM_PLANT_FORGED) {
        origin.cookie++;
        msg->raw = memcpy(teff_arena_alloc(&msg->arena, sizeof origin), &origin, sizeof origin);
    }
}

void sim_cancel_link_ends(sim_net *net, teffi_node_id from)
{
    sim *s = net->node->sim;
    for (int i = 0; i < SIM_CANCELLED; i++)
        if (s->cancelled[i].at == teffi_node_to_word(net->self.node) &&
            s->cancelled[i].from == teffi_node_to_word(from))
            s->cancelled[i] = (sim_cancelled){0};
}

void sim_cancel_check(sim *s, teffi_node_id at, const teffi_msg *request)
{
    if (!request || request->item.kind != TEFFI_MSG_REQUEST)
        return;
    for (int i = 0; i < SIM_CANCELLED; i++) {
        const sim_cancelled *c = &s->cancelled[i];
        if (c->at == teffi_node_to_word(at) && c->from == teffi_node_to_word(request->src) &&
            c->slot == request->call.slot && c->generation == request->call.generation &&
            c->cookie == request->call.cookie && sim_node_now(c->node) < c->until_ns)
            sim_fail(s, "a call begins that was cancelled before: %u/%u", c->slot, c->generation);
    }
}
