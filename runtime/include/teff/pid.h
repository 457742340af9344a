/* pid.h - requests and messages to processes, from any context: a turn, a process, a thread.
 * Way:     methods, processes, threads -> [pid] -> runtime/node/pid
 * Threads: as teff/grain.h: a teff_ctx belongs to one turn or one thread.
 * Source:  Erlang/OTP's lib/stdlib/src/gen_server.erl: call and cast */
#pragma once

#include <teff/grain.h>
#include <teff/process.h>

TEFF_BEGIN_C

/* A PID in a message: a field of type teff.ProcessId (teff/process.proto).
 * teff_pid_of_message - the PID in it; zeroed if message is NULL. in: message, evaluated more
 * than once.
 * teff_pid_fields - for a new message:
 *     out->worker = teff_process_id_keep(ctx, teff_process_id(teff_pid_fields(pid))); */
#define teff_pid_of_message(message)                                                               \
    ((message) ? (teff_pid){(message)->silo, (message)->incarnation, (message)->slot,              \
                            (message)->generation}                                                 \
               : (teff_pid){0, 0, 0, 0})
#define teff_pid_fields(pid)                                                                       \
    .silo = (pid).silo, .incarnation = (pid).incarnation, .slot = (pid).slot,                      \
    .generation = (pid).generation

/* teff_pid_ask - send a process a request and wait for its response: from a grain's turn, a process
 * (teff_process_ctx) or a thread (teff_silo_new_ctx). A process gets it as TEFF_EVENT_REQUEST, in
 * order with the messages of the same sender.
 * in:   ctx, of a silo. to, of any silo of the cluster. tag and len bytes of data, copied.
 * out:  *response, may be NULL: tag, data and from (= to); data is valid as long as teff_alloc's.
 * runs: in ctx's turn, process or thread, which it suspends or blocks.
 * errs: the process's own error, its text in teff_error(ctx). TEFF_E_NOT_FOUND: there never was
 *       such a process; TEFF_E_CLOSED: it ended before it took the request; TEFF_E_OVERLOADED: its
 *       mailbox is full; TEFF_E_TIMEOUT: no response before the deadline (teff_ctx_set_timeout, the
 *       turn's own deadline; 30 s); TEFF_E_UNREACHABLE: the link to its silo broke;
 *       TEFF_E_CANCELLED: the silo of ctx closes; after the last three the process may have got the
 *       request. TEFF_E_UNAVAILABLE: its silo is not connected, or has no processes;
 *       TEFF_E_TOO_LARGE, TEFF_E_NOMEM. TEFF_E_INVALID: a client's context. */
TEFF_API TEFF_MUST_USE teff_err teff_pid_ask(teff_ctx *ctx, teff_pid to, uint64_t tag,
                                             const void *data, size_t len, teff_event *response);

/* teff_pid_ask_async - the same, without waiting.
 * in:   options, timeout and cancel; NULL: none.
 * out:  *call, for teff_pid_ask_await, teff_await_any, teff_await_all, teff_drop.
 * runs: in ctx's turn, process or thread.
 * errs: TEFF_E_NOMEM; TEFF_E_CANCELLED: cancel has fired; TEFF_E_INVALID: also for options;
 *       TEFF_E_NOT_FOUND: to names no process of a silo; TEFF_E_TIMEOUT: the deadline of the turn's
 *       own caller has passed; TEFF_E_CLOSED: the silo is closed. *call is none. */
TEFF_API TEFF_MUST_USE teff_err teff_pid_ask_async(teff_ctx *ctx, teff_pid to, uint64_t tag,
                                                   const void *data, size_t len,
                                                   const teff_call_options *options,
                                                   teff_call *call);

/* teff_pid_ask_await - wait for the response of teff_pid_ask_async and take it.
 * in:   call, begun on ctx; it becomes none.
 * out, runs, errs: as teff_pid_ask. */
TEFF_API TEFF_MUST_USE teff_err teff_pid_ask_await(teff_ctx *ctx, teff_call *call,
                                                   teff_event *response);

/* teff_pid_send - send a process a message and do not wait, as teff_process_send, from any context.
 * in:   ctx, of a silo; to and message as for teff_process_send.
 * runs: in ctx's turn, process or thread. Never blocks.
 * errs: as teff_process_send, also for a process of this silo; TEFF_E_INVALID: a client's
 *       context. */
TEFF_API TEFF_MUST_USE teff_err teff_pid_send(teff_ctx *ctx, teff_pid to,
                                              const teff_event *message);

TEFF_END_C
