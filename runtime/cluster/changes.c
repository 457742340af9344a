/* changes.c - waiters for a change, with timers. A waiter is signalled once, by the thread that
 * unlists it: the timer, or a change that has cancelled the timer.
 * Model:   none: everything is under one lock, and timer_cancel reports whether the timer fires */
#include "cluster/membership.h"

enum { PAUSE_FIRST_MS = 2, DOUBLINGS_MAX = 9 };

typedef struct teffi_change_waiter {
    LIST_ENTRY(teffi_change_waiter) link; /* guarded by changes->lock */
    teffi_changes *changes;
    teffi_wait wait;
    teffi_timer timer;
} waiter;

/* The timer's callback: wakes a waiter whose back-off has passed. */
static void wake_timed_out_waiter(teffi_timer *timer)
{
    waiter *w = teffi_container(timer, waiter, timer);
    pthread_mutex_t *lock = &w->changes->lock;
    pthread_mutex_lock(lock);
    LIST_REMOVE(w, link);
    pthread_mutex_unlock(lock);
    teffi_wait_notify_waiter(&w->wait);
}

/* Counts a change and wakes the waiters. A waiter whose timer is firing is left to the timer's
 * callback. Once signalled, a waiter may be freed. */
void teffi_membership_signal_change(teffi_membership *m)
{
    if (!m)
        return;
    teffi_changes *changes = &m->follow.changes;
    teffi_exec *exec = m->node->home.exec;
    pthread_mutex_lock(&changes->lock);
    changes->count++;
    for (waiter *w = LIST_FIRST(&changes->waiters), *next; w; w = next) {
        next = LIST_NEXT(w, link);
        if (!exec->ops->timer_cancel(exec, &w->timer))
            continue;
        LIST_REMOVE(w, link);
        teffi_wait_notify_waiter(&w->wait);
    }
    pthread_mutex_unlock(&changes->lock);
}

/* out: the back-off after so many tries; one half of it is fixed, the other is random. */
static uint64_t draw_random_backoff_ns(const teffi_platform *platform, unsigned tries)
{
    unsigned doublings = tries < DOUBLINGS_MAX ? tries : DOUBLINGS_MAX;
    uint64_t half = ((uint64_t)PAUSE_FIRST_MS << doublings) * 500000u;
    return half + platform->random(platform->arg) % half;
}

void teffi_membership_await_change(teff_ctx *ctx, uint64_t seen, unsigned tries)
{
    teffi_changes *changes = &ctx->node->membership->follow.changes;
    const teffi_platform *platform = ctx->node->platform;
    teffi_exec *exec = ctx->node->home.exec;
    waiter w = {.changes = changes, .timer = {.fire = wake_timed_out_waiter}};
    teffi_wait *wait = &w.wait;
    teffi_wait_init(wait, ctx, NULL);
    pthread_mutex_lock(&changes->lock);
    bool waits = changes->count == seen;
    if (waits) {
        LIST_INSERT_HEAD(&changes->waiters, &w, link);
        exec->ops->timer_set(exec, &w.timer,
                             teffi_now(platform) + draw_random_backoff_ns(platform, tries));
    }
    pthread_mutex_unlock(&changes->lock);
    if (waits)
        teffi_await(ctx, &wait, 1);
}
