/* system.h - a system of processes: create it, spawn, count and list processes, stop, free it.
 * Way:     a program | a silo -> [new, spawn] -> pid -> the process's group
 * Threads: new, route: before anything runs; count: the process's turn; the others: any. */
#ifndef TEFFI_PROCESS_SYSTEM_H
#define TEFFI_PROCESS_SYSTEM_H

#include "process/process.h"

/* teffi_process_system_on - a system on the caller's executor, which must be freed before the
 * system is. in: opt as for teff_process_system_new, but workers and sched are ignored. errs: the
 * same. */
TEFF_MUST_USE teff_err teffi_process_system_on(teffi_exec *exec, const teff_process_options *opt,
                                               teff_process_system **system);

/* teffi_process_system_drop - free a system whose executor is freed. in: may be NULL. */
void teffi_process_system_drop(teff_process_system *system);

/* teffi_process_count - add to the counters of the process and of this worker. */
void teffi_process_count(teff_process *p, uint64_t turns, uint64_t events, uint64_t run_ns);

/* A thread in teff_process_system_stop. Guarded by the system's lock. */
typedef struct teffi_stopper {
    teffi_parker parker;
    struct teffi_stopper *next;
} teffi_stopper;

/* teffi_stoppers_wake - a process has ended while the system stops. */
void teffi_stoppers_wake(teff_process_system *system);

#endif
