/* transaction.c - begins, joins, commits, aborts and retries transactions.
 * Threads: in the turn, on its fiber; deliver_retry_after_pause() and send_outcome_of_exited_root()
 *          are tasks. */
#include "activation/transaction.h"

#include <stdlib.h>
#include <string.h>
#include "activation/participants.h"
#include "activation/state.h"
#include "activation/turn.h"
#include "base/bug.h"
#include "call/task.h"
#include "node/deliver.h"

/* The pause after attempt n is random: 1 ms to PAUSE_MS << min(n, PAUSE_DOUBLES_MAX). */
enum { PAUSE_MS = 4, PAUSE_DOUBLES_MAX = 5 };

static teffi_lock *lock_of_ctx(const teff_ctx *ctx)
{
    return ctx->transaction;
}

teff_err teffi_transaction_lock_grain(teff_ctx *ctx, teffi_activation *act,
                                      const teffi_msg *request)
{
    teffi_lock *lock;
    teff_err err = teffi_lock_take(ctx, act, request, &lock);
    ctx->transaction = err ? NULL : lock;
    return err;
}

/* ---- calls ---- */

bool teffi_transaction_find_one_that_awaits_turn(const teff_ctx *ctx,
                                                 teffi_transaction *transaction)
{
    for (const teffi_turn *turn = ctx->owner; turn; turn = turn->place->caller->owner) {
        const teffi_lock *lock = lock_of_ctx(&turn->ctx);
        if (lock) {
            *transaction = lock->owner;
            if (transaction->step == TEFFI_STEP_ROOT)
                transaction->runs_at = teffi_node_to_word(ctx->node->id);
            return true;
        }
        if (turn->request && turn->request->transaction &&
            teffi_transaction_read_from_msg(turn->request, transaction))
            return true;
        if (!turn->place || turn->place->kind != TEFFI_MSG_REQUEST)
            break;
    }
    return false;
}

bool teffi_transaction_attach_to_request(teff_ctx *ctx, const teff_method *method,
                                         teffi_msg *request)
{
    teffi_lock *lock = lock_of_ctx(ctx);
    teffi_transaction transaction;
    bool joins = method->flags & TEFF_METHOD_TRANSACTIONAL;
    teffi_bug_if(request->item.kind != TEFFI_MSG_REQUEST);
    if ((joins && !lock) || !teffi_transaction_find_one_that_awaits_turn(ctx, &transaction))
        return true;
    transaction.step = joins ? TEFFI_STEP_JOIN : TEFFI_STEP_PLAIN;
    if (joins)
        lock->calls_begun++;
    return teffi_transaction_write_to_msg(request, &transaction);
}

/* May the transaction succeed after this error if it begins again? */
static bool error_is_transient(teff_err err)
{
    return err == TEFF_E_ABORTED || err == TEFF_E_UNREACHABLE || err == TEFF_E_UNAVAILABLE;
}

/* Records the first error of the turn's calls in the lock; ignores later errors. */
static void record_first_call_error(teffi_lock *lock, teff_err err, const char *text)
{
    if (lock->failed)
        return;
    lock->failed = err;
    lock->may_retry = error_is_transient(err);
    lock->failed_text = strdup(text ? text : ""); /* if out of memory: NULL, which means no text */
}

void teffi_transaction_record_call_begin_error(teff_ctx *ctx, const teff_method *method,
                                               teff_err err)
{
    if (method->flags & TEFF_METHOD_TRANSACTIONAL)
        record_first_call_error(lock_of_ctx(ctx), err, teff_error(ctx));
}

void teffi_transaction_collect_call_result(teff_ctx *ctx, const teff_method *method,
                                           teffi_call *call)
{
    teffi_lock *lock = lock_of_ctx(ctx);
    teffi_msg *response = call->response;
    if (!(method->flags & TEFF_METHOD_TRANSACTIONAL))
        return;
    if (response && response->transaction) {
        lock->calls_collected += call->err == TEFF_OK;
        if (!teffi_participants_append_packed(lock, response->transaction,
                                              response->transaction_len))
            record_first_call_error(lock, TEFF_E_NOMEM, "out of memory for the transaction");
        response->transaction = NULL; /* its participants must not be collected twice */
        response->transaction_len = 0;
    }
    if (call->err)
        record_first_call_error(lock, call->err, call->text);
}

