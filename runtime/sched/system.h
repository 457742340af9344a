/* system.h - a thread for system groups, so that no turn of a user's delays them.
 * Way:     submit (a system group) -> [system: queue -> thread] -> teffi_group_run
 * Threads: submit and wake: any; start, join, free: the owner's. The thread never holds a
 *          processor: what its turns make READY goes to the global queue, their timers to any
 *          wheel. */
#ifndef TEFFI_SCHED_SYSTEM_H
#define TEFFI_SCHED_SYSTEM_H

#include "sched/queue/runqueue.h"
#include "sched/worker.h"

struct teffi_system {
    teffi_runqueue queue;
    teffi_worker worker;
};

/* teffi_system_start - exec op. teffi_system_join - after stopping was set: join the thread, if
 * any.
 * teffi_system_free - after join: free what start made, if anything. */
teff_err teffi_system_start(teffi_exec *exec);
void teffi_system_join(teffi_sched *sched);
void teffi_system_free(teffi_sched *sched);

/* teffi_system_submit - queue a READY system group. out: false: there is no system thread. */
bool teffi_system_submit(teffi_sched *sched, teffi_group *group);

/* teffi_system_wake - wake the system thread, if any, after a change of attention. */
void teffi_system_wake(teffi_sched *sched);

#endif
