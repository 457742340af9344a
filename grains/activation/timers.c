/* timers.c - starts, changes and stops the timers of an activation: when is which tick due?
 * Threads: on the activation's group, but for signal_grain_timer(). */
#include "activation/timers.h"

#include <stdlib.h>
#include <teff/timer.h>
#include "base/options.h"

/* A tick of a timer without a period that could not start is tried again after this time. */
enum { RETRY_MS = 100 };

static teffi_grain_timers *timers_of(const teffi_activation *act)
{
    return act->more ? act->more->timers : NULL;
}

static teffi_class class_of_timer(const teffi_grain_timer *timer)
{
    return teffi_class_of_method(timer->act->type->info, timer->method);
}

/* ---- when a timer is due ---- */

/* Called on any worker when the executor's timer fires. Pushes the wait to the activation's group,
 * where on_timer_wait() runs. */
static void signal_grain_timer(teffi_timer *timer)
{
    teffi_wait_notify_waiter(&teffi_container(timer, teffi_grain_timer, timer)->wait);
}

static void on_timer_wait(teffi_wait *wait);

/* Sets the executor's timer to timer->due_ns. in: the executor's timer is not set. */
static void set_exec_timer(teffi_grain_timer *timer)
{
    teffi_exec *exec = timer->act->grains->node->home.exec;
    timer->wait =
        (teffi_wait){.group = &timer->act->group, .orphan = true, .arrive = on_timer_wait};
    timer->wait.item.kind = TEFFI_ITEM_WAIT;
    timer->timer.fire = signal_grain_timer;
    timer->armed = true;
    exec->ops->timer_set(exec, &timer->timer, timer->due_ns);
}

/* Arms the grain timer: its next tick is due in ms milliseconds. If the executor's timer has fired
 * already, only stores the new time: on_timer_wait(), which is about to run, reads that time. If
 * the time has not come yet, on_timer_wait() sets the executor's timer again. */
static void arm_timer(teffi_grain_timer *timer, uint32_t ms)
{
    teffi_exec *exec = timer->act->grains->node->home.exec;
    timer->due_ns = teffi_now(exec->platform) + ms * 1000000ull;
    if (!timer->armed || exec->ops->timer_cancel(exec, &timer->timer))
        set_exec_timer(timer);
}

/* If `due` is true, adds the timer to the list of due timers. Otherwise removes the timer from that
 * list, if it is there. */
static void set_due(teffi_grain_timer *timer, bool due)
{
    teffi_grain_timers *timers = timers_of(timer->act);
    if (due)
        TAILQ_INSERT_TAIL(&timers->due, timer, due_link);
    else if (timer->due)
        TAILQ_REMOVE(&timers->due, timer, due_link);
    timers->due_of[class_of_timer(timer)] += (uint32_t)due - timer->due;
    timer->due = due;
}

static void free_grain_timer(teffi_grain_timer *timer)
{
    teffi_arena_fini(&timer->arena);
    free(timer);
}

/* The `arrive` function of the grain timer's wait: adds the grain timer to the due timers. If the
 * grain timer was changed to a later time, sets the executor's timer again instead. If the grain
 * timer was released after the executor's timer had fired, only frees the grain timer. If act's
 * group has ended, wait->done is false and this function may run on another thread, so it does not
 * read act's fields. */
static void on_timer_wait(teffi_wait *wait)
{
    teffi_grain_timer *timer = teffi_container(wait, teffi_grain_timer, wait);
    if (!timer->act) {
        free_grain_timer(timer);
        return;
    }
    timer->armed = false;
    if (!wait->done)
        return;
    if (teffi_now(timer->act->grains->node->platform) < timer->due_ns)
        set_exec_timer(timer);
    else
        set_due(timer, true);
}

/* Removes the grain timer from its activation's lists and frees it. If the executor's timer has
 * fired already, on_timer_wait() frees the grain timer later. */
static void release_grain_timer(teffi_grain_timer *timer)
{
    teffi_exec *exec = timer->act->grains->node->home.exec;
    set_due(timer, false);
    LIST_REMOVE(timer, link);
    timers_of(timer->act)->n--;
    timer->act = NULL;
    if (!timer->armed || exec->ops->timer_cancel(exec, &timer->timer))
        free_grain_timer(timer);
}

void teffi_timers_stop_all(teffi_activation *act)
{
    teffi_grain_timers *timers = timers_of(act);
    if (!timers)
        return;
    for (teffi_grain_timer *timer = LIST_FIRST(&timers->all), *next; timer; timer = next) {
        next = LIST_NEXT(timer, link);
        release_grain_timer(timer);
    }
    free(timers);
    act->more->timers = NULL;
}

/* ---- ticks ---- */

