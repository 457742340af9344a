/* observer.c - makes observers of a client, gets references for them, and runs their callbacks.
 * Threads: fields marked L are guarded by node.lock of the client. */
#include "silo/observer.h"

#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include "activation/ident.h"
#include "activation/type.h"
#include "base/bug.h"
#include "call/task.h"
#include "call/wait.h"
#include "cluster.pb-c.h"
#include "fiber/fiber.h"
#include "message/notice.h"
#include "node/ask.h"
#include "silo/client.h"

enum { RETRY_MS = 20 };

struct teff_observer {
    teff_client *client;
    const teff_observer_info *info;
    const void *methods;
    void *user;
    LIST_ENTRY(teff_observer) link; /* L: in observers.all */
    teffi_tnode by_number;          /* L: in observers.by_number, if has_ref */
    bool has_ref;                   /* L */
    teffi_client_ref ref;           /* L; valid if has_ref */
    teffi_queue queue;              /* L: messages that wait for the callbacks */
    uint32_t n_waiting;             /* L: notifications in queue; the others are drops */
    bool lost;                      /* L: tell DISCONNECTED after the queue */
    bool running;                   /* L: run_callbacks() runs, or will be started */
    bool freed;                     /* L: no callback begins any more */
    teff_observer *next_lost;       /* for teffi_client_observers_lose_gateway() only */
};

static teff_client *client_of_node(teffi_node *node)
{
    return teffi_container(node, teff_client, node);
}

/* ---- callbacks ---- */

/* The argument of unpack_off_fiber(). */
typedef struct unpacking {
    teffi_msg *msg;
    const ProtobufCMessageDescriptor *desc;
    teff_err err;
} unpacking;

static void unpack_off_fiber(void *arg)
{
    unpacking *u = arg;
    u->err = teffi_msg_unpack(u->msg, u->desc);
}

/* Unpacks the body on the worker's stack. out: NULL: it does not decode, or memory is out. */
static const ProtobufCMessage *unpack_body(teff_ctx *ctx, teffi_msg *msg,
                                           const ProtobufCMessageDescriptor *desc)
{
    unpacking u = {msg, desc, TEFF_OK};
    teffi_ctx_run_off_fiber(ctx, unpack_off_fiber, &u);
    return u.err ? NULL : msg->body;
}

static void log_callback_error(teff_ctx *ctx, teff_observer *o, const char *name, teff_err err)
{
    teffi_exec *exec = ctx->home->exec;
    char more[48];
    if (teffi_warn_claim_line_or_skip(exec, &o->client->observers.failed, more))
        teffi_logf(&exec->platform->log, TEFF_LOG_WARN, "observer: %s failed: %s: %s%s", name,
                   teff_err_name(err), teff_error(ctx), more);
}

/* Calls on_dropped for a drop that a grain has sent. */
static void run_on_dropped(teff_ctx *ctx, teff_observer *o, const teff_grain *self, teffi_msg *msg)
{
    const Teff__Cluster__Dropped *body =
        (const void *)unpack_body(ctx, msg, &teff__cluster__dropped__descriptor);
    const uint8_t *key_bytes =
        body ? teff_arena_copy(&ctx->arena, body->key.data, body->key.len) : NULL; /* and a zero */
    teff_key key;
    if (!key_bytes || body->key_kind < TEFF_KEY_STRING || body->key_kind > TEFF_KEY_UUID_STRING ||
        !teffi_key_decode((teff_key_kind)body->key_kind, key_bytes, (uint32_t)body->key.len, &key))
        return;
    const teff_dropped how = {(teff_drop_reason)body->why, body->type, &key};
    o->info->dropped(self, o->methods, &how);
}

/* Calls the callback of a notification. A method that this client does not know, because the silo
 * has a newer build, and a body that does not decode are only logged. */
static void run_notification(teff_ctx *ctx, teff_observer *o, const teff_grain *self,
                             teffi_msg *msg)
{
    const teff_method *method = teffi_method_find(&o->info->type, msg->method_id);
    const ProtobufCMessage *in = NULL;
    teff_err err = method ? TEFF_OK : TEFF_E_NOT_FOUND;
    if (method && method->in && !(in = unpack_body(ctx, msg, method->in->desc)))
        err = TEFF_E_MALFORMED; /* or memory is out */
    if (!err)
        err = method->invoke(self, o->methods, in, NULL);
    if (err && err != TEFF_E_UNIMPLEMENTED)
        log_callback_error(ctx, o, method ? method->name : o->info->type.name, err);
}

