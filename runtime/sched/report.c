/* report.c - what a scheduler says about itself: counters, a dump of its state, long turns.
 * idle_lock is held while states are copied, not while a line is written. */
#include "sched/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"

enum { CHECKS = 8 };            /* of a turn in the time of turn_warn_ms */
enum { CHECK_EVERY_MAX = 100 }; /* ms, since dumps report how long a turn was seen */
enum { REPORTS_MAX = 8 };       /* long turns logged in one check */
#define MS_NS 1000000u

/* A run of a worker; since_ns is when it was seen first. */
typedef struct seen_run {
    teffi_worker *worker;
    uintptr_t running; /* as worker.running */
    uint64_t run, since_ns;
} seen_run;

/* Load the run that w is in. out: the run. Its `running` is 0 if w is in no run. Its since_ns is
 * now_ns if the monitor has not seen the run before. idle_lock held. */
static seen_run load_run(teffi_worker *w, uint64_t now_ns)
{
    /* acquire: pairs with teffi_worker_set_running_group */
    uintptr_t running = atomic_load_explicit(&w->running, memory_order_acquire);
    uint64_t run = atomic_load_explicit(&w->run, memory_order_relaxed);
    return (seen_run){.worker = w,
                      .running = running,
                      .run = run,
                      .since_ns = w->watched.run == run ? w->watched.since_ns : now_ns};
}

/* Is the worker still in the run that was seen? The caller has described the run's group before
 * this call. If the run has ended, that description may be wrong: another group may use the same
 * memory now. */
static bool is_still_in_run(const seen_run *seen)
{
    /* acquire: pairs with teffi_worker_set_running_group. On ARM the loads by which the caller
     * described the group may still execute after this load. So in rare cases a report names
     * another group. */
    uintptr_t running = atomic_load_explicit(&seen->worker->running, memory_order_acquire);
    return running == seen->running &&
           atomic_load_explicit(&seen->worker->run, memory_order_relaxed) == seen->run;
}

/* ---- counters ---- */

static uint64_t counter_get(const _Atomic uint64_t *count)
{
    return atomic_load_explicit(count, memory_order_relaxed);
}

static teff_sched_worker read_processor_counters(const teffi_processor *p)
{
    const teffi_counters *c = &p->counters;
    teff_sched_worker one = {
        .local = counter_get(&c->local),
        .global = counter_get(&c->global),
        .stolen = counter_get(&c->stolen),
        .steals = counter_get(&c->steals),
        .parks = counter_get(&c->parks),
        .unparks = counter_get(&c->unparks),
        .requeues = counter_get(&c->requeues),
    };
    for (unsigned l = 0; l < TEFF_SCHED_LEVELS; l++)
        one.level_ns[l] = counter_get(&c->level_ns[l]);
    uint64_t others = one.local + one.global + one.stolen;
    /* p->runs begins at 1. It is loaded last, since it must include the runs of all picks in
     * `others`. It is still too low if a pick is counted, but its run is not counted yet. In this
     * case one.runs is set to `others`.
     * Picks from the LIFO slot, the hottest path, have no counter: one.lifo is the number of runs
     * that no other counter holds. It includes forked parts that a turn ran without queueing
     * them. */
    one.runs = counter_get(&p->runs) - 1;
    if (one.runs < others)
        one.runs = others;
    one.lifo = one.runs - others;
    return one;
}

static teff_sched_metrics read_scheduler_metrics(teffi_sched *sched)
{
    teff_sched_metrics all = {
        .workers = sched->n_processors,
        .active = atomic_load_explicit(&sched->n_active, memory_order_relaxed),
        .threads = atomic_load_explicit(&sched->n_threads, memory_order_relaxed),
        .ready = teffi_runqueue_count(&sched->queue),
    };
    if (sched->levels)
        all.level0_chance = atomic_load_explicit(&sched->levels->chance, memory_order_relaxed) /
                            (double)TEFFI_CHANCE_ONE;
    if (sched->priorities)
        all.evicted = counter_get(&sched->priorities->evicted);
    return all;
}

