/* stuck.h - turns that do not end while requests wait for the grain: log them; end a hook
 * (on_activate, on_deactivate) that does not return.
 * Way:     waits (a visit) -> handler -> [stuck] -> the log; the hook's turn
 * Threads: on the activation's group.
 * Source:  Orleans' src/Orleans.Runtime/Catalog/ActivationData.cs; there, a stuck activation is
 *          abandoned, and runs on beside the next one */
#pragma once

#include "activation/activation.h"

/* teffi_stuck_check - called at a visit (waits.h), if requests are set aside at act. If the oldest
 * turn has not ended for the time of sched.delay_warn_ms, logs it, and logs it again each time the
 * turn is twice as old. If it runs a hook for TEFF_HOOK_MAX_MS, dooms it. */
void teffi_stuck_check(teffi_activation *act);

/* teffi_stuck_log_turn - act shall end because it is idle, but has a turn: log the oldest one, if
 * it is as old as above. */
void teffi_stuck_log_turn(const teffi_activation *act);