/* Writes a line about the timer, at most one a second for each limiter. */
static void log_timer_problem(const teffi_grain_timer *timer, teffi_warn_limiter *limiter,
                              const char *what, const char *text)
{
    teffi_exec *exec = timer->act->grains->node->home.exec;
    char key_text[TEFFI_KEY_TEXT_MAX], more[48];
    teff_key key;
    if (!teffi_warn_claim_line_or_skip(exec, limiter, more))
        return;
    teffi_activation_get_key(timer->act, &key);
    teffi_key_format(&key, key_text);
    teffi_logf(&exec->platform->log, TEFF_LOG_WARN, "timer of %s at %s: %s: %s%s",
               timer->method->name, key_text, what, text, more);
}

static bool due_tick_may_start(const teffi_activation *act, teffi_class class)
{
    return timers_of(act)->due_of[class] > 0 && teffi_activation_admits(act, class);
}

bool teffi_timers_any_tick_may_start_slow(const teffi_activation *act)
{
    return due_tick_may_start(act, TEFFI_EXCLUSIVE) || due_tick_may_start(act, TEFFI_READ_ONLY) ||
           due_tick_may_start(act, TEFFI_FREELY);
}

teffi_grain_timer *teffi_timers_find_startable(const teffi_activation *act)
{
    teffi_grain_timer *timer = NULL;
    if (teffi_timers_any_tick_may_start(act))
        TAILQ_FOREACH (timer, &timers_of(act)->due, due_link)
            if (teffi_activation_admits(act, class_of_timer(timer)))
                break;
    return timer;
}

void teffi_timers_begin_tick(teffi_grain_timer *timer)
{
    set_due(timer, false);
    timer->ticks = true;
    timer->goes_on = timer->period_ms > 0;
    timer->next_ms = timer->period_ms;
    timers_of(timer->act)->requests_first = true;
    if (timer->keep_alive)
        teffi_activation_update_last_use(timer->act);
}

void teffi_timers_put_off_tick(teffi_grain_timer *timer, const char *why)
{
    if (why)
        log_timer_problem(timer, &timer->act->grains->ticks_put_off, why, "tried again later");
    set_due(timer, false);
    arm_timer(timer, timer->period_ms ? timer->period_ms : RETRY_MS);
}

void teffi_timers_end_tick(teffi_turn *turn, teff_err err)
{
    teffi_grain_timer *timer = teffi_container(turn, teffi_tick, turn)->timer;
    if (err)
        log_timer_problem(timer, &turn->act->grains->ticks_failed, teff_err_name(err),
                          teff_error(&turn->ctx));
    timer->ticks = false;
    if (timer->id && timer->goes_on)
        arm_timer(timer, timer->next_ms);
    else
        release_grain_timer(timer);
}

/* ---- the functions of grains ---- */

/* Checks that a turn on ctx may start a timer of `method`. Also finds the definition of this method
 * in the activation's own type: a program may contain several copies of the generated code, so
 * `method` may point to another copy. out: *act: the activation whose turn runs on ctx. Return
 * value: the definition; NULL if the check fails, and *err tells why. */
static const teff_method *check_and_find_timer_method(teff_ctx *ctx, const teff_type_info *type,
                                                      const teff_method *method,
                                                      const ProtobufCMessage *in,
                                                      teffi_activation **act, teff_err *err)
{
    const teff_method *own = NULL;
    *err = TEFF_OK;
    *act = teffi_activation_of_ctx(ctx);
    if (!*act) {
        *err = teff_fail(ctx, TEFF_E_INVALID, "a timer of %s: only a turn of the grain starts it",
                         method->name);
        return NULL;
    }
    teffi_ctx_check_fiber(ctx);
    const teff_type_info *info = (*act)->type->info;
    if (info->id == type->id)
        own = teffi_method_find(info, method->id);
    if (!own || !(own->flags & TEFF_METHOD_ONE_WAY))
        *err =
            teff_fail(ctx, TEFF_E_INVALID, "%s is no one-way method of this grain", method->name);
    else if (own->in && !in)
        *err = teff_fail(ctx, TEFF_E_INVALID, "the timer's message is NULL");
    else if ((*act)->phase == TEFFI_DEACTIVATING)
        *err = teff_fail(ctx, TEFF_E_CLOSED, "on_deactivate cannot start a timer");
    return *err ? NULL : own;
}

/* Allocates act's timers if it has none yet. out: the timers; NULL: out of memory. */
static teffi_grain_timers *ensure_timers(teffi_activation *act)
{
    teffi_more *more = teffi_activation_ensure_rare_fields(act);
    if (more && !more->timers && (more->timers = calloc(1, sizeof *more->timers)))
        TAILQ_INIT(&more->timers->due);
    return more ? more->timers : NULL;
}

