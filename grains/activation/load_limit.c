/* load_limit.c - limits how many states are read from the store at once. */
#include "activation/load_limit.h"

#include "call/wait.h"

/* The mean time of reads is slow if it exceeds twice the best mean plus this. Shorter delays do not
 * harm saves, and the best mean of a local store is some microseconds. */
static const uint64_t slack_ns = 10 * 1000 * 1000;

void teffi_load_limit_init(teffi_load_limit *l)
{
    pthread_mutex_init(&l->lock, NULL);
    TAILQ_INIT(&l->waiting);
    l->limit = TEFFI_LOADS_START;
}

void teffi_load_limit_enter(teffi_load_limit *l, teff_ctx *ctx)
{
    teffi_load_wait me;
    teffi_wait *wait = &me.wait;
    pthread_mutex_lock(&l->lock);
    bool waits = l->running >= l->limit;
    if (waits) {
        teffi_wait_init(wait, ctx, NULL);
        TAILQ_INSERT_TAIL(&l->waiting, &me, in_list);
        l->n_waiting++;
        l->was_full = true;
    } else {
        l->running++;
    }
    pthread_mutex_unlock(&l->lock);
    if (waits) /* teffi_load_limit_leave() counts this load as running before the wake-up */
        teffi_await(ctx, &wait, 1);
}

/* Called under the lock at the end of a window, which consists of as many loads as the limit allows
 * at once. If the mean time of these loads is slow (see slack_ns), lowers the limit by an eighth.
 * Otherwise raises the limit by an eighth if a load had to wait. best_ns can rise by 1/64 in each
 * window, so that it follows a store that has become slower. */
static void adapt_limit(teffi_load_limit *l)
{
    uint64_t mean_ns = l->spent_ns / l->ended;
    uint32_t step = l->limit / 8;
    uint64_t best_ns = l->best_ns + l->best_ns / 64;
    l->best_ns = l->best_ns && best_ns < mean_ns ? best_ns : mean_ns;
    if (mean_ns > 2 * l->best_ns + slack_ns)
        l->limit = l->limit - step > TEFFI_LOADS_MIN ? l->limit - step : TEFFI_LOADS_MIN;
    else if (l->was_full)
        l->limit = l->limit + step < TEFFI_LOADS_MAX ? l->limit + step : TEFFI_LOADS_MAX;
    l->ended = 0;
    l->spent_ns = 0;
    l->was_full = l->n_waiting > 0;
}

void teffi_load_limit_leave(teffi_load_limit *l, uint64_t ns)
{
    TAILQ_HEAD(, teffi_load_wait) next = TAILQ_HEAD_INITIALIZER(next);
    teffi_load_wait *w;
    pthread_mutex_lock(&l->lock);
    l->running--;
    l->ended++;
    l->spent_ns += ns;
    if (l->ended >= l->limit)
        adapt_limit(l);
    while (l->running < l->limit && (w = TAILQ_FIRST(&l->waiting))) {
        TAILQ_REMOVE(&l->waiting, w, in_list);
        TAILQ_INSERT_TAIL(&next, w, in_list);
        l->n_waiting--;
        l->running++;
    }
    pthread_mutex_unlock(&l->lock);
    while ((w = TAILQ_FIRST(&next))) { /* w lies on a stack that may be gone after the signal */
        TAILQ_REMOVE(&next, w, in_list);
        teffi_wait_notify_waiter(&w->wait);
    }
}
