/* report.h - what a scheduler says about itself: its counters, its state as text, turns that take
 * long. The monitor sees the same run of a worker several times. A line is written while the turn
 * still runs, since it may never end, and again each time that its length has doubled.
 * Way:     a program -> exec op -> [report] -> fn(arg, line); monitor -> [report] -> the log
 * Threads: metrics, dump: any, while groups run; what is read is not from the same moment. No line
 *          is written under a lock.
 * Source:  Go's src/runtime/proc.go (schedtrace, sysmon); Orleans' SchedulingOptions.cs */
#pragma once

#include "sched/scheduler.h"

/* teffi_sched_read_metrics - exec op metrics: read the counters of the scheduler and up to max
 * workers.
 * teffi_sched_count_runs - exec op runs.
 * teffi_sched_dump - exec op dump: report workers, processors and queues as lines, to fn(arg).
 * teffi_sched_list_turns - exec op turns: report the turns that run now. */
size_t teffi_sched_read_metrics(teffi_exec *exec, teff_sched_metrics *all,
                                teff_sched_worker *workers, size_t max);
uint64_t teffi_sched_count_runs(teffi_exec *exec);
void teffi_sched_dump(teffi_exec *exec, teff_line_fn *fn, void *arg);
unsigned teffi_sched_list_turns(teffi_exec *exec, teff_line_fn *fn, void *arg);

/* teffi_log_long_turns - log turns that take longer than turn_warn_ms, without time in blocking
 * regions. runs: the monitor. */
void teffi_log_long_turns(teffi_sched *sched, uint64_t now_ns);
