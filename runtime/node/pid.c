/* pid.c - events and requests to PIDs, and their responses. */
#include "node/pid.h"

#include <string.h>
#include "base/options.h"
#include "call/calls.h"
#include "call/ctx.h"
#include "call/process_ctx.h"
#include "node/deliver.h"
#include "process/send.h"

/* ---- send ---- */

/* Packs the event into the body of msg; pid.h describes the layout. out: false: no memory. */
static bool pack_event(teffi_msg *msg, const teff_event *event)
{
    const teff_pid from = event->from;
    const teffi_event_head head = {(uint8_t)event->kind, event->tag, from.silo,
                                   from.incarnation,     from.slot,  from.generation};
    uint8_t *body = teff_arena_alloc(&msg->arena, sizeof head + event->len);
    if (!body)
        return false;
    memcpy(body, &head, sizeof head);
    if (event->len)
        memcpy(body + sizeof head, event->data, event->len);
    msg->raw = body;
    msg->raw_len = sizeof head + event->len;
    return true;
}

static teffi_msg *new_event_msg(const teffi_node *node, uint32_t kind, teff_pid to,
                                const teff_event *event)
{
    teffi_msg *msg = teffi_msg_new(kind);
    if (!msg)
        return NULL;
    msg->src = node->id;
    msg->to = (teffi_pid){{to.silo, to.incarnation}, to.slot, to.generation};
    if (pack_event(msg, event))
        return msg;
    teffi_msg_free(msg);
    return NULL;
}

/* Does the PID name a process of a silo? The PIDs of a system without a node have silo 0. */
static bool is_silo_process_pid(teff_pid pid)
{
    return pid.slot & TEFFI_PROCESS_BIT && pid.silo;
}

/* Sends msg to msg->to.node. Owns msg. errs: those of teffi_node_send(), but TEFF_E_UNAVAILABLE
 * replaces TEFF_E_CLOSED and TEFF_E_UNREACHABLE. After an error, msg was not sent. */
static teff_err send_msg(teffi_node *node, teffi_msg *msg)
{
    teff_err err = teffi_node_send(node, msg->to.node, msg);
    if (err)
        teffi_msg_free(msg);
    return err == TEFF_E_CLOSED || err == TEFF_E_UNREACHABLE ? TEFF_E_UNAVAILABLE : err;
}

/* teffi_pid_route.send: sends an event as a one-way message to the node of the process `to`. */
static teff_err send_event(void *arg, teff_pid to, const teff_event *event)
{
    if (!is_silo_process_pid(to))
        return TEFF_E_NOT_FOUND;
    teffi_msg *msg = new_event_msg(arg, TEFFI_MSG_ONEWAY, to, event);
    return msg ? send_msg(arg, msg) : TEFF_E_NOMEM;
}

/* ---- respond ---- */

/* Sets the error and the data of a response. If err is not TEFF_OK, data is the error's text, which
 * is cut to TEFF_TEXT_MAX - 1 bytes. out: false: no memory. */
static bool fill_response(teffi_msg *msg, teff_err err, const void *data, size_t len)
{
    msg->err = (uint16_t)err;
    if (err)
        len = len < TEFF_TEXT_MAX ? len : TEFF_TEXT_MAX - 1;
    const char *copy = len ? teff_arena_copy(&msg->arena, data, len) : NULL;
    if (err) {
        msg->text = copy;
    } else {
        msg->raw = (const uint8_t *)copy;
        msg->raw_len = len;
    }
    return copy || !len;
}

/* teffi_pid_route.respond: sends a response to the call that waits for it. request->from holds
 * the node, slot and generation of that call; request->call holds its cookie. */
static teff_err send_pid_response(void *arg, const teff_event *request, teff_err err,
                                  const void *data, size_t len)
{
    teffi_node *node = arg;
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_RESPONSE);
    if (!msg)
        return TEFF_E_NOMEM;
    msg->src = node->id;
    msg->to.node = (teffi_node_id){request->from.silo, request->from.incarnation};
    msg->call = (teffi_origin){request->from.slot, request->from.generation, request->call};
    if (fill_response(msg, err, data, len))
        return send_msg(node, msg);
    teffi_msg_free(msg);
    return TEFF_E_NOMEM;
}

/* ---- the system ---- */

