/* system.c - a thread for system groups. */
#include "sched/system.h"

#include <stdlib.h>
#include "base/bug.h"
#include "sched/report.h"

enum { STACKS_MAX = 4096 };  /* tasks under way: a few for each silo of the cluster */
enum { ITEMS_MAX = 256 };    /* of one group in a run */
#define QUANTUM_NS 10000000u /* of one group in a run */

bool teffi_system_submit(teffi_sched *sched, teffi_group *group)
{
    teffi_system *system = teffi_sched_system(sched);
    if (!system)
        return false;
    teffi_runqueue_push(&system->queue, group);
    if (teffi_worker_self() != &system->worker) /* it checks the queue before it sleeps */
        teffi_parker_wake(&system->worker.parker);
    return true;
}

void teffi_system_wake(teffi_sched *sched)
{
    teffi_system *system = teffi_sched_system(sched);
    if (system)
        teffi_parker_wake(&system->worker.parker);
}

static void run_system_group(teffi_system *system, teffi_group *group)
{
    teffi_worker *w = &system->worker;
    /* relaxed: only this thread writes; the monitor compares values */
    uint64_t run = atomic_load_explicit(&w->run, memory_order_relaxed) + 1;
    uint64_t until_ns = teffi_now(w->sched->exec.platform) + QUANTUM_NS;
    teffi_worker_run_begins(w, group, run);
    atomic_store_explicit(&w->preempt, 0, memory_order_relaxed);
    bool again = teffi_group_run(group, ITEMS_MAX, until_ns);
    teffi_turn_check_blocking(w);
    teffi_worker_run_ends(w);
    teffi_watch_run_ended(w, run);
    teffi_bug_if(w->after_yield || w->run_first); /* no system turn forks */
    if (again)
        teffi_runqueue_push(&system->queue, group);
}

static void system_main(void *arg)
{
    teffi_system *system = arg;
    teffi_sched *sched = system->worker.sched;
    teffi_group *group;
    teffi_worker_become(&system->worker);
    (void)teffi_fiber_thread_enter(sched->exec.system_fibers);
    while (!teffi_sched_is_stopping(sched))
        if (teffi_runqueue_pop(&system->queue, &group, 1))
            run_system_group(system, group);
        else
            teffi_parker_wait(&system->worker.parker, UINT64_MAX);
    teffi_fiber_thread_leave();
    teffi_worker_become(NULL);
}

static teffi_system *new_system_thread(teffi_sched *sched)
{
    teffi_system *system = calloc(1, sizeof *system);
    sched->exec.system_fibers = system ? teffi_fiber_pool_new(0, STACKS_MAX) : NULL;
    if (!sched->exec.system_fibers) {
        free(system);
        return NULL;
    }
    teffi_fiber_pool_reserve(sched->exec.system_fibers);
    teffi_runqueue_init(&system->queue);
    system->worker.sched = sched;
    system->worker.number = UINT32_MAX;
    atomic_init(&system->worker.using_processor, 1);
    return system;
}

static void free_system_thread(teffi_sched *sched, teffi_system *system)
{
    teffi_fiber_pool_free(sched->exec.system_fibers);
    sched->exec.system_fibers = NULL;
    teffi_runqueue_fini(&system->queue);
    free(system);
}

teff_err teffi_system_start(teffi_exec *exec)
{
    teffi_sched *sched = teffi_sched_of(exec);
    teffi_bug_if(teffi_sched_system(sched));
    teffi_system *system = new_system_thread(sched);
    if (!system)
        return TEFF_E_NOMEM;
    teff_err err = teffi_thread_start(&system->worker.thread, "teff-system", system_main, system);
    if (err)
        free_system_thread(sched, system);
    else /* release: also system_fibers, for the monitor */
        atomic_store_explicit(&sched->system, system, memory_order_release);
    return err;
}

void teffi_system_join(teffi_sched *sched)
{
    if (teffi_sched_system(sched))
        teffi_thread_join(&teffi_sched_system(sched)->worker.thread);
}

void teffi_system_free(teffi_sched *sched)
{
    if (teffi_sched_system(sched))
        free_system_thread(sched, teffi_sched_system(sched));
    atomic_store_explicit(&sched->system, NULL, memory_order_relaxed);
}
