/* borrow.h - received batches: which thread runs them. A thread that is no worker borrows the
 * processor of a parked worker, so that no thread is woken.
 * Way:     the transport's thread -> exec op (inbound) -> [borrow] -> batch->run, then find and run
 * Threads: one borrower at a time in a process, since the transport has few threads. */
#pragma once

#include "group/inbound.h"
#include "sched/worker.h"

/* teffi_borrow_run_or_queue_inbound - exec op inbound. Run the batch on this thread if it is a
 * worker of exec, or can borrow a processor. Else queue the batch for a worker. If the queue does
 * not accept the batch, run it on this thread, without a processor. */
void teffi_borrow_run_or_queue_inbound(teffi_exec *exec, teffi_inbound *batch);

/* teffi_borrow_processor_and_run - on a thread that is no worker: borrow the processor of a parked
 * worker, call fn(arg), and run groups, those that fn made READY and others, until it finds none
 * nearby.
 * out:  false: fn was not called: no worker is parked, enough workers run (teffi_wake_one), another
 *       thread is the borrower, this thread is a worker, or the scheduler stops. */
bool teffi_borrow_processor_and_run(teffi_exec *exec, void (*fn)(void *arg), void *arg);

/* teffi_borrow_init - before other threads know sched. teffi_borrow_wait_for_end - after stopping
 * was set: wait until no thread borrows. */
void teffi_borrow_init(teffi_sched *sched);
void teffi_borrow_wait_for_end(teffi_sched *sched);