/* Runs one callback: for msg or, if msg is NULL, for the loss of the gateway. Owns msg. */
static void run_callback(teff_ctx *ctx, teff_observer *o, teffi_msg *msg)
{
    const teff_dropped lost = {TEFF_DROPPED_DISCONNECTED, NULL, NULL};
    const teff_grain self = {.ctx = ctx, .user = o->user};
    teff_mark mark = teff_ctx_mark(ctx);
    ctx->text = NULL; /* of an earlier callback */
    if (!msg)
        o->info->dropped(&self, o->methods, &lost);
    else if (!msg->method_id)
        run_on_dropped(ctx, o, &self, msg);
    else
        run_notification(ctx, o, &self, msg);
    teffi_msg_free(msg);
    teff_ctx_rewind(ctx, mark);
    teff_ctx_set_timeout(ctx, 0);
}

/* Takes the next callback. out: false: there is none, or no callback shall begin any more;
 * o->running is false, and o may be freed by now. *msg: NULL for the loss of the gateway. */
static bool take_callback_or_stop(teff_observer *o, teff_client *client, teffi_msg **msg)
{
    pthread_mutex_lock(&client->node.lock);
    bool stops = o->freed || client->closing;
    teffi_qnode *n = stops ? NULL : teffi_queue_pop(&o->queue);
    bool lost = !n && !stops && o->lost;
    *msg = n ? teffi_container(n, teffi_msg, link) : NULL;
    if (n && (*msg)->method_id)
        o->n_waiting--;
    if (lost)
        o->lost = false;
    o->running = n || lost;
    bool any = o->running;
    pthread_mutex_unlock(&client->node.lock);
    return any;
}

/* The task of an observer while callbacks are to be run. */
static void run_callbacks(teff_ctx *ctx, void *arg)
{
    teff_observer *o = arg;
    teff_client *client = o->client;
    for (teffi_msg *msg; take_callback_or_stop(o, client, &msg);)
        run_callback(ctx, o, msg);
}

/* ---- messages ---- */

/* Sends the head of a notification back to the gateway, which passes it on to the grain. */
static void send_bounce_to_gateway(teffi_node *node, teffi_node_id gateway,
                                   const teffi_notice_head *head, teff_drop_reason why)
{
    teffi_msg *msg = head->slot ? teffi_notice_new(node->id, gateway, head, 0, why, NULL, 0) : NULL;
    if (msg && node->home.net->ops->send(node->home.net, gateway, msg))
        teffi_msg_free(msg);
}

/* Frees a message that no callback will get. If it is a notification, sends a bounce. */
static void refuse_notice(teffi_node *node, teffi_msg *msg, teff_drop_reason why)
{
    teffi_notice_head head;
    if (msg->method_id && teffi_notice_read_head(msg, &head))
        send_bounce_to_gateway(node, msg->src, &head, why);
    teffi_node_drop_message(node, msg);
}

/* Starts the task that runs the callbacks. If memory is out, refuses all messages that wait.
 * in: o->running was just set to true. */
static void start_callbacks(teff_client *client, teff_observer *o)
{
    teffi_node *node = &client->node;
    teffi_queue queue = {0};
    if (!teffi_task_start(&node->home, run_callbacks, o, "client: callbacks of an observer", false))
        return;
    pthread_mutex_lock(&node->lock);
    teffi_queue_move(&queue, &o->queue);
    o->n_waiting = 0;
    o->running = false;
    pthread_mutex_unlock(&node->lock);
    for (teffi_qnode *n; (n = teffi_queue_pop(&queue));)
        refuse_notice(node, teffi_container(n, teffi_msg, link), TEFF_DROPPED_SLOW);
}

