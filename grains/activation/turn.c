/* turn.c - run methods on fibers: start, respond, end.
 * Threads: on the activation's group; a turn may resume on another thread after a suspend. */
#include "activation/turn.h"

#include <stdio.h>
#include "activation/answers.h"
#include "activation/observers.h"
#include "activation/state.h"
#include "activation/timers.h"
#include "activation/transaction.h"
#include "activation/waits.h"
#include "call/ctx.h"
#include "node/deliver.h"
#include "group/closure.h"
#include "group/direct.h"

static void set_doing(teffi_activation *act, const char *name)
{
    atomic_store_explicit(&act->doing, name, memory_order_relaxed);
}

/* If the wait's context was freed, the item resumes no turn, so act->doing is left unchanged. */
void teffi_turn_set_doing_on_resume(teffi_activation *act, teffi_item *item)
{
    const teffi_wait *wait = teffi_container(item, teffi_wait, item);
    const teffi_turn *turn = wait->ctx ? wait->ctx->owner : NULL;
    if (turn)
        set_doing(act, turn->method ? turn->method->name : act->type->info->name);
}

/* in: method: NULL for a turn of on_activate, on_deactivate or teffi_lock_resolve(). due_ms: the
 * caller's deadline; 0 if there is none. */
static inline void turn_init(teffi_turn *turn, teffi_activation *act, teffi_fiber *fiber,
                             const teff_method *method, uint32_t due_ms)
{
    set_doing(act, method ? method->name : act->type->info->name);
    turn->method = method;
    teffi_ctx_init(&turn->ctx, &act->grains->node->home, &act->group);
    turn->ctx.arena.budget_bytes = TEFF_TURN_MEMORY_MAX;
    turn->ctx.fiber = fiber;
    turn->ctx.owner = turn;
    turn->act = act;
    turn->request = NULL;
    turn->place = NULL;
    turn->on_stack = false;
    atomic_store_explicit(&turn->has_call, false, memory_order_relaxed);
    turn->due_ms = turn->ctx.due_ms = due_ms;
    LIST_INSERT_HEAD(&act->turns, turn, link);
}

/* Removes the turn from its activation, and frees its memory and its request. */
static inline void turn_fini(teffi_turn *turn)
{
    LIST_REMOVE(turn, link);
    if (!LIST_EMPTY(&turn->ctx.calls) || turn->ctx.arena.chunks)
        teffi_ctx_fini(&turn->ctx);
    if (turn->on_stack && turn->request)
        teffi_arena_free_memory(&turn->request->arena);
    else
        teffi_msg_free(turn->request);
}

/* Frees an item that no turn will handle. arrive() frees an orphan wait, unless the wait is part of
 * a lock or timer that is not released yet. A wait that is not an orphan is freed with its turn. */
static void discard_item(teffi_item *item)
{
    teffi_wait *wait = teffi_container(item, teffi_wait, item);
    if (item->kind == TEFFI_ITEM_CLOSURE)
        teffi_closure_drop(item);
    if (item->kind == TEFFI_ITEM_WAIT && wait->orphan)
        wait->arrive(wait);
    if (item->kind == TEFFI_ITEM_VISIT)
        teffi_waits_free_visit(item);
    if (item->kind == TEFFI_MSG_REQUEST || item->kind == TEFFI_MSG_ONEWAY ||
        item->kind == TEFFI_ITEM_PROBE || item->kind == TEFFI_ITEM_BOUNCE)
        teffi_msg_free(teffi_container(item, teffi_msg, item));
}

void teffi_activation_discard_contents(teffi_activation *act)
{
    teffi_qnode *n;
    teffi_item *item;
    while (act->more && (n = teffi_queue_pop(&act->more->pending)))
        teffi_msg_free(teffi_container(n, teffi_msg, link));
    while ((item = teffi_group_take_item(&act->group)))
        discard_item(item);
    while (!LIST_EMPTY(&act->turns))
        turn_fini(LIST_FIRST(&act->turns));
    teffi_timers_stop_all(act);
    teffi_observers_discard_all(act);
    teffi_lock_release(act);
    teffi_state_free(act);
    teffi_activation_clear(act);
}

/* ---- responses ---- */

/* Keeps ctx's text only if it was set for err. Any other text is of an earlier error, so the new
 * text only quotes it, if at all. */
