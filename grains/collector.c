/* collector.c - rounds over the catalog, by a coarse clock that requests stamp.
 * Way:     timer -> [collector] -> catalog -> activation (END) */
#include "collector.h"

#include "grains.h"

enum { PERIOD_MIN_MS = 10, PERIOD_MAX_MS = 60000 };

static uint32_t idle_of(const teff_type_info *info)
{
    return info->idle_ms ? info->idle_ms : TEFFI_IDLE_DEFAULT_MS;
}

/* A first look without the group: the activation itself decides. */
static bool look(void *arg, teffi_activation *act)
{
    teffi_grains *grains = arg;
    uint32_t now = (uint32_t)atomic_load_explicit(&grains->coarse_ms, memory_order_relaxed);
    if (now - atomic_load_explicit(&act->used_ms, memory_order_relaxed) >= idle_of(act->type->info))
        teffi_activation_end(act, TEFF_REASON_IDLE);
    return true;
}

static void set(teffi_grains *grains)
{
    teffi_exec *exec = grains->node->exec;
    uint64_t now = teffi_now(grains->node->platform);
    /* relaxed: a clock that may be read late */
    atomic_store_explicit(&grains->coarse_ms, now / 1000000u, memory_order_relaxed);
    pthread_mutex_lock(&grains->collect_lock);
    if (!grains->collect_stopped)
        exec->ops->timer_set(exec, &grains->collect_timer,
                             now + grains->collect_period_ms * 1000000ull);
    pthread_mutex_unlock(&grains->collect_lock);
}

static void collect(teffi_timer *timer)
{
    teffi_grains *grains = teffi_container(timer, teffi_grains, collect_timer);
    for (unsigned i = 0; i < TEFFI_PARTITIONS; i++) {
        uint64_t at = 0;
        (void)teffi_catalog_each(grains, i, &at, look, grains);
    }
    set(grains);
}

void teffi_collector_start(teffi_grains *grains)
{
    uint32_t period = PERIOD_MAX_MS;
    for (size_t i = 0; i < grains->n_types; i++)
        if (idle_of(grains->types[i]->info) / 4 < period)
            period = idle_of(grains->types[i]->info) / 4;
    grains->collect_period_ms = period < PERIOD_MIN_MS ? PERIOD_MIN_MS : period;
    grains->collect_timer.fire = collect;
    set(grains);
}

void teffi_collector_stop(teffi_grains *grains)
{
    pthread_mutex_lock(&grains->collect_lock);
    grains->collect_stopped = true;
    grains->node->exec->ops->timer_cancel(grains->node->exec, &grains->collect_timer);
    pthread_mutex_unlock(&grains->collect_lock);
}