/* Awaits the turn's calls of transactional methods, also the calls that the turn's own method did
 * not await, and collects their participants and errors. */
static void await_and_collect_calls(teff_ctx *ctx)
{
    for (teffi_call *call = LIST_FIRST(&ctx->calls); call; call = LIST_NEXT(call, in_ctx)) {
        const teffi_asked *asked = teffi_call_get_method_and_key(call);
        teffi_wait *wait = &call->wait;
        if (!asked || !(asked->method->flags & TEFF_METHOD_TRANSACTIONAL))
            continue;
        teffi_await(ctx, &wait, 1);
        teffi_transaction_collect_call_result(ctx, asked->method, call);
    }
}

/* Whatever the method returned, the result is TEFF_E_ABORTED in two cases: a call failed with a
 * transient error; or no call failed, but the lock must abort. After TEFF_E_ABORTED the root begins
 * the transaction again, and in the next attempt the method may succeed. */
teff_err teffi_transaction_await_turn_calls(teff_ctx *ctx, teff_err err)
{
    const teffi_lock *lock = lock_of_ctx(ctx);
    await_and_collect_calls(ctx);
    const char *why = lock->failed_text ? lock->failed_text : "";
    if (lock->must_abort && !lock->failed)
        return teff_fail(ctx, TEFF_E_ABORTED, "the transaction was rolled back meanwhile");
    if (lock->failed && lock->may_retry)
        return teff_fail(ctx, TEFF_E_ABORTED, "the transaction was rolled back: %s", why);
    if (err)
        return err;
    if (lock->failed)
        return teff_fail(ctx, lock->failed,
                         "the transaction was rolled back, as a call in it "
                         "failed: %s",
                         why);
    return lock->calls_begun == lock->calls_collected
               ? TEFF_OK
               : teff_fail(ctx, TEFF_E_INVALID,
                           "the transaction was rolled back, as a call in it "
                           "could not begin");
}

teff_err teffi_transaction_end_participant_turn(teff_ctx *ctx, teffi_activation *act, teff_err err)
{
    teffi_lock *lock = lock_of_ctx(ctx);
    Teff__Transaction__Participant own;
    err = teffi_transaction_await_turn_calls(ctx, err);
    teff_err pack_err = teffi_participant_make_entry(ctx, act, err == TEFF_OK, &own);
    if (pack_err) { /* the entry is still added, as the root must send ABORT to this grain */
        err = pack_err;
        own.writes = false;
    }
    if (!teffi_participants_pack_and_append(ctx, lock, &own) && !err)
        err = teff_fail(ctx, TEFF_E_NOMEM, "out of memory for the transaction");
    if (err && !lock->must_abort)
        lock->abort_err = err;
    lock->must_abort |= err != TEFF_OK;
    return err;
}

/* ---- the root's end ---- */

static teffi_bytes get_packed_list(const teffi_lock *lock)
{
    return (teffi_bytes){lock->list, lock->list_len};
}

/* Returns the participants to which ABORT or RESOLVE must be sent. If their packed list cannot be
 * read, returns an empty list: then nothing is sent, and each participant ends its lock later, when
 * its watch checks the lock. If teffi_participants_unpack_and_merge() returns TEFF_E_ABORTED, the
 * transaction must not be committed, but the list is complete. */
static Teff__Transaction__Participants *read_participants_for_outcome(teff_ctx *ctx,
                                                                      teffi_bytes packed)
{
    static Teff__Transaction__Participants none = TEFF__TRANSACTION__PARTICIPANTS__INIT;
    Teff__Transaction__Participants *all = NULL;
    teff_err err = teffi_participants_unpack_and_merge(ctx, packed, &all);
    return err && err != TEFF_E_ABORTED ? &none : all;
}

/* Applies step to the lock of the root's own activation, as teffi_lock_apply_transaction_end() does
 * for a participant's lock. COMMIT: releases the lock. ABORT, RELOAD: the lock ends after the turn.
 * RESOLVE: the lock's watch ends the lock. */
