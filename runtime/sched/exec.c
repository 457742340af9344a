/* exec.c - the real executor: its table of operations, its birth and its end.
 * Way:     platform.exec_new -> [exec] -> slots, workers, monitor
 * Threads: new and free: the owner; the rest from any thread. */
#include "sched/exec.h"

#include <stdlib.h>
#include <string.h>
#include "base/bug.h"
#include "fiber/fiber.h"
#include "sched/closure.h"
#include "sched/direct.h"
#include "sched/worker.h"

static teffi_real *real_of(teffi_exec *exec)
{
    return (teffi_real *)(void *)exec;
}

/* This thread as a worker of this executor outside of a blocking region, else NULL. For exec ops
 * only: they are called by their addresses, so never inlined, and do not suspend. */
static teffi_worker *own_worker(teffi_real *real)
{
    teffi_worker *w = teffi_own_worker;
    return w && w->real == real && !w->blocking ? w : NULL;
}

static bool ready_here(teffi_worker *w, teffi_group *group)
{
    uint32_t was = teffi_enter(w);
    teffi_slot *slot = teffi_slot_kept(w);
    if (slot)
        teffi_slot_ready(w, slot, group);
    teffi_leave(w, was);
    return slot != NULL;
}

static void ready(teffi_exec *exec, teffi_group *group)
{
    teffi_real *real = real_of(exec);
    teffi_worker *w = own_worker(real);
    if (w && ready_here(w, group))
        return;
    teffi_runqueue_push(&real->queue, group);
    teffi_wake_one(real);
    teffi_nap_end(real);
}

/* out: whose wheel has it; NULL: this worker may not use its slot. */
static teffi_slot *timer_here(teffi_worker *w, teffi_timer *timer, uint64_t due_ns)
{
    uint32_t was = teffi_enter(w);
    teffi_slot *slot = teffi_slot_kept(w);
    if (slot)
        (void)teffi_wheel_set(&slot->wheel, timer, due_ns);
    teffi_leave(w, was);
    return slot;
}

static teffi_slot *timer_elsewhere(teffi_real *real, teffi_timer *timer, uint64_t due_ns)
{
    uint32_t i = atomic_fetch_add_explicit(&real->next_wheel, 1, memory_order_relaxed);
    teffi_slot *slot =
        &real->slots[i % atomic_load_explicit(&real->n_active, memory_order_relaxed)];
    if (teffi_wheel_set(&slot->wheel, timer, due_ns))
        teffi_slot_poke(real, slot);
    return slot;
}

static void timer_set(teffi_exec *exec, teffi_timer *timer, uint64_t due_ns)
{
    teffi_real *real = real_of(exec);
    teffi_worker *w = own_worker(real);
    teffi_slot *slot = w ? timer_here(w, timer, due_ns) : NULL;
    if (!slot)
        slot = timer_elsewhere(real, timer, due_ns);
    if (!teffi_slot_in_use(real, slot))
        teffi_slot_move_timers(real, slot);
}

/* Workers' own queues hold level 0 only. */
static void ready_by_level(teffi_exec *exec, teffi_group *group)
{
    teffi_real *real = real_of(exec);
    if (teffi_level_of(real->levels, group->used) == 0) {
        ready(exec, group);
        return;
    }
    teffi_runqueue_push(&real->queue, group);
    teffi_wake_one(real);
}

/* There are no own queues: the most urgent comes first wherever it was made READY. */
static void ready_by_priority(teffi_exec *exec, teffi_group *group)
{
    teffi_real *real = real_of(exec);
    teffi_runqueue_push(&real->queue, group);
    teffi_wake_one(real);
}

static bool timer_cancel(teffi_exec *exec, teffi_timer *timer)
{
    return teffi_wheel_cancel(&real_of(exec)->slots[0].wheel, sizeof(teffi_slot), timer);
}

static unsigned worker(teffi_exec *exec)
{
    teffi_real *real = real_of(exec);
    teffi_worker *w = own_worker(real);
    if (!w)
        return 0;
    uint32_t was = teffi_enter(w);
    teffi_slot *slot = teffi_slot_kept(w);
    teffi_leave(w, was);
    return slot ? (unsigned)(slot - real->slots) + 1 : 0;
}

