/* sim_exec.c - the executor: READY groups of all nodes in one pool, one drawn at a time.
 * Way:     group (READY) -> [sim_exec] -> teffi_group_run, for a drawn number of items */
#include <stdlib.h>
#include "base/bug.h"
#include "sched/closure.h"
#include "sched/direct.h"
#include "sched/group.h"
#include "sim.h"

enum { ITEMS_MAX = 6, DIRECT_OF_1000 = 750 };

static teffi_group *running; /* by the only thread */
static unsigned directs_deep;

typedef struct sim_ready {
    teffi_group *group;
    sim_exec *exec;
} sim_ready;

static void ready(teffi_exec *base, teffi_group *group)
{
    sim_exec *exec = (sim_exec *)base;
    sim *s = exec->node->sim;
    if (exec->stopped)
        return;
    if (s->n_ready == s->ready_max) {
        s->ready_max = s->ready_max ? s->ready_max * 2 : 64;
        s->ready = realloc(s->ready, s->ready_max * sizeof *s->ready);
        teffi_bug_if(!s->ready);
    }
    s->ready[s->n_ready++] = (sim_ready){group, exec};
}

void sim_exec_run(sim *s)
{
    size_t at = sim_draw_below(&s->pick, s->n_ready);
    sim_ready picked = s->ready[at];
    unsigned items = (unsigned)sim_draw_between(&s->pick, 1, ITEMS_MAX);
    s->ready[at] = s->ready[--s->n_ready];
    sim_trace_add(&s->trace, s->now_ns, picked.exec->node->name, "run", at, s->n_ready);
    teffi_group *outer = running; /* what waits runs the others nested */
    running = picked.group;
    bool again = teffi_group_run(picked.group, items, 0);
    running = outer;
    if (again)
        ready(&picked.exec->exec, picked.group);
}

static void timer_set(teffi_exec *base, teffi_timer *timer, uint64_t due_ns)
{
    sim_exec *exec = (sim_exec *)base;
    if (!exec->stopped)
        sim_timer_set(exec->node->sim, exec, timer, due_ns);
}

static bool timer_cancel(teffi_exec *base, teffi_timer *timer)
{
    return sim_timer_cancel(((sim_exec *)base)->node->sim, timer);
}

static void nothing(teffi_exec *base)
{
    (void)base;
}

/* A context of this, the only thread, waits: everything goes on meanwhile. */
static void park(teffi_exec *base)
{
    sim_pump(((sim_exec *)base)->node->sim, ((sim_exec *)base)->node->name);
}

static teffi_group *current(teffi_exec *base)
{
    return running && running->exec == base ? running : NULL;
}

/* ---- turns in place: as often as drawn ---- */

static bool direct_may(teffi_exec *base, bool beside)
{
    (void)beside;
    sim_exec *exec = (sim_exec *)base;
    return current(base) && directs_deep < TEFFI_DIRECT_DEPTH && !exec->stopped &&
           sim_draw_chance(&exec->node->sim->pick, DIRECT_OF_1000);
}

static teffi_group *direct_enter(teffi_exec *base, teffi_group *group)
{
    sim_node *node = ((sim_exec *)base)->node;
    teffi_group *outer = running;
    sim_trace_add(&node->sim->trace, node->sim->now_ns, node->name, "direct", directs_deep, 0);
    running = group;
    directs_deep++;
    return outer;
}

static void direct_leave(teffi_exec *base, teffi_group *outer)
{
    (void)base;
    running = outer;
    directs_deep--;
}

/* Slices have no end here. */
static void direct_gave_way(teffi_exec *base, teffi_group *group)
{
    (void)base;
    (void)group;
    teffi_bug(__FILE__, __LINE__, "a turn gave way");
}

static const teffi_direct_ops direct = {
    .may = direct_may, .enter = direct_enter, .leave = direct_leave, .gave_way = direct_gave_way};

static void stop(teffi_exec *base)
{
    sim_exec *exec = (sim_exec *)base;
    sim *s = exec->node->sim;
    size_t kept = 0;
    exec->stopped = true;
    for (size_t i = 0; i < s->n_ready; i++)
        if (s->ready[i].exec != exec)
            s->ready[kept++] = s->ready[i];
    s->n_ready = kept;
    sim_timers_drop(s, exec);
}

static void exec_free(teffi_exec *base)
{
    stop(base);
    teffi_null_fini(base);
    free(base);
}

teff_err sim_exec_new(const teffi_platform *platform, unsigned workers,
                      const teff_sched_options *opt, teffi_exec **out)
{
    static const teffi_exec_ops ops = {
        .ready = ready,
        .timer_set = timer_set,
        .timer_cancel = timer_cancel,
        .blocking_begin = nothing,
        .blocking_end = nothing,
        .park = park,
        .current = current,
        .direct = &direct,
        .stop = stop,
        .free = exec_free,
    };
    sim_exec *exec = calloc(1, sizeof *exec);
    (void)workers;
    if (!exec)
        return TEFF_E_NOMEM;
    exec->node = platform->arg;
    exec->exec = (teffi_exec){.ops = &ops, .platform = platform, .fibers = exec->node->sim->fibers};
    teffi_warn_init(&exec->exec.warn, opt ? opt : &(teff_sched_options){0});
    teffi_null_init(&exec->exec);
    *out = &exec->exec;
    return TEFF_OK;
}
