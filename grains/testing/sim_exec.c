/* sim_exec.c - the executor: READY groups of all nodes in one pool, one drawn at a time.
 * Way:     group (READY) -> [sim_exec] -> teffi_group_run, for a drawn number of items
 *          no group is READY -> [sim_exec] -> poller, if there is one -> a local batch
 * Source:  runtime/sched: run, poll, borrow */
#include <stdlib.h>
#include "base/bug.h"
#include "call/lease.h"
#include "group/closure.h"
#include "group/direct.h"
#include "group/group.h"
#include "sim.h"

enum {
    ITEMS_MAX = 6,
    DIRECT_OF_1000 = 750,
    AGED_OF_1000 = 100,
    BATCH_MAX = 4,        /* groups of a local batch that run before others */
    WOKEN_OF_1000 = 300,  /* a push wakes the worker in the poller: no other one is parked */
    LOOK_OF_1000 = 60,    /* of a busy worker, after a run */
    OUTSIDE_OF_1000 = 50, /* the thread that waited uses no processor */
    WAKE_MAX_NS = 30000,
    MONITOR_MAX_NS = 5000000 /* two ticks of the monitor */
};

/* Of the simulation on this thread; each thread may run others. */
static _Thread_local teffi_group *running;
static _Thread_local unsigned directs_deep;

typedef struct sim_ready {
    teffi_group *group;
    sim_exec *exec;
} sim_ready;

static void wake_in_poller(sim_exec *exec)
{
    if (!exec->waits || !sim_draw_chance(&exec->node->sim->poll, WOKEN_OF_1000))
        return;
    exec->pushed = true;
    exec->poller->wake(exec->poller);
}

static void group_ready(teffi_exec *base, teffi_group *group)
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
    exec->n_ready++;
    wake_in_poller(exec);
}

static void run_deferred(sim_exec *exec, bool on_worker)
{
    sim *s = exec->node->sim;
    sim_trace_add(&s->trace, s->now_ns, exec->node->name, "deferred", exec->n_ready, 0);
    teffi_group *outer = running;
    running = NULL;
    exec->on_worker = on_worker;
    teffi_deferred_run_all(&exec->deferred);
    exec->on_worker = false;
    running = outer;
}

/* A pass ends when no group of exec is READY; else a draw decides. A worker that is stuck in a
 * group does not end its pass. */
static void end_pass(sim_exec *exec)
{
    sim *s = exec->node->sim;
    if (exec->deferred &&
        (!exec->n_ready || (!exec->node->stuck && sim_draw_chance(&s->pick, AGED_OF_1000))))
        run_deferred(exec, exec->poller); /* no poller: what the work sends is written at once */
}

/* The monitor: what a worker has deferred that is stuck by now. */
static void run_monitor(teffi_timer *timer)
{
    sim_exec *exec = teffi_container(timer, sim_exec, monitor);
    run_deferred(exec, false);
}

static void call_monitor_if_stuck(sim_exec *exec)
{
    sim *s = exec->node->sim;
    if (exec->node->stuck && exec->deferred && !exec->monitor.where)
        sim_timer_set(s, exec, &exec->monitor,
                      sim_node_now(exec->node) + sim_draw_below(&s->poll, MONITOR_MAX_NS));
}

static void park_in_poller(sim_exec *exec);

/* It runs where a lease may be over before its timer fires. */
static void set_coarse_clock(sim_exec *exec)
{
    const sim_faults *f = &exec->node->sim->faults;
    uint32_t ms = (uint32_t)(sim_node_now(exec->node) / SIM_MS);
    if (f->late_timers || f->holds || f->pauses)
        teffi_coarse_ms_set(&exec->exec, ms ? ms : 1);
}

/* Turns that run now may end because the lease does not hold, even if it is renewed later. The
 * coarse clock may say so up to 1 ms early. */
static void note_lapse(sim_exec *exec)
{
    sim_node *node = exec->node;
    if (node->lease && !(teffi_lease_holds(node->lease, sim_node_now(node)) &&
                         teffi_lease_holds_coarse(node->lease, &exec->exec)))
        node->lapsed_ns = node->sim->now_ns;
}

static void run_at(sim *s, size_t at)
{
    sim_ready picked = s->ready[at];
    unsigned items = (unsigned)sim_draw_between(&s->pick, 1, ITEMS_MAX);
    s->ready[at] = s->ready[--s->n_ready];
    picked.exec->n_ready--;
    sim_trace_add(&s->trace, s->now_ns, picked.exec->node->name, "run", at, s->n_ready);
    set_coarse_clock(picked.exec);
    note_lapse(picked.exec);
    teffi_group *outer = running; /* a thread that waits runs others nested */
    running = picked.group;
    bool again = teffi_group_run(picked.group, items, 0);
    running = outer;
    if (again)
        group_ready(&picked.exec->exec, picked.group);
    end_pass(picked.exec);
    park_in_poller(picked.exec);
}

