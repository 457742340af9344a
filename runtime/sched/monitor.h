/* monitor.h - a thread that serves processors whose worker is in a long turn: their LIFO slots and
 * timers; it preempts such turns, retakes processors, and reclaims memory.
 * Way:     every 2.5 ms while a worker runs -> [monitor] -> wake_one, wheel_fire, preempt, retake
 * Threads: its own. When all workers have been parked for a while and nothing is left to reclaim,
 *          it sleeps until a worker wakes it.
 * Source:  Go's sysmon (proc.go) */
#ifndef TEFFI_SCHED_MONITOR_H
#define TEFFI_SCHED_MONITOR_H

#include "sched/processor.h"

/* teffi_monitor_main - what the thread runs. in: sched, a teffi_sched. */
void teffi_monitor_main(void *sched);

/* teffi_retake_processor - give p to another worker if its worker is still in that run (retake.h).
 * At most as many turns run without a processor as there are active processors, two at least.
 * out:  false: p was not retaken: try again at the next tick. */
bool teffi_retake_processor(teffi_sched *sched, teffi_processor *p, uint64_t run);

#endif
