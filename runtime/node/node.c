/* node.c - where each arriving message goes, and how answers find their way back.
 * Way:     wire/net -> [node] -> pending call | system target | grains
 * Threads: deliver and send from anywhere. */
#include "node/node.h"

#include <stdio.h>
#include <string.h>
#include "base/bug.h"
#include "node/ctx.h"
#include "node/task.h"
#include "sched/closure.h"
#include "wire/encode.h"

teff_err teffi_node_init(teffi_node *node, const teffi_platform *platform, uint32_t role,
                         const char *cluster, unsigned workers, const teff_sched_options *sched)
{
    memset(node, 0, sizeof *node);
    node->platform = platform;
    node->role = role;
    snprintf(node->cluster, sizeof node->cluster, "%s", cluster);
    pthread_mutex_init(&node->lock, NULL);
    teffi_calls_init(&node->calls, node);
    teff_err err = platform->exec_new(platform, workers, sched, &node->exec);
    if (err)
        teffi_node_fini(node);
    return err;
}

static void free_queued(teffi_target *target)
{
    teffi_item *item;
    while ((item = teffi_group_drain(&target->group)))
        if (item->kind == TEFFI_ITEM_CLOSURE)
            teffi_closure_drop(item);
        else
            teffi_msg_free(teffi_container(item, teffi_msg, item));
}

bool teffi_node_enter(teffi_node *node)
{
    /* seq_cst on both sides: either we see closed, or stop sees us inside */
    atomic_fetch_add(&node->users, 1);
    if (!atomic_load(&node->closed))
        return true;
    teffi_node_exit(node);
    return false;
}

void teffi_node_exit(teffi_node *node)
{
    atomic_fetch_sub(&node->users, 1);
}

static void wait_users(teffi_node *node)
{
    teff_ctx *ctx = teffi_ctx_new(node);
    atomic_store(&node->closed, true);
    while (ctx && atomic_load(&node->users) > 0) {
        teffi_calls_cancel(node);
        teffi_ctx_sleep(ctx, 1);
    }
    teff_ctx_free(ctx);
}

void teffi_node_stop(teffi_node *node)
{
    wait_users(node);
    teffi_calls_cancel(node);
    /* What runs may send, and what arrives may push: so first the workers, then the transport, and
     * memory only after both. */
    if (node->exec->ops->stop)
        node->exec->ops->stop(node->exec);
    teffi_calls_stop(&node->calls);
    if (node->net)
        node->net->ops->free(node->net);
    node->net = NULL;
    for (unsigned i = 0; i < TEFFI_SLOT_SYSTEM_END; i++)
        if (node->targets[i].handle)
            free_queued(&node->targets[i]);
}

void teffi_node_free_exec(teffi_node *node)
{
    teffi_tasks_fini(node);
    node->exec->ops->free(node->exec);
    node->exec = NULL;
}

void teffi_node_fini(teffi_node *node)
{
    if (!node->platform)
        return;
    teffi_calls_fini(&node->calls);
    pthread_mutex_destroy(&node->lock);
    node->platform = NULL;
}

/* ---- system targets ---- */

static void target_item(teffi_group *group, teffi_item *item)
{
    teffi_target *target = teffi_container(group, teffi_target, group);
    if (item->kind == TEFFI_ITEM_CLOSURE)
        teffi_closure_arrived(item);
    else
        target->handle(target->node, teffi_container(item, teffi_msg, item));
}

static void target_describe(teffi_group *group, char *text, size_t size)
{
    const teffi_target *target = teffi_container(group, teffi_target, group);
    snprintf(text, size, "system target %s", teffi_target_name(target));
}

static const teffi_group_ops target_ops = {
    .handle = target_item, .describe = target_describe, .kind = TEFFI_CONTEXT_TARGET};

