/* ask.h - the runtime's own requests: to a system target of a silo, or to the node's store.
 * Way:     cluster, directory, remote store, state -> [ask] -> ctx_calls, node
 * Threads: as call/ctx.h. */
#pragma once

#include "call/ctx.h"
#include "node/node.h"

/* teffi_ctx_run_store_op - run a store operation and wait for it. in: op, copied back at the end;
 * its done is ignored. out: op->err, with its text in ctx; TEFF_E_CONFLICT, an ordinary result,
 * sets no text. */
TEFF_MUST_USE teff_err teffi_ctx_run_store_op(teff_ctx *ctx, teffi_store_op *op);

/* teffi_ctx_run_rpc - send a request to a system target of a silo (also this one), await the
 * response.
 * in:   body, borrowed, packed. timeout_ms, not 0. response may be NULL.
 * out:  *response, the response's body, of type desc; valid until the call is released.
 * errs: the target's error; as teffi_node_send; TEFF_E_TIMEOUT and TEFF_E_UNREACHABLE: it may have
 *       run; TEFF_E_UNAVAILABLE, to a store: the silo was not reached, or starts, and it has not
 *       run; TEFF_E_CANCELLED: the node stops; as teffi_msg_unpack, of the response. */
TEFF_MUST_USE teff_err teffi_ctx_run_rpc(teff_ctx *ctx, teffi_node_id to, unsigned slot,
                                         uint32_t method, const ProtobufCMessage *body,
                                         uint32_t timeout_ms,
                                         const ProtobufCMessageDescriptor *desc,
                                         ProtobufCMessage **response);

/* teffi_ctx_start_rpc - start such a request; the caller awaits it with teffi_ctx_await_call.
 * out:  NULL: out of memory, or of calls; else a call, which may have ended already. */
teffi_call *teffi_ctx_start_rpc(teff_ctx *ctx, teffi_node_id to, unsigned slot, uint32_t method,
                                const ProtobufCMessage *body, uint32_t timeout_ms,
                                const ProtobufCMessageDescriptor *desc);
