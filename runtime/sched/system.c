/* system.c - a thread for system groups, so that no turn of a user's delays them. It never holds a
 * processor: other groups that its turns make READY go to the global queue, timers to any wheel. */
#include "sched/submit.h"

#include "base/bug.h"
#include "sched/scheduler.h"

enum { STACKS_MAX = 4096 };  /* tasks under way: a few for each silo of the cluster */
enum { ITEMS_MAX = 256 };    /* of one group in a run */
#define QUANTUM_NS 10000000u /* of one group in a run */

bool teffi_system_submit(teffi_sched *sched, teffi_group *group)
{
    if (!teffi_sched_has_system_thread(sched))
        return false;
    teffi_runqueue_push(&sched->system_queue, group);
    if (teffi_worker_self() != &sched->system) /* the system thread looks before it sleeps */
        teffi_worker_wake(&sched->system);
    return true;
}

static void run_system_group(teffi_worker *w, teffi_group *group)
{
    /* relaxed: only this thread writes; the monitor compares values */
    uint64_t run = atomic_load_explicit(&w->run, memory_order_relaxed) + 1;
    uint64_t until_ns = teffi_now(w->sched->exec.platform) + QUANTUM_NS;
    teffi_worker_set_running_group(w, group, run);
    atomic_store_explicit(&w->preempt, 0, memory_order_relaxed);
    bool again = teffi_group_run(group, ITEMS_MAX, until_ns);
    teffi_turn_abort_if_blocking(w);
    teffi_worker_clear_running_group(w);
    teffi_bug_if(w->after_yield || w->run_first); /* no system turn forks */
    if (again)
        teffi_runqueue_push(&w->sched->system_queue, group);
}

static void system_main(void *arg)
{
    teffi_worker *w = arg;
    teffi_sched *sched = w->sched;
    teffi_group *group;
    teffi_worker_set_self(w);
    (void)teffi_fiber_thread_enter_pool(sched->exec.system_fibers);
    while (!teffi_sched_is_stopping(sched))
        if (teffi_runqueue_pop(&sched->system_queue, &group, 1))
            run_system_group(w, group);
        else
            teffi_parker_wait(&w->parker.parker, UINT64_MAX);
    teffi_fiber_thread_leave_pool();
    teffi_worker_set_self(NULL);
}

teff_err teffi_system_thread_start(teffi_exec *exec)
{
    teffi_sched *sched = teffi_sched_of(exec);
    teffi_bug_if(exec->system_fibers != NULL);
    teffi_fiber_pool *fibers = teffi_fiber_pool_new(0, STACKS_MAX);
    if (!fibers)
        return TEFF_E_NOMEM;
    teffi_fiber_pool_allow_reserved_guards(fibers);
    exec->system_fibers = fibers;
    teff_err err =
        teffi_thread_start(&sched->system.thread, "teff-system", system_main, &sched->system);
    if (err) {
        exec->system_fibers = NULL;
        teffi_fiber_pool_free(fibers);
    } else { /* release: publishes system_fibers; pairs with teffi_sched_has_system_thread */
        atomic_store_explicit(&sched->has_system, true, memory_order_release);
    }
    return err;
}
