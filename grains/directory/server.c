/* server.c - handle other silos' requests to this silo's directory. */
#include "directory/server.h"

#include "call/task.h"
#include "cluster/membership.h"
#include "directory/location_cache.h"
#include "directory/client.h"
#include "node/deliver.h"

/* Responds to msg with err, a result of teffi_partition_execute_directory_method(). TEFF_OK becomes
 * HELD, and the response contains `holder`. TEFF_E_NOT_FOUND becomes ABSENT. TEFF_E_UNAVAILABLE
 * becomes REFRESH: the sender refreshes its view and asks again. */
static void respond_with_directory_result(teffi_node *node, teffi_msg *msg, teff_err err,
                                          teffi_pid holder)
{
    Teff__Cluster__DirectoryResponse a = TEFF__CLUSTER__DIRECTORY_RESPONSE__INIT;
    teffi_packed_pid packed;
    teffi_pid_pack(&packed, holder);
    a.view = node->grains->shards->version;
    a.result = err == TEFF_OK            ? TEFF__CLUSTER__DIRECTORY_RESPONSE__RESULT__HELD
               : err == TEFF_E_NOT_FOUND ? TEFF__CLUSTER__DIRECTORY_RESPONSE__RESULT__ABSENT
                                         : TEFF__CLUSTER__DIRECTORY_RESPONSE__RESULT__REFRESH;
    a.pid = err ? NULL : &packed.pid;
    teffi_node_respond_with_body(node, msg, &a.base);
}

static void respond_too_many_parked(teffi_node *node, teffi_msg *msg)
{
    teffi_node_respond_with_err(node, msg, TEFF_E_OVERLOADED,
                                "too many requests wait for the silo's part of the directory");
}

/* A task that adopts the newest view. Clears catching_up before the refresh, so that a request that
 * comes during the refresh starts another task. If the refresh fails, the parked requests stay
 * parked until a later view is adopted or partitions become SERVING. */
static void adopt_newest_view(teff_ctx *ctx, void *arg)
{
    teffi_shards *shards = arg;
    shards->catching_up = false;
    (void)!teffi_membership_refresh(ctx, 0);
}

/* Starts a task that adopts the newest view, unless such a task is queued already. One task serves
 * all parked requests, because there are few stacks for system tasks. If there is no memory for the
 * task, does nothing. */
static void start_adopting_newest_view(teffi_node *node)
{
    teffi_shards *shards = node->grains->shards;
    if (!atomic_exchange(&shards->catching_up, true) &&
        teffi_task_start(&node->home, adopt_newest_view, shards, "directory: catch up with a view",
                         true))
        shards->catching_up = false;
}

/* Refuses msg if its sender is a stranger: a silo that is neither a member in this silo's view nor
 * known to have left the cluster. in: this silo's view is not older than the sender's. out: true if
 * msg was refused. */
static bool refuse_if_stranger(teffi_node *node, teffi_msg *msg)
{
    if (!teffi_outsiders_have_stranger(node->membership, msg->src))
        return false;
    teffi_node_respond_with_err(node, msg, TEFF_E_REFUSED,
                                "directory: the sender is not in the cluster's view");
    return true;
}

/* Parks msg if its sender has a view that this silo has not adopted yet. If this silo adopts that
 * view before msg is parked, delivers msg and all other parked requests at once.
 * in: view: the version of the sender's view. out: true: msg was parked, or was refused because
 * too many are parked. */
static bool park_if_behind(teffi_node *node, teffi_msg *msg, uint64_t view)
{
    teffi_shards *shards = node->grains->shards;
    /* acquire: pairs with teffi_partitions_adopt_view() */
    if (atomic_load_explicit(&shards->version, memory_order_acquire) >= view)
        return false;
    start_adopting_newest_view(node);
    if (!teffi_partitions_park_request(shards, msg))
        respond_too_many_parked(node, msg);
    else if (atomic_load_explicit(&shards->version, memory_order_acquire) >= view)
        teffi_partitions_deliver_parked_requests(node->grains); /* adopted before msg was parked */
    return true;
}

static teffi_ident make_ident(const teffi_node *node, uint32_t type, ProtobufCBinaryData key)
{
    return teffi_ident_of(&node->grains->secret, type, key.data, (uint32_t)key.len);
}

static void execute_directory_request(teffi_node *node, teffi_msg *msg)
{
    const Teff__Cluster__DirectoryAsk *ask = (const Teff__Cluster__DirectoryAsk *)msg->body;
    teffi_pid holder = {0};
    teffi_ident ident = make_ident(node, ask->type, ask->key);
    teff_err err = teffi_partition_execute_directory_method(
        node->grains, msg->method_id, &ident, teffi_pid_unpack(ask->pid), &holder, msg);
    if (err == TEFF_E_NOMEM)
        teffi_node_respond_with_err(node, msg, err, "directory: out of memory");
    else if (err == TEFF_E_OVERLOADED)
        respond_too_many_parked(node, msg);
    else if (err != TEFF_E_CLOSED) /* CLOSED: msg is parked */
        respond_with_directory_result(node, msg, err, holder);
}

