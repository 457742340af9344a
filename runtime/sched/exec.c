/* exec.c - the executor's table of operations, its start and its end. */
#include "sched/exec.h"

#include <stdlib.h>
#include <string.h>
#include "base/bug.h"
#include "base/options.h"
#include "group/closure.h"
#include "os/cpus.h"
#include "sched/borrow.h"
#include "sched/poll.h"
#include "sched/preempt.h"
#include "sched/report.h"
#include "sched/retake.h"
#include "sched/run.h"
#include "sched/scale.h"
#include "sched/submit.h"

enum { TAKE_MAX = 16 }; /* groups taken from the global queue with the one to run */
enum { SLICE_MS = 10 };

/* ---- operations ---- */

/* The operation timer_cancel. Any processor's wheel may hold the timer, so teffi_wheel_cancel_timer
 * gets all wheels as an array: the first wheel, and the distance in bytes from one to the next. */
static bool cancel_timer(teffi_exec *exec, teffi_timer *timer)
{
    return teffi_wheel_cancel_timer(&teffi_sched_of(exec)->processors[0].wheel,
                                    sizeof(teffi_processor), timer);
}

/* The operation `worker` of teffi_exec_ops. out: the number of the processor that this thread
 * holds, from 1; 0: this thread holds none, or is in a blocking region. This function may read the
 * thread-local teffi_own_worker, because it is called through a pointer, is never inlined, and does
 * not suspend. relaxed: a processor that is retaken at this moment may still count as held. */
static unsigned processor_number(teffi_exec *exec)
{
    const teffi_worker *w = teffi_own_worker;
    return w && &w->sched->exec == exec && !w->blocking
               ? atomic_load_explicit(&w->held, memory_order_relaxed)
               : 0;
}

static teffi_group *current_group(teffi_exec *exec)
{
    teffi_worker *w = teffi_worker_self();
    return w && &w->sched->exec == exec ? teffi_worker_running_group(w) : NULL;
}

/* ---- stopping ---- */

static void free_scheduler(teffi_sched *sched)
{
    teffi_workers_free(sched);
    teffi_processors_fini(sched);
    free(sched->levels);
    free(sched->priorities);
    teffi_fiber_pool_free(sched->exec.system_fibers);
    teffi_fiber_pool_free(sched->exec.fibers);
    teffi_runqueue_fini(&sched->system_queue);
    teffi_runqueue_fini(&sched->queue);
    pthread_mutex_destroy(&sched->idle_lock);
    free(sched);
}

/* Set sched->stopping, and wake every thread, so that it checks that flag. */
static void set_stopping_and_wake_all(teffi_sched *sched)
{
    pthread_mutex_lock(&sched->idle_lock);
    sched->stopping = true;
    atomic_fetch_or_explicit(&sched->attention, TEFFI_ATTEND_STOP, memory_order_relaxed);
    for (unsigned i = 0; i < sched->n_workers; i++)
        teffi_worker_wake(sched->workers[i]);
    teffi_worker_wake(&sched->borrow.worker);
    teffi_worker_wake(&sched->system);
    teffi_parker_wake(&sched->monitor.parker);
    pthread_mutex_unlock(&sched->idle_lock);
}

static void stop_scheduler(teffi_exec *exec)
{
    teffi_sched *sched = teffi_sched_of(exec);
    teffi_bug_if(teffi_worker_self() && teffi_worker_self()->sched == sched);
    if (sched->stopping)
        return;
    set_stopping_and_wake_all(sched);
    teffi_thread_join(&sched->monitor.thread); /* first: the monitor joins workers' threads */
    teffi_workers_join_all(sched);
    if (teffi_sched_has_system_thread(sched))
        teffi_thread_join(&sched->system.thread);
    teffi_borrow_wait_for_end(sched);
    /* No worker is left to run the deferred work that is still in the lists. */
    for (unsigned i = 0; i < sched->n_processors; i++)
        (void)teffi_deferral_run(&sched->processors[i].deferral);
    teffi_inbound_queue_drain_and_stop(&sched->inbound);
}

