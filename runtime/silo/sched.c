/* sched.c - a silo's scheduler, seen by the program that runs the silo.
 * Way:     a program -> [sched] -> node.exec
 * Threads: any, but not beside start and stop, which make and free the executor. */
#include "sched/exec.h"
#include "silo/silo.h"

size_t teff_silo_sched(teff_silo *silo, teff_sched_metrics *all, teff_sched_worker *workers,
                       size_t max)
{
    if (silo->phase == TEFFI_SILO_SERVING)
        return teffi_exec_metrics(silo->node.exec, all, workers, max);
    if (all)
        *all = (teff_sched_metrics){0};
    return 0;
}

teff_err teff_silo_scale(teff_silo *silo, uint32_t n)
{
    return silo->phase == TEFFI_SILO_SERVING ? teffi_exec_scale(silo->node.exec, n) : TEFF_E_CLOSED;
}