/* node.lock held. out: the observer with this number, if the message is for its interface. */
static teff_observer *find_observer(teff_client *client, uint64_t number, uint32_t interface)
{
    teffi_tnode *n = teffi_table_find_first(&client->observers.by_number, number);
    teff_observer *o = n ? teffi_container(n, teff_observer, by_number) : NULL;
    return o && o->info->type.id == interface ? o : NULL;
}

/* Queues msg for the observer's callbacks. out: 0: it is queued; else why not, and msg is still the
 * caller's. *start: the observer, if start_callbacks() must follow. */
static teff_drop_reason queue_notice(teff_client *client, teffi_msg *msg, uint64_t number,
                                     teff_observer **start)
{
    teff_drop_reason why = TEFF_DROPPED_GONE;
    pthread_mutex_lock(&client->node.lock);
    teff_observer *o = find_observer(client, number, msg->type_id);
    if (o && !client->closing)
        why = msg->method_id && (o->n_waiting >= TEFF_OBSERVER_QUEUE_MAX ||
                                 teffi_budget_is_exceeded(client->node.budget))
                  ? TEFF_DROPPED_SLOW
                  : (teff_drop_reason)0;
    if (o && !why) {
        teffi_msg_charge(msg, client->node.budget);
        teffi_queue_push(&o->queue, &msg->link);
        o->n_waiting += msg->method_id != 0;
        *start = o->running ? NULL : o;
        o->running = true;
    }
    pthread_mutex_unlock(&client->node.lock);
    return why;
}

/* The node's upcall `notice`: a notification or a drop from a gateway. */
static void on_notice(teffi_node *node, teffi_msg *msg, bool unsent)
{
    teff_client *client = client_of_node(node);
    teff_observer *start = NULL;
    teffi_notice_head head;
    if (unsent || msg->item.kind != TEFFI_MSG_ONEWAY || !msg->type_id ||
        !teffi_notice_read_head(msg, &head)) {
        teffi_node_respond_with_err(node, msg, TEFF_E_NOT_FOUND, "no such observer");
        return;
    }
    teff_drop_reason why = queue_notice(client, msg, head.observer, &start);
    if (why)
        refuse_notice(node, msg, why);
    else if (start)
        start_callbacks(client, start);
}

/* ---- references ---- */

/* Asks the gateway for a seal of this client's id. */
static teff_err ask_for_seal(teff_ctx *ctx, teffi_node_id gateway, uint32_t left_ms,
                             uint8_t seal[TEFFI_SEAL_BYTES])
{
    const Teff__Cluster__Seal ask = TEFF__CLUSTER__SEAL__INIT;
    ProtobufCMessage *response;
    teff_err err = teffi_ctx_run_rpc(ctx, gateway, TEFFI_SLOT_OBSERVER, TEFFI_SEAL, &ask.base,
                                     left_ms, &teff__cluster__sealed__descriptor, &response);
    if (err)
        return err;
    const Teff__Cluster__Sealed *body = (const Teff__Cluster__Sealed *)response;
    if (body->seal.len != TEFFI_SEAL_BYTES)
        return teff_fail(ctx, TEFF_E_MALFORMED, "the gateway's seal is malformed");
    memcpy(seal, body->seal.data, TEFFI_SEAL_BYTES);
    return TEFF_OK;
}

/* A reference in the making. */
typedef struct new_ref {
    uint64_t number;
    uint32_t losses; /* observers.losses when it was begun */
    teffi_client_ref ref;
} new_ref;

/* Gives the observer the reference, unless it has one already, or the client has lost a gateway
 * meanwhile: maybe it is the reference's. errs: TEFF_E_UNREACHABLE: make another one; NOMEM. */
static teff_err store_ref(teff_ctx *ctx, teff_observer *o, const new_ref *made)
{
    teffi_client_observers *observers = &o->client->observers;
    teff_err err = TEFF_OK;
    pthread_mutex_lock(&o->client->node.lock);
    if (observers->losses != made->losses)
        err = TEFF_E_UNREACHABLE;
    else if (!o->has_ref && !teffi_table_add(&observers->by_number, &o->by_number, made->number))
        err = TEFF_E_NOMEM;
    else if (!o->has_ref) {
        o->ref = made->ref;
        o->has_ref = true;
    }
    pthread_mutex_unlock(&o->client->node.lock);
    return err == TEFF_E_NOMEM ? teff_fail(ctx, err, "out of memory for a reference") : err;
}