static void stop_and_free(teffi_exec *exec)
{
    if (!exec)
        return;
    stop_scheduler(exec);
    teffi_null_group_fini(exec);
    free_scheduler(teffi_sched_of(exec));
}

static const teffi_exec_ops scheduler_ops = {
    .ready = teffi_submit_ready,
    .timer_set = teffi_submit_timer,
    .timer_cancel = cancel_timer,
    .defer = teffi_submit_deferred_work,
    .inbound = teffi_borrow_run_or_queue_inbound,
    .poll = teffi_poll_set_poller,
    .blocking_begin = teffi_blocking_begin,
    .blocking_end = teffi_blocking_end,
    .run_nested = teffi_run_nested_group,
    .worker = processor_number,
    .scale = teffi_scale_active_processors,
    .metrics = teffi_sched_read_metrics,
    .runs = teffi_sched_count_runs,
    .current = current_group,
    .direct = &teffi_direct_by_worker,
    .system = teffi_system_thread_start,
    .dump = teffi_sched_dump,
    .turns = teffi_sched_list_turns,
    .stop = stop_scheduler,
    .free = stop_and_free,
};

/* ---- starting ---- */

/* Set the operations and the policy. Set runs_extended if run_with_hooks_and_policy (run.c) must
 * run the groups.
 * out: false: there is not enough memory. */
static bool init_ops_and_policy(teffi_sched *sched, const teff_sched_options *opt)
{
    sched->ops = scheduler_ops;
    sched->take_max = TAKE_MAX;
    bool hooked = sched->hooks.before || sched->hooks.after;
    sched->runs_extended = hooked || opt->policy != TEFF_SCHED_SINGLE;
    if (hooked)
        sched->ops.direct = &teffi_direct_hooked;
    if (opt->policy == TEFF_SCHED_MULTILEVEL) {
        sched->levels = malloc(sizeof *sched->levels);
        if (!sched->levels)
            return false;
        teffi_levels_init(sched->levels, sched->exec.platform, opt);
        sched->ops.ready = teffi_submit_ready_by_level;
        sched->queue.order = &sched->levels->order;
    } else if (opt->policy == TEFF_SCHED_PRIORITY) {
        sched->priorities = malloc(sizeof *sched->priorities);
        if (!sched->priorities)
            return false;
        teffi_priorities_init(sched->priorities, opt->waiting_max);
        sched->take_max = 0; /* a deque has no order by priority */
        sched->ops.ready = teffi_submit_ready_by_priority;
        sched->queue.order = &sched->priorities->order;
    }
    return true;
}

/* Convert slice_ms (0: SLICE_MS) to ticks of the monitor. out: a number of ticks. If the
 * monitor finds the same run at this many ticks in a row, it treats the run's slice as over. The
 * number is the length of the slice in ticks, rounded up, plus one, because a run may begin between
 * two ticks. */
static uint32_t convert_slice_to_ticks(uint32_t slice_ms)
{
    return ((slice_ms ? slice_ms : SLICE_MS) * 1000000u + TEFFI_MONITOR_NS - 1) / TEFFI_MONITOR_NS +
           1;
}

/* Make a scheduler without threads. in: n: how many processors to make; active: how many of them
 * are in use at first. out: NULL: memory is out. */