teff_err teffi_turn_make_valid_error(teff_ctx *ctx, const teffi_activation *act, const char *what,
                                     teff_err err)
{
    bool fits = teffi_err_is_in_range(err), has_text = ctx->text && ctx->text[0];
    char key[TEFFI_KEY_TEXT_MAX];
    teff_key k;
    if (fits && has_text && ctx->text_err == err)
        return err;
    teffi_activation_get_key(act, &k);
    teffi_key_format(&k, key);
    if (!fits)
        return teff_fail(ctx, TEFF_E_FAILED, "%s at %s returned %d, which is not in 1 .. %d%s%s",
                         what, key, (int)err, TEFF_E_MAX, has_text ? ": " : "", teff_error(ctx));
    if (err == TEFF_E_UNIMPLEMENTED)
        return teff_fail(ctx, err, "%s at %s is not implemented", what, key);
    return teff_fail(ctx, err, "%s at %s returned %s%s%s%s", what, key, teff_err_name(err),
                     has_text ? " (the last error was: " : "", teff_error(ctx),
                     has_text ? ")" : "");
}

/* Converts the turn's request message to an empty response. Makes a new message instead if the
 * request lies on this stack, or if it is large and the caller is on this silo: such a caller would
 * keep the request's memory as long as the response. in: stays: the caller is on this silo.
 * out: the response; NULL if there is no memory. *to: the node to send the response to. */
static teffi_msg *make_response(teffi_turn *turn, bool stays, teffi_node_id *to)
{
    const teffi_node *node = turn->ctx.node;
    teffi_msg *request = turn->request;
    if (turn->on_stack || (stays && request->arena.chunks)) {
        *to = node->id;
        return teffi_node_make_response(node, request);
    }
    turn->request = NULL;
    *to = teffi_node_convert_request_to_response(node, request);
    return request;
}

/* Checks the response `out`. On success sets *packed to its packed size. errs: the response is too
 * large or invalid; the error text is in turn->ctx. */
static teff_err check_response(teffi_turn *turn, const teff_method *method,
                               const ProtobufCMessage *out, size_t *packed)
{
    const teff_type_info *info = turn->act->type->info;
    teff_err err = teffi_message_check(&turn->ctx, info, method->out, out, "response", packed);
    return err ? teffi_error_add_turn_prefix(&turn->ctx, err) : TEFF_OK;
}

/* Copies the response `out` into the arena and checks the copy. If `out` contains a pointer to
 * itself, the copy fails at the arena's memory limit. */
static inline teff_err copy_response(teffi_turn *turn, const teff_method *method, teff_arena *arena,
                                     const ProtobufCMessage *out, ProtobufCMessage **copy)
{
    const teff_grain_type *type = turn->act->type;
    teffi_arena_mark before = teffi_arena_get_mark(arena);
    *copy = teffi_message_copy_and_check(type->info, type->sure_bytes, method->out, arena, out);
    if (*copy)
        return TEFF_OK;
    teffi_arena_rewind(arena, before);
    teff_err err =
        teffi_message_explain_failed_copy(&turn->ctx, type->info, method->out, out, "response");
    return teffi_error_add_turn_prefix(&turn->ctx, err);
}

/* Checks `out`, which the method returned, and makes the message `response` point to it. */
static teff_err check_and_borrow_response(teffi_turn *turn, teffi_msg *response,
                                          const teff_method *method, ProtobufCMessage *out)
{
    size_t packed;
    teff_err err = check_response(turn, method, out, &packed);
    if (err)
        return err;
    response->body = out;
    response->packed_len = (uint32_t)packed;
    return TEFF_OK;
}

/* Adds the transaction's participants to the response, and allows it a longer frame
 * (TEFFI_MSG_ROW), because the list contains their states. If there is no memory to copy the list,
 * the response becomes an error, so that the transaction is not committed. */
static void attach_participants(teffi_msg *response, const teffi_lock *lock, bool stays)
{
    response->flags |= TEFFI_MSG_ROW;
    response->transaction =
        stays ? teff_arena_copy(&response->arena, lock->list, lock->list_len) : lock->list;
    response->transaction_len = response->transaction ? (uint32_t)lock->list_len : 0;
    if (!response->transaction && !response->err)
        response->err = TEFF_E_NOMEM;
}

/* Did the request join a transaction of its caller? Only the response to such a request carries the
 * participants, because the caller of a root must not see their states. ctx->transaction cannot
 * replace this check: it is still set if a root's turn ended in the middle of its method. */