static void apply_step_to_own_lock(teffi_activation *act, teffi_lock *lock, teffi_step step,
                                   uint64_t etag)
{
    if (step == TEFFI_STEP_COMMIT) {
        if (act->stored && lock->writes)
            teffi_state_set_etag_after_commit(act, etag);
        teffi_lock_release(act);
    } else if (step == TEFFI_STEP_RESOLVE) {
        lock->until_ns = 0;
    } else {
        lock->must_abort = true;
        lock->reloads = step == TEFFI_STEP_RELOAD;
    }
}

/* Chooses the step for all participants. in: err: the result of writing their rows in one batch;
 * TEFF_E_ABORTED means that another writer may have changed any of the rows. */
static teffi_step step_for_result(teff_err err)
{
    return err == TEFF_OK          ? TEFFI_STEP_COMMIT
           : err == TEFF_E_ABORTED ? TEFFI_STEP_RELOAD
           : err == TEFF_E_UNKNOWN ? TEFFI_STEP_RESOLVE
                                   : TEFFI_STEP_ABORT;
}

teff_err teffi_transaction_commit(teff_ctx *ctx, teffi_activation *act)
{
    teffi_lock *lock = lock_of_ctx(ctx);
    teffi_transaction transaction = lock->owner;
    Teff__Transaction__Participant own;
    Teff__Transaction__Participants *all = NULL;
    teff_err err = teffi_participants_unpack_and_merge(ctx, get_packed_list(lock), &all);
    if (err)
        (void)teff_fail(ctx, err, "%s",
                        err == TEFF_E_ABORTED
                            ? "a grain has changed during the transaction"
                            : "the list of a transaction's participants cannot be read");
    else
        err = teffi_participant_make_entry(ctx, act, true, &own);
    if (err) {
        teffi_transaction_abort(ctx, act);
        return err;
    }
    err = teffi_participants_write_rows(ctx, &transaction, &own, all);
    teffi_step step = step_for_result(err);
    teffi_participants_send_outcome(act->grains, all, &transaction, step);
    apply_step_to_own_lock(act, lock, step, own.etag);
    ctx->transaction = NULL;
    if (err == TEFF_E_UNKNOWN)
        return teff_fail(ctx, err, "the store did not say whether it wrote the transaction");
    return err;
}

void teffi_transaction_abort(teff_ctx *ctx, teffi_activation *act)
{
    teffi_lock *lock = lock_of_ctx(ctx);
    const Teff__Transaction__Participants *all =
        read_participants_for_outcome(ctx, get_packed_list(lock));
    teffi_participants_send_outcome(act->grains, all, &lock->owner, TEFFI_STEP_ABORT);
    apply_step_to_own_lock(act, lock, TEFFI_STEP_ABORT, 0);
    ctx->transaction = NULL;
}

/* ---- tasks ---- */

/* Starts a task. A silo that leaves or closes waits until such tasks have ended. The task must call
 * mark_awaited_task_ended(). out: false if memory is exhausted or the silo closes. */
static bool start_awaited_task(teffi_grains *grains, void (*fn)(teff_ctx *ctx, void *arg),
                               void *arg, const char *label)
{
    /* seq_cst: this function adds to `tasks`, then reads `closed`; a closing silo sets `closed`,
     * then reads `tasks`. So either this function reads `closed` as true, or
     * teffi_node_wait_for_tasks() reads the new value of tasks and waits. */
    atomic_fetch_add(&grains->tasks, 1);
    if (!grains->closed && !teffi_task_start(&grains->node->home, fn, arg, label, false))
        return true;
    atomic_fetch_sub(&grains->tasks, 1);
    return false;
}

static void mark_awaited_task_ended(teffi_grains *grains)
{
    /* release, pairs with teffi_transaction_tasks_pending(): a thread that reads the new count
     * there also reads all that the task has written */
    atomic_fetch_sub_explicit(&grains->tasks, 1, memory_order_release);
}

bool teffi_transaction_tasks_pending(const teffi_grains *grains)
{
    /* seq_cst: pairs with start_awaited_task(), which says why. acquire: pairs with
     * mark_awaited_task_ended() */
    return atomic_load(&grains->tasks) != 0;
}

