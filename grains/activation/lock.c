/* lock.c - takes, judges, watches and releases the lock of a transaction on an activation.
 * Threads: on the activation's group; stamps, and the timer's function: any. */
#include "activation/lock.h"

#include <stdlib.h>
#include <string.h>
#include "activation/state.h"
#include "cluster/view.h"

/* The watch checks a lock at this interval. It resolves the lock when this time has passed since
 * the last deadline of the lock's requests, or if no turn has begun under the lock between two
 * checks while an older transaction waits. */
static const uint64_t watch_ns = 1000000000;

/* ---- transactions ---- */

bool teffi_transaction_read_from_msg(const teffi_msg *msg, teffi_transaction *transaction)
{
    if (!msg->transaction || msg->transaction_len != sizeof *transaction)
        return false;
    memcpy(transaction, msg->transaction, sizeof *transaction);
    return true;
}

bool teffi_transaction_write_to_msg(teffi_msg *msg, const teffi_transaction *transaction)
{
    msg->transaction = teff_arena_copy(&msg->arena, transaction, sizeof *transaction);
    msg->transaction_len = msg->transaction ? sizeof *transaction : 0;
    return msg->transaction != NULL;
}

/* Raises grains->stamp to stamp, if it is lower. All accesses of grains->stamp are relaxed: it
 * orders no other memory. */
