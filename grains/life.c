/* life.c - the steps of an activation's beginning and end.
 * Way:     activation -> [life] -> directory, state, user code
 * The directory has confirmed the activation before any user code runs. */
#include "life.h"

#include <stdlib.h>
#include "base/log.h"
#include "directory.h"
#include "grains.h"
#include "state.h"
#include "turn.h"

static void fail(teffi_activation *act, teff_err err, const char *text)
{
    teffi_more *more = text[0] ? teffi_activation_more(act) : NULL;
    act->failed = err;
    if (more)
        more->failed_text = strdup(text);
}

static void unregister(teff_ctx *ctx, teffi_activation *act)
{
    teffi_ident ident = teffi_activation_ident(act);
    teffi_catalog_registered(act->grains, act, false);
    if (teffi_directory_unregister(ctx, &ident, teffi_activation_pid(act)))
        teffi_logf(&ctx->node->platform->log, TEFFI_WARN,
                   "directory: a %s could not be unregistered: %s", act->type->info->name,
                   teff_error(ctx));
}

static bool has_slot(const teff_grain_type *type, size_t at)
{
    void (*slot)(void);
    if (!at) /* not told: perhaps */
        return true;
    memcpy(&slot, (const char *)type->methods + at, sizeof slot);
    return slot != NULL;
}

bool teffi_life_is_bare(const teff_grain_type *type)
{
    return !type->info->state && !has_slot(type, type->info->on_activate_at);
}

static teff_err run_activate(teff_ctx *ctx, teffi_activation *act)
{
    teff_grain grain;
    teffi_turn_grain(&grain, ctx, act);
    teff_err err = teffi_state_load(ctx, act);
    if (err)
        return err;
    grain.state = teffi_activation_state(act);
    return act->type->info->activate(&grain, act->type->methods);
}

static void activate(teff_ctx *ctx, teffi_activation *act)
{
    teff_err err = run_activate(ctx, act);
    if (!err)
        return;
    fail(act, err, teff_error(ctx));
    unregister(ctx, act);
}

/* out: true: it is registered. */
static bool registered(teffi_activation *act, teff_err err, teffi_pid holder, const char *text)
{
    if (err == TEFF_E_EXISTS && teffi_activation_more(act))
        act->more->winner = holder;
    else if (err)
        fail(act, err, text);
    return !err;
}

static void begin(teff_ctx *ctx, teffi_activation *act)
{
    teffi_pid holder;
    teff_err err = teffi_directory_register(ctx, act, &holder);
    if (registered(act, err, holder, teff_error(ctx)))
        activate(ctx, act);
}

static void start(teffi_activation *act, void (*fn)(teff_ctx *ctx, teffi_activation *act))
{
    if (teffi_turn_life(act, fn, act->type->info->name))
        fail(act, TEFF_E_OVERLOADED, "out of stacks to activate the grain");
}

/* Without a fiber as long as nothing has to be waited for and no code of the user's to be run. */
void teffi_life_begin(teffi_activation *act)
{
    teffi_pid holder = {0};
    /* its own: nobody else changes it in a life that has not begun */
    teff_err err = act->registered ? TEFF_OK : teffi_directory_register_here(act, &holder);
    if (err == TEFF_E_UNAVAILABLE)
        start(act, begin);
    else if (registered(act, err, holder, "") && !teffi_life_is_bare(act->type))
        start(act, activate);
}

static void end(teff_ctx *ctx, teffi_activation *act)
{
    teff_grain grain;
    teffi_turn_grain(&grain, ctx, act);
    teff_err err =
        act->type->info->deactivate(&grain, act->type->methods, (teff_reason)act->reason);
    if (err)
        teffi_logf(&ctx->node->platform->log, TEFFI_WARN, "on_deactivate of a %s failed: %s: %s",
                   act->type->info->name, teff_err_name(err), teff_error(ctx));
    unregister(ctx, act);
}

/* Without a stack for on_deactivate the entry in the directory stays behind; look-ups heal it. */
void teffi_life_end(teffi_activation *act)
{
    if (!has_slot(act->type, act->type->info->on_deactivate_at) &&
        teffi_directory_unregister_here(act) == TEFF_OK)
        return;
    if (teffi_turn_life(act, end, act->type->info->name))
        teffi_logf(&act->grains->node->platform->log, TEFFI_ERROR,
                   "out of stacks: a %s ends without on_deactivate", act->type->info->name);
}