/* ---- a root that ends in its middle ---- */

typedef struct unfinished {
    teffi_grains *grains;
    teffi_transaction transaction;
    teffi_step step;
    teffi_bytes list; /* packed participants, on the heap */
} unfinished;

/* A task: sends the outcome of a transaction to its participants, after the root's turn has ended
 * in the middle of its method. in: arg: an `unfinished` on the heap, which this function frees. */
static void send_outcome_of_exited_root(teff_ctx *ctx, void *arg)
{
    unfinished u = *(unfinished *)arg;
    free(arg);
    teffi_participants_send_outcome(u.grains, read_participants_for_outcome(ctx, u.list),
                                    &u.transaction, u.step);
    free((void *)(uintptr_t)u.list.data);
    mark_awaited_task_ended(u.grains);
}

/* Starts a task that sends step to the participants in lock->list. The root's turn must not be
 * suspended any more, so it cannot unpack the list: teffi_participants_unpack_and_merge() suspends
 * its caller. If the task cannot start, each participant ends its lock later, when its watch checks
 * the lock. */
static void start_sending_outcome(teffi_activation *act, teffi_lock *lock, teffi_step step)
{
    unfinished *u = lock->list_len ? malloc(sizeof *u) : NULL;
    if (!u)
        return;
    *u = (unfinished){act->grains, lock->owner, step, get_packed_list(lock)};
    if (!start_awaited_task(act->grains, send_outcome_of_exited_root, u,
                            "end an unfinished transaction")) {
        free(u);
        return;
    }
    lock->list = NULL; /* the task owns it */
    lock->list_len = lock->list_room = 0;
}

teff_err teffi_transaction_abort_after_turn_exit(teff_ctx *ctx, teffi_activation *act, bool is_root,
                                                 teff_err err)
{
    teffi_lock *lock = lock_of_ctx(ctx);
    if (is_root)
        start_sending_outcome(act, lock, lock->submitted ? TEFFI_STEP_RESOLVE : TEFFI_STEP_ABORT);
    lock->abort_err = lock->must_abort ? lock->abort_err : err;
    lock->must_abort = true;
    return lock->submitted ? teff_fail(ctx, TEFF_E_UNKNOWN,
                                       "it is not known whether the transaction was written: "
                                       "%s",
                                       teff_error(ctx))
                           : err;
}

/* ---- retry ---- */

typedef struct retry {
    teffi_grains *grains;
    teffi_msg *request;
    uint32_t ms; /* pause before it is delivered */
} retry;

/* The task of a retry: delivers the request after the pause. */
static void deliver_retry_after_pause(teff_ctx *ctx, void *arg)
{
    retry p = *(retry *)arg;
    free(arg);
    teffi_ctx_sleep(ctx, p.ms);
    teffi_node_deliver(ctx->node, p.request);
    mark_awaited_task_ended(p.grains);
}

bool teffi_transaction_retry(teffi_grains *grains, teffi_msg *request)
{
    const teffi_platform *platform = grains->node->platform;
    teffi_transaction transaction;
    (void)teffi_transaction_read_from_msg(request, &transaction);
    unsigned doubles =
        transaction.attempt < PAUSE_DOUBLES_MAX ? transaction.attempt : PAUSE_DOUBLES_MAX;
    uint64_t ms = 1 + platform->random(platform->arg) % ((uint64_t)PAUSE_MS << doubles);
    request->hops = 0; /* the request is routed anew */
    request->flags &= (uint16_t)~TEFFI_MSG_PLACED;
    transaction.attempt++;
    transaction.step = TEFFI_STEP_ROOT;
    if (teffi_now(platform) + ms * 1000000 >= request->deadline_ns)
        return false;
    retry *p = malloc(sizeof *p);
    if (!p || !teffi_transaction_write_to_msg(request, &transaction)) {
        free(p);
        return false;
    }
    *p = (retry){grains, request, (uint32_t)ms};
    if (start_awaited_task(grains, deliver_retry_after_pause, p, "begin a transaction again"))
        return true;
    free(p);
    return false;
}