static bool request_joins_transaction(const teffi_msg *request)
{
    teffi_transaction transaction;
    return teffi_transaction_read_from_msg(request, &transaction) &&
           transaction.step == TEFFI_STEP_JOIN;
}

/* Responds by a message; a one-way request, or a tick, gets no response. For a caller on this silo,
 * `out` is copied, because it may point into the grain's state. For another silo, the message only
 * points to `out`, which teffi_node_send_response() packs before it returns. */
__attribute__((noinline)) static void send_response(teffi_turn *turn, const teff_method *method,
                                                    teff_err err, ProtobufCMessage *out)
{
    teff_ctx *ctx = &turn->ctx;
    if (turn->request->item.kind != TEFFI_MSG_REQUEST) {
        teffi_timers_end_if_tick(turn, err);
        return;
    }
    if (teffi_cancel_is_any_kept(ctx->home)) /* it is too late to cancel this request */
        (void)teffi_node_remove_cancel(ctx->node, turn->request);
    bool stays = teffi_node_equals(turn->request->src, ctx->node->id);
    bool joins = ctx->transaction && request_joins_transaction(turn->request);
    teffi_node_id to;
    teffi_msg *response = make_response(turn, stays, &to);
    if (!response)
        return; /* out of memory: the call ends at its deadline */
    if (!err && out)
        err = stays ? copy_response(turn, method, &response->arena, out, &response->body)
                    : check_and_borrow_response(turn, response, method, out);
    response->err = (uint16_t)err;
    response->borrows = !stays;
    if (err && ctx->text)
        response->text =
            stays ? teff_arena_copy(&response->arena, ctx->text, strlen(ctx->text)) : ctx->text;
    if (joins)
        attach_participants(response, ctx->transaction, stays);
    teffi_node_send_response(ctx->node, to, response);
}

/* Copies the response to the caller, whose turn is suspended beneath this one on this thread. */
static inline void respond_in_place(teffi_turn *turn, const teff_method *method, teff_err err,
                                    const ProtobufCMessage *out)
{
    teffi_in_place *place = turn->place;
    size_t packed;
    if (!err && out && place->out)
        err = copy_response(turn, method, &place->caller->arena, out, place->out);
    else if (!err && out && place->kind == TEFFI_MSG_REQUEST)
        /* The caller wants no response, but an invalid response is an error here, too, as it is if
         * the caller is on another silo. */
        err = check_response(turn, method, out, &packed);
    place->err = err;
    if (err)
        (void)teff_fail(place->caller, err, "%s", teff_error(&turn->ctx));
}

/* If err is TEFF_OK, responds with `out`; otherwise responds with err, which must be a valid error.
 * Afterwards frees the turn and subtracts it from the counts of running turns. */
static inline __attribute__((always_inline)) void
respond_and_end_turn(teffi_turn *turn, const teff_method *method, teffi_class class, teff_err err,
                     ProtobufCMessage *out)
{
    teffi_activation *act = turn->act;
    if (turn->place)
        respond_in_place(turn, method, err, out);
    else
        send_response(turn, method, err, out);
    turn_fini(turn);
    act->running--;
    act->running_of[class]--;
}

/* Like respond_and_end_turn(), but err may be any number. If err is not TEFF_OK, this function
 * first converts it to a valid error with a text. */
static inline __attribute__((always_inline)) void end_request(teffi_turn *turn,
                                                              const teff_method *method,
                                                              teffi_class class, teff_err err,
                                                              ProtobufCMessage *out)
{
    if (err)
        err = teffi_turn_make_valid_error(&turn->ctx, turn->act, method->name, err);
    respond_and_end_turn(turn, method, class, err, out);
}

/* ---- requests ---- */

/* out: an empty response in request's arena; NULL if the method has none, or memory is out. */
static ProtobufCMessage *new_response_body(teffi_msg *request, const teff_method *method)
{
    if (!method->out)
        return NULL;
    ProtobufCMessage *out =
        teffi_arena_alloc_unzeroed(&request->arena, method->out->desc->sizeof_message);
    if (out)
        method->out->desc->message_init(out);
    return out;
}

static inline teff_err invoke_method(teffi_turn *turn, const teff_method *method,
                                     ProtobufCMessage *out)
{
    teff_grain grain __attribute__((uninitialized));
    teffi_turn_fill_grain(&grain, &turn->ctx, turn->act);
    return method->invoke(&grain, turn->act->type->methods, turn->request->body, out);
}

