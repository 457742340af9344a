/* life.c - begin and end activations, in steps on the group or on a fiber.
 * Rule:    no user code runs before the directory has confirmed the activation. Exception: those of
 *          stateless workers are not in the directory. */
#include "hosting/life.h"

#include <stdio.h>
#include <stdlib.h>
#include "activation/lock.h"
#include "activation/state.h"
#include "activation/turn.h"
#include "call/ctx.h"
#include "directory/client.h"
#include "directory/partition.h"

/* Stores the error and the text that the requests of a failed activation get. A second call
 * replaces the first error and text: the same life turn can fail once more, while it runs
 * unregister_activation(). If there is no memory for a copy of the text, the requests get only the
 * error.
 * in: text: "" if there is none. named: true if the text comes from the application or already
 * names the grain; if true, the grain's name is not put before the text. */
static void record_activation_failure(teffi_activation *act, teff_err err, const char *text,
                                      bool named)
{
    teffi_more *more = text[0] ? teffi_activation_ensure_rare_fields(act) : NULL;
    act->failed = (uint16_t)err;
    if (!more)
        return;
    free(more->failed_text);
    more->failed_text = strdup(text);
    more->failed_named = named && more->failed_text;
}

/* A silo that leaves does not unregister its activations at other silos: that would take a message
 * for each of them. If such a grain is called before the silo has left, this silo looks it up,
 * finds the entry for itself, and removes it then (request/route.c). Afterwards the directory drops
 * the entries of a silo that is not in the view. */
static bool leaves_entry_behind(const teffi_activation *act)
{
    return act->reason == TEFF_REASON_STOPPING;
}

/* Removes act from the directory, unless teffi_shard_ask_duplicate_to_end() has cleared
 * `registered`, or the entry is left behind. Frees the context's memory first: the calls below may
 * allocate from it to read the membership table, and must not fail because the turn has used up its
 * memory. */
static void unregister_activation(teff_ctx *ctx, teffi_activation *act)
{
    teffi_ident ident = teffi_activation_ident(act);
    bool registered = teffi_activation_set_registered(act, false);
    teffi_ctx_fini(ctx);
    if (registered && !leaves_entry_behind(act) &&
        teffi_directory_unregister(ctx, &ident, teffi_activation_pid(act)))
        teffi_logf(&ctx->node->platform->log, TEFF_LOG_WARN,
                   "directory: a %s could not be unregistered: %s", act->type->info->name,
                   teff_error(ctx));
}

/* Called before the life turn calls a hook: from now on its time counts (hosting/stuck.h). */
static void begin_hook(teff_ctx *ctx, teffi_activation *act)
{
    act->busy |= TEFFI_BUSY_HOOK;
    ctx->suspended_ms = 0;
}

static void end_hook(teffi_activation *act)
{
    act->busy &= (uint8_t)~TEFFI_BUSY_HOOK;
}

/* Runs on_activate. errs: what on_activate returned, or TEFF_E_FAILED; with a text in ctx. */
static teff_err run_on_activate_hook(teff_ctx *ctx, teffi_activation *act)
{
    teff_grain grain;
    teffi_turn_fill_grain(&grain, ctx, act);
    begin_hook(ctx, act);
    teff_err err = act->type->info->activate(&grain, act->type->methods);
    end_hook(act);
    char what[TEFFI_KEY_TEXT_MAX];
    if (!err)
        return TEFF_OK;
    snprintf(what, sizeof what, "on_activate of %.80s", act->type->info->name);
    return teffi_turn_make_valid_error(ctx, act, what, err);
}

/* Runs in the turn that activates act, after act was registered: loads the state and runs
 * on_activate. On an error, unregisters act. */
static void load_and_activate(teff_ctx *ctx, teffi_activation *act)
{
    teff_err err = teffi_state_load(ctx, act);
    bool loaded = !err;
    if (loaded)
        err = run_on_activate_hook(ctx, act);
    if (!err)
        return;
    record_activation_failure(act, err, teff_error(ctx), loaded);
    unregister_activation(ctx, act);
}

/* Stores the result of a registration. After TEFF_E_EXISTS, holder has the grain and gets act's
 * requests; if there is no memory to store holder, act fails. out: true: act is registered. */
static bool store_registration_result(teffi_activation *act, teff_err err, teffi_pid holder,
                                      const char *text)
{
    if (err == TEFF_E_EXISTS && teffi_activation_ensure_rare_fields(act))
        act->more->winner = holder;
    else if (err)
        record_activation_failure(act, err, text, false);
    return !err;
}

/* Runs as the turn that activates act, if another silo owns act's partition: registers act at that
 * silo, then loads the state and runs on_activate. */
static void register_and_activate(teff_ctx *ctx, teffi_activation *act)
{
    teffi_pid holder;
    teff_err err = teffi_directory_register(ctx, act, &holder);
    if (store_registration_result(act, err, holder, teff_error(ctx)))
        load_and_activate(ctx, act);
}

/* Starts fn as the turn that activates act. If there is no stack for the turn, records that
 * act has failed. */
static void start_activation_turn(teffi_activation *act,
                                  void (*fn)(teff_ctx *ctx, teffi_activation *act))
{
    teff_err err = teffi_turn_start_life_turn(act, fn);
    if (err)
        record_activation_failure(act, err, "out of stacks to activate the grain", false);
}