/* Gets the observer a reference, through a gateway that is connected.
 * errs: TEFF_E_UNREACHABLE, TEFF_E_CLOSED: no gateway was reached; try again. */
static teff_err make_ref_once(teff_ctx *ctx, teff_observer *o, uint64_t deadline)
{
    const teffi_platform *platform = ctx->node->platform;
    uint64_t now = teffi_now(platform);
    new_ref made = {.number = platform->random(platform->arg)};
    pthread_mutex_lock(&ctx->node->lock);
    made.losses = o->client->observers.losses;
    pthread_mutex_unlock(&ctx->node->lock);
    teffi_node_id gateway = teffi_gateways_choose(&ctx->node->gateways, made.number);
    if (teffi_node_is_none(gateway))
        return TEFF_E_UNREACHABLE;
    made.ref = (teffi_client_ref){
        .head = {.kind = TEFFI_REF_CLIENT, .interface = o->info->type.id},
        .gateway = teffi_node_to_word(gateway),
        .observer = made.number,
    };
    uint32_t left_ms = deadline > now ? (uint32_t)((deadline - now) / 1000000) + 1 : 1;
    teff_mark mark = teff_ctx_mark(ctx);
    teff_err err = ask_for_seal(ctx, gateway, left_ms, made.ref.seal);
    teff_ctx_rewind(ctx, mark);
    return err ? err : store_ref(ctx, o, &made);
}

/* Copies the observer's reference. out: false: it has none. */
static bool copy_ref(teff_observer *o, teffi_client_ref *ref)
{
    pthread_mutex_lock(&o->client->node.lock);
    bool has = o->has_ref;
    *ref = o->ref;
    pthread_mutex_unlock(&o->client->node.lock);
    return has;
}

static teff_err get_or_make_ref(teff_ctx *ctx, teff_observer *o, ProtobufCBinaryData *bytes)
{
    uint64_t deadline = teffi_ctx_compute_call_deadline(ctx, 0);
    teffi_client_ref ref;
    while (!copy_ref(o, &ref)) {
        teff_err err = make_ref_once(ctx, o, deadline);
        if (err && err != TEFF_E_UNREACHABLE && err != TEFF_E_CLOSED)
            return err;
        if (o->client->closing)
            return teff_fail(ctx, TEFF_E_CLOSED, "the client is closed");
        if (err && teffi_now(ctx->node->platform) + RETRY_MS * 1000000ull >= deadline)
            return teff_fail(ctx, TEFF_E_UNAVAILABLE, "no gateway can be reached");
        if (err)
            teffi_ctx_sleep(ctx, RETRY_MS);
    }
    *bytes = (ProtobufCBinaryData){sizeof ref, teff_alloc(ctx, sizeof ref)};
    memcpy(bytes->data, &ref, sizeof ref);
    return TEFF_OK;
}

teff_err teff_observer_get_ref(teff_ctx *ctx, teff_observer *observer, ProtobufCBinaryData *ref)
{
    *ref = (ProtobufCBinaryData){0, NULL};
    if (!teffi_ctx_enter(ctx))
        return teff_fail(ctx, TEFF_E_CLOSED, "the client is closed");
    return teffi_ctx_leave(ctx, get_or_make_ref(ctx, observer, ref));
}

/* node.lock held. Takes the reference away from those observers whose reference leads to the
 * gateway. out: a list of those for which start_callbacks() must follow. */
static teff_observer *take_refs_to_gateway(teff_client *client, teffi_node_id gateway)
{
    teffi_table *table = &client->observers.by_number;
    teff_observer *list = NULL;
    teffi_tnode *next = NULL;
    size_t at = 0;
    for (teffi_tnode *n; (n = teffi_table_next_node(table, &at, &next));) {
        teff_observer *o = teffi_container(n, teff_observer, by_number);
        if (o->ref.gateway != teffi_node_to_word(gateway))
            continue;
        teffi_table_del(table, n);
        o->has_ref = false;
        o->lost = true;
        if (o->running)
            continue;
        o->running = true;
        o->next_lost = list;
        list = o;
    }
    return list;
}