__attribute__((noinline)) static teff_err make_no_memory_error(teffi_turn *turn)
{
    teff_err err = teff_fail(&turn->ctx, TEFF_E_NOMEM, "out of memory for the response");
    return teffi_error_add_turn_prefix(&turn->ctx, err);
}

/* Calls the method, then responds and ends the turn. */
static inline __attribute__((always_inline)) void
run_method(teffi_turn *turn, const teff_method *method, teffi_class class)
{
    teffi_activation *act = turn->act;
    act->running++;
    act->running_of[class]++;
    ProtobufCMessage *out = new_response_body(turn->request, method);
    teff_err err =
        !out && method->out ? make_no_memory_error(turn) : invoke_method(turn, method, out);
    end_request(turn, method, class, err, out);
}

void teffi_turn_run_tick(teffi_turn *turn, teffi_activation *act, teffi_fiber *fiber,
                         const teff_method *method, teffi_msg *request)
{
    turn_init(turn, act, fiber, method, 0);
    turn->request = request;
    turn->on_stack = true;
    run_method(turn, method, teffi_class_of_method(act->type->info, method));
}

/* ---- calls with an idempotency key ---- */

/* Sets ctx's error text to the method's name, the grain's key and `why`. out: err. */
static teff_err make_turn_error(teffi_turn *turn, teff_err err, const char *why)
{
    return teffi_error_add_turn_prefix(&turn->ctx, teff_fail(&turn->ctx, err, "%s", why));
}

/* Calls the method, and copies its response to ctx's memory. The copy is needed because the
 * response may point into the state, and other turns may change the state before this turn
 * responds. out: the error of the method or of the copy, with a text in ctx; if it is TEFF_OK, *out
 * is the copy. If there is no memory for the response or for its copy, ends the turn and does not
 * return, so that the turn writes nothing. */
static teff_err invoke_and_copy_response(teffi_turn *turn, ProtobufCMessage **out)
{
    teff_ctx *ctx = &turn->ctx;
    const teff_method *method = turn->method;
    ProtobufCMessage *body = new_response_body(turn->request, method);
    if (!body && method->out) /* a returned error would be stored as the answer, so exit */
        teffi_ctx_exit_turn(ctx, make_no_memory_error(turn));
    turn->not_run = false;
    teff_err err = invoke_method(turn, method, body);
    if (err)
        return teffi_turn_make_valid_error(ctx, turn->act, method->name, err);
    if (body && (err = copy_response(turn, method, &ctx->arena, body, out)) == TEFF_E_NOMEM)
        teffi_ctx_exit_turn(ctx, err);
    return err;
}

/* Records the answer to the request's idempotency key: `out` if err is TEFF_OK, otherwise err. If
 * there is no memory, ends the turn and does not return, because the state must not be written
 * without the answer. */
static void record_answer(teffi_turn *turn, uint64_t hash, teff_err err,
                          const ProtobufCMessage *out)
{
    teff_ctx *ctx = &turn->ctx;
    if (teffi_answers_add(ctx, turn->act, turn->request->once, hash, err, out))
        return;
    (void)teff_fail(ctx, TEFF_E_NOMEM, "out of memory for the answer");
    teffi_ctx_exit_turn(ctx, TEFF_E_NOMEM);
}

/* Calls the method, and records its error or response as the answer to the request's idempotency
 * key. If a filter has refused the call before the method, records nothing. If the deadline has
 * passed, does neither and returns TEFF_E_TIMEOUT. out: the method's error; if that is TEFF_OK,
 * *out is its response. */
static teff_err invoke_and_record_answer(teffi_turn *turn, uint64_t hash, ProtobufCMessage **out)
{
    if (teff_ctx_check(&turn->ctx, NULL) == TEFF_E_TIMEOUT)
        return make_turn_error(turn, TEFF_E_TIMEOUT, "expired while it waited for another turn");
    teff_err err = invoke_and_copy_response(turn, out);
    if (!turn->not_run)
        record_answer(turn, hash, err, *out);
    return err;
}

static uint64_t hash_request(teffi_turn *turn)
{
    return teffi_answers_hash_request(&turn->ctx, turn->method, turn->request->body);
}

/* out: the stored answer to the request's idempotency key; NULL if there is none. */
static const teffi_answer *find_answer(const teffi_turn *turn)
{
    return teffi_answers_find(turn->act->stored->answers, turn->request->once);
}

/* Repeats the stored answer `known`. out: its error; if that is TEFF_OK, *out is its response.
 * errs: TEFF_E_INVALID if the answer is to another method or request. */
