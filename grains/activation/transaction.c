/* transaction.c - begins, joins and ends transactions in turns.
 * Threads: in the turn, on its fiber; the task that begins again: any. */
#include "activation/transaction.h"

#include <stdlib.h>
#include <string.h>
#include "activation/participants.h"
#include "activation/state.h"
#include "activation/turn.h"
#include "call/task.h"
#include "node/deliver.h"

enum { PAUSE_MS = 4, PAUSE_DOUBLES_MAX = 5 };

static teffi_lock *lock_of_turn(const teff_ctx *ctx)
{
    return ctx->transaction;
}

teff_err teffi_transaction_begin(teff_ctx *ctx, teffi_activation *act, const teffi_msg *request)
{
    teffi_lock *lock;
    teff_err err = teffi_lock_take(ctx, act, request, &lock);
    ctx->transaction = err ? NULL : lock;
    return err;
}

/* ---- calls ---- */

bool teffi_transaction_attach(teff_ctx *ctx, const teff_method *method, teffi_msg *request)
{
    teffi_lock *lock = lock_of_turn(ctx);
    if (request->item.kind != TEFFI_MSG_REQUEST)
        return true;
    teffi_transaction transaction = lock->owner;
    transaction.step = TEFFI_STEP_JOIN;
    lock->begun += (method->flags & TEFF_METHOD_TRANSACTIONAL) != 0;
    return teffi_transaction_write(request, &transaction);
}

/* Is it an error after which the transaction may succeed if it begins again? */
static bool error_passes(teff_err err)
{
    return err == TEFF_E_ABORTED || err == TEFF_E_UNREACHABLE || err == TEFF_E_UNAVAILABLE;
}

static void note_failure(teffi_lock *lock, teff_err err, const char *text)
{
    if (lock->failed)
        return;
    lock->failed = err;
    lock->again = error_passes(err);
    lock->why = strdup(text ? text : ""); /* NULL: the error has no text */
}

void teffi_transaction_not_begun(teff_ctx *ctx, const teff_method *method, teff_err err)
{
    if (method->flags & TEFF_METHOD_TRANSACTIONAL)
        note_failure(lock_of_turn(ctx), err, teff_error(ctx));
}

void teffi_transaction_hear(teff_ctx *ctx, const teff_method *method, teffi_call *call)
{
    teffi_lock *lock = lock_of_turn(ctx);
    teffi_msg *response = call->response;
    if (!(method->flags & TEFF_METHOD_TRANSACTIONAL))
        return;
    if (response && response->transaction) {
        lock->heard += call->err == TEFF_OK;
        if (!teffi_participants_append(lock, response->transaction, response->transaction_len))
            note_failure(lock, TEFF_E_NOMEM, "out of memory for the transaction");
        response->transaction = NULL;
        response->transaction_len = 0;
    }
    if (call->err)
        note_failure(lock, call->err, call->text);
}

/* Awaits the turn's calls in the transaction that it has not awaited itself. */
static void hear_all(teff_ctx *ctx)
{
    for (teffi_call *call = LIST_FIRST(&ctx->calls); call; call = LIST_NEXT(call, in_ctx)) {
        const teffi_asked *asked = teffi_call_asked(call);
        teffi_wait *wait = &call->wait;
        if (!asked || !(asked->method->flags & TEFF_METHOD_TRANSACTIONAL))
            continue;
        teffi_await(ctx, &wait, 1);
        teffi_transaction_hear(ctx, asked->method, call);
    }
}

teff_err teffi_transaction_settle(teff_ctx *ctx, teff_err err)
{
    const teffi_lock *lock = lock_of_turn(ctx);
    hear_all(ctx);
    const char *why = lock->why ? lock->why : "";
    if (lock->hopeless && !lock->failed)
        return teff_fail(ctx, TEFF_E_ABORTED, "the transaction was rolled back meanwhile");
    if (lock->failed && lock->again)
        return teff_fail(ctx, TEFF_E_ABORTED, "the transaction was rolled back: %s", why);
    if (err)
        return err;
    if (lock->failed)
        return teff_fail(ctx, lock->failed,
                         "the transaction was rolled back, as a call in it "
                         "failed: %s",
                         why);
    return lock->begun == lock->heard
               ? TEFF_OK
               : teff_fail(ctx, TEFF_E_INVALID,
                           "the transaction was rolled back, as a call in it "
                           "could not begin");
}

teff_err teffi_transaction_leave(teff_ctx *ctx, teffi_activation *act, teff_err err)
{
    teffi_lock *lock = lock_of_turn(ctx);
    Teff__Transaction__Participant own;
    err = teffi_transaction_settle(ctx, err);
    teff_err unpacked = teffi_participant_of(ctx, act, err == TEFF_OK, &own);
    if (unpacked) { /* the root still learns whom to tell */
        err = unpacked;
        own.writes = false;
    }
    if (!teffi_participants_add(ctx, lock, &own) && !err)
        err = teff_fail(ctx, TEFF_E_NOMEM, "out of memory for the transaction");
    if (err && !lock->hopeless)
        lock->fate = err;
    lock->hopeless |= err != TEFF_OK;
    return err;
}

