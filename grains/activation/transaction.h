/* transaction.h - the turns of a transaction: its calls, a participant's response, the root's end.
 * Way:     turn -> [transaction] -> participants -> store; request/reference (calls in it)
 * Threads: in the turn, on its fiber.
 *
 * A method with the option `transactional` begins a transaction, as its root, or joins its
 * caller's. Each response brings the list of the participants behind it, with the states that they
 * want to save. At its end the root writes all of them in one batch, in which the store compares
 * the etags of all rows that were read, and the fences of all silos that hold participants. Then it
 * tells each participant. A call that fails ends the transaction: nothing is written. If another
 * transaction or a lost silo was the reason, the root is queued again, later, with the same age. */
#pragma once

#include "activation/lock.h"

/* teffi_transaction_begin - in the turn of request, which carries a transaction: lock the grain.
 * Sets ctx->transaction, until the turn ends. errs: as teffi_lock_take. */
TEFF_MUST_USE teff_err teffi_transaction_begin(teff_ctx *ctx, teffi_activation *act,
                                               const teffi_msg *request);

/* teffi_transaction_attach - let a request of ctx carry ctx's transaction. in: ctx->transaction is
 * set. out: false: no memory. */
TEFF_MUST_USE bool teffi_transaction_attach(teff_ctx *ctx, const teff_method *method,
                                            teffi_msg *request);

/* teffi_transaction_not_begun - a call in the transaction could not begin: it has failed. in: err,
 * its text in ctx; ctx->transaction is set. */
void teffi_transaction_not_begun(teff_ctx *ctx, const teff_method *method, teff_err err);

/* teffi_transaction_hear - take the participants and the error from a call that has ended, once.
 * in:   ctx->transaction is set; method: of the call. */
void teffi_transaction_hear(teff_ctx *ctx, const teff_method *method, teffi_call *call);

/* teffi_transaction_leave - end the turn of a participant: await its calls, then make lock->list
 * what its response carries.
 * in:   err, the method's result, with its text in ctx.
 * out:  the result to respond with. */
TEFF_MUST_USE teff_err teffi_transaction_leave(teff_ctx *ctx, teffi_activation *act, teff_err err);

/* teffi_transaction_settle - end the calls of the root's turn, and say whether it may commit. in,
 * out: as teffi_transaction_leave; TEFF_OK: teffi_transaction_commit may follow. */
TEFF_MUST_USE teff_err teffi_transaction_settle(teff_ctx *ctx, teff_err err);

/* teffi_transaction_commit - write the states of all participants, or none, and tell them. Releases
 * the lock of act, the root's, or lets it be rolled back after the turn.
 * errs: the store's, with text in ctx; TEFF_E_ABORTED: a row or fence has changed; TEFF_E_UNKNOWN:
 *       it may have been written; TEFF_E_TOO_LARGE: more rows than a batch may have. */
TEFF_MUST_USE teff_err teffi_transaction_commit(teff_ctx *ctx, teffi_activation *act);

/* teffi_transaction_abort - tell all participants to roll back, and act's lock, after the turn. */
void teffi_transaction_abort(teff_ctx *ctx, teffi_activation *act);

/* teffi_transaction_again - begin again later: queue request anew, after a random time that grows
 * with the attempts. Owns request on true. out: false: its deadline is too near, no memory, or
 * the silo closes. */
TEFF_MUST_USE bool teffi_transaction_again(teffi_grains *grains, teffi_msg *request);

/* teffi_transactions_pause - is there a request that teffi_transaction_again has not queued yet? A
 * silo that leaves waits for it, and one that closes, after grains->closed was set. */
bool teffi_transactions_pause(const teffi_grains *grains);
