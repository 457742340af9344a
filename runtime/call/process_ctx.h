/* process_ctx.h - contexts of processes: a process calls grains, and waits as it waits for events.
 * Way:     a process -> teff_process_ctx -> calls -> wait -> [process_ctx] -> process/wait
 * Threads: in the process's turn. */
#pragma once

#include "call/home.h"
#include "process/process.h"

/* teffi_make_process_call_functions - the functions with which a system's processes call grains of
 * a node. */
teffi_process_calls teffi_make_process_call_functions(teffi_home *home);