/* ---- the root's end ---- */

/* out: the turn's participants; none, if they cannot be read: then they find out by themselves. */
static Teff__Transaction__Participants *read_to_tell(teff_ctx *ctx)
{
    static Teff__Transaction__Participants none = TEFF__TRANSACTION__PARTICIPANTS__INIT;
    Teff__Transaction__Participants *all = NULL;
    teff_err err = teffi_participants_read(ctx, lock_of_turn(ctx), &all);
    return err && err != TEFF_E_ABORTED ? &none : all;
}

/* Ends the lock of the root's own activation, as the message of `step` would. */
static void end_own(teffi_activation *act, teffi_lock *lock, teffi_step step, uint64_t etag)
{
    if (step == TEFFI_STEP_COMMIT) {
        if (act->stored && lock->writes)
            teffi_state_committed(act, etag);
        teffi_lock_release(act);
    } else if (step == TEFFI_STEP_RESOLVE) {
        lock->until_ns = 0;
    } else {
        lock->hopeless = true; /* rolled back after the turn */
        lock->reloads = step == TEFFI_STEP_RELOAD;
    }
}

static teffi_step step_after(teff_err err)
{
    return err == TEFF_OK          ? TEFFI_STEP_COMMIT
           : err == TEFF_E_ABORTED ? TEFFI_STEP_RELOAD
           : err == TEFF_E_UNKNOWN ? TEFFI_STEP_RESOLVE
                                   : TEFFI_STEP_ABORT;
}

teff_err teffi_transaction_commit(teff_ctx *ctx, teffi_activation *act)
{
    teffi_lock *lock = lock_of_turn(ctx);
    teffi_transaction transaction = lock->owner;
    Teff__Transaction__Participant own;
    Teff__Transaction__Participants *all = NULL;
    teff_err err = teffi_participants_read(ctx, lock, &all);
    if (!err)
        err = teffi_participant_of(ctx, act, true, &own);
    if (err) {
        teffi_transaction_abort(ctx, act);
        return err;
    }
    err = teffi_participants_write(ctx, &transaction, &own, all);
    teffi_step step = step_after(err);
    teffi_participants_tell(act->grains, all, &transaction, step);
    end_own(act, lock, step, own.etag);
    ctx->transaction = NULL;
    if (err == TEFF_E_UNKNOWN)
        return teff_fail(ctx, err, "the store did not say whether it wrote the transaction");
    return err;
}

void teffi_transaction_abort(teff_ctx *ctx, teffi_activation *act)
{
    teffi_lock *lock = lock_of_turn(ctx);
    const Teff__Transaction__Participants *all = read_to_tell(ctx);
    teffi_participants_tell(act->grains, all, &lock->owner, TEFFI_STEP_ABORT);
    end_own(act, lock, TEFFI_STEP_ABORT, 0);
    ctx->transaction = NULL;
}

/* ---- again ---- */

typedef struct pause {
    teffi_grains *grains;
    teffi_msg *request;
    uint32_t ms;
} pause_before;

static void send_again(teff_ctx *ctx, void *arg)
{
    pause_before p = *(pause_before *)arg;
    free(arg);
    teffi_ctx_sleep(ctx, p.ms);
    teffi_node_deliver(ctx->node, p.request);
    /* release: pairs with teffi_transactions_pause */
    atomic_fetch_sub_explicit(&p.grains->pauses, 1, memory_order_release);
}

bool teffi_transactions_pause(const teffi_grains *grains)
{
    /* seq_cst: with teffi_transaction_again, and send_again: sees where the request is */
    return atomic_load(&grains->pauses) != 0;
}

bool teffi_transaction_again(teffi_grains *grains, teffi_msg *request)
{
    const teffi_platform *platform = grains->node->platform;
    teffi_transaction transaction;
    (void)teffi_transaction_read(request, &transaction);
    unsigned doubles =
        transaction.attempt < PAUSE_DOUBLES_MAX ? transaction.attempt : PAUSE_DOUBLES_MAX;
    uint64_t ms = 1 + platform->random(platform->arg) % ((uint64_t)PAUSE_MS << doubles);
    request->hops = 0; /* it is routed anew */
    request->flags &= (uint16_t)~TEFFI_MSG_PLACED;
    transaction.attempt++;
    transaction.step = TEFFI_STEP_ROOT;
    if (teffi_now(platform) + ms * 1000000 >= request->deadline_ns)
        return false;
    pause_before *p = malloc(sizeof *p);
    if (!p || !teffi_transaction_write(request, &transaction)) {
        free(p);
        return false;
    }
    *p = (pause_before){grains, request, (uint32_t)ms};
    /* seq_cst, before closed is read: teffi_silo_wait_for_tasks reads it after closed was set */
    atomic_fetch_add(&grains->pauses, 1);
    if (!grains->closed &&
        !teffi_task_start(&grains->node->home, send_again, p, "begin a transaction again", false))
        return true;
    atomic_fetch_sub(&grains->pauses, 1);
    free(p);
    return false;
}