void teffi_client_observers_lose_gateway(teff_client *client, teffi_node_id gateway)
{
    teff_observer *o, *next;
    pthread_mutex_lock(&client->node.lock);
    client->observers.losses++;
    /* a client that closes must start no task: it may have waited for the last one already */
    o = client->closing ? NULL : take_refs_to_gateway(client, gateway);
    pthread_mutex_unlock(&client->node.lock);
    for (; o; o = next) {
        next = o->next_lost; /* o may be freed when its callbacks have run */
        start_callbacks(client, o);
    }
}

/* ---- life ---- */

teff_err teff_observer_new(teff_ctx *ctx, const teff_observer_info *info, const void *methods,
                           void *user, teff_observer **observer)
{
    *observer = NULL;
    if (ctx->node->role != TEFFI_ROLE_CLIENT)
        return teff_fail(ctx, TEFF_E_INVALID, "%s: only a client makes an observer",
                         info->type.name);
    if (!teffi_ctx_enter(ctx))
        return teff_fail(ctx, TEFF_E_CLOSED, "the client is closed");
    teff_client *client = client_of_node(ctx->node);
    teff_observer *o = calloc(1, sizeof *o);
    teff_err err = o ? TEFF_OK : TEFF_E_NOMEM;
    pthread_mutex_lock(&client->node.lock);
    if (o && client->observers.n >= TEFF_CLIENT_OBSERVERS_MAX)
        err = TEFF_E_OVERLOADED;
    if (!err) {
        *o = (teff_observer){.client = client, .info = info, .methods = methods, .user = user};
        LIST_INSERT_HEAD(&client->observers.all, o, link);
        client->observers.n++;
        *observer = o;
    }
    pthread_mutex_unlock(&client->node.lock);
    if (err) {
        free(o);
        (void)teff_fail(ctx, err,
                        err == TEFF_E_NOMEM ? "out of memory for an observer"
                                            : "the client has too many observers");
    }
    return teffi_ctx_leave(ctx, err);
}

/* node.lock held. Removes o from the client's lists. */
static void unlink_observer(teff_client *client, teff_observer *o)
{
    if (o->has_ref)
        teffi_table_del(&client->observers.by_number, &o->by_number);
    LIST_REMOVE(o, link);
    client->observers.n--;
    o->has_ref = false;
    o->freed = true;
}

static void free_observer(teff_observer *o)
{
    for (teffi_qnode *n; (n = teffi_queue_pop(&o->queue));)
        teffi_msg_free(teffi_container(n, teffi_msg, link));
    free(o);
}

static bool callbacks_run(teff_observer *o)
{
    pthread_mutex_lock(&o->client->node.lock);
    bool running = o->running;
    pthread_mutex_unlock(&o->client->node.lock);
    return running;
}

/* Waits until no callback runs. in: o->freed is set. */
static void wait_for_callbacks(teff_observer *o)
{
    teff_ctx *ctx = teffi_ctx_new(&o->client->node.home);
    while (callbacks_run(o))
        if (ctx)
            teffi_ctx_sleep(ctx, 1);
        else /* out of memory */
            teffi_thread_yield();
    teff_ctx_free(ctx);
}

void teff_observer_free(teff_observer *observer)
{
    if (!observer)
        return;
    const teffi_fiber *fiber = teffi_fiber_current();
    if (fiber)
        teffi_abort_for_broken_rule(teffi_fiber_get_label(fiber),
                                    "a callback must not free an observer (teff/observer.h)");
    pthread_mutex_lock(&observer->client->node.lock);
    unlink_observer(observer->client, observer);
    pthread_mutex_unlock(&observer->client->node.lock);
    wait_for_callbacks(observer);
    free_observer(observer);
}

void teffi_client_observers_init(teff_client *client)
{
    client->node.upcalls.notice = on_notice;
}

void teffi_client_observers_fini(teff_client *client)
{
    teff_observer *next;
    teffi_table_fini(&client->observers.by_number);
    for (teff_observer *o = LIST_FIRST(&client->observers.all); o; o = next) {
        next = LIST_NEXT(o, link);
        free_observer(o);
    }
}