/* Makes a timer with a copy of its message. out: the timer. On failure: NULL, and *err is
 * TEFF_E_NOMEM or an error of teffi_message_explain_failed_copy(). */
static teffi_grain_timer *make_grain_timer(teff_ctx *ctx, teffi_activation *act,
                                           const teff_method *method, const ProtobufCMessage *in,
                                           teff_err *err)
{
    const teff_grain_type *type = act->type;
    teffi_grain_timer *timer = calloc(1, sizeof *timer);
    if (!timer) {
        *err = teff_fail(ctx, TEFF_E_NOMEM, "out of memory for a timer");
        return NULL;
    }
    teffi_arena_init(&timer->arena, NULL, 0, 0);
    timer->act = act;
    timer->method = method;
    if (!method->in)
        return timer;
    timer->in =
        teffi_message_copy_and_check(type->info, type->sure_bytes, method->in, &timer->arena, in);
    if (timer->in)
        return timer;
    free_grain_timer(timer);
    *err = teffi_message_explain_failed_copy(ctx, type->info, method->in, in, "timer's message");
    return NULL;
}

/* Does what teff_timer_start() does, but adds no prefix to error texts. */
static teff_err start_grain_timer(teff_ctx *ctx, const teff_type_info *type,
                                  const teff_method *method, const ProtobufCMessage *in,
                                  const teff_timer_options *options, teff_timer *handle)
{
    char text[TEFF_TEXT_MAX];
    teff_timer_options opt;
    teffi_activation *act;
    teff_err err;
    const teff_method *own = check_and_find_timer_method(ctx, type, method, in, &act, &err);
    if (!own)
        return err;
    if (!teffi_options_check_and_copy(&opt, sizeof opt, options, "teff_timer_options", text))
        return teff_fail(ctx, TEFF_E_INVALID, "%s", text);
    teffi_grain_timers *timers = ensure_timers(act);
    if (!timers)
        return teff_fail(ctx, TEFF_E_NOMEM, "out of memory for a timer");
    if (timers->n >= TEFF_TIMERS_MAX)
        return teff_fail(ctx, TEFF_E_OVERLOADED, "a grain has at most %d timers", TEFF_TIMERS_MAX);
    teffi_grain_timer *timer = make_grain_timer(ctx, act, own, in, &err);
    if (!timer)
        return err;
    /* relaxed: the id only has to be unique */
    timer->id = atomic_fetch_add_explicit(&act->grains->timer_ids, 1, memory_order_relaxed) + 1;
    timer->period_ms = opt.period_ms;
    timer->keep_alive = opt.keep_alive != 0;
    LIST_INSERT_HEAD(&timers->all, timer, link);
    timers->n++;
    handle->id = timer->id;
    arm_timer(timer, opt.due_ms);
    return TEFF_OK;
}

teff_err teff_timer_start(teff_ctx *ctx, const teff_type_info *type, const teff_method *method,
                          const ProtobufCMessage *in, const teff_timer_options *options,
                          teff_timer *timer)
{
    teff_timer none;
    timer = timer ? timer : &none;
    timer->id = 0;
    teff_err err = start_grain_timer(ctx, type, method, in, options, timer);
    return err && ctx->owner ? teffi_error_add_turn_prefix(ctx, err) : err;
}

/* out: the timer of this handle, if it belongs to the activation whose turn runs on ctx. */
static teffi_grain_timer *find_timer_by_handle(teff_ctx *ctx, teff_timer handle)
{
    const teffi_activation *act = teffi_activation_of_ctx(ctx);
    teffi_grain_timer *timer = NULL;
    if (act)
        teffi_ctx_check_fiber(ctx);
    if (act && handle.id && timers_of(act))
        LIST_FOREACH (timer, &timers_of(act)->all, link)
            if (timer->id == handle.id)
                break;
    return timer;
}

bool teff_timer_stop(teff_ctx *ctx, teff_timer handle)
{
    teffi_grain_timer *timer = find_timer_by_handle(ctx, handle);
    if (timer && timer->ticks)
        timer->id = 0;
    else if (timer)
        release_grain_timer(timer);
    return timer != NULL;
}

bool teff_timer_change(teff_ctx *ctx, teff_timer handle, uint32_t due_ms, uint32_t period_ms)
{
    teffi_grain_timer *timer = find_timer_by_handle(ctx, handle);
    if (!timer)
        return false;
    timer->period_ms = period_ms;
    if (timer->ticks) {
        timer->goes_on = true;
        timer->next_ms = due_ms;
    } else {
        set_due(timer, false);
        arm_timer(timer, due_ms);
    }
    return true;
}