const char *teffi_target_name(const teffi_target *target)
{
    static const char *const names[TEFFI_SLOT_SYSTEM_END] = {[TEFFI_SLOT_DIRECTORY] = "directory",
                                                             [TEFFI_SLOT_MEMBERSHIP] = "membership",
                                                             [TEFFI_SLOT_STORE] = "store"};
    const char *name = names[target - target->node->targets];
    return name ? name : "of an unknown slot";
}

void teffi_node_target(teffi_node *node, unsigned slot, teffi_target_fn *handle)
{
    teffi_target *target = &node->targets[slot];
    teffi_bug_if(slot == TEFFI_SLOT_GRAIN || slot >= TEFFI_SLOT_SYSTEM_END || target->handle);
    teffi_group_init(&target->group, node->exec, &target_ops);
    target->node = node;
    target->handle = handle;
}

static void to_target(teffi_node *node, teffi_msg *msg)
{
    teffi_target *target = &node->targets[msg->to.slot];
    if (target->handle)
        (void)teffi_group_push(&target->group, &msg->item);
    else
        teffi_node_answer(node, msg, TEFF_E_NOT_FOUND, "no such system target");
}

/* ---- processes ---- */

void teffi_node_processes(teffi_node *node, teffi_process_fn *deliver, void *arg)
{
    node->processes = deliver;
    atomic_store_explicit(&node->processes_arg, arg, memory_order_release);
}

/* Clients know no processes. */
static void to_process(teffi_node *node, teffi_msg *msg)
{
    void *arg = atomic_load_explicit(&node->processes_arg, memory_order_acquire);
    teff_err err = TEFF_E_NOT_FOUND;
    bool from_silo = !(msg->src.silo & TEFFI_CLIENT_BIT);
    if (arg && from_silo && msg->item.kind == TEFFI_MSG_ONEWAY &&
        teffi_node_is(msg->to.node, node->id))
        err = node->processes(arg, msg);
    teffi_node_answer(node, msg, err, "no such process");
}

/* ---- arriving ---- */

/* Relaxed: it is read as a figure. */
static void count_dropped(teffi_node *node)
{
    atomic_fetch_add_explicit(&node->dropped, 1, memory_order_relaxed);
}

/* A response of another silo to a client of ours, or of ours to a client of another gateway. */
static void pass_on(teffi_node *node, teffi_msg *response)
{
    teffi_node_id to = response->to.node;
    if (node->net->ops->send(node->net, to, response) != TEFF_OK) {
        count_dropped(node);
        teffi_msg_free(response);
    }
}

void teffi_node_deliver(teffi_node *node, teffi_msg *msg)
{
    if (msg->item.kind == TEFFI_MSG_RESPONSE) {
        if (teffi_node_is(msg->to.node, node->id))
            teffi_call_answer(node, msg);
        else
            pass_on(node, msg);
        return;
    }
    if (msg->to.slot > TEFFI_SLOT_GRAIN && msg->to.slot < TEFFI_SLOT_SYSTEM_END)
        to_target(node, msg);
    else if (msg->to.slot & TEFFI_PROCESS_BIT)
        to_process(node, msg);
    else if (node->upcalls.request)
        node->upcalls.request(node, msg);
    else
        teffi_node_answer(node, msg, TEFF_E_UNAVAILABLE, "this node hosts no grains");
}

teff_err teffi_node_send(teffi_node *node, teffi_node_id to, teffi_msg *msg)
{
    if (!teffi_node_is(to, node->id))
        return node->net->ops->send(node->net, to, msg);
    teffi_node_deliver(node, msg);
    return TEFF_OK;
}

/* ---- answering ---- */

teffi_msg *teffi_node_response(const teffi_node *node, const teffi_msg *request)
{
    teffi_msg *response = teffi_msg_new(TEFFI_MSG_RESPONSE);
    if (!response)
        return NULL;
    response->src = node->id;
    response->to.node = request->src;
    response->call_slot = request->call_slot;
    response->call_generation = request->call_generation;
    return response;
}