void teffi_pid_attach_system(teffi_node *node, teff_process_system *system)
{
    system->route = ((teffi_pid_route){.send = send_event,
                                       .respond = send_pid_response,
                                       .arg = node,
                                       .silo = node->id.silo,
                                       .incarnation = node->id.incarnation});
    system->calls = teffi_make_process_call_functions(&node->home);
    /* release: pairs with teffi_pid_deliver_event and send_from_ctx */
    atomic_store_explicit(&node->processes, system, memory_order_release);
}

/* ---- requests ---- */

/* Stored in the call's asked.key, for the call's error text and response. TEFFI_CALL_HAS_ASKED
 * stays clear: there is no method, and cancels do not follow a request to a process. */
typedef struct asked_pid {
    teff_pid to;
    uint64_t tag;
} asked_pid;

_Static_assert(sizeof(asked_pid) <= TEFFI_CALL_KEY_MAX, "it fits in place of a key");

/* Sends the event as a request. out: the call, which the response will end. If the send failed, the
 * call has ended already, with an error. NULL: out of memory. */
static teffi_call *start_pid_request(teff_ctx *ctx, teff_pid to, const teff_event *event,
                                     uint64_t deadline_ns)
{
    const asked_pid asked = {to, event->tag};
    teffi_msg *msg = new_event_msg(ctx->node, TEFFI_MSG_REQUEST, to, event);
    teffi_call *call = msg ? teffi_ctx_call_new(ctx, deadline_ns) : NULL;
    if (!call) {
        teffi_msg_free(msg);
        return NULL;
    }
    teffi_call_expect_body(call, NULL, TEFFI_CALL_TARGETS_NO_GRAIN);
    memcpy(call->asked.key, &asked, sizeof asked);
    msg->call = (teffi_origin){call->slot, call->generation, 0};
    msg->deadline_ns = deadline_ns;
    teffi_call_sign_request(ctx->home, msg);
    teff_err err = send_msg(ctx->node, msg);
    if (err)
        (void)teffi_call_fail(call, err, "the request could not be sent to its silo");
    return call;
}

/* May ctx send to this PID? errs: TEFF_E_INVALID: ctx belongs to a client; TEFF_E_NOT_FOUND: the
 * PID is not that of a silo's process. */
static teff_err check_may_send_to_pid(teff_ctx *ctx, teff_pid to)
{
    if (ctx->node->role == TEFFI_ROLE_CLIENT)
        return teff_fail(ctx, TEFF_E_INVALID, "a client cannot send to processes");
    if (!is_silo_process_pid(to))
        return teff_fail(ctx, TEFF_E_NOT_FOUND, "process %u.%u belongs to no silo",
                         to.slot & ~TEFFI_PROCESS_BIT, to.generation);
    return TEFF_OK;
}

static teff_err check_and_start_pid_request(teff_ctx *ctx, teff_pid to, const teff_event *event,
                                            const teff_call_options *opt, teff_call *call)
{
    teff_err err = check_may_send_to_pid(ctx, to);
    if (err)
        return err;
    uint64_t deadline_ns = teffi_ctx_compute_call_deadline(ctx, opt->timeout_ms);
    if (!deadline_ns)
        return teff_fail(ctx, TEFF_E_TIMEOUT, "%s", teffi_ctx_late_text);
    err = opt->cancel ? teffi_cancel_reserve_room(opt->cancel) : TEFF_OK;
    if (err == TEFF_E_CANCELLED)
        return teff_fail(ctx, err, "cancelled before it began; the request was not sent");
    call->impl = err ? NULL : start_pid_request(ctx, to, event, deadline_ns);
    if (opt->cancel && !err)
        teffi_cancel_add_call(opt->cancel, call->impl);
    if (!call->impl)
        return teff_fail(ctx, TEFF_E_NOMEM, "out of memory for a request");
    return TEFF_OK;
}

static teff_err fail_because_node_is_closed(teff_ctx *ctx)
{
    return teff_fail(ctx, TEFF_E_CLOSED, "the silo or client of this context is closed");
}

