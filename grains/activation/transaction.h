/* transaction.h - the turns of a transaction: its calls, a participant's response, the root's end.
 * Way:     turn -> [transaction] -> participants -> store; request/reference (calls in it)
 * Threads: in the turn, on its fiber; teffi_transaction_tasks_pending: any.
 *
 * A call of a `transactional` method joins the transaction of its caller. If the caller has none,
 * the call begins one, and its turn is the root. Each response carries a list: the callee and all
 * participants that it called, with the states to write. When its method has returned, the root
 * writes these states in one batch. In the batch the store also compares the etags of the rows
 * that were only read, and the fences of the participants' silos. Then the root sends the outcome
 * to each participant. If a call fails, the transaction fails, and nothing is written. But if the
 * cause was another transaction or a lost silo, the root's request is queued again after a pause,
 * with the same age. */
#pragma once

#include "activation/lock.h"

/* teffi_transaction_lock_grain - lock the grain, in the turn of request, which carries a
 * transaction. Sets ctx->transaction to the lock. errs: as teffi_lock_take. */
TEFF_MUST_USE teff_err teffi_transaction_lock_grain(teff_ctx *ctx, teffi_activation *act,
                                                    const teffi_msg *request);

/* teffi_transaction_find_one_that_awaits_turn - which transaction waits for ctx's turn? It is the
 * turn's own one or, if the turn's method is not transactional, the one whose call the turn serves,
 * directly or through other such turns. out: *transaction, whose step is not defined. false: none,
 * as far as ctx's turn knows. */
bool teffi_transaction_find_one_that_awaits_turn(const teff_ctx *ctx,
                                                 teffi_transaction *transaction);

/* teffi_transaction_may_be_found_for_turn - may teffi_transaction_find_one_that_awaits_turn find a
 * transaction for ctx's turn? A quick check before the search.
 * out:  false: the search would find none, for example because ctx belongs to no turn. true: the
 *       search is needed; it may find none, too. */
static inline bool teffi_transaction_may_be_found_for_turn(const teff_ctx *ctx)
{
    const teffi_turn *turn = ctx->owner;
    return turn &&
           (ctx->transaction || turn->place || (turn->request && turn->request->transaction));
}

/* teffi_transaction_attach_to_request - make a request that ctx's turn sends carry the transaction
 * that waits for it. If the method is not transactional, this tells the grain by whose lock the
 * request must not wait (lock.h). If only the method is transactional, and not ctx's turn, the
 * request carries none, because it begins a transaction. in: request: not a one-way, since nothing
 * waits for it. out: false: no memory. */
TEFF_MUST_USE bool teffi_transaction_attach_to_request(teff_ctx *ctx, const teff_method *method,
                                                       teffi_msg *request);

/* teffi_transaction_record_call_begin_error - record the error of a call that could not begin, so
 * that the transaction fails. If method is not transactional, do nothing.
 * in:   err, with its text in ctx; ctx->transaction is set. */
void teffi_transaction_record_call_begin_error(teff_ctx *ctx, const teff_method *method,
                                               teff_err err);

/* teffi_transaction_collect_call_result - add the participants of a call that has ended to
 * lock->list, and record its error. Does nothing if that was done for the call before, or if its
 * method is not transactional.
 * in:   ctx->transaction is set; method: of the call. */
void teffi_transaction_collect_call_result(teff_ctx *ctx, const teff_method *method,
                                           teffi_call *call);

/* teffi_transaction_end_participant_turn - end the turn of a participant: await its transactional
 * calls, and add its own entry to lock->list, which its response carries. After an error the lock
 * must abort.
 * in:   err, the method's result, with its text in ctx.
 * out:  the result to respond with. */
TEFF_MUST_USE teff_err teffi_transaction_end_participant_turn(teff_ctx *ctx, teffi_activation *act,
                                                              teff_err err);

/* teffi_transaction_await_turn_calls - await the turn's transactional calls, and choose the turn's
 * result. in: as teffi_transaction_end_participant_turn. out: TEFF_OK: the transaction may be
 * committed; else the result to respond with, and the root calls teffi_transaction_abort. */
TEFF_MUST_USE teff_err teffi_transaction_await_turn_calls(teff_ctx *ctx, teff_err err);

/* teffi_transaction_commit - write the states of all participants, or none, and send them the
 * outcome. On TEFF_OK it releases the lock of act, which is the root's; after TEFF_E_UNKNOWN the
 * watch ends that lock; else it ends after the turn. Sets ctx->transaction to NULL.
 * errs: those of teffi_participants_unpack_and_merge, teffi_participants_write_rows and
 *       teffi_participant_make_entry; text in ctx.
 *       TEFF_E_UNKNOWN: the states may have been written; after all others they were not. */
TEFF_MUST_USE teff_err teffi_transaction_commit(teff_ctx *ctx, teffi_activation *act);

/* teffi_transaction_abort - send ABORT to all participants. The lock of act, which is the root's,
 * is rolled back after the turn. Sets ctx->transaction to NULL. */
void teffi_transaction_abort(teff_ctx *ctx, teffi_activation *act);

/* teffi_transaction_abort_after_turn_exit - called if the turn ends in the middle of its method:
 * the lock must abort. If the turn is the root, also starts to send the outcome to the participants
 * whose entries are in lock->list: RESOLVE if the batch was submitted, else ABORT.
 * in:   err, the error of the turn, with its text in ctx; ctx->transaction is set.
 * out:  the error to respond with: TEFF_E_UNKNOWN if the batch was submitted, else err.
 * runs: does not suspend the turn. */
TEFF_MUST_USE teff_err teffi_transaction_abort_after_turn_exit(teff_ctx *ctx, teffi_activation *act,
                                                               bool is_root, teff_err err);

/* teffi_transaction_retry - begin the transaction again: deliver the root's request anew, after a
 * random pause that grows with the attempts. Owns request on true. out: false: the deadline is too
 * near, memory is out, or the silo closes. */
TEFF_MUST_USE bool teffi_transaction_retry(teffi_grains *grains, teffi_msg *request);

/* teffi_transaction_tasks_pending - is there a request that teffi_transaction_retry has taken and
 * not delivered yet, or an outcome that teffi_transaction_abort_after_turn_exit has not sent yet? A
 * silo that leaves waits until there is none, and so does a silo that closes, after it has set
 * grains->closed. */
bool teffi_transaction_tasks_pending(const teffi_grains *grains);
