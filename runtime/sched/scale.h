/* scale.h - how many processors are in use, changed while they work.
 * Way:     a program -> exec op -> [scale] -> processors vacated or staffed; run -> scale_leave
 * Threads: any. The first n_active processors are in use.
 * Source:  yatp src/pool/spawn.rs; tikv/yatp issue 90: threads that went on working */
#pragma once

#include "sched/worker.h"

/* teffi_scale_active_processors - exec op scale: run groups on the first n processors from now
 * on. */
teff_err teffi_scale_active_processors(teffi_exec *exec, unsigned n);

/* teffi_scale_move_timers - move the timers of p, if it is not active, to an active processor. Each
 * thread that has set a timer on p then checks whether p is active: if
 * teffi_scale_active_processors has moved p's timers before, the wheel's lock makes the new
 * n_active visible to the thread. */
void teffi_scale_move_timers(teffi_sched *sched, teffi_processor *p);

/* teffi_scale_move_work - move the groups in the deque of a processor that is not active to the
 * global queue, and its timers to an active processor. Any thread, no lock held. */
void teffi_scale_move_work(teffi_sched *sched, teffi_processor *p);

/* teffi_scale_leave_processor - unless w's processor is active again: take it from w, and move its
 * groups and timers to other queues. The worker's loop then takes a free processor
 * (teffi_processor_find_free), or waits.
 * in:   w, between turns, without deferred work. runs: on w's thread, using the processor. */
void teffi_scale_leave_processor(teffi_worker *w);