/* A client's call came through its gateway, and its answer goes back the same way. */
static teffi_node_id way_back(const teffi_node *node, const teffi_msg *request)
{
    bool through = !teffi_node_none(request->via) && !teffi_node_is(request->via, node->id);
    return through ? request->via : request->src;
}

teffi_node_id teffi_node_response_in(const teffi_node *node, teffi_msg *request)
{
    teffi_node_id to = way_back(node, request);
    request->item.kind = TEFFI_MSG_RESPONSE;
    request->flags = 0;
    request->hops = 0;
    request->to = (teffi_pid){.node = request->src};
    request->src = node->id;
    request->via = (teffi_node_id){0};
    request->type_id = 0;
    request->method_id = 0;
    request->deadline_ns = 0;
    request->key = NULL;
    request->key_len = 0;
    request->raw = NULL;
    request->raw_len = 0;
    request->body = NULL;
    return to;
}

void teffi_node_respond_to(teffi_node *node, teffi_node_id to, teffi_msg *response)
{
    teff_err err = teffi_node_send(node, to, response);
    if (err == TEFF_E_TOO_LARGE && !response->err) { /* it is still ours: less goes instead */
        response->err = TEFF_E_TOO_LARGE;
        response->text = "the answer is larger than a frame may be";
        response->body = NULL;
        response->raw = NULL;
        response->raw_len = 0;
        count_dropped(node);
        err = teffi_node_send(node, to, response);
    }
    if (err) {
        count_dropped(node);
        teffi_msg_free(response);
    }
}

void teffi_node_respond(teffi_node *node, const teffi_msg *request, teffi_msg *response)
{
    teffi_node_respond_to(node, way_back(node, request), response);
}

void teffi_node_answer(teffi_node *node, teffi_msg *request, teff_err err, const char *text)
{
    if (request->item.kind == TEFFI_MSG_REQUEST) {
        teffi_msg *response = teffi_node_response(node, request);
        if (response) {
            response->err = (uint16_t)err;
            response->text = text ? teff_arena_copy(&response->arena, text, strlen(text)) : NULL;
            teffi_node_respond(node, request, response);
        } else {
            count_dropped(node);
        }
    } else if (err) {
        count_dropped(node);
    }
    teffi_msg_free(request);
}

void teffi_node_answer_with(teffi_node *node, teffi_msg *request, const ProtobufCMessage *body)
{
    teffi_msg *response = NULL;
    if (request->item.kind == TEFFI_MSG_REQUEST)
        response = teffi_node_response(node, request);
    if (response) {
        response->raw_len = teffi_packed_size(body);
        uint8_t *raw = teff_arena_alloc(&response->arena, response->raw_len + 1);
        if (raw)
            teffi_pack(body, response->raw_len, raw);
        else
            response->err = TEFF_E_NOMEM;
        response->raw = raw;
        teffi_node_respond(node, request, response);
    }
    teffi_msg_free(request);
}

/* ---- events of the transport ---- */

static void on_message(void *arg, const teffi_hello *from, teffi_msg *msg)
{
    (void)from;
    teffi_node_deliver(arg, msg);
}

/* The transport has checked cluster, version, role and identity. */
static teff_err on_hello(void *arg, const teffi_hello *peer, char *text)
{
    const teffi_node *node = arg;
    if (peer->role != TEFFI_ROLE_CLIENT || !node->leaving)
        return TEFF_OK;
    snprintf(text, TEFF_TEXT_MAX, "this silo is leaving the cluster");
    return TEFF_E_REFUSED;
}

static void on_up(void *arg, const teffi_hello *peer)
{
    teffi_node *node = arg;
    if (node->net_up)
        node->net_up(node, peer);
}

static void on_down(void *arg, const teffi_hello *peer, bool clean)
{
    teffi_node *node = arg;
    teffi_call_lost(node, peer->node, clean);
    if (node->net_down)
        node->net_down(node, peer, clean);
}

const teffi_net_events teffi_node_net_events = {
    .message = on_message, .hello = on_hello, .up = on_up, .down = on_down};
