/* process_ctx.h - contexts of processes: a process calls grains, and waits as it waits for events.
 * Way:     a process -> teff_process_ctx -> calls -> wait -> [process_ctx] -> process/wait
 * Threads: in the process's turn. */
#pragma once

#include "call/home.h"
#include "process/process.h"

/* teffi_process_calls_of - what lets the processes of a system call grains of home's node. */
teffi_process_calls teffi_process_calls_of(teffi_home *home);