static void fini(teffi_real *real)
{
    for (unsigned i = 0; i < real->n_workers; i++)
        free(real->workers[i]);
    free(real->workers);
    for (unsigned i = 0; i < real->n_slots; i++)
        teffi_deque_fini(&real->slots[i].deque);
    free(real->slots);
    free(real->levels);
    free(real->ranks);
    teffi_fiber_pool_free(real->exec.fibers);
    teffi_runqueue_fini(&real->queue);
    pthread_mutex_destroy(&real->idle_lock);
    free(real);
}

/* n_workers does not change any more once stopping is set. */
static void join_workers(teffi_real *real)
{
    for (unsigned i = 0; i < real->n_workers; i++)
        teffi_thread_join(&real->workers[i]->thread);
}

static void exec_stop(teffi_exec *exec)
{
    teffi_real *real = real_of(exec);
    teffi_bug_if(teffi_worker_self() && teffi_worker_self()->real == real);
    if (real->stopping)
        return;
    teffi_idle_stop(real);
    teffi_thread_join(&real->monitor); /* first: it deals with workers' threads */
    join_workers(real);
    teffi_visit_stop(real);
    for (unsigned i = 0; i < real->n_slots; i++)
        teffi_laters_do(&real->slots[i]);
}

static void exec_free(teffi_exec *exec)
{
    if (!exec)
        return;
    exec_stop(exec);
    teffi_null_fini(exec);
    fini(real_of(exec));
}

/* Its own thread wrote it. */
static teffi_group *current(teffi_exec *exec)
{
    teffi_worker *w = teffi_worker_self();
    if (!w || &w->real->exec != exec)
        return NULL;
    return teffi_run_own(w);
}

static const teffi_exec_ops ops = {
    .ready = ready,
    .timer_set = timer_set,
    .timer_cancel = timer_cancel,
    .put_off = teffi_put_off,
    .visit = teffi_visit,
    .bring = teffi_bring,
    .blocking_begin = teffi_blocking_begin,
    .blocking_end = teffi_blocking_end,
    .help = teffi_help,
    .worker = worker,
    .scale = teffi_scale,
    .metrics = teffi_metrics,
    .current = current,
    .direct = &teffi_direct_real,
    .dump = teffi_exec_dump,
    .stop = exec_stop,
    .free = exec_free,
};

static bool init_slots(teffi_real *real, unsigned n)
{
    uint64_t now = teffi_now(real->exec.platform);
    real->slots = aligned_alloc(_Alignof(teffi_slot), n * sizeof *real->slots);
    if (!real->slots)
        return false;
    memset(real->slots, 0, n * sizeof *real->slots);
    for (unsigned i = 0; i < n; i++) {
        teffi_slot *slot = &real->slots[i];
        teffi_wheel_init(&slot->wheel, i + 1, now);
        real->n_slots++;
        if (!teffi_deque_init(&slot->deque))
            return false;
        atomic_init(&slot->turns, 1);
        slot->now_ns = now;
        slot->rng = real->exec.platform->random(real->exec.platform->arg) | 1;
    }
    return true;
}

enum { TAKE_MAX = 16 };

static bool init_policy(teffi_real *real, const teff_sched_options *opt)
{
    real->ops = ops;
    real->take_max = TAKE_MAX;
    real->special |= opt->policy != TEFF_SCHED_SINGLE;
    if (opt->policy == TEFF_SCHED_MULTILEVEL) {
        real->levels = malloc(sizeof *real->levels);
        if (!real->levels)
            return false;
        teffi_levels_init(real->levels, real->exec.platform, opt);
        real->ops.ready = ready_by_level;
        real->queue.order = &real->levels->order;
    } else if (opt->policy == TEFF_SCHED_PRIORITY) {
        real->ranks = malloc(sizeof *real->ranks);
        if (!real->ranks)
            return false;
        teffi_ranks_init(real->ranks, opt->waiting_max);
        real->take_max = 0;
        real->ops.ready = ready_by_priority;
        real->queue.order = &real->ranks->order;
    }
    return true;
}

/* in: n slots, of which active are in use. */
static teffi_real *real_new(const teffi_platform *platform, unsigned n, unsigned active,
                            const teff_sched_options *opt)
{
    teffi_real *real = aligned_alloc(_Alignof(teffi_real), sizeof *real);
    if (!real)
        return NULL;
    memset(real, 0, sizeof *real);
    real->exec.ops = &real->ops;
    real->exec.platform = platform;
    real->exec.workers = n;
    teffi_preempt_start();
    teffi_warn_init(&real->exec.warn, opt);
    teffi_null_init(&real->exec);
    real->exchanges = !teffi_barrier_start();
    atomic_init(&real->n_active, active);
    real->threads_max = opt->threads_max ? opt->threads_max : TEFFI_THREADS_MAX;
    real->hooks = opt->hooks;
    real->special = opt->hooks.before || opt->hooks.after;
    teffi_visit_init(real);
    pthread_mutex_init(&real->idle_lock, NULL);
    teffi_runqueue_init(&real->queue);
    real->exec.fibers = teffi_fiber_pool_new(0, 0);
    if (real->exec.fibers && init_policy(real, opt) && init_slots(real, n))
        return real;
    fini(real);
    return NULL;
}