size_t teffi_sched_read_metrics(teffi_exec *exec, teff_sched_metrics *all,
                                teff_sched_worker *workers, size_t max)
{
    teffi_sched *sched = teffi_sched_of(exec);
    size_t n = max < sched->n_processors ? max : sched->n_processors;
    if (all)
        *all = read_scheduler_metrics(sched);
    for (size_t i = 0; i < n; i++)
        workers[i] = read_processor_counters(&sched->processors[i]);
    return n;
}

uint64_t teffi_sched_count_runs(teffi_exec *exec)
{
    teffi_sched *sched = teffi_sched_of(exec);
    uint64_t sum = 0;
    for (unsigned i = 0; i < sched->n_processors; i++)
        sum += counter_get(&sched->processors[i].runs);
    return sum;
}

/* ---- dump: a group is described from its atomics ---- */

typedef struct worker_copy {
    seen_run seen;
    int processor; /* -1: none */
    teffi_worker_state state;
} worker_copy;

typedef struct snapshot {
    uint64_t now_ns;
    worker_copy *workers;
    unsigned n, room;
    unsigned threads, by_state[TEFFI_WORKER_STATES];
} snapshot;

/* Copy what a dump says about a worker. idle_lock held. */
static worker_copy copy_worker(teffi_worker *w, uint64_t now_ns)
{
    int processor = w->processor ? (int)(w->processor - w->sched->processors) : -1;
    return (worker_copy){.seen = load_run(w, now_ns), .processor = processor, .state = w->state};
}

/* Count a worker by its state, and copy it if it runs or holds a processor. */
static void add_worker_to_snapshot(snapshot *shot, worker_copy s)
{
    shot->by_state[s.state]++;
    if ((s.seen.running || s.processor >= 0) && shot->n < shot->room)
        shot->workers[shot->n++] = s;
}

/* Count the workers by state, and copy those that run or hold a processor, at most shot->room (0 if
 * there is no memory). The system thread is copied, but not counted. */
static void take_snapshot(teffi_sched *sched, snapshot *shot)
{
    pthread_mutex_lock(&sched->idle_lock);
    shot->threads =
        atomic_load_explicit(&sched->n_threads, memory_order_relaxed) + sched->borrow.active;
    for (unsigned i = 0; i < sched->n_workers; i++)
        add_worker_to_snapshot(shot, copy_worker(sched->workers[i], shot->now_ns));
    if (sched->borrow.active)
        add_worker_to_snapshot(shot, copy_worker(&sched->borrow.worker, shot->now_ns));
    if (atomic_load_explicit(&sched->system.running, memory_order_relaxed) && shot->n < shot->room)
        shot->workers[shot->n++] = copy_worker(&sched->system, shot->now_ns);
    pthread_mutex_unlock(&sched->idle_lock);
}

/* out: a snapshot of all workers, whose array the caller frees. At most so many workers without a
 * processor are copied. */
static snapshot new_snapshot(teffi_sched *sched)
{
    enum { BLOCKED_MAX = 256 };
    snapshot shot = {.now_ns = teffi_now(sched->exec.platform),
                     .room = sched->n_processors + BLOCKED_MAX};
    shot.workers = calloc(shot.room, sizeof *shot.workers);
    if (!shot.workers)
        shot.room = 0;
    take_snapshot(sched, &shot);
    return shot;
}

static const char *state_name(teffi_worker_state state)
{
    static const char *const names[] = {
        [TEFFI_WORKER_RUNNING] = "running",
        [TEFFI_WORKER_PARKED] = "parked",
        [TEFFI_WORKER_BLOCKED] = "in a blocking call",
        [TEFFI_WORKER_OUT] = "in a blocking call, processor handed over",
        [TEFFI_WORKER_LOST] = "processor retaken",
        [TEFFI_WORKER_WAITING] = "waiting for a processor",
        [TEFFI_WORKER_SPARE] = "spare",
        [TEFFI_WORKER_ENDED] = "ended",
        [TEFFI_WORKER_VACANT] = "ended",
    };
    return names[state];
}

