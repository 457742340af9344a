/* collector.c - rounds over the catalog, by a coarse clock that requests stamp.
 * Way:     timer -> [collector] -> catalog -> activation (END) */
#include "collector.h"

#include "grains.h"

enum { PERIOD_MIN_MS = 10, PERIOD_MAX_MS = 60000 };

/* A round is cut into slices, so that millions of idle grains neither hold a shard's lock for long
 * nor stand in the run queue before everybody else. */
enum { SLICE_MS = 1, LOOKS_MAX = 1024, ENDS_MAX = 256 };

static uint32_t idle_of(const teff_type_info *info)
{
    return info->idle_ms ? info->idle_ms : TEFFI_IDLE_DEFAULT_MS;
}

typedef struct slice {
    uint32_t now_ms;
    unsigned looks, ends;
} slice;

static bool is_over(const slice *s)
{
    return s->looks >= LOOKS_MAX || s->ends >= ENDS_MAX;
}

/* A first look without the group: the activation itself decides. */
static bool look(void *arg, teffi_activation *act)
{
    slice *s = arg;
    uint32_t used = atomic_load_explicit(&act->used_ms, memory_order_relaxed);
    s->looks++;
    if (s->now_ms - used >= idle_of(act->type->info)) {
        teffi_activation_end(act, TEFF_REASON_IDLE);
        s->ends++;
    }
    return !is_over(s);
}

static void set(teffi_grains *grains, uint32_t ms)
{
    teffi_exec *exec = grains->node->exec;
    uint64_t now = teffi_now(grains->node->platform);
    /* relaxed: a clock that may be read late */
    atomic_store_explicit(&grains->coarse_ms, now / 1000000u, memory_order_relaxed);
    pthread_mutex_lock(&grains->collect_lock);
    if (!grains->collect_stopped)
        exec->ops->timer_set(exec, &grains->collect_timer, now + ms * 1000000ull);
    pthread_mutex_unlock(&grains->collect_lock);
}

static void collect(teffi_timer *timer)
{
    teffi_grains *grains = teffi_container(timer, teffi_grains, collect_timer);
    slice s = {.now_ms = (uint32_t)atomic_load_explicit(&grains->coarse_ms, memory_order_relaxed)};
    while (grains->collect_part < TEFFI_PARTITIONS && !is_over(&s))
        if (teffi_catalog_each(grains, grains->collect_part, &grains->collect_at, look, &s)) {
            grains->collect_part++;
            grains->collect_at = 0;
        }
    bool whole = grains->collect_part == TEFFI_PARTITIONS;
    if (whole)
        grains->collect_part = 0;
    set(grains, whole ? grains->collect_period_ms : SLICE_MS);
}

void teffi_collector_start(teffi_grains *grains)
{
    uint32_t period = PERIOD_MAX_MS;
    for (size_t i = 0; i < grains->n_types; i++)
        if (idle_of(grains->types[i]->info) / 4 < period)
            period = idle_of(grains->types[i]->info) / 4;
    grains->collect_period_ms = period < PERIOD_MIN_MS ? PERIOD_MIN_MS : period;
    grains->collect_timer.fire = collect;
    set(grains, grains->collect_period_ms);
}

void teffi_collector_stop(teffi_grains *grains)
{
    pthread_mutex_lock(&grains->collect_lock);
    grains->collect_stopped = true;
    grains->node->exec->ops->timer_cancel(grains->node->exec, &grains->collect_timer);
    pthread_mutex_unlock(&grains->collect_lock);
}