static teff_err repeat_answer(teffi_turn *turn, const teffi_answer *known, uint64_t hash,
                              ProtobufCMessage **out)
{
    if (known->hash != hash)
        return make_turn_error(turn, TEFF_E_INVALID,
                               "the idempotency key was used with another method or request");
    return teffi_answers_read_outcome(&turn->ctx, known, turn->method, out);
}

/* Repeats the stored answer to the request's idempotency key; if there is none, calls the method
 * and records the answer. out: the answer's error; if that is TEFF_OK, *out is its response. */
static teff_err repeat_answer_or_invoke(teffi_turn *turn, ProtobufCMessage **out)
{
    uint64_t hash = hash_request(turn);
    const teffi_answer *known = find_answer(turn);
    return known ? repeat_answer(turn, known, hash, out)
                 : invoke_and_record_answer(turn, hash, out);
}

/* errs: TEFF_E_INVALID if the method cannot be called with an idempotency key. */
static teff_err check_takes_idempotency_key(teffi_turn *turn)
{
    if (!turn->act->stored)
        return make_turn_error(turn, TEFF_E_INVALID,
                               "an idempotency key needs a grain type with "
                               "state, which keeps the answer");
    return turn->method->flags & TEFF_METHOD_READ_ONLY
               ? make_turn_error(turn, TEFF_E_INVALID,
                                 "a read-only method takes no idempotency key: "
                                 "it has nothing to count")
               : TEFF_OK;
}

/* Runs a request with an idempotency key: calls the method or repeats the stored answer, and
 * responds when state and answer are written. */
static void run_idempotent_request(teffi_turn *turn)
{
    teffi_activation *act = turn->act;
    teffi_class class = teffi_class_of_method(act->type->info, turn->method);
    ProtobufCMessage *out = NULL;
    act->running++;
    act->running_of[class]++;
    teff_err err = check_takes_idempotency_key(turn);
    if (!err)
        err = teffi_state_begin_idempotent_call(&turn->ctx, act);
    if (!err) {
        err = repeat_answer_or_invoke(turn, &out);
        teff_err unwritten = teffi_state_end_idempotent_call(&turn->ctx, act);
        err = unwritten ? unwritten : err;
    }
    respond_and_end_turn(turn, turn->method, class, err, err ? NULL : out);
}

/* ---- transactions ---- */

/* Runs on the worker's stack. in: arg: the activation. */
static void roll_back_and_release_lock_closure(void *arg)
{
    teffi_lock_roll_back_and_release(arg);
}

/* Rolls back the state and releases the transaction's lock. Then records err, the error that the
 * root's method returned, as the answer to the request's idempotency key, and writes the answer to
 * the store, so that a repeated call gets the same error. out: err; if the answer was not written,
 * the error that prevented this. */
static teff_err roll_back_and_record_error(teffi_turn *turn, uint64_t hash, teff_err err)
{
    teff_ctx *ctx = &turn->ctx;
    char text[TEFF_TEXT_MAX];
    snprintf(text, sizeof text, "%s", teff_error(ctx));
    teffi_ctx_run_off_fiber(ctx, roll_back_and_release_lock_closure, turn->act);
    if (teffi_state_is_broken(turn->act)) /* do not write the changes with the answer */
        return teff_fail(ctx, TEFF_E_NOMEM, "out of memory to roll back; the method failed: %s",
                         text);
    teff_err unwritten = teffi_state_begin_idempotent_call(ctx, turn->act);
    if (!unwritten) {
        (void)teff_fail(ctx, err, "%s", text);
        record_answer(turn, hash, err, NULL);
        unwritten = teffi_state_end_idempotent_call(ctx, turn->act);
    }
    return unwritten ? unwritten : teff_fail(ctx, err, "%s", text);
}

/* Calls the method of the transaction's root request, then commits or aborts the transaction. in:
 * once: the request has an idempotency key. hash: of the request; used only if once is true. out:
 * the result to respond with. */
static teff_err run_root_and_commit_or_abort(teffi_turn *turn, bool once, uint64_t hash,
                                             ProtobufCMessage **out)
{
    teff_ctx *ctx = &turn->ctx;
    teffi_lock *lock = ctx->transaction;
    teff_err own = invoke_and_copy_response(turn, out),
             err = teffi_transaction_await_turn_calls(ctx, own);
    if (!err && once && !turn->not_run) {
        record_answer(turn, hash, err, *out);
        lock->writes = true;
    }
    if (!err)
        return teffi_transaction_commit(ctx, turn->act);
    /* If the method itself returned the error, that error is stored as the answer for the key.
     * Exceptions: after TEFF_E_ABORTED the transaction begins again; a filter has refused the call
     * before the method. */
    bool counts = once && own && own != TEFF_E_ABORTED && !turn->not_run && !lock->failed &&
                  !lock->must_abort;
    teffi_transaction_abort(ctx, turn->act);
    return counts ? roll_back_and_record_error(turn, hash, err) : err;
}

