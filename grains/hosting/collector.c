/* collector.c - rounds in which idle activations are found and asked to end.
 * Source:  Orleans' src/Orleans.Runtime/Catalog/ActivationCollector.cs */
#include "hosting/collector.h"

#include "activation/type.h"
#include "directory/shard.h"

enum { PERIOD_MIN_MS = 10, PERIOD_MAX_MS = 60000 };

/* A round has slices, so that with millions of idle grains no shard's lock is held for long, and
 * other groups do not wait in the run queue behind all of them. */
enum { SLICE_MS = 1, LOOKS_MAX = 1024, ENDS_MAX = 256 };

typedef struct slice {
    uint32_t now_ms;
    unsigned looks, ends;
} slice;

/* Asks act to end if its last use is at least its type's idle time ago. Reads act without owning
 * its group, so the check may be outdated; clear_nudge_and_adopt_end_reason() checks again. out:
 * false: the slice is over. */
static bool ask_to_end_if_idle(void *arg, teffi_activation *act)
{
    slice *s = arg;
    s->looks++;
    if (teffi_activation_age_ms(act, s->now_ms) >= teffi_idle_ms(act->type->info)) {
        teffi_activation_ask_to_end(act, TEFF_REASON_IDLE);
        s->ends++;
    }
    return s->looks < LOOKS_MAX && s->ends < ENDS_MAX;
}

/* Updates grains->coarse_ms, which no other function does. Then sets the timer, unless
 * teffi_collector_stop() was called. */
static void update_coarse_ms_and_set_timer(teffi_collector *c, uint32_t ms)
{
    teffi_grains *grains = c->grains;
    teffi_exec *exec = grains->node->home.exec;
    uint64_t now = teffi_now(grains->node->platform);
    /* relaxed: readers may see a slightly older time */
    atomic_store_explicit(&grains->coarse_ms, now / 1000000u, memory_order_relaxed);
    pthread_mutex_lock(&c->lock);
    if (!grains->closed)
        exec->ops->timer_set(exec, &c->timer, now + ms * 1000000ull);
    pthread_mutex_unlock(&c->lock);
}

/* The timer's function: asks the idle activations of one slice to end. Then sets the timer for the
 * next slice or, if the round has ended, for the next round. */
static void ask_idle_activations_to_end(teffi_timer *timer)
{
    teffi_collector *c = teffi_container(timer, teffi_collector, timer);
    teffi_grains *grains = c->grains;
    slice s = {.now_ms = (uint32_t)atomic_load_explicit(&grains->coarse_ms, memory_order_relaxed)};
    bool whole = teffi_shards_walk_activations(grains, NULL, &c->cursor, ask_to_end_if_idle, &s);
    update_coarse_ms_and_set_timer(c, whole ? c->round_ms : SLICE_MS);
}

void teffi_collector_init(teffi_collector *c, teffi_grains *grains)
{
    c->grains = grains;
    c->timer.fire = ask_idle_activations_to_end;
    pthread_mutex_init(&c->lock, NULL);
}

void teffi_collector_fini(teffi_collector *c)
{
    pthread_mutex_destroy(&c->lock);
}

/* The pause between two rounds is a quarter of the shortest idle time of all types, but at least
 * PERIOD_MIN_MS and at most PERIOD_MAX_MS. */
void teffi_collector_start(teffi_collector *c)
{
    const teffi_grains *grains = c->grains;
    uint32_t period = PERIOD_MAX_MS;
    for (size_t i = 0; i < grains->n_types; i++)
        if (teffi_idle_ms(grains->types[i]->info) / 4 < period)
            period = teffi_idle_ms(grains->types[i]->info) / 4;
    c->round_ms = period < PERIOD_MIN_MS ? PERIOD_MIN_MS : period;
    update_coarse_ms_and_set_timer(c, c->round_ms);
}

/* update_coarse_ms_and_set_timer() reads `closed` under the lock. Because `closed` is set already,
 * that function does not set the timer after the cancel below. */
void teffi_collector_stop(teffi_collector *c)
{
    teffi_exec *exec = c->grains->node->home.exec;
    pthread_mutex_lock(&c->lock);
    exec->ops->timer_cancel(exec, &c->timer);
    pthread_mutex_unlock(&c->lock);
}
