/* ticks.c - starts the ticks of an activation's timers, each as a turn of its own. */
#include "hosting/ticks.h"

#include "activation/turn.h"
#include "call/lease.h"

/* After one item, at most this many ticks start, so that they do not block the worker. */
enum { TICKS_MAX = 64 };

typedef struct tick_start { /* on the stack of start_tick(): read before the first suspend */
    teffi_grain_timer *timer;
    teffi_fiber *fiber;
} tick_start;

/* The main function of a fiber that runs a tick. A timer's method is always one-way, so the tick's
 * request needs no memory for a response. */
static void tick_main(void *arg)
{
    const tick_start *s = arg;
    teffi_tick tick __attribute__((uninitialized));
    tick.timer = s->timer;
    tick.request = (teffi_msg){.item.kind = TEFFI_ITEM_TICK, .body = s->timer->in};
    teffi_turn_run_tick(&tick.turn, s->timer->act, s->fiber, s->timer->method, &tick.request);
}

/* Starts the tick of a due timer. If the silo's lease is over or there is no stack for the turn,
 * calls teffi_timers_put_off_tick() instead. */
static void start_or_put_off_tick(teffi_grain_timer *timer)
{
    const teffi_home *home = &timer->act->grains->node->home;
    tick_start s = {timer, NULL};
    if (!teffi_lease_holds_coarse(&home->lease, home->exec)) {
        teffi_timers_put_off_tick(timer, NULL);
        return;
    }
    s.fiber = teffi_fiber_new(home->exec->fibers, tick_main, &s);
    if (!s.fiber) {
        teffi_timers_put_off_tick(timer, "out of stacks");
        return;
    }
    teffi_timers_begin_tick(timer);
    teffi_fiber_set_label(s.fiber, timer->method->name);
    (void)teffi_fiber_resume(s.fiber);
}

/* Looks for the first due timer again after each tick, because a tick may stop or change any
 * timer. */
void teffi_ticks_start_due(teffi_activation *act)
{
    teffi_grain_timer *timer;
    for (int i = 0; i < TICKS_MAX; i++) {
        if (teffi_group_has_yielded_turn(&act->group))
            return;
        timer = teffi_timers_find_startable(act);
        if (!timer)
            return;
        start_or_put_off_tick(timer);
    }
}
