/* filter.h - filters: functions of the program that run before and after calls of grains.
 * Way:     teff_ask -> [outgoing filters] -> request -> [incoming filters] -> method -> back
 * Threads: those of the calls, several at a time; a call's filters run in its own turn or thread.
 *
 * Outgoing filters belong to a silo or a client, and see the calls that its turns, threads and
 * processes make. Incoming filters belong to a silo or a grain type, and see the calls of methods
 * that run on the silo, those of the type only. A list of filters is an array that ends with a
 * filter without functions. In a list, `before` functions run in the order of the list, `after`
 * functions in the reverse order. A silo's incoming filters are before those of the type:
 *
 *     caller: out1.before out2.before           request
 *     callee:     silo1.before type1.before  method  type1.after silo1.after
 *     caller:                                   response  out2.after out1.after
 *
 * | what | outgoing filters | incoming filters |
 * |---|---|---|
 * | call that runs in its caller's turn, or in another turn of the silo; call of another silo, or
 *   by a client | run | run, in the turn of the method |
 * | one-way method, _send | run; err says whether the message was sent | run |
 * | _async | before: when it begins; after: at the first _await of the call, or await_all | run |
 * | call that is never awaited, is dropped, or whose turn ends in its middle | no after | run |
 * | call that ends at its deadline, is cancelled, or is not sent | after gets this error | run only
 *   if the request starts; the method's result, though it comes too late, goes to after |
 * | cancelled, or late, while an incoming filter waits before the method | after gets this error |
 *   the method does not run; after gets TEFF_E_CANCELLED or TEFF_E_TIMEOUT |
 * | tries of an idempotent method after TEFF_E_UNREACHABLE | run once | run for each try |
 * | idempotency key whose answer is stored | run | do not run, since the method does not |
 * | call with an idempotency key that before refuses | not sent; after gets the error | no answer
 *   is stored, whatever after returns: the next call with the key runs them again |
 * | call of a transactional method in a transaction, if before refuses | the transaction is rolled
 *   back, also if the caller or an after ignores the error | as after an error of the method |
 * | request that is NULL, but the method has one | do not run: TEFF_E_INVALID | not sent |
 * | transaction that begins again | run once for the call of the root | run each time |
 * | tick of a timer | not seen | run: TEFF_CALL_TICK |
 * | tick of a reminder; on_activate, on_deactivate | not seen | not seen: these are no methods |
 * | notification | not seen | run at a grain that observes, as a one-way method; not for callbacks
 *   of clients |
 * | request refused before its turn: authorize, limits of queues, deadlock, version | after gets
 *   the error | do not run |
 * | request to a process | not seen | not seen | */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <teff/generated.h>

TEFF_BEGIN_C

enum { TEFF_FILTERS_MAX = 16 /* that one call may meet on one side */ };

typedef enum teff_call_kind {
    TEFF_CALL_REQUEST = 0, /* somebody waits for the response */
    TEFF_CALL_ONE_WAY = 1,
    TEFF_CALL_TICK = 2 /* of a timer (teff/timer.h) */
} teff_call_kind;

/* One call, as its filters see it. All is borrowed, and valid until the function returns. */
typedef struct teff_filter_call {
    teff_ctx *ctx; /* the caller's; of an incoming filter: of the method's turn */
    const teff_type_info *type;
    const teff_method *method; /* its name, id, flags; in and out describe the messages */
    /* Outgoing: as the caller gives it. If it is no key of the type, the call fails later. */
    const teff_key *key;
    /* The request, of type method->in->desc; NULL for teff.Void, and in an outgoing `after` of an
     * _async call. */
    const ProtobufCMessage *in;
    /* The response, of type method->out->desc; NULL for teff.Void. A filter may change its fields,
     * and let them point to memory of teff_alloc(ctx).
     *   incoming: never NULL if the method has a response; empty before the method and after an
     *             error of it.
     *   outgoing: NULL before the call and after an error. A filter may set it to a message in
     *             memory of teff_alloc(ctx). If it is NULL when the call ends with TEFF_OK, the
     *             caller gets an empty message. What a filter allocates in after ends with the
     *             caller's teff_ctx_rewind, also if the mark is younger than an _async call. */
    ProtobufCMessage *out;
    teff_call_kind kind;
    /* incoming: the id of the client, connected to this silo, or of the silo that has sent the
     * request here; calls of clients that are connected to another silo come from that silo. The id
     * of a client does not prove who it is (teff_client_call in teff/silo.h). 0: a tick. Outgoing:
     * 0. */
    uint64_t from;
    bool from_client;
    bool answered; /* set by before: see teff_filter */
    void *state;   /* of this filter in this call: NULL at first, from before to after */
} teff_filter_call;

/* The functions may wait, call grains, and use call->ctx as the turn or thread that it belongs to.
 * Calls that an outgoing filter makes are not filtered again. Calls that an incoming filter makes
 * are filtered as those of the method: a silo's filter that calls a grain of its silo runs again in
 * that call, without end unless it looks at call->type. Time that outgoing filters take is not part
 * of the call's timeout. What teff_ctx_set_timeout sets in a filter holds until the function
 * returns. An error needs a text: return teff_fail(call->ctx, ...). */
typedef struct teff_filter {
    /* Called before the call. May be NULL.
     * out: TEFF_OK: the call goes on to the next filter; with call->answered set to true: it does
     *      not, and succeeds with the response call->out. An error: it does not, and fails with
     *      this error; this filter's `after` is not called. */
    teff_err (*before)(void *arg, teff_filter_call *call);
    /* Called after the call, if before has returned TEFF_OK or is NULL. May be NULL. It may change
     * the outcome. But an outgoing filter does not change what a transaction knows of the call.
     * in:  err, the outcome so far; teff_error(call->ctx) has its text.
     * out: the outcome for the next `after`, or for the caller. */
    teff_err (*after)(void *arg, teff_filter_call *call, teff_err err);
    void *arg;
} teff_filter;

/* teff_grain_type_filter - set the incoming filters of a grain type. Those of a silo are set in
 * teff_silo_options, those of a client in teff_client_options (teff/silo.h).
 * in:   type, before a silo takes it. filters, borrowed as long as a silo hosts the type; NULL:
 *       none. With those of the silo at most TEFF_FILTERS_MAX, otherwise teff_silo_host fails with
 *       TEFF_E_INVALID.
 * runs: any thread.
 * from: Orleans IIncomingGrainCallFilter, of a silo and of a grain; IOutgoingGrainCallFilter. */
TEFF_API void teff_grain_type_filter(teff_grain_type *type, const teff_filter *filters);

TEFF_END_C