enum { END_WAIT_MS = 5000, END_PAUSE_MAX_MS = 50 };

/* The task that handles a DEACTIVATE request, which names a duplicate: an activation of a grain for
 * which the directory keeps another one. Asks the duplicate to end, waits until it has ended, but
 * at most END_WAIT_MS, and responds. The wait is limited because the sender's partitions stay
 * LOCKED until the response. */
static void end_duplicate_activation(teff_ctx *ctx, void *arg)
{
    teffi_msg *msg = arg;
    const Teff__Cluster__DirectoryAsk *ask = (const Teff__Cluster__DirectoryAsk *)msg->body;
    teffi_grains *grains = ctx->node->grains;
    teffi_ident ident = make_ident(ctx->node, ask->type, ask->key);
    teffi_pid pid = teffi_pid_unpack(ask->pid);
    uint64_t deadline = teffi_now(ctx->node->platform) + END_WAIT_MS * 1000000ull;
    if (teffi_shard_ask_duplicate_to_end(grains, &ident, pid))
        for (uint32_t ms = 1; teffi_shard_has_activation(grains, &ident, &pid) &&
                              teffi_now(ctx->node->platform) < deadline;
             ms = ms * 2 < END_PAUSE_MAX_MS ? ms * 2 : END_PAUSE_MAX_MS)
            teffi_ctx_sleep(ctx, ms);
    respond_with_directory_result(ctx->node, msg, TEFF_E_NOT_FOUND, pid);
}

static void start_ending_duplicate_activation(teffi_node *node, teffi_msg *msg)
{
    if (teffi_task_start(&node->home, end_duplicate_activation, msg,
                         "directory: end a second activation", true))
        teffi_node_respond_with_err(node, msg, TEFF_E_NOMEM, "directory: out of memory");
}

/* Handles a MOVED message, which says that a grain is not on the sender's silo: drops the grain's
 * cached location if it is that silo. */
static void drop_moved_location(teffi_node *node, teffi_msg *msg)
{
    const Teff__Cluster__Moved *moved = (const Teff__Cluster__Moved *)msg->body;
    teffi_ident ident = make_ident(node, moved->type, moved->key);
    teffi_location_drop(node->grains->location_cache, ident.hash,
                        teffi_pid_unpack(moved->pid).node);
    teffi_msg_free(msg);
}

/* Does msg name a grain, and REGISTER an activation? No kind of key is empty. out: true also if msg
 * needs neither. */
static bool request_is_complete(const teffi_msg *msg)
{
    const Teff__Cluster__DirectoryAsk *ask = (const Teff__Cluster__DirectoryAsk *)msg->body;
    if (msg->method_id == TEFFI_METHOD_RECOVER)
        return true;
    if (msg->method_id == TEFFI_METHOD_MOVED)
        return ((const Teff__Cluster__Moved *)msg->body)->key.len > 0;
    return ask->key.len &&
           (msg->method_id != TEFFI_METHOD_REGISTER || teffi_pid_is_packed_grain(ask->pid));
}

/* out: the version of the sender's view; 0 if msg does not contain it. */
static uint64_t read_view_version(const teffi_msg *msg)
{
    return msg->method_id == TEFFI_METHOD_MOVED ? 0
           : msg->method_id == TEFFI_METHOD_RECOVER
               ? ((const Teff__Cluster__Recover *)msg->body)->view
               : ((const Teff__Cluster__DirectoryAsk *)msg->body)->view;
}

void teffi_directory_handle_request(teffi_node *node, teffi_msg *msg)
{
    const ProtobufCMessageDescriptor *desc =
        msg->method_id == TEFFI_METHOD_RECOVER ? &teff__cluster__recover__descriptor
        : msg->method_id == TEFFI_METHOD_MOVED ? &teff__cluster__moved__descriptor
                                               : &teff__cluster__directory_ask__descriptor;
    teff_err err = teffi_msg_unpack(msg, desc);
    if (!err && !request_is_complete(msg))
        err = TEFF_E_MALFORMED;
    if (err)
        teffi_node_respond_with_err(node, msg, err,
                                    "directory: the request is malformed, or names no grain");
    else if (park_if_behind(node, msg, read_view_version(msg)) || refuse_if_stranger(node, msg))
        return;
    else if (msg->method_id == TEFFI_METHOD_MOVED)
        drop_moved_location(node, msg);
    else if (msg->method_id == TEFFI_METHOD_DEACTIVATE)
        start_ending_duplicate_activation(node, msg);
    else if (msg->method_id == TEFFI_METHOD_RECOVER)
        teffi_recover_respond(node->grains, msg);
    else if (msg->method_id >= TEFFI_METHOD_REGISTER && msg->method_id <= TEFFI_METHOD_UNREGISTER)
        execute_directory_request(node, msg);
    else
        teffi_node_respond_with_err(node, msg, TEFF_E_NOT_FOUND, "directory: no such request");
}