/* Print one line on a worker. in: `no`: the worker's index in shot->workers, which is not
 * worker.number. */
static void dump_worker(const teffi_lines *to, const snapshot *shot, unsigned no)
{
    const worker_copy *s = &shot->workers[no];
    const seen_run *seen = &s->seen;
    char text[TEFFI_DESCRIBE_MAX], held[24] = "no processor";
    if (s->processor >= 0)
        snprintf(held, sizeof held, "processor %d", s->processor);
    if (!seen->running) {
        teffi_lines_write_line(to, "worker %u: %s, %s", no, held, state_name(s->state));
        return;
    }
    teffi_running_group_describe(seen->running, text);
    /* ms is a lower bound, since the run began before since_ns. ms is 0 if the monitor set since_ns
     * after now_ns was read. */
    uint64_t ms = shot->now_ns > seen->since_ns ? (shot->now_ns - seen->since_ns) / MS_NS : 0;
    if (is_still_in_run(seen))
        teffi_lines_write_line(to, "worker %u: %s, %s, a turn of %s, for %llu ms or a little more",
                               no, held, state_name(s->state), text, (unsigned long long)ms);
    else
        teffi_lines_write_line(to, "worker %u: %s, a turn that has just ended", no, held);
}

static void dump_processor(const teffi_lines *to, teffi_processor *p, unsigned no)
{
    bool lifo = atomic_load_explicit(&p->lifo, memory_order_relaxed) != NULL;
    teffi_lines_write_line(
        to, "processor %u: %u groups in its deque, %s in its LIFO slot, %u timers, %llu runs", no,
        teffi_deque_count(&p->deque), lifo ? "one" : "none", teffi_wheel_count(&p->wheel),
        (unsigned long long)atomic_load_explicit(&p->runs, memory_order_relaxed) - 1);
}

unsigned teffi_sched_list_turns(teffi_exec *exec, teff_line_fn *fn, void *arg)
{
    const teffi_lines to = {fn, arg};
    snapshot shot = new_snapshot(teffi_sched_of(exec));
    unsigned n = 0;
    for (unsigned i = 0; i < shot.n; i++) {
        if (!shot.workers[i].seen.running)
            continue;
        dump_worker(&to, &shot, i);
        n++;
    }
    free(shot.workers);
    return n;
}

static const char *policy_name(const teffi_sched *sched)
{
    return sched->levels ? "multilevel" : sched->priorities ? "priority" : "single";
}

void teffi_sched_dump(teffi_exec *exec, teff_line_fn *fn, void *arg)
{
    teffi_sched *sched = teffi_sched_of(exec);
    const teffi_lines to = {fn, arg};
    snapshot shot = new_snapshot(sched);
    /* relaxed: for the report only. Inactive processors are not listed, because their work is moved
     * away. */
    unsigned active = atomic_load_explicit(&sched->n_active, memory_order_relaxed);
    teffi_lines_write_line(
        &to,
        "scheduler: %u processors, %u active, %u threads: %u running, %u parked, %u in "
        "blocking calls, %u waiting for a processor, %u spare; %u groups in the global queue, "
        "%u system groups; null group %s; policy %s",
        sched->n_processors, active, shot.threads, shot.by_state[TEFFI_WORKER_RUNNING],
        shot.by_state[TEFFI_WORKER_PARKED],
        shot.by_state[TEFFI_WORKER_BLOCKED] + shot.by_state[TEFFI_WORKER_OUT],
        shot.by_state[TEFFI_WORKER_WAITING], shot.by_state[TEFFI_WORKER_SPARE],
        teffi_runqueue_count(&sched->queue), teffi_runqueue_count(&sched->system_queue),
        teffi_group_state_name(teffi_group_state_of(&exec->null_group)), policy_name(sched));
    uint32_t below = atomic_load_explicit(&sched->wake_below, memory_order_relaxed);
    if (below != UINT32_MAX)
        teffi_lines_write_line(&to, "cores were contended: no worker is woken while %u run", below);
    for (unsigned i = 0; i < shot.n; i++)
        dump_worker(&to, &shot, i);
    for (unsigned i = 0; i < active; i++)
        dump_processor(&to, &sched->processors[i], i);
    free(shot.workers);
}

