/* exec.h - the executor that runs groups on worker threads with work-stealing deques.
 * Way:     silo, process system -> [exec] -> processors, workers, monitor
 * Threads: new, free: the owner. */
#pragma once

#include "group/exec.h"

/* teffi_sched_options_check - check the options' ranges. in: workers, 0 = one a core.
 * out:  NULL: all are in range; else a text that names the option and its range. */
const char *teffi_sched_options_check(const teff_sched_options *opt, unsigned workers);

/* teffi_sched_options_check_and_copy - as teffi_options_check_and_copy, for a scheduler and its
 * hooks; to->hooks = hooks. */
bool teffi_sched_options_check_and_copy(teff_sched_options *to, teff_sched_hooks *hooks,
                                        const teff_sched_options *from, char *text);

/* teffi_exec_real_new - start an executor and its threads.
 * in:   workers, 0 = one a core; opt, as taken, copied; NULL = all defaults.
 * errs: TEFF_E_INVALID (an option is out of its range), TEFF_E_NOMEM, TEFF_E_IO (a thread could not
 *       start, or memory for its worker is out). */
TEFF_MUST_USE teff_err teffi_exec_real_new(const teffi_platform *platform, unsigned workers,
                                           const teff_sched_options *opt, teffi_exec **exec);

/* teffi_blocking_begin, teffi_blocking_end - exec ops (blocking.c). */
void teffi_blocking_begin(teffi_exec *exec);
void teffi_blocking_end(teffi_exec *exec);

/* teffi_blocking_end_all - end all open regions of this thread's turn, which is abandoned in its
 * middle. */
void teffi_blocking_end_all(void);
