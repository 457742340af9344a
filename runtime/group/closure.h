/* closure.h - a work item that is a function call: in a turn of some group, or of the null group.
 * Way:     teff_post -> [closure] -> a group's queue -> fn(arg)
 * Threads: push: any. fn runs in a turn of the group, on a worker; it must not wait.
 * Source:  Orleans' src/Orleans.Runtime/Scheduler/ClosureWorkItem.cs */
#pragma once

#include "group/exec.h"

enum { TEFFI_ITEM_CLOSURE = 101 }; /* item.kind: for teffi_closure_run */

/* teffi_closure_push - queue the call fn(arg) behind the group's other items.
 * in:   group, whose handler takes TEFFI_ITEM_CLOSURE: an activation, process, system target, task,
 *       or an executor's null group. Its memory lives until this function has returned.
 * errs: TEFF_E_NOMEM; TEFF_E_CLOSED: the group is COMPLETE. */
TEFF_MUST_USE teff_err teffi_closure_push(teffi_group *group, void (*fn)(void *arg), void *arg);

/* teffi_closure_run - free a closure's item, then call its function. runs: in a group's handler.
 * teffi_closure_drop - free a closure without running it. For items that are left when the executor
 * has stopped. */
void teffi_closure_run(teffi_item *item);
void teffi_closure_drop(teffi_item *item);

/* teffi_null_group_init - set up exec->null_group, for closures that belong to no other group.
 * teffi_null_group_fini - drop its queued closures; exec has stopped. */
void teffi_null_group_init(teffi_exec *exec);
void teffi_null_group_fini(teffi_exec *exec);
