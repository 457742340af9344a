/* jobs.h - what tests of the scheduler share: groups that note when they ran, a clock that only
 * their work moves, and waiting for a condition. */
#pragma once

#include "test.h"
#include <string.h>
#include "base/bug.h"
#include "base/queue.h"
#include "os/thread.h"
#include "sched/exec.h"
#include "sched/scheduler.h"

#define LIMIT_NS 60000000000u /* for what must come */

enum { NOTES = 4096, SPARE_ITEMS = 512 };

typedef struct job { /* a group with something to do for each item */
    teffi_group group;
    teffi_item item, items[SPARE_ITEMS];
    void (*run)(struct job *job);
    struct job *peer[4];
    char name;
    teffi_exec *exec;
    uint64_t cost_ns;      /* what run adds to the clock that work moves */
    _Atomic unsigned runs; /* items handled */
    _Atomic bool stop;
} job;

/* Who ran, in their order; for one worker, which may be two threads for a while. */
static char notes[NOTES];
static _Atomic unsigned n_notes;

static teffi_platform platform; /* main() fills it in */

/* ---- a clock that stands unless work is done ---- */

static _Atomic uint64_t worked_ns;

__attribute__((unused)) static uint64_t work_clock(void *arg)
{
    return 1000000000u + atomic_load(&worked_ns);
}

/* ---- jobs ---- */

static void note(job *j)
{
    unsigned at = j->name ? atomic_fetch_add(&n_notes, 1) : NOTES;
    if (at < NOTES - 1)
        notes[at] = j->name;
}

__attribute__((unused)) static void forget_notes(void)
{
    memset(notes, 0, sizeof notes);
    atomic_store(&n_notes, 0);
}

static void on_item(teffi_group *group, teffi_item *item)
{
    job *j = teffi_container(group, job, group);
    note(j);
    atomic_fetch_add(&worked_ns, j->cost_ns);
    if (j->run)
        j->run(j);
    atomic_fetch_add(&j->runs, 1);
}

static const teffi_group_ops job_ops = {.handle = on_item};

__attribute__((unused)) static void job_init(job *j, teffi_exec *exec, char name,
                                             void (*run)(job *job))
{
    memset(j, 0, sizeof *j);
    j->run = run;
    j->name = name;
    j->exec = exec;
    teffi_group_init(&j->group, exec, &job_ops);
}

/* On workers' threads too, which no assertion may leave. */
__attribute__((unused)) static void push(job *j)
{
    teffi_bug_if(!teffi_group_push(&j->group, &j->item));
}

/* ---- waiting ---- */

/* Until the condition held once, and it may have ceased to since; the test fails when it never
 * does. */
#define WAIT_FOR(condition)                                                                        \
    do {                                                                                           \
        uint64_t end_ns_ = real_now() + LIMIT_NS;                                                  \
        bool held_;                                                                                \
        while (!(held_ = (condition)) && real_now() < end_ns_)                                     \
            teffi_thread_yield();                                                                  \
        assert_true(held_);                                                                        \
    } while (0)

/* Not the tests' clock, which may stand. */
__attribute__((unused)) static uint64_t real_now(void)
{
    static teffi_platform real;
    if (!real.mono_ns)
        teffi_platform_init_real(&real, TEFF_LOG_WARN);
    return teffi_now(&real);
}

__attribute__((unused)) static teffi_exec *exec_new(unsigned workers, const teff_sched_options *opt)
{
    teffi_exec *exec;
    assert_int_equal(teffi_exec_real_new(&platform, workers, opt, &exec), TEFF_OK);
    return exec;
}

__attribute__((unused)) static teff_sched_worker counts_of(teffi_exec *exec, unsigned processor)
{
    teff_sched_worker one[16];
    assert_true(exec->ops->metrics(exec, NULL, one, 16) > processor);
    return one[processor];
}

/* out: how many workers are parked. */
__attribute__((unused)) static unsigned parked(teffi_exec *exec)
{
    teffi_sched *sched = teffi_sched_of(exec);
    unsigned n = 0;
    const teffi_worker *w;
    pthread_mutex_lock(&sched->idle_lock);
    TAILQ_FOREACH (w, &sched->in_state[TEFFI_WORKER_PARKED], link)
        n++;
    pthread_mutex_unlock(&sched->idle_lock);
    return n;
}