/* If this silo serves act's partition, registers act or unregisters it, as method says.
 * errs: TEFF_E_UNAVAILABLE: this silo does not serve the partition. TEFF_E_EXISTS: another
 *       activation, *holder, holds the grain. TEFF_E_NOT_FOUND, after UNREGISTER: no activation
 *       holds the grain. TEFF_E_NOMEM. */
static teff_err register_or_unregister_here(teffi_activation *act, uint32_t method,
                                            teffi_pid *holder)
{
    teffi_ident ident = teffi_activation_ident(act);
    teffi_pid pid = teffi_activation_pid(act);
    teff_err err =
        teffi_partition_execute_directory_method(act->grains, method, &ident, pid, holder, NULL);
    return !err && !teffi_pid_equals(*holder, pid) ? TEFF_E_EXISTS : err;
}

/* Starts a fiber only if act must be registered at another silo, or if act has a state to load or
 * an on_activate to run. */
void teffi_life_begin(teffi_activation *act)
{
    teffi_pid holder = {0};
    if (!teffi_lease_holds_coarse(&act->grains->node->home.lease, act->group.exec)) {
        record_activation_failure(act, TEFF_E_UNAVAILABLE, teffi_lease_over_text, false);
        return;
    }
    teff_err err = teffi_type_is_stateless(act->type) || teffi_activation_is_registered(act)
                       ? TEFF_OK
                       : register_or_unregister_here(act, TEFFI_METHOD_REGISTER, &holder);
    if (err == TEFF_E_UNAVAILABLE)
        start_activation_turn(act, register_and_activate);
    else if (store_registration_result(act, err, holder, "") &&
             !teffi_type_activates_at_once(act->type))
        start_activation_turn(act, load_and_activate);
}

static void log_deactivate_failure(teff_ctx *ctx, const teffi_activation *act, teff_err err)
{
    teffi_logf(&ctx->node->platform->log, TEFF_LOG_WARN, "on_deactivate of a %s failed: %s: %s",
               act->type->info->name, teff_err_name(err), teff_error(ctx));
}

/* Does the type have on_deactivate, and is the state not broken? An activation with a broken state
 * ends without on_deactivate, as in a crash of its silo. */
static bool must_run_on_deactivate(const teffi_activation *act)
{
    return teffi_type_has_hook(act->type, act->type->info->on_deactivate_at) &&
           !teffi_state_is_broken(act);
}

/* Runs as the turn that deactivates act: calls on_deactivate if must_run_on_deactivate() is true,
 * then unregisters act. If on_deactivate fails, only logs the error. */
static void deactivate_and_unregister(teff_ctx *ctx, teffi_activation *act)
{
    teff_grain grain;
    teff_err err = TEFF_OK;
    teffi_turn_fill_grain(&grain, ctx, act);
    if (must_run_on_deactivate(act)) {
        begin_hook(ctx, act);
        err = act->type->info->deactivate(&grain, act->type->methods, (teff_reason)act->reason);
        end_hook(act);
    }
    if (err)
        log_deactivate_failure(ctx, act, err);
    unregister_activation(ctx, act);
}

/* Starts a fiber only if on_deactivate must run, or if this silo does not serve act's partition and
 * must remove the entry. If there is no stack for the fiber and another silo serves the partition,
 * that silo's directory keeps act's entry until the next look-up of the grain. */
void teffi_life_end(teffi_activation *act)
{
    teffi_pid holder;
    if (!must_run_on_deactivate(act) &&
        (teffi_type_is_stateless(act->type) ||
         register_or_unregister_here(act, TEFFI_METHOD_UNREGISTER, &holder) != TEFF_E_UNAVAILABLE ||
         leaves_entry_behind(act)))
        return;
    if (teffi_turn_start_life_turn(act, deactivate_and_unregister))
        teffi_logf(&act->grains->node->platform->log, TEFF_LOG_ERROR,
                   "out of stacks: a %s ends without on_deactivate and stays in the directory",
                   act->type->info->name);
}

void teffi_life_start_resolving_lock(teffi_activation *act)
{
    if (teffi_turn_start_life_turn(act, teffi_lock_resolve))
        teffi_lock_retry_resolve_later(act); /* out of stacks */
}

void teffi_life_exit_turn(teff_ctx *ctx, teff_err err)
{
    teffi_turn *turn = ctx->owner;
    teffi_activation *act = turn->act;
    if (turn->method) { /* the turn of a method */
        teffi_turn_exit(turn, err);
        return;
    }
    /* unregister_activation() may suspend the turn again; it must not end there */
    end_hook(act);
    atomic_store_explicit(&ctx->doomed, TEFF_OK, memory_order_relaxed);
    (void)teffi_error_add_turn_prefix(ctx, err);
    if (act->phase == TEFFI_DEACTIVATING)
        log_deactivate_failure(ctx, act, err);
    else if (act->phase != TEFFI_VALID)
        record_activation_failure(act, err, teff_error(ctx), true);
    if (act->phase != TEFFI_VALID)
        unregister_activation(ctx, act);
    else /* the turn ran teffi_lock_resolve() */
        teffi_lock_retry_resolve_later(act);
    teffi_turn_end_life_turn(turn);
}