static bool start_workers(teffi_real *real)
{
    bool ok = true;
    pthread_mutex_lock(&real->idle_lock);
    for (unsigned i = 0; ok && i < real->n_slots && teffi_slot_in_use(real, &real->slots[i]); i++)
        ok = teffi_worker_start(real, &real->slots[i], false) != NULL;
    pthread_mutex_unlock(&real->idle_lock);
    return ok;
}

static unsigned active_for(unsigned workers)
{
    unsigned n = workers ? workers : teffi_cpu_count();
    return n < TEFFI_SLOTS_MAX ? n : TEFFI_SLOTS_MAX;
}

static unsigned slots_for(const teff_sched_options *opt, unsigned workers)
{
    return opt->workers_max ? opt->workers_max : active_for(workers);
}

enum { LEVEL_US_MAX = 1000000 };

static const char *check_levels(const teff_sched_options *opt)
{
    const uint32_t *us = opt->level_us;
    if (us[0] > LEVEL_US_MAX || us[1] > LEVEL_US_MAX || (us[0] && us[1] && us[0] >= us[1]))
        return "level_us: expected 0, or rising, up to 1,000,000";
    if (opt->level0_percent && (opt->level0_percent < 50 || opt->level0_percent > 98))
        return "level0_percent: expected 0, or 50 to 98";
    return NULL;
}

/* An option of another policy is a mistake, not something to be passed over. */
static const char *check_policy(const teff_sched_options *opt)
{
    if ((unsigned)opt->policy > TEFF_SCHED_PRIORITY)
        return "policy: expected one of teff_sched_policy";
    if (opt->policy != TEFF_SCHED_MULTILEVEL &&
        (opt->level_us[0] || opt->level_us[1] || opt->level0_percent))
        return "level_us, level0_percent: expected 0 unless policy is TEFF_SCHED_MULTILEVEL";
    if (opt->policy != TEFF_SCHED_PRIORITY && opt->waiting_max)
        return "waiting_max: expected 0 unless policy is TEFF_SCHED_PRIORITY";
    return opt->policy == TEFF_SCHED_MULTILEVEL ? check_levels(opt) : NULL;
}

const char *teffi_sched_check(const teff_sched_options *opt, unsigned workers)
{
    uint32_t threads = opt->threads_max;
    if (threads && (threads < TEFFI_THREADS_MIN || threads > TEFFI_THREADS_MAX))
        return "threads_max: expected 0, or 2 to 10,000";
    if (opt->workers_max &&
        (opt->workers_max < active_for(workers) || opt->workers_max > TEFFI_SLOTS_MAX))
        return "workers_max: expected 0, or as many as there are workers or more, up to 1,024";
    if (threads && threads < slots_for(opt, workers))
        return "threads_max: expected at least as many as there are workers";
    if (opt->turn_warn_ms > TEFFI_WARN_MS_MAX)
        return "turn_warn_ms: expected 0 to 86,400,000";
    if (opt->delay_warn_ms > TEFFI_WARN_MS_MAX)
        return "delay_warn_ms: expected 0 to 86,400,000";
    return check_policy(opt);
}

teff_err teffi_exec_real_new(const teffi_platform *platform, unsigned workers,
                             const teff_sched_options *opt, teffi_exec **exec)
{
    static const teff_sched_options defaults;
    opt = opt ? opt : &defaults;
    if (teffi_sched_check(opt, workers))
        return TEFF_E_INVALID;
    teffi_real *real = real_new(platform, slots_for(opt, workers), active_for(workers), opt);
    if (!real)
        return TEFF_E_NOMEM;
    if (!start_workers(real) ||
        teffi_thread_start(&real->monitor, "teff-monitor", teffi_monitor_main, real)) {
        teffi_idle_stop(real);
        join_workers(real);
        fini(real);
        return TEFF_E_IO;
    }
    *exec = &real->exec;
    return TEFF_OK;
}