void teffi_transaction_raise_stamp(teffi_grains *grains, uint64_t stamp)
{
    uint64_t known = atomic_load_explicit(&grains->stamp, memory_order_relaxed);
    while (known < stamp &&
           !atomic_compare_exchange_weak_explicit(&grains->stamp, &known, stamp,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

bool teffi_transaction_begin_at_request(teffi_grains *grains, teffi_msg *request)
{
    uint64_t age = atomic_fetch_add_explicit(&grains->stamp, 1, memory_order_relaxed) + 1;
    teffi_transaction root = {
        .age = age, .root = grains->node->id, .attempt = 1, .step = TEFFI_STEP_ROOT};
    return teffi_transaction_write_to_msg(request, &root);
}

bool teffi_transaction_is_same(const teffi_transaction *a, const teffi_transaction *b)
{
    return a->age == b->age && teffi_node_equals(a->root, b->root);
}

static bool transaction_is_older(const teffi_transaction *a, const teffi_transaction *b)
{
    return a->age != b->age ? a->age < b->age
                            : teffi_node_to_word(a->root) < teffi_node_to_word(b->root);
}

/* ---- release ---- */

/* Releases act's lock and frees it. If the lock's timer has fired already, on_watch_timer() frees
 * the lock later. */
void teffi_lock_release(teffi_activation *act)
{
    teffi_lock *lock = teffi_lock_of(act);
    teffi_exec *exec = act->grains->node->home.exec;
    if (!lock)
        return;
    act->more->lock = NULL;
    act->busy &= (uint8_t)~TEFFI_BUSY_LOCKED;
    free(lock->before);
    free(lock->failed_text);
    free(lock->list);
    lock->before = lock->list = NULL;
    lock->failed_text = NULL;
    lock->act = NULL;
    if (!lock->armed || exec->ops->timer_cancel(exec, &lock->timer))
        free(lock);
}

/* Restores the state from before the lock, unless the state is broken. */
static void restore_state_as_before_lock(teffi_activation *act)
{
    const teffi_lock *lock = teffi_lock_of(act);
    if (lock->before && !teffi_state_is_broken(act))
        teffi_state_restore(act, (teffi_bytes){lock->before, lock->before_len});
}

void teffi_lock_roll_back_and_release(teffi_activation *act)
{
    restore_state_as_before_lock(act);
    teffi_lock_release(act);
}

/* Called if the row may differ both from the state before the lock and from the present state.
 * Releases the lock. If act has a state, also deactivates act, which can then no longer write the
 * row. The next activation reads the row. */
static void release_lock_and_deactivate(teffi_activation *act)
{
    if (act->stored)
        teffi_state_mark_lost_and_deactivate(act);
    teffi_lock_release(act);
}

/* ---- which requests may start ---- */

/* Is act VALID and not paused, and is no turn of act under way (neither a turn of a method, nor one
 * of on_activate, on_deactivate or teffi_lock_resolve())? */
static bool is_valid_without_turns(const teffi_activation *act)
{
    return act->phase == TEFFI_VALID && !(act->busy & ~TEFFI_BUSY_LOCKED) && act->running == 0;
}

/* Does an older transaction wait for act? It does if a request of that transaction is among act's
 * requests that were set aside. */
static bool older_transaction_waits(const teffi_activation *act,
                                    const teffi_transaction *transaction)
{
    teffi_transaction other;
    for (teffi_qnode *n = act->more ? act->more->pending.head : NULL; n; n = n->next)
        if (teffi_transaction_read_from_msg(teffi_container(n, teffi_msg, link), &other) &&
            !teffi_transaction_is_same(&other, transaction) &&
            transaction_is_older(&other, transaction))
            return true;
    return false;
}

/* Decides as teffi_lock_judge_request() does, for a request of the transaction that holds the lock.
 * A request of a later attempt waits until the running turns of the earlier attempt have ended. The
 * changes of the earlier attempt are rolled back before the request starts. */
static teffi_verdict judge_request_of_owner(teffi_activation *act, teffi_lock *lock,
                                            const teffi_transaction *transaction)
{
    if (transaction->attempt < lock->owner.attempt)
        return TEFFI_DIE;
    if (transaction->attempt == lock->owner.attempt && lock->must_abort)
        return TEFFI_DIE;
    lock->must_abort |= transaction->attempt > lock->owner.attempt;
    if (!is_valid_without_turns(act))
        return TEFFI_SET_ASIDE;
    if (!lock->must_abort)
        return TEFFI_START;
    teffi_lock_roll_back_and_release(act);
    /* act has no lock now. If act must end, it starts no request; it hands its requests back. */
    return act->reason ? TEFFI_SET_ASIDE : TEFFI_START;
}

/* Decides by the table in lock.h whether a request starts, is set aside, or fails (TEFFI_DIE). */
teffi_verdict teffi_lock_judge_request(teffi_activation *act, const teffi_transaction *transaction,
                                       bool is_new)
{
    teffi_lock *lock = teffi_lock_of(act);
    teffi_transaction_raise_stamp(act->grains, transaction->age);
    if (lock && teffi_transaction_is_same(&lock->owner, transaction))
        return judge_request_of_owner(act, lock, transaction);
    /* No new request overtakes an EXCLUSIVE request that was set aside, whether or not both
     * requests belong to the same transaction. */
    if (!lock && is_valid_without_turns(act) && !act->reason &&
        !(is_new && teffi_activation_has_pending(act, TEFFI_EXCLUSIVE)))
        return TEFFI_START;
    if (transaction->step == TEFFI_STEP_ROOT) /* a root request may wait: it holds no lock */
        return TEFFI_SET_ASIDE;
    bool dies = lock && transaction_is_older(&lock->owner, transaction);
    return dies || (is_new && older_transaction_waits(act, transaction)) ? TEFFI_DIE
                                                                         : TEFFI_SET_ASIDE;
}

teff_err teffi_lock_choose_refusal_err(const teffi_activation *act,
                                       const teffi_transaction *transaction)
{
    const teffi_lock *lock = teffi_lock_of(act);
    bool own = lock && teffi_transaction_is_same(&lock->owner, transaction) &&
               lock->owner.attempt == transaction->attempt;
    return own && lock->abort_err ? lock->abort_err : TEFF_E_ABORTED;
}

teff_err teffi_lock_judge_wait(teffi_activation *act, const teffi_msg *msg)
{
    teffi_lock *lock = teffi_lock_of(act);
    teffi_transaction transaction;
    if (!lock || !teffi_transaction_read_from_msg(msg, &transaction))
        return TEFF_OK;
    if (!teffi_transaction_is_same(&lock->owner, &transaction))
        return transaction_is_older(&lock->owner, &transaction) &&
                       transaction.step != TEFFI_STEP_ROOT
                   ? TEFF_E_ABORTED
                   : TEFF_OK;
    if (transaction.attempt < lock->owner.attempt)
        return TEFF_E_ABORTED;
    if (transaction.attempt == lock->owner.attempt)
        return TEFF_E_INVALID;
    lock->must_abort = true;
    return TEFF_OK;
}

bool teffi_lock_is_held_for(const teffi_lock *lock, const teffi_msg *msg)
{
    teffi_transaction transaction;
    return teffi_transaction_read_from_msg(msg, &transaction) &&
           teffi_transaction_is_same(&transaction, &lock->owner);
}

void teffi_lock_update_pending_of_owner(teffi_activation *act, const teffi_msg *msg, bool added)
{
    teffi_lock *lock = teffi_lock_of(act);
    if (lock && teffi_lock_is_held_for(lock, msg))
        act->more->pending_of_owner += added ? 1 : (uint32_t)-1;
}

/* ---- the watch ---- */

/* Called on any worker when the watch's timer fires. Signals the watch's wait: pushes it to the
 * activation's group, where on_watch_timer() runs. */
static void signal_watch(teffi_timer *timer)
{
    teffi_wait_notify_waiter(&teffi_container(timer, teffi_lock, timer)->wait);
}

static void on_watch_timer(teffi_wait *wait);

static void arm_watch(teffi_lock *lock, teffi_exec *exec)
{
    lock->wait = (teffi_wait){.group = &lock->act->group, .orphan = true, .arrive = on_watch_timer};
    lock->wait.item.kind = TEFFI_ITEM_WAIT;
    lock->timer.fire = signal_watch;
    lock->armed = true;
    exec->ops->timer_set(exec, &lock->timer, teffi_now(exec->platform) + watch_ns);
}

/* Has the silo where the root runs left the view? If it has, nobody sends COMMIT or ABORT. out:
 * false also for the root's own lock (step ROOT), which is on the same silo as the root. */
static bool root_is_gone(const teffi_activation *act, const teffi_lock *lock)
{
    teffi_node *node = act->grains->node;
    teffi_node_id silo =
        lock->owner.runs_at ? teffi_node_from_word(lock->owner.runs_at) : lock->owner.root;
    return lock->owner.step != TEFFI_STEP_ROOT && !teffi_node_equals(silo, node->id) &&
           node->membership && !teffi_view_current_has_member(node, silo);
}

/* Called if the turn that should run teffi_lock_resolve() could not start or did not finish. Clears
 * must_resolve, so that the next such turn starts only after the watch has checked the lock
 * again. */
void teffi_lock_retry_resolve_later(teffi_activation *act)
{
    teffi_lock *lock = teffi_lock_of(act);
    if (lock)
        lock->must_resolve = false; /* on_watch_timer() sets it again when it runs next */
}

typedef struct stored_row {
    teffi_activation *act;
    const teffi_row *row;
} stored_row;

/* Replaces act's state by the stored row, then releases the lock and deactivates act. The state is
 * replaced because on_deactivate must not see changes that were not written. Does nothing if a
 * COMMIT has already released the lock: in this case act's state is right. Runs on the worker's
 * stack, as teffi_state_restore() requires. */
static void adopt_stored_row_and_deactivate(void *arg)
{
    const stored_row *s = arg;
    if (!teffi_lock_of(s->act))
        return;
    teffi_state_restore(s->act, s->row->etag ? s->row->value : (teffi_bytes){"", 0});
    release_lock_and_deactivate(s->act);
}

/* Finds out from the store whether the transaction of a silent root was written. If
 * teffi_state_touch() returns TEFF_E_CONFLICT, the row or the fence has changed, so the transaction
 * may have been written: act adopts the stored row and is deactivated. If it returns TEFF_OK, the
 * row had not changed and now has another etag. A late batch of the root fails because of this
 * etag, so the lock must abort. After any other error the watch starts teffi_lock_resolve()
 * again. */
void teffi_lock_resolve(teff_ctx *ctx, teffi_activation *act)
{
    teffi_row row;
    teff_err err = teffi_state_touch(ctx, act, &row);
    teffi_lock *lock = teffi_lock_of(act);
    if (!lock)
        return; /* a COMMIT has released it during the touch */
    lock->must_resolve = false;
    if (err == TEFF_E_CONFLICT)
        teffi_ctx_run_off_fiber(ctx, adopt_stored_row_and_deactivate, &(stored_row){act, &row});
    else if (!err)
        lock->must_abort = true;
}

/* Does an older transaction wait for a lock under which no turn has run since the last check? Such
 * a lock may belong to an attempt that has ended: if a silo fails after it has passed the attempt's
 * request on to this grain, the root does not know that the grain is locked, and sends it no ABORT.
 * If the older transaction has locked the root's grain, the root cannot begin again, and both
 * transactions would wait for each other until the deadline. It is safe to end the lock even if its
 * attempt has not ended: if another transaction changes the row afterwards, the attempt's batch
 * fails. Call this function once at each check, because it updates turns_at_check. */
static bool older_transaction_waits_for_idle_lock(const teffi_activation *act, teffi_lock *lock)
{
    bool idle = act->running == 0 && lock->turns == lock->turns_at_check;
    lock->turns_at_check = lock->turns;
    return idle && older_transaction_waits(act, &lock->owner);
}

/* Decides how the lock ends if the root sent neither COMMIT nor ABORT. If the transaction does not
 * write this row, the changes are rolled back. Otherwise the row may have been written already, so
 * teffi_lock_resolve() must find that out from the store. */
static void set_must_abort_or_resolve(teffi_lock *lock)
{
    lock->must_abort |= !lock->writes;
    lock->must_resolve = lock->writes;
}

/* The `arrive` function of the lock's wait. Arms the timer again. Calls set_must_abort_or_resolve()
 * if the root is silent, or if an older transaction waits for the idle lock. If the lock was
 * released after the timer had fired, only frees the lock. If act's group has ended, wait->done is
 * false and this function may run on another thread, so it does not read act's fields. */
static void on_watch_timer(teffi_wait *wait)
{
    teffi_lock *lock = teffi_container(wait, teffi_lock, wait);
    teffi_activation *act = lock->act;
    if (!act) {
        free(lock);
        return;
    }
    lock->armed = false;
    if (!wait->done)
        return;
    teffi_exec *exec = act->grains->node->home.exec;
    arm_watch(lock, exec);
    bool older_waits = older_transaction_waits_for_idle_lock(act, lock);
    if (teffi_now(exec->platform) >= lock->until_ns || root_is_gone(act, lock) || older_waits)
        set_must_abort_or_resolve(lock);
}

/* ---- take ---- */

/* Makes the lock, which keeps the packed state for a roll-back, and arms the lock's watch.
 * out: *made. errs: as teffi_lock_take(); the text is in ctx. */
static teff_err make_lock(teff_ctx *ctx, teffi_activation *act,
                          const teffi_transaction *transaction, teffi_lock **made)
{
    teffi_arena_mark here = teffi_arena_get_mark(&ctx->arena);
    teffi_bytes state = {NULL, 0};
    /* Packing may end the turn, so it comes first: memory allocated earlier would leak. */
    teff_err err = act->stored ? teffi_state_pack(ctx, act, &state) : TEFF_OK;
    if (err)
        return err;
    teffi_more *more = teffi_activation_ensure_rare_fields(act);
    teffi_lock *lock = more ? calloc(1, sizeof *lock) : NULL;
    if (lock && state.data)
        lock->before = malloc(state.len + 1);
    if (!lock || (state.data && !lock->before)) {
        free(lock);
        return teff_fail(ctx, TEFF_E_NOMEM, "out of memory to lock the grain");
    }
    if (state.data)
        memcpy(lock->before, state.data, state.len);
    lock->before_len = state.len;
    teffi_arena_rewind(&ctx->arena, here);
    lock->owner = *transaction;
    lock->act = act;
    more->pending_of_owner = 0;
    for (teffi_qnode *n = more->pending.head; n; n = n->next)
        more->pending_of_owner += teffi_lock_is_held_for(lock, teffi_container(n, teffi_msg, link));
    more->lock = lock;
    more->judge_all = more->pending.count > 0;
    act->busy |= TEFFI_BUSY_LOCKED;
    arm_watch(lock, ctx->home->exec);
    *made = lock;
    return TEFF_OK;
}

teff_err teffi_lock_take(teff_ctx *ctx, teffi_activation *act, const teffi_msg *request,
                         teffi_lock **lock)
{
    teffi_transaction transaction;
    (void)teffi_transaction_read_from_msg(request,
                                          &transaction); /* never fails: the handler checked it */
    *lock = teffi_lock_of(act);
    teff_err err = *lock ? TEFF_OK : make_lock(ctx, act, &transaction, lock);
    if (!*lock)
        return teffi_error_add_turn_prefix(ctx, err);
    uint64_t deadline_ns =
        request->deadline_ns ? request->deadline_ns : teffi_ctx_compute_call_deadline(ctx, 0);
    uint64_t until_ns = deadline_ns + watch_ns;
    (*lock)->until_ns = (*lock)->until_ns > until_ns ? (*lock)->until_ns : until_ns;
    (*lock)->turns++;
    (*lock)->calls_begun = (*lock)->calls_collected = 0;
    (*lock)->list_len = 0;
    return TEFF_OK;
}

/* ---- end ---- */

void teffi_lock_apply_transaction_end(teffi_activation *act, const teffi_transaction *end)
{
    teffi_lock *lock = teffi_lock_of(act);
    if (!lock || !teffi_transaction_is_same(&lock->owner, end) ||
        lock->owner.attempt != end->attempt)
        return;
    if (end->step == TEFFI_STEP_COMMIT && act->running == 0) {
        if (act->stored && lock->writes)
            teffi_state_set_etag_after_commit(act, end->etag);
        teffi_lock_release(act);
    } else if (end->step == TEFFI_STEP_RESOLVE) {
        lock->until_ns = 0;
        set_must_abort_or_resolve(lock);
    } else { /* ABORT, RELOAD, or a COMMIT whose batch lacks the changes of a running turn */
        lock->must_abort = true;
        lock->reloads = end->step != TEFFI_STEP_ABORT;
    }
}

/* Ends the lock if it must end and no turn runs. out: true if the lock stays because only the store
 * knows whether the transaction was written. In this case the caller must start
 * teffi_lock_resolve(). */
bool teffi_lock_end_if_due(teffi_activation *act)
{
    teffi_lock *lock = teffi_lock_of(act);
    if (!lock || act->running)
        return false;
    if (lock->reloads) {
        restore_state_as_before_lock(
            act); /* on_deactivate must not see changes that were not written */
        release_lock_and_deactivate(act);
    } else if (lock->must_abort || (act->reason && !lock->writes)) {
        teffi_lock_roll_back_and_release(act);
    } else {
        return lock->must_resolve && act->busy == TEFFI_BUSY_LOCKED;
    }
    return false;
}
