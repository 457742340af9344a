/* collector.c - visit the shards in rounds; compare the activations' age with a coarse clock. */
#include "hosting/collector.h"

enum { PERIOD_MIN_MS = 10, PERIOD_MAX_MS = 60000 };

/* A round has slices, so that with millions of idle grains no shard's lock is held for long, and
 * other groups do not wait in the run queue behind all of them. */
enum { SLICE_MS = 1, LOOKS_MAX = 1024, ENDS_MAX = 256 };

typedef struct slice {
    uint32_t now_ms;
    unsigned looks, ends;
} slice;

/* A check without the group; handle_nudge() checks again. */
static bool end_if_idle(void *arg, teffi_activation *act)
{
    slice *s = arg;
    uint32_t used = atomic_load_explicit(&act->used_ms, memory_order_relaxed);
    s->looks++;
    if (s->now_ms - used >= teffi_idle_ms(act->type->info)) {
        teffi_activation_end(act, TEFF_REASON_IDLE);
        s->ends++;
    }
    return s->looks < LOOKS_MAX && s->ends < ENDS_MAX;
}

static void set_collect_timer(teffi_collector *collector, uint32_t ms)
{
    teffi_grains *grains = collector->grains;
    teffi_exec *exec = grains->node->home.exec;
    uint64_t now = teffi_now(grains->node->platform);
    /* relaxed: readers may see a slightly older time */
    atomic_store_explicit(&grains->coarse_ms, now / 1000000u, memory_order_relaxed);
    pthread_mutex_lock(&collector->lock);
    if (!collector->stopped)
        exec->ops->timer_set(exec, &collector->timer, now + ms * 1000000ull);
    pthread_mutex_unlock(&collector->lock);
}

static void collect_slice(teffi_timer *timer)
{
    teffi_collector *collector = teffi_container(timer, teffi_collector, timer);
    teffi_grains *grains = collector->grains;
    slice s = {.now_ms = (uint32_t)atomic_load_explicit(&grains->coarse_ms, memory_order_relaxed)};
    bool whole = teffi_shards_walk(grains, NULL, &collector->cursor, end_if_idle, &s);
    set_collect_timer(collector, whole ? collector->period_ms : SLICE_MS);
}

void teffi_collector_init(teffi_collector *collector, teffi_grains *grains)
{
    collector->grains = grains;
    pthread_mutex_init(&collector->lock, NULL);
}

void teffi_collector_fini(teffi_collector *collector)
{
    pthread_mutex_destroy(&collector->lock);
}

void teffi_collector_start(teffi_collector *collector)
{
    const teffi_grains *grains = collector->grains;
    uint32_t period = PERIOD_MAX_MS;
    for (size_t i = 0; i < grains->n_types; i++)
        if (teffi_idle_ms(grains->types[i]->info) / 4 < period)
            period = teffi_idle_ms(grains->types[i]->info) / 4;
    collector->period_ms = period < PERIOD_MIN_MS ? PERIOD_MIN_MS : period;
    collector->timer.fire = collect_slice;
    set_collect_timer(collector, collector->period_ms);
}

void teffi_collector_stop(teffi_collector *collector)
{
    teffi_exec *exec = collector->grains->node->home.exec;
    pthread_mutex_lock(&collector->lock);
    collector->stopped = true;
    exec->ops->timer_cancel(exec, &collector->timer);
    pthread_mutex_unlock(&collector->lock);
}
