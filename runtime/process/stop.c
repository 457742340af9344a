/* stop.c - the end of a system: ask, wait, force, say what was forced.
 * Way:     stop -> [cancel to all ... deadline ... kill to the rest] -> ended -> free
 * Threads: one thread outside; processes end on their workers and wake it.
 * Clean-up may be asynchronous: workers go on until the executor is freed, whatever the queues
 * hold, so a process that waits for a yield while it cleans up is served until the deadline. */
#include <stdlib.h>
#include "process/process.h"

enum { STOP_MS = 10000, FORCED_MS = 1000 };

/* out: how many got it. */
static uint32_t signal_all(teff_process_system *system, uint32_t bits)
{
    uint32_t told = 0;
    uint32_t slots = atomic_load_explicit(&system->n_slots, memory_order_acquire);
    for (uint32_t i = 0; i < slots; i++) {
        teff_process *p = teffi_process_at(system, i | TEFFI_PROCESS_BIT);
        uint32_t now = atomic_load_explicit(&p->generation, memory_order_relaxed);
        told += teffi_process_signal(system, teffi_process_pid_of(p, now), bits) == TEFF_OK;
    }
    return told;
}

static void wait_for_end(teff_process_system *system, uint64_t until_ns)
{
    teffi_exec *exec = system->exec;
    uint64_t now;
    while (teffi_processes_alive(system) && (now = teffi_now(exec->platform)) < until_ns) {
        if (exec->ops->park)
            exec->ops->park(exec);
        else
            teffi_parker_wait(&system->stopper, until_ns - now);
    }
}

/* Short: none of them waits for anything. */
static void wait_for_spawns(teff_process_system *system)
{
    for (uint32_t i = 0; i < system->n_cells; i++)
        while (atomic_load_explicit(&system->cells[i].spawned, memory_order_seq_cst) >=
               TEFFI_SPAWNING)
            teffi_thread_yield();
}

static void force(teff_process_system *system, teff_stop_report *report)
{
    report->n_named = (uint32_t)teff_process_list(system, report->named, TEFF_STOP_NAMED);
    report->forced = signal_all(system, TEFFI_SIGNAL_KILL);
    wait_for_end(system, teffi_now(system->exec->platform) + FORCED_MS * 1000000ull);
    report->stuck = teffi_processes_alive(system);
}

teff_err teff_process_system_stop(teff_process_system *system, uint32_t timeout_ms,
                                  teff_stop_report *report)
{
    teff_stop_report own;
    if (!report)
        report = &own;
    *report = (teff_stop_report){0};
    uint64_t now = teffi_now(system->exec->platform);
    /* Who spawned before is published and gets its cancel; who comes later is refused. */
    atomic_store_explicit(&system->stopping, true, memory_order_seq_cst);
    wait_for_spawns(system);
    report->told = signal_all(system, TEFFI_SIGNAL_CANCEL);
    wait_for_end(system, now + (timeout_ms ? timeout_ms : STOP_MS) * 1000000ull);
    if (teffi_processes_alive(system))
        force(system, report);
    return report->forced ? TEFF_E_TIMEOUT : TEFF_OK;
}

void teffi_process_system_drop(teff_process_system *system)
{
    if (!system)
        return;
    uint32_t slots = atomic_load_explicit(&system->n_slots, memory_order_relaxed);
    for (uint32_t i = 0; i < slots; i += TEFFI_PROCESS_CHUNK)
        free(teffi_process_at(system, i | TEFFI_PROCESS_BIT));
    for (unsigned i = 0; i < TEFFI_STRIPES; i++)
        pthread_mutex_destroy(&system->stripes[i]);
    pthread_mutex_destroy(&system->lock);
    free(system->chunks);
    free(system->cells);
    free(system->own_platform);
    free(system);
}

void teff_process_system_free(teff_process_system *system)
{
    if (!system)
        return;
    if (teffi_processes_alive(system))
        (void)teff_process_system_stop(system, 0, NULL);
    if (system->own_platform)
        system->exec->ops->free(system->exec);
    teffi_process_system_drop(system);
}
