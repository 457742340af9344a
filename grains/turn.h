/* turn.h - one method of an activation, running on a fiber.
 * Way:     activation -> [turn] -> the type's invoke -> user code -> answer
 * Threads: on the activation's group. */
#ifndef TEFFI_GRAINS_TURN_H
#define TEFFI_GRAINS_TURN_H

#include "activation.h"
#include "admission.h"

typedef struct teffi_turn {
    teff_ctx ctx; /* owner points back here */
    teffi_activation *act;
    teffi_msg *request;              /* NULL: the activation's own life; or it is the answer now */
    struct teffi_in_place *place;    /* the answer goes there; NULL: it is a message */
    bool on_stack;                   /* the request, beside the turn */
    const char *name;                /* the method's, or the type's; constant */
    struct teffi_turn *next, **prev; /* of the activation */
} teffi_turn;

/* teffi_turns_discard - what the activation's turns that will never go on still hold; their stacks
 * are there, nothing runs any more. */
void teffi_turns_discard(teffi_activation *act);

/* teffi_turn_start - run a request, owned, until it suspends or ends. Its body is unpacked here, on
 * the worker's own stack. Counts itself in act->running while it runs. */
void teffi_turn_start(teffi_activation *act, teffi_msg *request, const teff_method *method);

/* A request that runs inside its caller's turn: what it is and where its answer goes, on the
 * caller's stack. */
typedef struct teffi_in_place {
    teff_ctx *caller;
    teffi_activation *act; /* its group is claimed */
    const teff_method *method;
    teffi_class class;          /* its */
    const ProtobufCMessage *in; /* copied into the method's stack */
    uint32_t kind;              /* TEFFI_MSG_REQUEST or _ONEWAY */
    ProtobufCMessage **out;     /* NULL: nobody wants it */
    teff_err err;               /* how it ended; the text is in caller */
    teffi_fiber *fiber;         /* turn.c's, as turn */
    teffi_turn *turn;
} teffi_in_place;

typedef enum teffi_turn_end {
    TEFFI_TURN_NOT_STARTED, /* no memory, no stack, too deep to copy */
    TEFFI_TURN_ENDED,
    TEFFI_TURN_WAITS /* or gave way: teffi_turn_detach, before the claim is given back */
} teffi_turn_end;

/* teffi_turn_in_place - as teffi_turn_start, in the turn of place->caller. */
teffi_turn_end teffi_turn_in_place(teffi_in_place *place);

/* teffi_turn_detach - from now on it answers its request. out: that. */
teffi_msg *teffi_turn_detach(teffi_in_place *place);

/* teffi_turn_life - run fn on a fiber as the activation's own (activate, deactivate); act->busy
 * until it has ended. errs: TEFF_E_NOMEM: not started. */
TEFF_MUST_USE teff_err teffi_turn_life(teffi_activation *act,
                                       void (*fn)(teff_ctx *ctx, teffi_activation *act),
                                       const char *label);

/* teffi_turn_resumes - the item of a wait came: its turn is what the activation does now. */
void teffi_turn_resumes(teffi_activation *act, teffi_item *item);

/* teffi_turn_grain - the activation as generated code sees it from ctx. */
static inline void teffi_turn_grain(teff_grain *grain, teff_ctx *ctx, const teffi_activation *act)
{
    grain->ctx = ctx;
    teffi_activation_key(act, &grain->key);
    grain->state = teffi_activation_state(act);
    grain->user = act->type->user;
}

/* teffi_turn_activation - whose turn a context is; NULL for threads and system tasks. */
teffi_activation *teffi_turn_activation(const teff_ctx *ctx);

#endif