/* ---- long turns ---- */

/* Check how long w's run has taken. The measurement starts again if the run is new, if w is in no
 * run, or if w blocks. out: true: the run has taken at least watched.next_ms, so the caller logs
 * it; *out is the run. next_ms is then doubled: if the run goes on, it is logged again at that
 * time. idle_lock held. */
static bool measure_run_and_check_if_long(teffi_worker *w, uint64_t now_ns, seen_run *out)
{
    seen_run now = load_run(w, now_ns);
    bool blocked = atomic_load_explicit(&w->blocked, memory_order_relaxed);
    if (!now.running || now.run != w->watched.run || blocked) {
        /* The clock is read again: the monitor may have been preempted since now_ns was read. */
        w->watched = (teffi_watched){.run = now.run,
                                     .since_ns = teffi_now(w->sched->exec.platform),
                                     .next_ms = w->sched->exec.warn.turn_warn_ms};
        return false;
    }
    *out = now;
    if (now_ns - now.since_ns < w->watched.next_ms * MS_NS)
        return false;
    w->watched.next_ms *= 2;
    return true;
}

/* Find the runs that are to be logged as long turns, and store them in the array `out`. out: their
 * number. */
static unsigned find_long_turns(teffi_sched *sched, uint64_t now_ns, seen_run out[REPORTS_MAX])
{
    unsigned n = 0;
    pthread_mutex_lock(&sched->idle_lock);
    for (unsigned i = 0; i < sched->n_workers && n < REPORTS_MAX; i++)
        n += measure_run_and_check_if_long(sched->workers[i], now_ns, &out[n]);
    if (n < REPORTS_MAX)
        n += measure_run_and_check_if_long(&sched->borrow.worker, now_ns, &out[n]);
    if (n < REPORTS_MAX)
        n += measure_run_and_check_if_long(&sched->system, now_ns, &out[n]);
    pthread_mutex_unlock(&sched->idle_lock);
    return n;
}

/* Log a long turn, unless it has ended meanwhile or a line was logged within the last second.
 * turn->worker is valid, since no worker is freed while the monitor runs. */
static void log_long_turn(const seen_run *turn, uint64_t now_ns)
{
    teffi_exec *exec = &turn->worker->sched->exec;
    char text[TEFFI_DESCRIBE_MAX], more[48];
    teffi_running_group_describe(turn->running, text);
    if (!is_still_in_run(turn) || !teffi_warn_claim_line_or_skip(exec, &exec->warn.turn, more))
        return;
    teffi_logf(&exec->platform->log, TEFF_LOG_WARN,
               "scheduler: a turn of %s runs for %llu ms without a pause (limit %u)%s", text,
               (unsigned long long)((now_ns - turn->since_ns) / MS_NS), exec->warn.turn_warn_ms,
               more);
}

void teffi_log_long_turns(teffi_sched *sched, uint64_t now_ns)
{
    seen_run turns[REPORTS_MAX];
    uint64_t every_ms = sched->exec.warn.turn_warn_ms / CHECKS;
    every_ms = every_ms > CHECK_EVERY_MAX ? CHECK_EVERY_MAX : every_ms;
    if (now_ns - sched->monitor.watched_ns < every_ms * MS_NS)
        return;
    sched->monitor.watched_ns = now_ns;
    unsigned n = find_long_turns(sched, now_ns, turns);
    for (unsigned i = 0; i < n; i++)
        log_long_turn(&turns[i], now_ns);
}
