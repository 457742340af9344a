/* turn.h - one method of an activation, running on a fiber.
 * Way:     activation -> [turn] -> the type's invoke -> user code -> response
 * Threads: on the activation's group. */
#pragma once

#include "activation/activation.h"

/* teffi_activation_discard_contents - free the turns, requests, lock and state of an activation.
 * For shutdown: no turn runs any more, and the turns' stacks still exist. */
void teffi_activation_discard_contents(teffi_activation *act);

/* teffi_turn_start - start the turn of a request; returns when it suspends, yields or ends. If the
 * turn cannot start, the request gets the error as its response. Owns request. act->running counts
 * the turn. runs: on a worker's own stack, as it unpacks the body. */
void teffi_turn_start(teffi_activation *act, teffi_msg *request, const teff_method *method);

/* teffi_turn_run_tick - run a one-way method whose request lies on its own fiber's stack; returns
 * when the turn has ended. in: turn, uninitialized memory on that stack. request, without memory of
 * its own. runs: on the fiber, from its main function. */
void teffi_turn_run_tick(teffi_turn *turn, teffi_activation *act, teffi_fiber *fiber,
                         const teff_method *method, teffi_msg *request);

/* A request that runs inside its caller's turn, and its response. Lies on the caller's stack. */
typedef struct teffi_in_place {
    teff_ctx *caller;
    teffi_activation *act; /* its group is claimed */
    const teff_method *method;
    teffi_class class;          /* of method */
    const ProtobufCMessage *in; /* copied for the method */
    uint32_t kind;              /* TEFFI_MSG_REQUEST or TEFFI_MSG_ONEWAY */
    uint32_t due_ms;            /* for ctx.due_ms of the callee's turn; 0: no deadline */
    ProtobufCMessage **out;     /* NULL: no response is wanted */
    teff_err err;               /* the method's result; its text is in caller */
    teffi_fiber *fiber;         /* private to turn.c */
    teffi_turn *turn;           /* private to turn.c; NULL: not started */
} teffi_in_place;

typedef enum teffi_turn_end {
    TEFFI_TURN_NOT_STARTED, /* no memory, no stack, or the request breaks a rule (type.h) */
    TEFFI_TURN_ENDED,
    TEFFI_TURN_WAITS /* suspended or yielded: teffi_turn_detach before the group is released */
} teffi_turn_end;

/* teffi_turn_run_in_place - run a request's turn inside the turn of place->caller; returns when it
 * suspends, yields or ends. The result of a turn that ended is in place. */
teffi_turn_end teffi_turn_run_in_place(teffi_in_place *place);

/* teffi_turn_detach - make a turn in place independent of its caller: its response becomes a
 * message. teffi_turn_set_call must follow, unless it is a one-way or there is no memory for a
 * call. */
void teffi_turn_detach(teffi_in_place *place);

/* teffi_turn_set_call - set the pending call that a detached turn responds to. */
void teffi_turn_set_call(teffi_in_place *place, const teffi_call *call, uint64_t deadline_ns);

/* teffi_turn_start_life_turn - run fn on a fiber, as life turn; returns when it suspends, yields or
 * ends. TEFFI_BUSY_LIFE is set until it has ended.
 * errs: TEFF_E_OVERLOADED: not started, out of stacks. */
TEFF_MUST_USE teff_err teffi_turn_start_life_turn(teffi_activation *act,
                                                  void (*fn)(teff_ctx *ctx, teffi_activation *act));

/* teffi_turn_exit - end a request's turn in the middle of its method: respond with err and ctx's
 * text. The state, which may be half changed, is broken: see
 * teffi_state_mark_broken_and_deactivate. On its fiber, which the caller then ends. */
void teffi_turn_exit(teffi_turn *turn, teff_err err);

/* teffi_turn_end_life_turn - free the life turn, at its end or in its middle; on its fiber. */
void teffi_turn_end_life_turn(teffi_turn *turn);

/* teffi_turn_set_doing_on_resume - set act->doing to the name of the method whose turn a wait's
 * item will resume. If that turn is a life turn, which has no method, set it to the type's name. */
void teffi_turn_set_doing_on_resume(teffi_activation *act, teffi_item *item);

/* teffi_turn_fill_grain - fill the teff_grain that generated code gets. */
static inline void teffi_turn_fill_grain(teff_grain *grain, teff_ctx *ctx,
                                         const teffi_activation *act)
{
    grain->ctx = ctx;
    teffi_activation_get_key(act, &grain->key);
    grain->state = teffi_activation_state(act);
    grain->user = act->type->user;
}

/* teffi_turn_make_valid_error - make a valid error with a text from an error that application code
 * returned.
 * in:   err, not TEFF_OK. what: the method, "lab.Moody.Fail".
 * out:  err; TEFF_E_FAILED if err is no error code. ctx's text: the method's own if it set one for
 *       err, else a text made here, which quotes ctx's last error text, if any. */
teff_err teffi_turn_make_valid_error(teff_ctx *ctx, const teffi_activation *act, const char *what,
                                     teff_err err);
