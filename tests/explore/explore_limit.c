/* explore_limit.c - the limit of running workers (sched/policy/contention.h), for the scenes that
 * have an executor: how a schedule begins with one, and which work may wait because of it.
 * Way:     scene_exec, scene_poll -> [limit] -> the monitor's contention, wake_below
 * Threads: as explore.h. */
#include "explore.h"

#include <string.h>
#include "sched/scheduler.h"

#define MS_NS 1000000u
#define SOON_NS (20 * MS_NS)

enum { PROCESSORS = 3 };

static struct { /* a processor without a worker, as the last call has seen it */
    uint64_t since_ms, runs;
    uint32_t tick;
} vacant[PROCESSORS];

/* The virtual clock advances too little for whole trials: most schedules begin inside one, before
 * one, or with a limit that no trial changes. */
void explore_limit_begin(struct teffi_sched *sched)
{
    teffi_contention *c = &sched->monitor.contention;
    uint32_t n = sched->n_active, draw = explore_draw(8);
    memset(vacant, 0, sizeof vacant);
    if (n == 1 || draw > 3)
        return;
    *c = (teffi_contention){.n = n, .limit = 1 + explore_draw(n - 1)};
    c->due_ns = ex.now_ns + explore_draw(SOON_NS);
    if (draw == 0) {
        c->limit = n; /* if cores are contended then, a trial begins with the next sample */
    } else if (draw == 1) {
        c->window = 1 + explore_draw(8);
        c->low = c->limit;
        c->high = n;
        c->went_down = explore_draw(2);
    } else {
        c->due_ns = UINT64_MAX;
    }
    if (c->limit < n)
        sched->wake_below = c->limit;
}

/* Did the last tick see p's worker in a run that a tick before it had seen as well? It was running
 * then, and not in a blocking region, if it has slept since before that tick. */
static bool is_in_long_run(const struct teffi_sched *sched, const teffi_processor *p)
{
    uint64_t slept_ms = ex.thread[p->worker->thread.id].since_ns / MS_NS;
    return p->runs == p->seen_run && p->seen_ticks > 1 && slept_ms < sched->exec.coarse_ms;
}

/* The i-th processor has no worker. Is it active, for example because no thread could be started,
 * and may the last tick not have seen it so? A worker that had it since the last call has begun
 * a pass, or run something. */
static bool is_newly_vacant(const struct teffi_sched *sched, unsigned i)
{
    const teffi_processor *p = &sched->processors[i];
    bool is_active = i < sched->n_active;
    if (!is_active || vacant[i].runs != p->runs || vacant[i].tick != p->tick)
        vacant[i].since_ms = ex.now_ns / MS_NS;
    vacant[i].runs = p->runs;
    vacant[i].tick = p->tick;
    return is_active && vacant[i].since_ms >= sched->exec.coarse_ms;
}

bool explore_limit_is_reached(const struct teffi_sched *sched)
{
    unsigned n = 0;
    for (unsigned i = 0; i < sched->n_processors; i++) {
        const teffi_processor *p = &sched->processors[i];
        n += p->worker ? p->worker->state == TEFFI_WORKER_RUNNING && !is_in_long_run(sched, p)
                       : is_newly_vacant(sched, i);
    }
    return sched->wake_below != UINT32_MAX && n >= sched->monitor.contention.limit;
}
