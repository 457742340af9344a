/* ask.c - requests to system targets and store operations, awaited by a context. */
#include "node/ask.h"

#include "node/deliver.h"

typedef struct store_wait {
    teffi_store_op op;
    teffi_wait wait;
} store_wait;

/* The operation's callback `done`: notifies the waiter in teffi_ctx_run_store_op(). */
static void notify_store_op_waiter(teffi_store_op *op)
{
    teffi_wait_notify_waiter(&teffi_container(op, store_wait, op)->wait);
}

teff_err teffi_ctx_run_store_op(teff_ctx *ctx, teffi_store_op *op)
{
    store_wait s = {.op = *op};
    teffi_wait *wait = &s.wait;
    s.op.done = notify_store_op_waiter;
    teffi_wait_init(wait, ctx, NULL);
    teffi_store_submit(ctx->node->store, &s.op);
    teffi_await(ctx, &wait, 1);
    *op = s.op;
    if (op->err && op->err != TEFF_E_CONFLICT)
        return teff_fail(ctx, op->err, "store: %s", op->text);
    return op->err;
}

/* Is a request of ctx to this slot a system request? All requests are, except those that a user's
 * turn or a user's thread sends to a remote store, because these requests are for users' rows. */
static bool is_system_request(const teff_ctx *ctx, unsigned slot)
{
    return slot != TEFFI_SLOT_STORE || (ctx->group && ctx->group->system);
}

/* out: the error of a request that send has refused with err. A request to a store, if the silo
 * cannot be reached, ends with TEFF_E_UNAVAILABLE, which says that it has not run: it may be a
 * write, which may then be sent again. */
static teff_err get_unsent_error(unsigned slot, teff_err err)
{
    bool not_reached = err == TEFF_E_CLOSED || err == TEFF_E_UNREACHABLE;
    return slot == TEFFI_SLOT_STORE && not_reached ? TEFF_E_UNAVAILABLE : err;
}

/* Makes a request that carries body. The caller sets msg->call and the deadline. out: NULL: out of
 * memory. */
static teffi_msg *new_rpc_msg(teff_ctx *ctx, teffi_node_id to, unsigned slot, uint32_t method,
                              const ProtobufCMessage *body)
{
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_REQUEST);
    if (!msg)
        return NULL;
    msg->src = ctx->node->id;
    msg->to = (teffi_pid){.node = to, .slot = slot};
    msg->flags = slot == TEFFI_SLOT_STORE ? TEFFI_MSG_ROW : 0;
    msg->system = is_system_request(ctx, slot);
    msg->method_id = method;
    if (teffi_node_pack_body(msg, body))
        return msg;
    teffi_msg_free(msg);
    return NULL;
}

teffi_call *teffi_ctx_start_rpc(teff_ctx *ctx, teffi_node_id to, unsigned slot, uint32_t method,
                                const ProtobufCMessage *body, uint32_t timeout_ms,
                                const ProtobufCMessageDescriptor *desc)
{
    teffi_node *node = ctx->node;
    uint64_t deadline = teffi_now(node->platform) + timeout_ms * 1000000ull;
    teffi_msg *msg = new_rpc_msg(ctx, to, slot, method, body);
    teffi_call *call = msg ? teffi_ctx_call_new(ctx, deadline) : NULL;
    if (!call) {
        teffi_msg_free(msg);
        return NULL;
    }
    teffi_call_expect_body(call, desc, TEFFI_CALL_TARGETS_NO_GRAIN);
    msg->call = (teffi_origin){call->slot, call->generation, 0};
    msg->deadline_ns = deadline;
    teffi_call_sign_request(ctx->home, msg);
    teff_err err = teffi_node_send(node, to, msg);
    if (err) {
        teffi_msg_free(msg);
        (void)teffi_call_fail(call, get_unsent_error(slot, err), "the silo cannot be reached");
    }
    return call;
}

teff_err teffi_ctx_run_rpc(teff_ctx *ctx, teffi_node_id to, unsigned slot, uint32_t method,
                           const ProtobufCMessage *body, uint32_t timeout_ms,
                           const ProtobufCMessageDescriptor *desc, ProtobufCMessage **response)
{
    teffi_call *call = teffi_ctx_start_rpc(ctx, to, slot, method, body, timeout_ms, desc);
    if (!call)
        return teff_fail(ctx, TEFF_E_NOMEM, "out of memory for a call");
    return teffi_ctx_await_call(ctx, call, response);
}
