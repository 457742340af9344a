/* scale.h - how many processors are in use, changed while they work.
 * Way:     a program -> exec op -> [scale] -> processors vacated or staffed; loop -> scale_leave
 * Threads: any. The first n_active processors are in use.
 * Source:  yatp's scale_workers, and its bug of threads that went on working (tikv/yatp 90) */
#pragma once

#include "sched/worker.h"

/* teffi_scale - exec op. */
teff_err teffi_scale(teffi_exec *exec, unsigned n);

/* teffi_scale_move_timers - move the timers of p, if it is not active, to an active processor. For
 * whoever has set a timer on p: the wheel's lock orders that after a move by teffi_scale, and so
 * after the store of n_active. */
void teffi_scale_move_timers(teffi_sched *sched, teffi_processor *p);

/* teffi_scale_clear - of a processor that is not active, move the groups to the global queue and
 * the timers to an active processor. Any thread, no lock held. */
void teffi_scale_clear(teffi_sched *sched, teffi_processor *p);

/* teffi_scale_leave - leave the worker's processor, unless it is active again. The loop regains
 * one, maybe a free one, for which no thread could be started. */
void teffi_scale_leave(teffi_worker *w);
