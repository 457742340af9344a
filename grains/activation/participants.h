/* participants.h - who takes part in a transaction: the list in its responses, the batch that
 * writes all states, and the message that tells each participant how it ended.
 * Way:     transaction -> [participants] -> store, route
 * Threads: in a turn, on its fiber. */
#pragma once

#include "activation/lock.h"
#include "store/store.h"
#include "transaction.pb-c.h"

/* teffi_participant_describe - act's own entry. Its members point into act, lock and ctx's memory.
 * in:   with_state: false: only who it is, as the transaction cannot be committed.
 * errs: TEFF_E_TOO_LARGE: the state is over a limit; text in ctx. */
TEFF_MUST_USE teff_err teffi_participant_describe(teff_ctx *ctx, teffi_activation *act, bool with_state,
                                            Teff__Transaction__Participant *own);

/* teffi_participants_append - add packed entries to lock->list. out: false: no memory. */
TEFF_MUST_USE bool teffi_participants_append(teffi_lock *lock, const uint8_t *packed, size_t len);
TEFF_MUST_USE bool teffi_participants_add(teff_ctx *ctx, teffi_lock *lock,
                                          Teff__Transaction__Participant *one);

/* teffi_participants_read - unpack lock->list to ctx's memory; entries of one grain on the same
 * silo become one, the newest; of entries on two silos, one keeps its row.
 * errs: TEFF_E_MALFORMED, TEFF_E_NOMEM; TEFF_E_ABORTED: a row was read in two versions, or its
 *       change was lost; text in ctx. */
TEFF_MUST_USE teff_err teffi_participants_read(teff_ctx *ctx, const teffi_lock *lock,
                                               Teff__Transaction__Participants **all);

/* teffi_participants_write - write own and all in one batch, or find out that nothing needs to be
 * written. On TEFF_OK, etags of the entries that were written are the new ones.
 * errs: the store's; TEFF_E_UNKNOWN only if a read cannot tell either. */
TEFF_MUST_USE teff_err teffi_participants_write(teff_ctx *ctx, const teffi_transaction *transaction,
                                                Teff__Transaction__Participant *own,
                                                Teff__Transaction__Participants *all);

/* teffi_participants_tell - send each its COMMIT, ABORT, RELOAD or RESOLVE. A message that is lost
 * costs time: the participant finds out by itself (lock.h). */
void teffi_participants_tell(teffi_grains *grains, const Teff__Transaction__Participants *all,
                             const teffi_transaction *transaction, teffi_step step);
