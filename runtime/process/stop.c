/* stop.c - stop a system: cancel all processes, wait, kill the rest. Workers run until the executor
 * is freed, so a process may still use commands while it cleans up. */
#include "process/process.h"

#include "process/send.h"

enum { STOP_MS = 10000, FORCED_MS = 1000 };

/* Sends signals to all processes. out: the number of processes that received them. */
static uint32_t signal_all_processes(teff_process_system *system, uint32_t bits)
{
    uint32_t n = 0;
    teff_process *p;
    for (uint32_t i = 0; (p = teffi_process_at(system, i | TEFFI_PROCESS_BIT)); i++) {
        uint32_t now = atomic_load_explicit(&p->generation, memory_order_relaxed);
        n += teffi_process_signal(system, teffi_process_pid_of(p, now), bits) == TEFF_OK;
    }
    return n;
}

void teffi_stoppers_wake(teff_process_system *system)
{
    pthread_mutex_lock(&system->lock);
    teffi_stopper *s;
    LIST_FOREACH (s, &system->stoppers, link)
        teffi_parker_wake(&s->parker);
    pthread_mutex_unlock(&system->lock);
}

/* Waits until all processes have ended, or until the time until_ns is reached. */
static void wait_until_processes_end(teff_process_system *system, uint64_t until_ns)
{
    teffi_exec *exec = system->exec;
    teffi_stopper stopper = {0};
    uint64_t now;
    pthread_mutex_lock(&system->lock);
    LIST_INSERT_HEAD(&system->stoppers, &stopper, link);
    pthread_mutex_unlock(&system->lock);
    while (teffi_processes_count_alive(system) && (now = teffi_now(exec->platform)) < until_ns) {
        if (exec->ops->park) /* only a simulated executor has park; it runs work in this thread */
            exec->ops->park(exec);
        else
            teffi_parker_wait(&stopper.parker, until_ns - now);
    }
    pthread_mutex_lock(&system->lock);
    LIST_REMOVE(&stopper, link);
    pthread_mutex_unlock(&system->lock);
}

/* Waits until no spawn is in progress. Spins, since a spawn does not block. In `spawned`, a spawn
 * counts 1 while it is in progress, and TEFFI_SPAWNED if it succeeds. So `spawned` % TEFFI_SPAWNED
 * is the number of spawns in progress. */
static void wait_for_spawns(teff_process_system *system)
{
    for (uint32_t i = 0; i < system->n_cells; i++)
        while (atomic_load_explicit(&system->cells[i].spawned, memory_order_seq_cst) %
               TEFFI_SPAWNED)
            teffi_thread_yield();
}

/* Lists the remaining processes in the report (at most TEFF_STOP_NAMED of them), then kills all
 * remaining processes, and waits at most FORCED_MS until they have ended. */
static void kill_and_report_remaining(teff_process_system *system, teff_stop_report *report)
{
    report->n_named = (uint32_t)teff_process_list(system, report->named, TEFF_STOP_NAMED);
    report->forced = signal_all_processes(system, TEFFI_SIGNAL_KILL);
    wait_until_processes_end(system, teffi_now(system->exec->platform) + FORCED_MS * 1000000ull);
    report->stuck = teffi_processes_count_alive(system);
}

teff_err teff_process_system_stop(teff_process_system *system, uint32_t timeout_ms,
                                  teff_stop_report *report)
{
    teff_stop_report own;
    teffi_exec_abort_if_in_turn(system->exec, "teff_process_system_stop");
    if (!report)
        report = &own;
    *report = (teff_stop_report){0};
    uint64_t now = teffi_now(system->exec->platform);
    /* Later spawns are refused. Spawns in progress are waited for, so that their processes get the
     * cancel, too. */
    atomic_store_explicit(&system->stopping, true, memory_order_seq_cst);
    wait_for_spawns(system);
    report->cancelled = signal_all_processes(system, TEFFI_SIGNAL_CANCEL);
    wait_until_processes_end(system, now + (timeout_ms ? timeout_ms : STOP_MS) * 1000000ull);
    if (teffi_processes_count_alive(system))
        kill_and_report_remaining(system, report);
    return report->forced ? TEFF_E_TIMEOUT : TEFF_OK;
}