/* Calls the method of the transaction's root request and ends the transaction. If an answer to the
 * request's idempotency key is stored, repeats that answer and does not call the method. out: the
 * result to respond with. */
static teff_err run_transaction_root(teffi_turn *turn, ProtobufCMessage **out)
{
    bool once = turn->request->once != NULL;
    teff_err err = once ? check_takes_idempotency_key(turn) : TEFF_OK;
    if (!err && once && !teffi_answers_ensure(turn->act))
        err = make_turn_error(turn, TEFF_E_NOMEM, "out of memory for the answer");
    uint64_t hash = !err && once ? hash_request(turn) : 0;
    const teffi_answer *known = !err && once ? find_answer(turn) : NULL;
    if (!err && !known)
        return run_root_and_commit_or_abort(turn, once, hash, out);
    if (known)
        err = repeat_answer(turn, known, hash, out);
    teffi_transaction_abort(&turn->ctx, turn->act); /* nothing was changed */
    return err;
}

/* Ends the root's turn without a response, and queues its request for the next attempt. in: needed:
 * the next attempt needs the content of the request's arena up to this mark. out: false if there is
 * no next attempt: the turn has not ended, and must respond. */
static bool end_turn_and_queue_retry(teffi_turn *turn, teffi_arena_mark needed)
{
    teffi_msg *request = turn->request;
    teffi_activation *act = turn->act;
    teffi_arena_rewind(&request->arena, needed);
    if (!teffi_transaction_retry(act->grains, request))
        return false;
    turn->request = NULL;
    turn_fini(turn);
    act->running--;
    act->running_of[TEFFI_EXCLUSIVE]--;
    return true;
}

/* Like run_method(), but for a request that belongs to a transaction. If the transaction is
 * aborted, the root's request may be queued again, and gets no response yet. */
static void run_in_transaction(teffi_turn *turn)
{
    teffi_activation *act = turn->act;
    ProtobufCMessage *out = NULL;
    teffi_transaction transaction;
    teffi_arena_mark here = teffi_arena_get_mark(&turn->request->arena);
    bool is_root = teffi_transaction_read_from_msg(turn->request, &transaction) &&
                   transaction.step == TEFFI_STEP_ROOT;
    act->running++;
    act->running_of[TEFFI_EXCLUSIVE]++;
    teff_err err = teffi_transaction_lock_grain(&turn->ctx, act, turn->request);
    if (!err && is_root)
        err = run_transaction_root(turn, &out);
    else if (!err)
        err = teffi_transaction_end_participant_turn(&turn->ctx, act,
                                                     invoke_and_copy_response(turn, &out));
    if (err == TEFF_E_ABORTED && is_root && end_turn_and_queue_retry(turn, here))
        return;
    respond_and_end_turn(turn, turn->method, TEFFI_EXCLUSIVE, err, err ? NULL : out);
}

/* Marks the state as broken, so that the activation ends, and dooms all other turns of the
 * activation. They are suspended now; when they resume, they end with TEFF_E_NOMEM and this turn's
 * text. Does nothing if the state is already broken. */
static void mark_state_broken_and_doom_turns(const teffi_turn *turn)
{
    teffi_activation *act = turn->act;
    if (teffi_state_is_broken(act))
        return;
    teffi_state_mark_broken_and_deactivate(act);
    for (teffi_turn *other = LIST_FIRST(&act->turns); other; other = LIST_NEXT(other, link)) {
        if (other == turn)
            continue;
        atomic_store_explicit(&other->ctx.doomed, TEFF_E_NOMEM, memory_order_relaxed);
        (void)teff_fail(&other->ctx, TEFF_E_NOMEM, "with its grain, which ended: %s",
                        teff_error(&turn->ctx));
    }
}

