/* ticks.h - start the ticks of an activation's timers.
 * Way:     hosting/handler -> [ticks] -> activation/timers, turn
 * Threads: on the activation's group. */
#pragma once

#include "activation/timers.h"

/* teffi_ticks_start_due - start the ticks that are due and that admission lets start, at most 64;
 * the next nudge continues. Returns early if a turn yields. runs: on a worker's own stack. */
void teffi_ticks_start_due(teffi_activation *act);
