/* task.h - background work of the runtime that may await: one fiber on a group of its own.
 * Way:     membership, directory, lifecycle -> [task] -> ctx
 * Threads: any thread may start a task. */
#pragma once

#include "call/ctx.h"

/* teffi_task_start - run fn(ctx, arg) on a fiber of its own, scheduled like a user's turn. fn must
 * return before teffi_node_stop (see teffi_tasks_count_running).
 * in:   label, a constant string. system: run it on the system thread, with stacks reserved for
 *       system groups: for work that keeps the silo in its cluster. At most a few per silo of the
 *       cluster may run at a time, independent of the number of users' calls.
 * errs: TEFF_E_NOMEM: fn will not run. */
TEFF_MUST_USE teff_err teffi_task_start(teffi_home *home, void (*fn)(teff_ctx *ctx, void *arg),
                                        void *arg, const char *label, bool system);

/* teffi_tasks_count_running - the number of tasks that have begun and not ended. */
uint64_t teffi_tasks_count_running(teffi_home *home);

/* teffi_tasks_free_all - free all tasks, ended or not. The executor has stopped. */
void teffi_tasks_free_all(teffi_home *home);
