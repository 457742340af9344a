/* exec.c - executor: the functions that are the same for all implementations. */
#include "group/exec.h"

#include <stdio.h>
#include "base/bug.h"

void teffi_exec_abort_if_in_turn(teffi_exec *exec, const char *function)
{
    char who[TEFFI_DESCRIBE_MAX], rule[160];
    teffi_group *group = exec->ops->current ? exec->ops->current(exec) : NULL;
    if (!group)
        return;
    teffi_group_describe(group, who);
    snprintf(rule, sizeof rule, "%s waits for the end of all turns; call it on a thread outside",
             function);
    teffi_abort_for_broken_rule(who, rule);
}

teff_err teffi_exec_scale(teffi_exec *exec, uint32_t n)
{
    return exec->ops->scale ? exec->ops->scale(exec, n) : TEFF_E_INVALID;
}

size_t teffi_exec_metrics(teffi_exec *exec, teff_sched_metrics *all, teff_sched_worker *workers,
                          size_t max)
{
    if (exec->ops->metrics)
        return exec->ops->metrics(exec, all, workers, max);
    if (all)
        *all = (teff_sched_metrics){0};
    return 0;
}
