/* sim_plant.c - bugs planted into what travels, to see that the checkers find them.
 * Way:     sim_conn (arriving), sim_wire (sent) -> sim.plant_* -> [sim_plant] */
#include <stdlib.h>
#include <string.h>
#include "base/bug.h"
#include "cluster.pb-c.h"
#include "directory/partition.h"
#include "sim_plant.h"

static bool for_directory(const teffi_msg *msg, uint32_t method)
{
    return msg->item.kind == TEFFI_MSG_REQUEST && msg->to.slot == TEFFI_SLOT_DIRECTORY &&
           msg->method_id == method;
}

static bool is_for_process(const teffi_msg *msg)
{
    return msg->item.kind == TEFFI_MSG_ONEWAY && msg->to.slot & TEFFI_PROCESS_BIT;
}

bool sim_plant_twice(sim *s, const teffi_msg *msg)
{
    if (s->plant == SIM_PLANT_REPEATED)
        return is_for_process(msg) && sim_draw_chance(&s->fault, 100);
    return s->plant == SIM_PLANT_TWICE && msg->item.kind == TEFFI_MSG_REQUEST &&
           msg->to.slot == TEFFI_SLOT_GRAIN && sim_draw_chance(&s->fault, 30);
}

/* A response in the owner's name, on the connection of the owner's responses. */
static void respond_as_owner(sim_conn *conn, int to, const teffi_msg *msg,
                             const ProtobufCMessage *body)
{
    sim_net *net = conn->side[to].net;
    teffi_msg *response = teffi_msg_new(TEFFI_MSG_RESPONSE);
    teffi_bug_if(!response);
    response->src = net->self.node;
    response->to.node = msg->src;
    response->call.slot = msg->call.slot;
    response->call.generation = msg->call.generation;
    response->call.cookie = msg->call.cookie;
    response->body = (ProtobufCMessage *)(uintptr_t)body;
    response->borrows = true;
    if (net->base.ops->send(&net->base, msg->src, response))
        teffi_msg_free(response);
}

static bool confirm_unmade(sim_conn *conn, int to, teffi_msg *msg)
{
    Teff__Cluster__DirectoryResponse a = TEFF__CLUSTER__DIRECTORY_RESPONSE__INIT;
    if (teffi_msg_unpack(msg, &teff__cluster__directory_ask__descriptor))
        return false;
    const Teff__Cluster__DirectoryAsk *ask = (const Teff__Cluster__DirectoryAsk *)msg->body;
    a.view = ask->view;
    a.pid = ask->pid;
    respond_as_owner(conn, to, msg, &a.base);
    return true;
}

static bool list_nothing(sim_conn *conn, int to, teffi_msg *msg)
{
    Teff__Cluster__Recovered nothing = TEFF__CLUSTER__RECOVERED__INIT;
    if (teffi_msg_unpack(msg, &teff__cluster__recover__descriptor))
        return false;
    nothing.view = ((Teff__Cluster__Recover *)msg->body)->view;
    respond_as_owner(conn, to, msg, &nothing.base);
    return true;
}

bool sim_plant_frame(sim_conn *conn, int to, teffi_msg *msg)
{
    sim *s = conn->sim;
    if (s->plant == SIM_PLANT_KEYLESS && msg->item.kind == TEFFI_MSG_REQUEST)
        msg->once = NULL;
    if (s->plant == SIM_PLANT_LOST)
        return msg->item.kind == TEFFI_MSG_RESPONSE && sim_draw_chance(&s->fault, 10);
    if (s->plant == SIM_PLANT_REGISTER && for_directory(msg, TEFFI_METHOD_REGISTER))
        return sim_draw_chance(&s->fault, 300) && confirm_unmade(conn, to, msg);
    if (s->plant == SIM_PLANT_DROPPED)
        return is_for_process(msg) && sim_draw_chance(&s->fault, 100);
    if (s->plant == SIM_PLANT_RECOVER && for_directory(msg, TEFFI_METHOD_RECOVER))
        return list_nothing(conn, to, msg);
    return false;
}
