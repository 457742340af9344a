/* state.h - a grain's stored state: loaded before on_activate, saved when its code says so.
 * Way:     activation -> [state] -> store, table "state", key: cluster, type, key bytes
 * Threads: on the activation's group. */
#pragma once

#include "activation/activation.h"
#include "message/codec.h"

/* teffi_state_load - make act->stored: from the store, or empty. Does nothing for a type without
 * state.
 * errs: the store's; TEFF_E_MALFORMED: the row does not decode as the state message. */
TEFF_MUST_USE teff_err teffi_state_load(teff_ctx *ctx, teffi_activation *act);

/* teffi_state_compacts - does the state's arena hold enough garbage to compact it?
 * teffi_state_compact - compact it if so and if no turn runs; ends a pause. The handler calls this
 * after each item. */
bool teffi_state_compacts(const teffi_activation *act);
void teffi_state_compact(teffi_activation *act);

/* teffi_state_owner - the activation whose turn runs on ctx.
 * out:  NULL: no turn, or of a type without state. */
teffi_activation *teffi_state_owner(teff_ctx *ctx);

/* teffi_state_taken - after each allocation in the state's arena. If the arena has reached
 * pause_bytes, a pause begins: no turn starts until the running ones have ended and the state is
 * compacted, or until 1 s has passed. Needed where turns overlap all the time. */
void teffi_state_taken(teffi_activation *act);

extern const teffi_limits teffi_state_limits;

/* teffi_state_settle - after a turn in place that did not yield: nudge the activation if the
 * group's handler has anything to do. Called by the thread that has claimed the group. */
void teffi_state_settle_any(teffi_activation *act);

static inline void teffi_state_settle(teffi_activation *act)
{
    if (act->reason || act->more || act->stored)
        teffi_state_settle_any(act);
}

/* teffi_state_end_pause - end the pause, if there is one. Called at the latest before the
 * activation's group is COMPLETE. */
void teffi_state_end_pause(teffi_activation *act);

/* teffi_state_break - a turn ended in its middle and may have left the state half changed. No turn
 * uses the state any more; the activation ends without on_deactivate. */
void teffi_state_break(teffi_activation *act);

static inline bool teffi_state_is_broken(const teffi_activation *act)
{
    return act->stored && act->stored->broken;
}

/* teffi_state_free - free act->stored with its arena. */
void teffi_state_free(teffi_activation *act);
