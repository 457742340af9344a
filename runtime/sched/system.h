/* system.h - a thread for system groups, so that no turn of a user's delays them.
 * Way:     submit (a system group) -> [system: queue -> thread] -> teffi_group_run
 * Threads: submit: any; start: the owner. The thread never holds a processor: what its turns make
 *          READY goes to the global queue, their timers to any wheel. */
#ifndef TEFFI_SCHED_SYSTEM_H
#define TEFFI_SCHED_SYSTEM_H

#include "sched/scheduler.h"

/* teffi_system_start - exec op. */
teff_err teffi_system_start(teffi_exec *exec);

/* teffi_system_submit - queue a READY system group. out: false: there is no system thread. */
bool teffi_system_submit(teffi_sched *sched, teffi_group *group);

#endif