/* Neither paused nor stuck? */
static bool may_run(const sim_ready *ready)
{
    const sim_node *node = ready->exec->node;
    return !sim_is_paused(node) && (!node->stuck || ready->group->system);
}

static void run_own_groups(sim_exec *exec)
{
    sim *s = exec->node->sim;
    uint64_t n = sim_draw_between(&s->pick, 1, BATCH_MAX);
    for (size_t i = 0; n && i < s->n_ready;) {
        bool own = s->ready[i].exec == exec && may_run(&s->ready[i]);
        if (own)
            run_at(s, i);
        i = own ? 0 : i + 1;
        n -= own;
    }
}

/* ---- the poller: a worker waits in it when no group is READY, a busy one looks at times ---- */

static void start_polling(teffi_exec *base, teffi_poller *poller)
{
    sim_exec *exec = (sim_exec *)base;
    exec->poller = poller;
    park_in_poller(exec);
}

bool sim_exec_on_worker(const teffi_exec *base)
{
    return ((const sim_exec *)base)->on_worker;
}

bool sim_exec_end_wait(teffi_exec *base)
{
    sim_exec *exec = (sim_exec *)base;
    sim *s = exec->node->sim;
    if (exec->waits && !exec->leaves.where)
        sim_timer_set(s, exec, &exec->leaves,
                      sim_node_now(exec->node) + sim_draw_below(&s->poll, WAKE_MAX_NS));
    return exec->waits;
}

/* Deferred work may defer work, and make groups READY. */
static void park_in_poller(sim_exec *exec)
{
    if (!exec->poller || exec->waits)
        return;
    while (exec->deferred && !exec->n_ready && exec->node->sim->plant != SIM_PLANT_KEPT)
        end_pass(exec);
    if (exec->n_ready || !teffi_poller_claim(exec->poller))
        return;
    exec->waits = true;
    exec->pushed = false;
    if (sim_poll_is_due(exec->poller))
        (void)sim_exec_end_wait(&exec->exec);
}

/* in: claimed, and the wait has ended. on_worker: what becomes READY is a local batch; else this
 * thread has no processor: it is a client's, or that of a worker which has lost its own. */
static void sim_handle_events(sim_exec *exec, bool on_worker)
{
    teffi_group *outer = running;
    running = NULL;
    exec->on_worker = on_worker;
    bool found = exec->poller->run(exec->poller);
    exec->on_worker = false;
    running = outer;
    teffi_poller_release(exec->poller);
    if (found)
        sim_trace_add(&exec->node->sim->trace, exec->node->sim->now_ns, exec->node->name, "found",
                      on_worker, exec->n_ready);
    if (found && on_worker)
        run_own_groups(exec);
    park_in_poller(exec);
}

static void leave_poller(teffi_timer *timer)
{
    sim_exec *exec = teffi_container(timer, sim_exec, leaves);
    exec->poller->wait(exec->poller, 0);
    exec->waits = false;
    if (exec->pushed && exec->node->sim->plant == SIM_PLANT_SKIPPED)
        teffi_poller_release(exec->poller);
    else
        sim_handle_events(exec, !sim_draw_chance(&exec->node->sim->poll, OUTSIDE_OF_1000));
}

static void look_at_poller(sim_exec *exec)
{
    if (!exec->poller || !sim_draw_chance(&exec->node->sim->poll, LOOK_OF_1000) ||
        !teffi_poller_claim(exec->poller))
        return;
    exec->poller->wait(exec->poller, 0);
    sim_handle_events(exec, true);
}

static void stop_polling(sim_exec *exec)
{
    if (exec->waits)
        teffi_poller_release(exec->poller);
    exec->waits = false;
    if (exec->poller)
        exec->poller->neglected(exec->poller);
    exec->poller = NULL;
}

bool sim_exec_run(sim *s)
{
    size_t at = sim_draw_below(&s->pick, s->n_ready);
    for (size_t tried = 0; !may_run(&s->ready[at]); tried++) {
        if (tried == s->n_ready)
            return false;
        at = (at + 1) % s->n_ready;
    }
    sim_exec *exec = s->ready[at].exec;
    run_at(s, at);
    look_at_poller(exec);
    return true;
}

void sim_exec_stick(teffi_exec *base)
{
    sim_exec *exec = (sim_exec *)base;
    exec->node->stuck = true;
    call_monitor_if_stuck(exec);
}

/* ---- received batches and deferred work ---- */

static bool defer_work(teffi_exec *base, teffi_deferred *work)
{
    sim_exec *exec = (sim_exec *)base;
    /* In a stuck node, groups run only on the system thread, for which no work is deferred. */
    bool on_worker = exec->on_worker || (running && running->exec == base && !exec->node->stuck);
    if (!on_worker || exec->stopped)
        return false;
    (void)teffi_deferred_push(&exec->deferred, work);
    call_monitor_if_stuck(exec);
    return true;
}

