/* fiber_jobs.h - what tests of fibers and processors share: groups with one item, with or without
 * a fiber, and waiting for counts. */
#pragma once

#include "test.h"
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <teff/sched.h>
#include "base/queue.h"
#include "os/thread.h"
#include "sched/exec.h"
#include "sched/scheduler.h"

static teffi_platform platform;

typedef struct latch { /* counts; one thread waits for a number */
    _Atomic unsigned count;
    teffi_parker parker;
} latch;

static inline void latch_hit(latch *l)
{
    atomic_fetch_add(&l->count, 1);
    teffi_parker_wake(&l->parker);
}

static inline void latch_wait(latch *l, unsigned n)
{
    while (atomic_load(&l->count) < n)
        teffi_parker_wait(&l->parker, UINT64_MAX);
}

typedef struct job job;
struct job { /* a group with one item */
    teffi_group group;
    teffi_item item;
    void (*run)(job *j);
    teffi_exec *exec;
    job *peer;
    latch *done;
    _Atomic unsigned runs;
    _Atomic bool queued; /* the item is in the queue: it may be there once only */
};

static inline void job_handle(teffi_group *group, teffi_item *item)
{
    job *j = teffi_container(group, job, group);
    atomic_store(&j->queued, false);
    j->run(j);
    atomic_fetch_add(&j->runs, 1);
    if (j->done)
        latch_hit(j->done);
}

static const teffi_group_ops job_ops = {.handle = job_handle};

static inline void job_init(job *j, teffi_exec *exec, void (*run)(job *j), latch *done)
{
    *j = (job){.run = run, .exec = exec, .done = done};
    teffi_group_init(&j->group, exec, &job_ops);
}

static inline void job_push(job *j)
{
    if (!atomic_exchange(&j->queued, true))
        (void)teffi_group_push(&j->group, &j->item);
}

/* The same on a fiber of its own. */
typedef struct fjob {
    job job;
    teffi_fiber *fiber;
} fjob;

static inline fjob *fjob_of(teffi_group *group)
{
    return teffi_container(teffi_container(group, job, group), fjob, job);
}

static inline void fjob_main(void *arg)
{
    job *j = arg;
    atomic_store(&j->queued, false);
    j->run(j);
}

static inline void fjob_resume(teffi_group *group, teffi_fiber *fiber)
{
    fjob *f = fjob_of(group);
    assert_ptr_equal(fiber, f->fiber);
    if (!teffi_fiber_resume(f->fiber))
        return;
    atomic_fetch_add(&f->job.runs, 1);
    if (f->job.done)
        latch_hit(f->job.done);
}

static inline void fjob_handle(teffi_group *group, teffi_item *item)
{
    fjob *f = fjob_of(group);
    f->fiber = teffi_fiber_new(f->job.exec->fibers, fjob_main, &f->job);
    assert_non_null(f->fiber);
    fjob_resume(group, f->fiber);
}

static const teffi_group_ops fjob_ops = {.handle = fjob_handle, .resume = fjob_resume};

static inline void fjob_init(fjob *f, teffi_exec *exec, void (*run)(job *j), latch *done)
{
    job_init(&f->job, exec, run, done);
    teffi_group_init(&f->job.group, exec, &fjob_ops);
}

static inline void job_nothing(job *j)
{
}

static inline teffi_exec *exec_of(unsigned workers, const teff_sched_options *opt)
{
    teffi_exec *exec = NULL;
    assert_int_equal(teffi_exec_real_new(&platform, workers, opt, &exec), TEFF_OK);
    return exec;
}

static inline teffi_sched *real_of(teffi_exec *exec)
{
    return teffi_sched_of(exec);
}

static inline bool holds_processor(teffi_exec *exec)
{
    return exec->ops->worker(exec) != 0;
}

/* In a turn: has the monitor retaken its processor? While the monitor tries, maybe in vain,
 * holds_processor is false for a moment. */
static inline bool lost_processor(teffi_exec *exec)
{
    pthread_mutex_lock(&real_of(exec)->idle_lock);
    bool lost = teffi_worker_self()->state == TEFFI_WORKER_LOST;
    pthread_mutex_unlock(&real_of(exec)->idle_lock);
    return lost;
}

/* Had a processor a moment ago: the monitor may have retaken it since. */
static inline bool had_processor(teffi_exec *exec)
{
    pthread_mutex_lock(&real_of(exec)->idle_lock);
    bool has = teffi_worker_self()->processor != NULL;
    pthread_mutex_unlock(&real_of(exec)->idle_lock);
    return has || lost_processor(exec);
}
