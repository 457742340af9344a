/* run.h - a worker's thread: find a group, run it (quantum, hooks, policy, requeue), park.
 * Way:     worker (start), borrow -> [run] -> teffi_group_run -> the group's handle
 * Threads: the worker's own, with a processor. */
#ifndef TEFFI_SCHED_RUN_H
#define TEFFI_SCHED_RUN_H

#include "group/direct.h"
#include "sched/worker.h"

/* teffi_worker_main - what a worker's thread runs. in: worker, a teffi_worker. */
void teffi_worker_main(void *worker);

/* teffi_run_groups - run a group, then the part that its turn forked, if any.
 * runs: using the processor. */
void teffi_run_groups(teffi_worker *w, teffi_group *group);

/* teffi_run_nested - exec op: from a turn that waits on its worker's own stack, find and run one
 * other group. out: false: none was run. */
bool teffi_run_nested(teffi_exec *exec);

/* teffi_direct_by_worker - exec op: turns in place, on the scheduler's workers (direct.c). */
extern const teffi_direct_ops teffi_direct_by_worker;

#endif
