/* participants.h - the participants of a transaction: their list in responses, the batch that
 * writes their states, and the message with the outcome to each of them.
 * Way:     transaction -> [participants] -> store, node
 * Threads: in a turn, on its fiber. */
#pragma once

#include "activation/lock.h"
#include "store/store.h"
#include "transaction.pb-c.h"

/* teffi_participant_make_entry - make act's own entry. Its members point into act and ctx's memory.
 * in:   act is locked. with_state, false: leave out act's row, as the transaction cannot be
 *       committed.
 * out:  *own, set also on an error, but then without the state.
 * errs: those of teffi_state_pack; text in ctx. */
TEFF_MUST_USE teff_err teffi_participant_make_entry(teff_ctx *ctx, teffi_activation *act,
                                                    bool with_state,
                                                    Teff__Transaction__Participant *own);

/* teffi_participants_append_packed - add a packed list of entries to lock->list. out: false: no
 * memory.
 * teffi_participants_pack_and_append - pack one entry and append it. */
TEFF_MUST_USE bool teffi_participants_append_packed(teffi_lock *lock, const uint8_t *packed,
                                                    size_t len);
TEFF_MUST_USE bool teffi_participants_pack_and_append(teff_ctx *ctx, teffi_lock *lock,
                                                      Teff__Transaction__Participant *one);

/* teffi_participants_unpack_and_merge - unpack a packed list to ctx's memory. Of several entries of
 * one grain on the same silo only the newest stays. If a grain has entries on two silos, both stay,
 * and only one keeps its row.
 * errs: TEFF_E_MALFORMED, TEFF_E_TOO_LARGE (depth), TEFF_E_NOMEM: *all is NULL. TEFF_E_ABORTED: a
 *       row was read in two versions, or its change was lost; *all is set. No error sets a text. */
TEFF_MUST_USE teff_err teffi_participants_unpack_and_merge(teff_ctx *ctx, teffi_bytes packed,
                                                           Teff__Transaction__Participants **all);

/* teffi_participants_write_rows - write the rows of own and all in one batch; do nothing if the
 * root is the only participant and writes nothing. On TEFF_OK written entries have their new etags.
 * errs: the store's; TEFF_E_CLOSED: this silo's lease is over; TEFF_E_ABORTED: an etag or a fence
 *       has changed, or a batch that only checks rows has an unknown outcome; TEFF_E_UNKNOWN: the
 *       outcome is unknown, also after reading the rows; TEFF_E_TOO_LARGE. */
TEFF_MUST_USE teff_err teffi_participants_write_rows(teff_ctx *ctx,
                                                     const teffi_transaction *transaction,
                                                     Teff__Transaction__Participant *own,
                                                     Teff__Transaction__Participants *all);

/* teffi_participants_send_outcome - send step (COMMIT, ABORT, RELOAD or RESOLVE) to each
 * participant. If this silo does not know a participant's silo yet, a task adopts the newest view
 * before it sends the message. If a message is lost, that participant's lock stays until its watch
 * resolves it (lock.h). */
void teffi_participants_send_outcome(teffi_grains *grains,
                                     const Teff__Transaction__Participants *all,
                                     const teffi_transaction *transaction, teffi_step step);
