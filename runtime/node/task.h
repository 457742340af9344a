/* task.h - a piece of the runtime's own work that awaits: one fiber on a group of its own.
 * Way:     membership, directory, lifecycle -> [task] -> ctx
 * Threads: start from anywhere. */
#ifndef TEFFI_NODE_TASK_H
#define TEFFI_NODE_TASK_H

#include "node/ctx.h"

/* teffi_task_start - run fn(ctx, arg) as a turn of the system. It must end by itself before the
 * node does (node->tasks counts those running).
 * errs: TEFF_E_NOMEM: fn will not run. */
TEFF_MUST_USE teff_err teffi_task_start(teffi_node *node, void (*fn)(teff_ctx *ctx, void *arg),
                                        void *arg, const char *label);

/* teffi_tasks_fini - frees all tasks; those that did not end are dropped. The executor
 * has stopped. */
void teffi_tasks_fini(teffi_node *node);

#endif