teff_err teff_pid_ask_async(teff_ctx *ctx, teff_pid to, uint64_t tag, const void *data, size_t len,
                            const teff_call_options *options, teff_call *call)
{
    const teff_event event = {.kind = TEFF_EVENT_REQUEST, .tag = tag, .data = data, .len = len};
    char text[TEFF_TEXT_MAX];
    teff_call_options opt;
    call->impl = NULL;
    if (!teffi_options_check_and_copy(&opt, sizeof opt, options, "teff_call_options", text))
        return teff_fail(ctx, TEFF_E_INVALID, "%s", text);
    if (opt.once)
        return teff_fail(ctx, TEFF_E_INVALID, "teff_call_options.once is for calls of grains");
    return teffi_ctx_enter(ctx)
               ? teffi_ctx_leave(ctx, check_and_start_pid_request(ctx, to, &event, &opt, call))
               : fail_because_node_is_closed(ctx);
}

/* If the runtime wrote the error text of a failed request, adds the process's PID at the start of
 * the text. A text that the process itself wrote stays as it is. out: err. */
static teff_err add_pid_to_error_text(teff_ctx *ctx, const teffi_call *call, const asked_pid *asked,
                                      teff_err err)
{
    if (!teffi_call_text_lacks_method(call))
        return err;
    const char *text = teff_error(ctx);
    return teff_fail(ctx, err, "process %u.%u of silo %08x: %s",
                     asked->to.slot & ~TEFFI_PROCESS_BIT, asked->to.generation, asked->to.silo,
                     text[0] ? text : teff_err_name(err));
}

/* Converts the response to an event. Copies the data to the context's arena, because an event's
 * data must be aligned and must stay valid after the call is freed. out: always TEFF_OK. */
static teff_err make_response_event(teff_ctx *ctx, const teffi_call *call, const asked_pid *asked,
                                    teff_event *response)
{
    const teffi_msg *msg = call->response;
    size_t len = msg ? msg->raw_len : 0;
    const void *data = len ? memcpy(teff_alloc(ctx, len), msg->raw, len) : NULL;
    *response = (teff_event){.kind = TEFF_EVENT_COMPLETE,
                             .tag = asked->tag,
                             .data = data,
                             .len = len,
                             .from = asked->to};
    return TEFF_OK;
}

teff_err teff_pid_ask_await(teff_ctx *ctx, teff_call *call, teff_event *response)
{
    asked_pid asked;
    if (!call->impl)
        return teff_fail(ctx, TEFF_E_INVALID, "the request was not started");
    memcpy(&asked, call->impl->asked.key, sizeof asked);
    teff_err err = teffi_ctx_await_call(ctx, call->impl, NULL);
    if (err)
        err = add_pid_to_error_text(ctx, call->impl, &asked, err);
    else if (response)
        err = make_response_event(ctx, call->impl, &asked, response);
    teff_drop(ctx, call);
    return err;
}

teff_err teff_pid_ask(teff_ctx *ctx, teff_pid to, uint64_t tag, const void *data, size_t len,
                      teff_event *response)
{
    teff_call call;
    teff_err err = teff_pid_ask_async(ctx, to, tag, data, len, NULL, &call);
    return err ? err : teff_pid_ask_await(ctx, &call, response);
}

/* Does the work of teff_pid_send(), which has called teffi_ctx_enter(). */
static teff_err send_from_ctx(teff_ctx *ctx, teff_pid to, const teff_event *message)
{
    teffi_node *node = ctx->node;
    /* acquire: pairs with teffi_pid_attach_system */
    teff_process_system *system = atomic_load_explicit(&node->processes, memory_order_acquire);
    teff_err err = check_may_send_to_pid(ctx, to);
    if (err)
        return err;
    teff_event event = *message;
    event.kind = TEFF_EVENT_MESSAGE;
    if (!teffi_node_equals((teffi_node_id){to.silo, to.incarnation}, node->id))
        err = send_event(node, to, &event);
    else
        err = system ? teffi_process_send_here(system, to, &event) : TEFF_E_NOT_FOUND;
    return err ? teff_fail(ctx, err, "the message could not be sent: %s", teff_err_name(err))
               : TEFF_OK;
}

teff_err teff_pid_send(teff_ctx *ctx, teff_pid to, const teff_event *message)
{
    return teffi_ctx_enter(ctx) ? teffi_ctx_leave(ctx, send_from_ctx(ctx, to, message))
                                : fail_because_node_is_closed(ctx);
}
