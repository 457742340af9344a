/* direct.h - a call, or one-way message, of a turn to an idle grain of the same silo: the method
 * runs at once, on a fiber inside the caller's turn, and leaves its answer in the caller's memory.
 * Way:     reference -> [direct] -> seen | catalog -> claim -> admission -> turn ... the answer
 * Threads: the caller's turn.
 *
 * When the method has to wait, or its slice is over, the call becomes a pending one like any other,
 * and only then is the callee's group let go: so nothing can answer before there is somebody to
 * answer to. The callee may outlive the caller's wait.
 *
 * No message is overtaken: a claim succeeds on an idle group with nothing queued, and is given back
 * when requests of the same class are set aside, or wait to be located.
 *
 * A started call and a one-way message run in place too, in the first 5 ms of their caller's run:
 * what takes longer is better spread over the workers.
 *
 * While the method runs in place its caller's turn stands still: it cannot time out, and its grain
 * lets nothing else in. So a method that blocks its thread or computes for long (5 ms), twice in a
 * row (once it may be the thread that stood), goes through the queue 256 times, the next time twice
 * as often, up to 16,384 times; once that it was short clears it. */
#ifndef TEFFI_GRAINS_DIRECT_H
#define TEFFI_GRAINS_DIRECT_H

#include <teff/grain.h>
#include "grains.h"

typedef struct teffi_ask { /* as teff_ask's arguments, which have been checked */
    teff_ctx *ctx;         /* a turn's, for these functions */
    const teff_type_info *type;
    const teff_method *method;
    const ProtobufCMessage *in;
    teffi_ident ident; /* its key in bytes; hash: 0 until it is needed */
    /* out: the grain surely was not here, and nobody waits for it to be located */
    bool elsewhere;
    teffi_node_id hint; /* then: where it was seen last; none: not known */
    uint8_t bytes[TEFFI_KEY_BYTES_MAX];
} teffi_ask;

/* teffi_direct_ask - run it in place, if that may be; out as teff_ask's.
 * out:  false: nothing was done, it goes through the queue. true: *call NULL: it has ended with
 *       *err, the text in ctx; else it goes on elsewhere, and *call is to be awaited. */
bool teffi_direct_ask(teffi_ask *ask, ProtobufCMessage **out, teffi_call **call, teff_err *err);

/* teffi_direct_start - the same, without waiting; *call may have ended already. */
bool teffi_direct_start(teffi_ask *ask, teffi_call **call);

/* teffi_direct_send - the same, of a one-way method. out: true: it has run, or runs. */
bool teffi_direct_send(teffi_ask *ask);

/* teffi_timeout_ms - how long a call waits for its answer. */
static inline uint32_t teffi_timeout_ms(const teff_ctx *ctx, const teff_method *method)
{
    return ctx->timeout_ms      ? ctx->timeout_ms
           : method->timeout_ms ? method->timeout_ms
                                : TEFFI_TIMEOUT_DEFAULT_MS;
}

#endif
