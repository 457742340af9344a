/* blocking.h - while a worker's thread blocks in a call, another worker may use its processor.
 * Way:     a turn -> [blocking] -> a waiting worker | the idle list, from which wake_one takes it
 * States:  RUNNING -begin-> BLOCKED (keeps its processor until another worker needs it) -> OUT
 *          -end-> RUNNING with a free or an idle worker's processor; else the turn yields, or if it
 *          cannot, the worker is WAITING
 * Threads: the turn's own.
 * Source:  Go's entersyscall, exitsyscall, handoffp */
#ifndef TEFFI_SCHED_BLOCKING_H
#define TEFFI_SCHED_BLOCKING_H

#include "group/exec.h"

/* teffi_blocking_begin, teffi_blocking_end - exec ops. */
void teffi_blocking_begin(teffi_exec *exec);
void teffi_blocking_end(teffi_exec *exec);

/* teffi_blocking_end_all - end all open regions, for a turn that is abandoned in its middle. */
void teffi_blocking_end_all(void);

#endif
