/* submit.h - what goes into the scheduler: READY groups, timers, deferred work.
 * Way:     a turn or other thread -> exec op -> [submit] -> a processor | the global queue -> wake
 * Threads: any. What a turn submits goes to the processor of its worker, if the worker may use it;
 *          a group that the policy orders goes to the global queue. */
#pragma once

#include "group/deferred.h"
#include "sched/worker.h"

/* teffi_submit_ready, _ready_by_level, _ready_by_priority - exec op ready, for each policy. */
void teffi_submit_ready(teffi_exec *exec, teffi_group *group);
void teffi_submit_ready_by_level(teffi_exec *exec, teffi_group *group);
void teffi_submit_ready_by_priority(teffi_exec *exec, teffi_group *group);

/* teffi_call_adding_to_batch - call fn(arg). On a worker, the groups that fn makes READY are added
 * to the local batch of its processor. */
void teffi_call_adding_to_batch(teffi_exec *exec, void (*fn)(void *arg), void *arg);

/* teffi_submit_timer - exec op timer_set: set a timer on an active processor.
 * teffi_submit_deferred_work - exec op defer: add deferred work to the processor of this thread's
 * worker.
 * out:  false: this thread is no worker, or may not use a processor or defer work now. */
void teffi_submit_timer(teffi_exec *exec, teffi_timer *timer, uint64_t due_ns);
bool teffi_submit_deferred_work(teffi_exec *exec, teffi_deferred *work);

/* teffi_run_deferred_and_refuse_new - run the worker's deferred work; teffi_submit_deferred_work()
 * refuses new work meanwhile. For a worker that is about to leave its processor. runs: using the
 * processor. */
void teffi_run_deferred_and_refuse_new(teffi_worker *w);

/* teffi_submit_stealable - push a READY group to the worker's deque, open to thieves; to the global
 * queue if the policy orders the group, w may use no processor, or memory is out.
 * runs: on w's thread. */
void teffi_submit_stealable(teffi_worker *w, teffi_group *group);

/* teffi_submit_yielded_group - after a turn has yielded: push its group to the global queue, behind
 * all others.
 * runs: on w's thread. */
void teffi_submit_yielded_group(teffi_worker *w, teffi_group *group);

/* teffi_system_thread_start - exec op system: start the system thread (system.c). runs: the
 * owner. */
teff_err teffi_system_thread_start(teffi_exec *exec);

/* teffi_system_submit - queue a READY system group. out: false: there is no system thread. */
bool teffi_system_submit(teffi_sched *sched, teffi_group *group);
