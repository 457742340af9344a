/* timers.h - the timers of an activation: each calls a one-way method of its own grain.
 * Way:     generated _timer function -> [timers] -> the executor's timer -> group
 *          -> hosting/handler -> hosting/ticks -> turn -> [timers]
 * States:  armed -its time has come-> due -admission lets the tick start-> ticks -end of its turn->
 *          armed or freed. Each of them -stop-> freed; a timer that ticks, at the end of its turn.
 * Threads: on the activation's group; the executor's timer's function: any.
 * Source:  Orleans' src/Orleans.Runtime/Timers/GrainTimer.cs; Erlang's erlang:send_after */
#pragma once

#include <sys/queue.h>
#include "activation/activation.h"

/* A timer, on the heap. At most one of armed, due and ticks is set; none during the shutdown. */
typedef struct teffi_grain_timer {
    teffi_activation *act; /* NULL: the timer was released, and on_timer_wait() frees it */
    uint64_t id;           /* of its handle; 0: stopped during its tick */
    const teff_method *method;
    ProtobufCMessage *in; /* in arena; NULL for teff.Void */
    teff_arena arena;
    uint32_t period_ms; /* 0: the next tick is the last one */
    bool keep_alive;
    bool armed; /* timer is set, or wait is queued */
    bool due;   /* in teffi_grain_timers.due */
    bool ticks; /* its turn is under way */
    /* if armed: the time of the next tick. timer may be set to an earlier time, if it had fired
     * already when the timer was changed */
    uint64_t due_ns;
    /* if ticks: what happens at the end of the turn */
    bool goes_on;
    uint32_t next_ms; /* if goes_on: from then to the next tick */
    teffi_timer timer;
    teffi_wait wait;
    LIST_ENTRY(teffi_grain_timer) link;
    TAILQ_ENTRY(teffi_grain_timer) due_link;
} teffi_grain_timer;

/* The timers of one activation, on the heap: act->more->timers. */
typedef struct teffi_grain_timers {
    LIST_HEAD(, teffi_grain_timer) all;
    TAILQ_HEAD(, teffi_grain_timer) due; /* ticks that wait for admission, in order of due time */
    uint32_t n;                          /* timers in all */
    uint32_t due_of[3];                  /* timers in due, by class */
    /* a tick was the last to start of ticks and requests set aside: at the next occasion, requests
     * are tried first. So neither of the two keeps the other from running. */
    bool requests_first;
} teffi_grain_timers;

/* teffi_timers_any_tick_may_start - is a tick due that admission lets start now? Reads only
 * counters.
 * teffi_timers_any_tick_may_start_slow - the same, for an activation with timers. */
bool teffi_timers_any_tick_may_start_slow(const teffi_activation *act);

static inline bool teffi_timers_any_tick_may_start(const teffi_activation *act)
{
    return act->more && act->more->timers && teffi_timers_any_tick_may_start_slow(act);
}

/* teffi_timers_find_startable - the first of the due timers whose tick admission lets start now;
 * NULL: none. */
teffi_grain_timer *teffi_timers_find_startable(const teffi_activation *act);

/* The turn of a tick and its request, on the turn's stack. The request has the kind
 * TEFFI_ITEM_TICK, and no memory of its own: it points to the timer's message. */
typedef struct teffi_tick {
    teffi_turn turn;
    teffi_msg request;
    teffi_grain_timer *timer;
} teffi_tick;

/* teffi_timers_begin_tick - the tick of a due timer starts now.
 * teffi_timers_put_off_tick - it cannot start: try again after the period, or after 100 ms if there
 *       is none. in: why, for the log; NULL: log nothing. */
void teffi_timers_begin_tick(teffi_grain_timer *timer);
void teffi_timers_put_off_tick(teffi_grain_timer *timer, const char *why);

/* teffi_timers_end_if_tick - if the turn is a tick, call teffi_timers_end_tick. Called at the end
 * of each one-way turn, also if the turn ended in its middle.
 * teffi_timers_end_tick - log the tick's error, if any, and arm the timer again or free it. in:
 * err, of the turn; its text is in turn->ctx. */
void teffi_timers_end_tick(teffi_turn *turn, teff_err err);

static inline void teffi_timers_end_if_tick(teffi_turn *turn, teff_err err)
{
    if (turn->request->item.kind == TEFFI_ITEM_TICK)
        teffi_timers_end_tick(turn, err);
}

/* teffi_timers_stop_all - free all timers of act, and act->more->timers. No tick is under way, or
 * its turn was freed. */
void teffi_timers_stop_all(teffi_activation *act);
