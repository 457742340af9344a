/* processes.c - makes, prints and stops the process system and the engines of a silo.
 * Way:     teff_silo_processes, _engine, dump -> [processes] -> node/pid, engine
 * Threads: any; silo->lock guards the list of engines and silo->processes. Only one thread stops,
 *          without the lock: meanwhile no engine may be made, and no process system is. */
#include "call/process_ctx.h"
#include "engine/engine.h"
#include "node/pid.h"
#include "process/process.h"
#include "silo/silo.h"

/* Makes the silo's process system, silo->processes. The caller holds silo->lock. */
static teff_err make_process_system(teff_silo *silo, const teff_process_options *opt)
{
    if (silo->phase != TEFFI_SILO_SERVING || silo->refuses_processes)
        return TEFF_E_CLOSED;
    if (silo->processes)
        return TEFF_E_EXISTS;
    teff_err err = teffi_process_system_new_on(silo->node.home.exec, opt, &silo->processes);
    if (!err)
        teffi_pid_attach_system(&silo->node, silo->processes);
    return err;
}

teff_err teff_silo_processes(teff_silo *silo, const teff_process_options *opt,
                             teff_process_system **system)
{
    pthread_mutex_lock(&silo->lock);
    teff_err err = make_process_system(silo, opt);
    *system = err ? NULL : silo->processes;
    pthread_mutex_unlock(&silo->lock);
    return err;
}

/* ---- engines ---- */

static void add_engine_to_list(teff_silo *silo, teff_engine *engine)
{
    pthread_mutex_lock(&silo->lock);
    engine->next = silo->engines;
    silo->engines = engine;
    pthread_mutex_unlock(&silo->lock);
}

teff_err teff_silo_make_engine(teff_silo *silo, const teff_engine_options *opt,
                               teff_engine **engine)
{
    const teffi_process_calls calls = teffi_make_process_call_functions(&silo->node.home);
    *engine = NULL;
    if (silo->phase != TEFFI_SILO_SERVING)
        return TEFF_E_CLOSED;
    teff_err err = teffi_engine_new_on(silo->node.home.exec, &calls, opt, engine);
    if (*engine) /* also after an error: the engine must be freed later than the executor */
        add_engine_to_list(silo, *engine);
    if (!err)
        return TEFF_OK;
    if (*engine)
        (void)teff_engine_stop(*engine, 0, NULL);
    *engine = NULL;
    return err;
}

/* ---- dump ---- */

void teffi_silo_print_engines_and_processes(teff_silo *silo, const teffi_lines *to)
{
    pthread_mutex_lock(&silo->lock);
    teff_process_system *processes = silo->processes;
    teff_engine *engine = silo->engines; /* new engines go in front, so `next` does not change */
    pthread_mutex_unlock(&silo->lock);
    if (processes)
        teffi_processes_print(processes, to);
    for (; engine; engine = engine->next)
        teffi_engine_print(engine, to);
}

/* ---- stop ---- */

/* Logs a warning if processes or components (`what` says which) were forced to end. out:
 * TEFF_E_TIMEOUT if at least one was forced. */
static teff_err warn_if_forced_to_end(teff_silo *silo, const char *what,
                                      const teff_stop_report *report)
{
    if (!report->forced)
        return TEFF_OK;
    teffi_logf(&silo->platform.log, TEFF_LOG_WARN,
               "silo %s: %u of %u %s did not end by themselves, the first: %s", silo->node.address,
               report->forced, report->cancelled, what,
               report->n_named ? report->named[0].name : "?");
    return TEFF_E_TIMEOUT;
}

static void set_refuses_processes(teff_silo *silo, bool refuses)
{
    pthread_mutex_lock(&silo->lock);
    silo->refuses_processes = refuses;
    pthread_mutex_unlock(&silo->lock);
}

/* out: the milliseconds until until_ns, at least 1, because a timeout of 0 would select the default
 * of teff_engine_stop(). */
static uint32_t get_remaining_ms(const teff_silo *silo, uint64_t until_ns)
{
    uint64_t now = teffi_now(&silo->platform);
    uint32_t left_ms = now < until_ns ? (uint32_t)((until_ns - now) / 1000000) : 0;
    return left_ms ? left_ms : 1;
}

teff_err teffi_silo_stop_engines_and_processes(teff_silo *silo, uint32_t timeout_ms)
{
    teff_stop_report report;
    teff_err err = TEFF_OK;
    uint64_t until_ns = teffi_now(&silo->platform) + timeout_ms * 1000000ull;
    set_refuses_processes(silo, true);
    /* Ask all engines to end before waiting for any, because timeout_ms is the limit for all
     * engines together. The process system gets timeout_ms of its own. */
    for (teff_engine *engine = silo->engines; engine; engine = engine->next)
        teff_engine_end(engine);
    for (teff_engine *engine = silo->engines; engine; engine = engine->next)
        if (teff_engine_stop(engine, get_remaining_ms(silo, until_ns), &report))
            err = warn_if_forced_to_end(silo, "components", &report);
    if (silo->processes && teff_process_system_stop(silo->processes, timeout_ms, &report))
        err = warn_if_forced_to_end(silo, "processes", &report);
    return err;
}

void teffi_silo_free_engines_and_processes(teff_silo *silo)
{
    while (silo->engines) {
        teff_engine *engine = silo->engines;
        silo->engines = engine->next;
        teffi_engine_free_stopped(engine);
    }
    teffi_process_system_free_memory(silo->processes);
    silo->processes = NULL;
    set_refuses_processes(silo, false);
}