void teffi_turn_exit(teffi_turn *turn, teff_err err)
{
    const teff_method *method = turn->method;
    if (turn->act->stored)
        mark_state_broken_and_doom_turns(turn);
    if (turn->ctx.transaction)
        err = teffi_transaction_abort_after_turn_exit(
            &turn->ctx, turn->act, !request_joins_transaction(turn->request), err);
    (void)teffi_error_add_turn_prefix(&turn->ctx, err);
    end_request(turn, method, teffi_class_of_method(turn->act->type->info, method), err, NULL);
}

typedef struct start { /* on the stack of teffi_turn_start(): only read before the first suspend */
    teffi_activation *act;
    teffi_msg *request;
    const teff_method *method;
    teffi_fiber *fiber;
    uint32_t due_ms;
    bool full; /* unpacking made the request larger, and message_bytes_max is exceeded */
} start;

/* The main function of a fiber that runs a request. */
static void request_main(void *arg)
{
    const start *s = arg;
    const teff_method *method = s->method;
    teffi_turn turn __attribute__((uninitialized));
    turn_init(&turn, s->act, s->fiber, method, s->due_ms);
    turn.request = s->request;
    if ((method->flags & TEFF_METHOD_TRANSACTIONAL) && turn.request->transaction)
        run_in_transaction(&turn);
    else if (turn.request->once && turn.request->item.kind == TEFFI_MSG_REQUEST)
        run_idempotent_request(&turn);
    else
        run_method(&turn, method, teffi_class_of_method(s->act->type->info, method));
}

/* Unpacks a request from another node. errs: TEFF_E_TOO_LARGE, TEFF_E_MALFORMED, TEFF_E_NOMEM;
 * TEFF_E_OVERLOADED, with s->full set: all messages together exceed message_bytes_max. */
__attribute__((noinline)) static teff_err unpack_request(start *s)
{
    if (s->request->raw_len > teffi_message_max(s->act->type->info))
        return TEFF_E_TOO_LARGE;
    uint32_t charged = s->request->charged;
    teff_err err = s->method->in ? teffi_msg_unpack(s->request, s->method->in->desc) : TEFF_OK;
    if (err)
        return err;
    s->full =
        s->request->charged > charged && teffi_budget_is_exceeded(s->act->grains->node->budget);
    return s->full ? TEFF_E_OVERLOADED : TEFF_OK;
}

/* Unpacks the request if it is packed, and takes a fiber. errs: those of unpack_request(). Also
 * returns TEFF_E_OVERLOADED if there is no free stack, but leaves s->full false in that case. */
static teff_err prepare_request(start *s)
{
    teff_err err = s->request->body ? TEFF_OK : unpack_request(s);
    if (err)
        return err;
    s->fiber = teffi_fiber_new(s->act->grains->node->home.exec->fibers, request_main, s);
    return s->fiber ? TEFF_OK : TEFF_E_OVERLOADED;
}

/* Responds with an error of prepare_request() and a text for it. Owns the request. */
__attribute__((noinline)) static void refuse_request(const start *s, teff_err err)
{
    size_t max = teffi_message_max(s->act->type->info);
    char text[TEFF_TEXT_MAX];
    if (err == TEFF_E_TOO_LARGE)
        snprintf(text, sizeof text,
                 "the request has %zu bytes, at most %zu, or over %d fields, or nests over %d "
                 "messages deep",
                 s->request->raw_len, max, TEFF_FIELDS_MAX, TEFF_DEPTH_MAX);
    else
        snprintf(text, sizeof text, "%s",
                 err == TEFF_E_MALFORMED ? "the request does not decode"
                 : err == TEFF_E_NOMEM   ? "out of memory for the request"
                 : s->full ? "the silo's messages take more memory than message_bytes_max allows"
                           : "out of stacks to start the turn");
    teffi_node_respond_with_err(s->act->grains->node, s->request, err, text);
}

void teffi_turn_start(teffi_activation *act, teffi_msg *request, const teff_method *method)
{
    start s = {.act = act, .request = request, .method = method};
    if (request->item.kind == TEFFI_MSG_REQUEST)
        s.due_ms = teffi_due_ms_of(request->deadline_ns);
    teff_err err = prepare_request(&s);
    if (err) {
        refuse_request(&s, err);
        return;
    }
    teffi_fiber_set_label(s.fiber, method->name);
    (void)teffi_fiber_resume(s.fiber);
}

/* ---- in place ---- */

typedef struct place_frame { /* on the method's stack */
    teffi_turn turn;
    teffi_msg request;
    _Alignas(16) uint8_t bytes[TEFFI_MSG_INLINE];
} place_frame;