static teffi_sched *scheduler_new(const teffi_platform *platform, unsigned n, unsigned active,
                                  const teff_sched_options *opt)
{
    teffi_sched *sched = aligned_alloc(_Alignof(teffi_sched), sizeof *sched);
    if (!sched)
        return NULL;
    memset(sched, 0, sizeof *sched);
    sched->exec.ops = &sched->ops;
    sched->exec.platform = platform;
    sched->exec.workers = n;
    sched->exec.repolls_max = opt->repolls_max;
    sched->slice_ticks = convert_slice_to_ticks(opt->slice_ms);
    teffi_preempt_install_handler();
    teffi_warn_init(&sched->exec.warn, opt);
    teffi_null_group_init(&sched->exec);
    sched->no_membarrier = !teffi_barrier_register_process();
    atomic_init(&sched->n_active, active);
    atomic_init(&sched->wake_below, UINT32_MAX);
    sched->threads_max = teffi_or_default(opt->threads_max, TEFFI_THREADS_MAX);
    if (opt->hooks)
        sched->hooks = *opt->hooks;
    sched->worker_main = teffi_worker_main;
    for (int i = 0; i < TEFFI_WORKER_STATES; i++)
        TAILQ_INIT(&sched->in_state[i]);
    teffi_borrow_init(sched);
    teffi_worker_init(&sched->system, sched, UINT32_MAX);
    pthread_mutex_init(&sched->idle_lock, NULL);
    teffi_runqueue_init(&sched->queue);
    teffi_runqueue_init(&sched->system_queue);
    sched->exec.fibers = teffi_fiber_pool_new(opt->stack_bytes, opt->stacks_max);
    if (sched->exec.fibers && init_ops_and_policy(sched, opt) && teffi_processors_init(sched, n))
        return sched;
    free_scheduler(sched);
    return NULL;
}

/* Start a worker for each active processor. out: false: a thread could not start, or memory is out.
 * In both cases the caller stops the workers that have started. */
static bool start_workers(teffi_sched *sched, unsigned active)
{
    bool ok = true;
    pthread_mutex_lock(&sched->idle_lock);
    for (unsigned i = 0; ok && i < active; i++)
        ok = teffi_worker_start(sched, &sched->processors[i], false) != NULL;
    pthread_mutex_unlock(&sched->idle_lock);
    return ok;
}

/* How many processors are in use at first? in: workers: the requested number; 0: one for each
 * core. out: at most TEFFI_PROCESSORS_MAX. */
static unsigned choose_initial_processor_count(unsigned workers)
{
    unsigned n = workers ? workers : teffi_cpu_count();
    return n < TEFFI_PROCESSORS_MAX ? n : TEFFI_PROCESSORS_MAX;
}

/* How many processors to make? Those in use at first, and those that teffi_scale_active_processors
 * may add. */
static unsigned choose_max_processor_count(const teff_sched_options *opt, unsigned workers)
{
    return opt->workers_max ? opt->workers_max : choose_initial_processor_count(workers);
}

enum { LEVEL_US_MAX = 1000000, STACKS_LEAST = 64, STACKS_MOST = 1000000 };
enum { SLICE_MS_MAX = 1000, REPOLLS_MOST = 1000 };
enum { STACK_BYTES_MIN = 64 * 1024, STACK_BYTES_MAX = 8 * 1024 * 1024 };

/* Check the options of policy multilevel. out: NULL: they are in range; else a text with the option
 * and its range. */
static const char *check_level_options(const teff_sched_options *opt)
{
    if (teffi_level_threshold_us(opt, 2) > LEVEL_US_MAX ||
        teffi_level_threshold_us(opt, 1) >= teffi_level_threshold_us(opt, 2))
        return "level_us: expected rising numbers up to 1,000,000; 0 = 5,000 and 100,000";
    if (opt->level0_percent && (opt->level0_percent < 50 || opt->level0_percent > 98))
        return "level0_percent: expected 0, or 50 to 98";
    return NULL;
}

/* Check the policy's options; those of other policies must be 0. out: NULL: in range;
 * else a text with the option and its range. */
static const char *check_policy_options(const teff_sched_options *opt)
{
    if ((unsigned)opt->policy > TEFF_SCHED_PRIORITY)
        return "policy: expected one of teff_sched_policy";
    if (opt->policy != TEFF_SCHED_MULTILEVEL &&
        (opt->level_us[0] || opt->level_us[1] || opt->level0_percent))
        return "level_us, level0_percent: expected 0 unless policy is TEFF_SCHED_MULTILEVEL";
    if (opt->policy != TEFF_SCHED_PRIORITY && opt->waiting_max)
        return "waiting_max: expected 0 unless policy is TEFF_SCHED_PRIORITY";
    return opt->policy == TEFF_SCHED_MULTILEVEL ? check_level_options(opt) : NULL;
}

