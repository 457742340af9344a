/* state.h - a grain's stored state: loaded before on_activate, saved when its code says so.
 * Way:     activation -> [state] -> store, table "state", key: cluster, type, key bytes
 * Threads: on the activation's group. */
#pragma once

#include "activation/activation.h"
#include "message/codec.h"
#include "store/store.h"

/* teffi_state_load - make act->stored: from the store, or empty. Does nothing for a type without
 * state.
 * errs: the store's; TEFF_E_MALFORMED: the row does not decode as the state message; TEFF_E_NOMEM.
 *       Text in ctx. */
TEFF_MUST_USE teff_err teffi_state_load(teff_ctx *ctx, teffi_activation *act);

/* teffi_state_begin_idempotent_call - begin the turn of a call with an idempotency key: wait until
 * no other turn writes the state or has a key, and make act->stored->answers. From here on saves of
 * this turn are deferred, and those of others wait.
 * in:   act has a state. errs: TEFF_E_NOMEM: nothing has begun.
 * teffi_state_end_idempotent_call - write the state with the answers, if the row lacks any, and let
 * others write. After an error act ends. errs: as teff_state_save. */
TEFF_MUST_USE teff_err teffi_state_begin_idempotent_call(teff_ctx *ctx, teffi_activation *act);
TEFF_MUST_USE teff_err teffi_state_end_idempotent_call(teff_ctx *ctx, teffi_activation *act);

/* For transactions (lock.h), on a VALID activation with state:
 * teffi_state_make_row_key - the key of act's row, in ctx's memory.
 * teffi_state_pack - the state and the answers as in a row, in ctx's memory; without that memory
 *       the turn ends. errs: TEFF_E_TOO_LARGE, TEFF_E_MALFORMED: as teffi_check_message; text in
 *       ctx.
 * teffi_state_restore - replace the state by value, which teffi_state_pack has made, or which was
 *       read from the store; if it does not decode, or without memory, the activation ends. On a
 *       worker's own stack.
 * teffi_state_set_etag_after_commit - after a transaction has written the row: set the state's etag
 *       to the row's new etag (0: the row was removed), and mark the answers as saved.
 * teffi_state_mark_lost_and_deactivate - another writer may have changed the row: act ends and
 * writes it no more.
 * teffi_state_touch - write the row as it is, so that its etag changes. out: *row: the row as it
 *       was read last, in ctx's memory. errs: the store's, with text in ctx; TEFF_E_CONFLICT: the
 *       row or the fence has changed. */
teffi_bytes teffi_state_make_row_key(teff_ctx *ctx, const teffi_activation *act);
TEFF_MUST_USE teff_err teffi_state_pack(teff_ctx *ctx, const teffi_activation *act,
                                        teffi_bytes *value);
void teffi_state_restore(teffi_activation *act, teffi_bytes value);
void teffi_state_set_etag_after_commit(teffi_activation *act, uint64_t etag);
void teffi_state_mark_lost_and_deactivate(teffi_activation *act);
TEFF_MUST_USE teff_err teffi_state_touch(teff_ctx *ctx, teffi_activation *act, teffi_row *row);

/* teffi_state_must_compact - has the arena so much garbage that the state must be compacted, or has
 * it reached pause_bytes?
 * teffi_state_compact_if_due - if no turn runs: compact the state if it must be, and end the pause.
 * Called by the handler after each item, while act is VALID. */
bool teffi_state_must_compact(const teffi_activation *act);
void teffi_state_compact_if_due(teffi_activation *act);

/* teffi_state_owner - the activation whose turn runs on ctx and which has a state.
 * out:  NULL: no turn, a type without state, or the state is not loaded. */
teffi_activation *teffi_state_owner(teff_ctx *ctx);

/* teffi_state_pause_turns_if_large - begin a pause if the state's arena has reached pause_bytes;
 * called after each allocation in it. In a pause no turn starts until the running ones have ended
 * and the state is compacted, or until 1 s has passed. Without pauses, turns that overlap all the
 * time would prevent every compaction. */
void teffi_state_pause_turns_if_large(teffi_activation *act);

extern const teffi_limits teffi_state_limits;

/* teffi_activation_nudge_if_due - after a turn in place that did not yield: if the group's handler
 * may have anything to do, call teffi_activation_nudge(), which queues an item for it. Called by
 * the thread that has claimed the group.
 * teffi_activation_nudge_if_due_slow - the slow path. */
void teffi_activation_nudge_if_due_slow(teffi_activation *act);

static inline void teffi_activation_nudge_if_due(teffi_activation *act)
{
    if (act->reason || act->more || act->stored)
        teffi_activation_nudge_if_due_slow(act);
}

/* teffi_state_end_pause - end the pause, if there is one. Called at the latest before the
 * activation's group is COMPLETE. */
void teffi_state_end_pause(teffi_activation *act);

/* teffi_state_mark_broken_and_deactivate - mark the state as broken: a turn ended in its middle and
 * may have left it half changed, or teffi_state_restore failed. The activation ends without
 * on_deactivate. */
void teffi_state_mark_broken_and_deactivate(teffi_activation *act);

static inline bool teffi_state_is_broken(const teffi_activation *act)
{
    return act->stored && act->stored->broken;
}

/* teffi_state_free - free act->stored with its arena, its answers and its pause. */
void teffi_state_free(teffi_activation *act);