static void run_batch(teffi_exec *base, teffi_inbound *batch)
{
    (void)base;
    batch->run(batch);
}

static void sim_submit_batch(teffi_exec *base, teffi_inbound *batch)
{
    enum { HERE, BORROWED, QUEUED, CHOICES };
    sim_exec *exec = (sim_exec *)base;
    sim *s = exec->node->sim;
    bool here = exec->stopped || exec->on_worker;
    uint64_t choice = here ? HERE : sim_draw_below(&s->pick, CHOICES);
    sim_trace_add(&s->trace, s->now_ns, exec->node->name, "batch", choice, batch->bytes);
    if (choice == QUEUED) {
        batch->bytes = SIZE_MAX; /* the draw decides, not the size */
        if (teffi_inbound_queue_put(&exec->inbound, batch))
            return;
    }
    batch->run(batch);
    if (choice == BORROWED) /* of the processor of exec */
        run_own_groups(exec);
    batch->release(batch);
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

static void blocking_begin(teffi_exec *base)
{
    teffi_deferred_run_all(&((sim_exec *)base)->deferred);
}

static void blocking_end(teffi_exec *base)
{
    (void)base;
}

/* A context of the one thread waits: the rest of the simulation runs meanwhile. */
static void park_thread(teffi_exec *base)
{
    sim_pump(((sim_exec *)base)->node->sim, ((sim_exec *)base)->node->name);
}

static teffi_group *sim_current_group(teffi_exec *base)
{
    return running && running->exec == base ? running : NULL;
}

/* ---- turns in place: as often as drawn ---- */

static bool direct_may_run(teffi_exec *base, bool beside)
{
    (void)beside;
    sim_exec *exec = (sim_exec *)base;
    return sim_current_group(base) && directs_deep < TEFFI_DIRECT_DEPTH && !exec->stopped &&
           sim_draw_chance(&exec->node->sim->pick, DIRECT_OF_1000);
}

static teffi_group *sim_direct_enter(teffi_exec *base, teffi_group *group)
{
    sim_node *node = ((sim_exec *)base)->node;
    teffi_group *outer = running;
    sim_trace_add(&node->sim->trace, node->sim->now_ns, node->name, "direct", directs_deep, 0);
    running = group;
    directs_deep++;
    return outer;
}

static void sim_direct_leave(teffi_exec *base, teffi_group *outer)
{
    (void)base;
    running = outer;
    directs_deep--;
}

/* No slice ends here. */
static void direct_handle_yield(teffi_exec *base, teffi_group *group)
{
    (void)base;
    (void)group;
    teffi_abort_for_bug(__FILE__, __LINE__, "a turn yielded");
}

static const teffi_direct_ops direct = {.may = direct_may_run,
                                        .enter = sim_direct_enter,
                                        .leave = sim_direct_leave,
                                        .yielded = direct_handle_yield};

static void exec_stop(teffi_exec *base)
{
    sim_exec *exec = (sim_exec *)base;
    sim *s = exec->node->sim;
    size_t kept = 0;
    exec->stopped = true;
    for (size_t i = 0; i < s->n_ready; i++)
        if (s->ready[i].exec != exec)
            s->ready[kept++] = s->ready[i];
    s->n_ready = kept;
    exec->n_ready = 0;
    sim_timers_drop(s, exec);
    stop_polling(exec);
    teffi_deferred_run_all(&exec->deferred);
    teffi_inbound_queue_drain_and_stop(&exec->inbound);
}

static void exec_free(teffi_exec *base)
{
    exec_stop(base);
    teffi_null_group_fini(base);
    free(base);
}

teff_err sim_exec_new(const teffi_platform *platform, unsigned workers,
                      const teff_sched_options *opt, teffi_exec **out)
{
    static const teffi_exec_ops ops = {
        .ready = group_ready,
        .timer_set = timer_set,
        .timer_cancel = timer_cancel,
        .defer = defer_work,
        .inbound = sim_submit_batch,
        .poll = start_polling,
        .blocking_begin = blocking_begin,
        .blocking_end = blocking_end,
        .park = park_thread,
        .current = sim_current_group,
        .direct = &direct,
        .stop = exec_stop,
        .free = exec_free,
    };
    sim_exec *exec = calloc(1, sizeof *exec);
    (void)workers;
    if (!exec)
        return TEFF_E_NOMEM;
    exec->node = platform->arg;
    exec->exec = (teffi_exec){.ops = &ops, .platform = platform, .fibers = exec->node->sim->fibers};
    teffi_warn_init(&exec->exec.warn, opt ? opt : &(teff_sched_options){0});
    teffi_null_group_init(&exec->exec);
    exec->leaves.fire = leave_poller;
    exec->monitor.fire = run_monitor;
    teffi_inbound_queue_init(&exec->inbound, &exec->exec, run_batch);
    *out = &exec->exec;
    return TEFF_OK;
}