/* Check the options of stacks. out: NULL: they are in range; else a text with the option and its
 * range. */
static const char *check_stack_options(const teff_sched_options *opt)
{
    if (opt->stacks_max && (opt->stacks_max < STACKS_LEAST || opt->stacks_max > STACKS_MOST))
        return "stacks_max: expected 0, or 64 to 1,000,000";
    if (opt->stack_bytes &&
        (opt->stack_bytes < STACK_BYTES_MIN || opt->stack_bytes > STACK_BYTES_MAX))
        return "stack_bytes: expected 0, or 64 KiB to 8 MiB";
    return NULL;
}

const char *teffi_sched_options_check(const teff_sched_options *opt, unsigned workers)
{
    uint32_t threads = opt->threads_max;
    if (threads && (threads < TEFFI_THREADS_MIN || threads > TEFFI_THREADS_MAX))
        return "threads_max: expected 0, or 2 to 10,000";
    if (opt->workers_max && (opt->workers_max < choose_initial_processor_count(workers) ||
                             opt->workers_max > TEFFI_PROCESSORS_MAX))
        return "workers_max: expected 0, or as many as there are workers or more, up to 1,024";
    if (threads && threads < choose_max_processor_count(opt, workers))
        return "threads_max: expected 0, or at least workers_max and at least the number of "
               "workers";
    if (check_stack_options(opt))
        return check_stack_options(opt);
    if (opt->turn_warn_ms > TEFFI_WARN_MS_MAX)
        return "turn_warn_ms: expected 0 to 86,400,000";
    if (opt->delay_warn_ms > TEFFI_WARN_MS_MAX)
        return "delay_warn_ms: expected 0 to 86,400,000";
    if (opt->slice_ms > SLICE_MS_MAX)
        return "slice_ms: expected 0 to 1,000";
    if (opt->repolls_max > REPOLLS_MOST)
        return "repolls_max: expected 0 to 1,000";
    return check_policy_options(opt);
}

bool teffi_sched_options_check_and_copy(teff_sched_options *to, teff_sched_hooks *hooks,
                                        const teff_sched_options *from, char *text)
{
    if (!teffi_options_check_and_copy(to, sizeof *to, from, "teff_sched_options", text) ||
        !teffi_options_check_and_copy(hooks, sizeof *hooks, to->hooks, "teff_sched_hooks", text))
        return false;
    to->hooks = hooks;
    return true;
}

teff_err teffi_exec_real_new(const teffi_platform *platform, unsigned workers,
                             const teff_sched_options *opt, teffi_exec **exec)
{
    static const teff_sched_options defaults;
    opt = opt ? opt : &defaults;
    if (teffi_sched_options_check(opt, workers))
        return TEFF_E_INVALID;
    /* choose_max_processor_count below gets `active` instead of `workers`, so that it does not read
     * the CPU count again. The count may have changed since teffi_sched_options_check read it, so
     * `active` may exceed workers_max now. */
    unsigned active = choose_initial_processor_count(workers);
    if (opt->workers_max && active > opt->workers_max)
        active = opt->workers_max;
    teffi_sched *sched =
        scheduler_new(platform, choose_max_processor_count(opt, active), active, opt);
    if (!sched)
        return TEFF_E_NOMEM;
    if (!start_workers(sched, active) ||
        teffi_thread_start(&sched->monitor.thread, "teff-monitor", teffi_monitor_main, sched)) {
        set_stopping_and_wake_all(sched);
        teffi_workers_join_all(sched);
        teffi_log_thread_refusal(sched);
        free_scheduler(sched);
        return TEFF_E_IO;
    }
    *exec = &sched->exec;
    return TEFF_OK;
}
