/* processes.c - the process system of a silo; its PIDs are valid in the whole cluster.
 * Way:     teff_silo_processes -> [processes] -> node/pid
 * Threads: any; under silo->lock. */
#include "node/pid.h"
#include "process/process.h"
#include "silo/silo.h"

static teff_err make_processes(teff_silo *silo, const teff_process_options *opt)
{
    if (silo->phase != TEFFI_SILO_SERVING)
        return TEFF_E_CLOSED;
    if (silo->processes)
        return TEFF_E_EXISTS;
    teff_err err = teffi_process_system_on(silo->node.home.exec, opt, &silo->processes);
    if (!err)
        teffi_pid_attach(&silo->node, silo->processes);
    return err;
}

teff_err teff_silo_processes(teff_silo *silo, const teff_process_options *opt,
                             teff_process_system **system)
{
    pthread_mutex_lock(&silo->lock);
    teff_err err = make_processes(silo, opt);
    *system = err ? NULL : silo->processes;
    pthread_mutex_unlock(&silo->lock);
    return err;
}

teff_err teffi_silo_stop_processes(teff_silo *silo, uint32_t timeout_ms)
{
    teff_stop_report report;
    if (!silo->processes)
        return TEFF_OK;
    teff_err err = teff_process_system_stop(silo->processes, timeout_ms, &report);
    if (err)
        teffi_logf(&silo->platform.log, TEFF_LOG_WARN,
                   "silo %s: %u of %u processes did not end by themselves, the first: %s",
                   silo->node.address, report.forced, report.told,
                   report.n_named ? report.named[0].name : "?");
    return err;
}