/* The main function of a fiber that runs a request in place. Copies the request, because the
 * caller's turn may end before the method has read all of it. */
static void in_place_main(void *arg)
{
    teffi_in_place *place = arg;
    const teff_method *method = place->method;
    place_frame f __attribute__((uninitialized));
    teffi_msg_init(&f.request, place->kind, f.bytes);
    const teff_grain_type *type = place->act->type;
    if (method->in &&
        !(f.request.body = teffi_message_copy_and_check(type->info, type->sure_bytes, method->in,
                                                        &f.request.arena, place->in))) {
        teffi_arena_free_memory(&f.request.arena);
        return; /* place->turn stays NULL: the turn did not start */
    }
    turn_init(&f.turn, place->act, place->fiber, method, place->due_ms);
    f.request.src = f.turn.ctx.node->id;
    f.turn.request = &f.request;
    f.turn.on_stack = true;
    f.turn.place = place;
    place->turn = &f.turn;
    run_method(&f.turn, method, place->class);
}

teffi_turn_end teffi_turn_run_in_place(teffi_in_place *place)
{
    teffi_exec *exec = place->act->grains->node->home.exec;
    place->turn = NULL;
    place->fiber = teffi_fiber_new(exec->fibers, in_place_main, place);
    if (!place->fiber)
        return TEFFI_TURN_NOT_STARTED;
    teffi_fiber_set_label(place->fiber, place->method->name);
    teffi_activation_update_last_use(place->act);
    teffi_group *outer = teffi_direct_enter(exec, &place->act->group);
    bool ended = teffi_fiber_resume(place->fiber);
    teffi_direct_leave(exec, outer);
    if (!ended)
        return TEFFI_TURN_WAITS;
    return place->turn ? TEFFI_TURN_ENDED : TEFFI_TURN_NOT_STARTED;
}

/* If a transaction waits for the turn, the turn's later calls must carry that transaction: see
 * teffi_transaction_attach_to_request(). That transaction is found through turn->place. This
 * function clears turn->place, so it first stores the transaction in the turn's request. If there
 * is no memory to store it, the turn's later calls carry no transaction. Such a call may wait for a
 * lock until its deadline. */
void teffi_turn_detach(teffi_in_place *place)
{
    teffi_turn *turn = place->turn;
    teffi_transaction transaction;
    if (teffi_transaction_find_one_that_awaits_turn(&turn->ctx, &transaction))
        (void)!teffi_transaction_write_to_msg(turn->request, &transaction);
    turn->place = NULL;
}

void teffi_turn_set_call(teffi_in_place *place, const teffi_call *call, uint64_t deadline_ns)
{
    teffi_msg *request = place->turn->request;
    request->call = (teffi_origin){call->slot, call->generation, 0};
    request->deadline_ns = deadline_ns;
    /* release: pairs with request_has_call(), which another thread may run, in a part that the turn
     * has forked (teff/fork.h) */
    atomic_store_explicit(&place->turn->has_call, true, memory_order_release);
}

/* ---- the life turn ---- */

typedef struct life {
    teffi_activation *act;
    void (*fn)(teff_ctx *ctx, teffi_activation *act);
    teffi_fiber *fiber;
} life;

void teffi_turn_end_life_turn(teffi_turn *turn)
{
    teffi_activation *act = turn->act;
    turn_fini(turn);
    act->busy &= (uint8_t)~TEFFI_BUSY_LIFE;
}

/* The main function of a fiber that runs a life turn. Such a turn serves no request: it calls
 * on_activate, on_deactivate or teffi_lock_resolve(). */
static void life_main(void *arg)
{
    life l = *(life *)arg; /* a copy: the starter's stack frame may end before this function does */
    teffi_turn turn __attribute__((uninitialized));
    turn_init(&turn, l.act, l.fiber, NULL, 0);
    l.fn(&turn.ctx, l.act);
    teffi_turn_end_life_turn(&turn);
}

teff_err teffi_turn_start_life_turn(teffi_activation *act,
                                    void (*fn)(teff_ctx *ctx, teffi_activation *act))
{
    life l = {act, fn, NULL};
    l.fiber = teffi_fiber_new(act->grains->node->home.exec->fibers, life_main, &l);
    if (!l.fiber)
        return TEFF_E_OVERLOADED;
    act->busy |= TEFFI_BUSY_LIFE;
    teffi_fiber_set_label(l.fiber, act->type->info->name);
    (void)teffi_fiber_resume(l.fiber);
    return TEFF_OK;
}
