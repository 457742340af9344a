/* list.c - which processes are there, and what did they and the workers do?
 * Way:     a program, the stop report -> [list] -> the slots' counters
 * Threads: any; counters are read one by one while they change. */
#include "process/process.h"

/* Counters with one writer: no need of an atomic addition. A worker's may lose one when its place
 * is retaken in just that moment: they are figures. */
static void add(_Atomic uint64_t *count, uint64_t n)
{
    uint64_t now = atomic_load_explicit(count, memory_order_relaxed);
    atomic_store_explicit(count, now + n, memory_order_relaxed);
}

void teffi_process_count(teff_process *p, uint64_t turns, uint64_t events, uint64_t run_ns)
{
    teffi_exec *exec = p->system->exec;
    unsigned worker = exec->ops->worker ? exec->ops->worker(exec) : 0;
    teffi_cell *cell = &p->system->cells[worker];
    add(&p->turns, turns);
    add(&p->events, events);
    add(&p->run_ns, run_ns);
    if (worker) {
        add(&cell->turns, turns);
        add(&cell->events, events);
        add(&cell->run_ns, run_ns);
    } else {
        atomic_fetch_add_explicit(&cell->turns, turns, memory_order_relaxed);
        atomic_fetch_add_explicit(&cell->events, events, memory_order_relaxed);
        atomic_fetch_add_explicit(&cell->run_ns, run_ns, memory_order_relaxed);
    }
}

bool teffi_process_describe(teff_process *p, teff_process_info *info)
{
    /* acquire: pairs with publish; the rest may, for a moment, be a later life's */
    uint32_t generation = atomic_load_explicit(&p->generation, memory_order_acquire);
    if (generation % 2 == 0)
        return false;
    uint64_t load = teffi_mail_load(p);
    *info = (teff_process_info){
        .pid = teffi_process_pid_of(p, generation),
        .name = atomic_load_explicit(&p->ops, memory_order_relaxed)->name,
        .state = (teff_process_state)teffi_group_state_of(&p->group),
        .waiting = (uint32_t)(load >> 40),
        .waiting_bytes = load & (((uint64_t)1 << 40) - 1),
        .turns = atomic_load_explicit(&p->turns, memory_order_relaxed),
        .events = atomic_load_explicit(&p->events, memory_order_relaxed),
        .run_ns = atomic_load_explicit(&p->run_ns, memory_order_relaxed),
    };
    return true;
}

size_t teff_process_list(teff_process_system *system, teff_process_info *infos, size_t max)
{
    size_t n = 0;
    /* acquire: pairs with teffi_slot_take */
    uint32_t slots = atomic_load_explicit(&system->n_slots, memory_order_acquire);
    for (uint32_t i = 0; i < slots && n < max; i++)
        if (teffi_process_describe(teffi_process_at(system, i | TEFFI_PROCESS_BIT), &infos[n]))
            n++;
    return n;
}

void teff_process_stats_get(teff_process_system *system, teff_process_stats *stats)
{
    uint64_t spawned = 0, ended = 0;
    for (uint32_t i = 0; i < system->n_cells; i++) {
        ended += atomic_load_explicit(&system->cells[i].ended, memory_order_relaxed);
        spawned +=
            atomic_load_explicit(&system->cells[i].spawned, memory_order_relaxed) % TEFFI_SPAWNING;
    }
    *stats = (teff_process_stats){
        .alive = teffi_processes_alive(system),
        .spawned = spawned,
        .ended = ended,
        .refused = atomic_load_explicit(&system->refused, memory_order_relaxed),
        .evicted = atomic_load_explicit(&system->evicted, memory_order_relaxed),
        .dropped = atomic_load_explicit(&system->dropped, memory_order_relaxed),
        .workers = system->n_cells,
    };
}

size_t teff_process_workers(teff_process_system *system, teff_process_count *counts, size_t max)
{
    size_t n = max < system->n_cells ? max : system->n_cells;
    for (size_t i = 0; i < n; i++)
        counts[i] = (teff_process_count){
            .turns = atomic_load_explicit(&system->cells[i].turns, memory_order_relaxed),
            .events = atomic_load_explicit(&system->cells[i].events, memory_order_relaxed),
            .run_ns = atomic_load_explicit(&system->cells[i].run_ns, memory_order_relaxed),
        };
    return n;
}

size_t teff_process_sched(teff_process_system *system, teff_sched_metrics *all,
                          teff_sched_worker *workers, size_t max)
{
    return teffi_exec_metrics(system->exec, all, workers, max);
}

teff_err teff_process_system_scale(teff_process_system *system, uint32_t n)
{
    return teffi_exec_scale(system->exec, n);
}
