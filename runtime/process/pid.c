/* pid.c - which process is behind this PID? Slots in chunks that never move or go.
 * Way:     send, complete, cancel -> [pid] -> the process's memory
 * Threads: lookups, take and give from anywhere, without a lock unless slots are made.
 * A generation is odd while a process lives in the slot and even between two lives; it only rises,
 * so an older odd one is a process that has ended and anything else was never given out. */
#include <stdlib.h>
#include <string.h>
#include "process/process.h"

pthread_mutex_t *teffi_stripe(const teff_process *p)
{
    return &p->system->stripes[p->slot % TEFFI_STRIPES];
}

teff_process *teffi_process_at(teff_process_system *system, uint32_t slot)
{
    uint32_t i = slot & ~TEFFI_PROCESS_BIT;
    if (!(slot & TEFFI_PROCESS_BIT) ||
        i / TEFFI_PROCESS_CHUNK >=
            (system->opt.processes_max + TEFFI_PROCESS_CHUNK - 1) / TEFFI_PROCESS_CHUNK)
        return NULL;
    /* acquire: pairs with add_chunk's release */
    teff_process *chunk =
        atomic_load_explicit(&system->chunks[i / TEFFI_PROCESS_CHUNK], memory_order_acquire);
    return chunk ? &chunk[i % TEFFI_PROCESS_CHUNK] : NULL;
}

teff_err teffi_process_find(teff_process_system *system, teff_pid pid, teff_process **process)
{
    *process = NULL;
    teff_process *p = teffi_process_at(system, pid.slot);
    if (!p || pid.generation % 2 == 0)
        return TEFF_E_NOT_FOUND;
    /* acquire: pairs with publish: whoever sees the generation sees the process filled in */
    uint32_t now = atomic_load_explicit(&p->generation, memory_order_acquire);
    if (now != pid.generation)
        return (int32_t)(now - pid.generation) > 0 ? TEFF_E_CLOSED : TEFF_E_NOT_FOUND;
    *process = p;
    return TEFF_OK;
}

static bool add_chunk(teff_process_system *system, uint32_t first)
{
    size_t bytes = TEFFI_PROCESS_CHUNK * sizeof(teff_process);
    teff_process *chunk = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!chunk)
        return false;
    memset(chunk, 0, bytes);
    for (uint32_t i = 0; i < TEFFI_PROCESS_CHUNK; i++) {
        chunk[i].system = system;
        chunk[i].slot = (first + i) | TEFFI_PROCESS_BIT;
        teffi_group_init(&chunk[i].group, system->exec, &teffi_process_group_ops);
    }
    /* release: pairs with teffi_process_at's acquire */
    atomic_store_explicit(&system->chunks[first / TEFFI_PROCESS_CHUNK], chunk,
                          memory_order_release);
    return true;
}

/* ---- free slots ----
 *
 * A list is pushed to by compare-and-swap and taken as a whole by exchange, so no link is read that
 * somebody else may change. Who takes more than it needs puts the rest on its own list. */

teffi_cell *teffi_own_cell(teff_process_system *system)
{
    teffi_exec *exec = system->exec;
    return &system->cells[exec->ops->worker ? exec->ops->worker(exec) : 0];
}

static teff_process *at_index(teff_process_system *system, uint32_t index_1)
{
    return teffi_process_at(system, (index_1 - 1) | TEFFI_PROCESS_BIT);
}

static void push_free(teff_process_system *system, teffi_cell *cell, uint32_t one)
{
    teff_process *p = at_index(system, one);
    uint32_t first = atomic_load_explicit(&cell->free, memory_order_relaxed);
    do
        p->next_free = first;
    /* release: the end of its life, pairs with take_list */
    while (!atomic_compare_exchange_weak_explicit(&cell->free, &first, one, memory_order_release,
                                                  memory_order_relaxed));
}

static void keep_free(teff_process_system *system, teffi_cell *own, uint32_t list)
{
    uint32_t none = 0;
    /* release: what take_list acquired goes on with the list */
    if (!list || atomic_compare_exchange_strong_explicit(
                     &own->free, &none, list, memory_order_release, memory_order_relaxed))
        return;
    while (list) {
        uint32_t next = at_index(system, list)->next_free;
        push_free(system, own, list);
        list = next;
    }
}

static teff_process *take_free(teff_process_system *system, teffi_cell *from, teffi_cell *own)
{
    if (!atomic_load_explicit(&from->free, memory_order_relaxed))
        return NULL;
    /* acquire: pairs with push_free */
    uint32_t list = atomic_exchange_explicit(&from->free, 0, memory_order_acquire);
    if (!list)
        return NULL;
    teff_process *p = at_index(system, list);
    keep_free(system, own, p->next_free);
    return p;
}

/* out: NULL: there are as many as may be, or memory is out. */
static teff_process *fresh(teff_process_system *system)
{
    teff_process *p = NULL;
    pthread_mutex_lock(&system->lock);
    uint32_t n = atomic_load_explicit(&system->n_slots, memory_order_relaxed);
    if (n < system->opt.processes_max && (n % TEFFI_PROCESS_CHUNK || add_chunk(system, n))) {
        p = at_index(system, n + 1);
        /* release: pairs with who walks all slots */
        atomic_store_explicit(&system->n_slots, n + 1, memory_order_release);
    }
    pthread_mutex_unlock(&system->lock);
    return p;
}

enum { CELLS_NEAR = 8 }; /* looked at before memory is used that never was */

static teff_process *take_elsewhere(teff_process_system *system, teffi_cell *own, uint32_t n)
{
    uint32_t first = (uint32_t)(own - system->cells);
    for (uint32_t i = 1; i < n && i < system->n_cells; i++) {
        teff_process *p = take_free(system, &system->cells[(first + i) % system->n_cells], own);
        if (p)
            return p;
    }
    return NULL;
}

teff_err teffi_slot_take(teff_process_system *system, teff_process **process)
{
    teffi_cell *own = teffi_own_cell(system);
    teff_process *p = take_free(system, own, own);
    if (!p)
        p = take_elsewhere(system, own, CELLS_NEAR);
    if (!p)
        p = fresh(system);
    if (!p)
        p = take_elsewhere(system, own, system->n_cells);
    *process = p;
    if (p)
        return TEFF_OK;
    bool full =
        atomic_load_explicit(&system->n_slots, memory_order_relaxed) == system->opt.processes_max;
    return full ? TEFF_E_OVERLOADED : TEFF_E_NOMEM;
}

void teffi_slot_give(teff_process_system *system, teff_process *p)
{
    push_free(system, teffi_own_cell(system), (p->slot & ~TEFFI_PROCESS_BIT) + 1);
}

uint32_t teffi_processes_alive(teff_process_system *system)
{
    uint64_t ended = 0, spawned = 0;
    /* seq_cst, and in this order: never fewer than there are */
    for (uint32_t i = 0; i < system->n_cells; i++)
        ended += atomic_load_explicit(&system->cells[i].ended, memory_order_seq_cst);
    for (uint32_t i = 0; i < system->n_cells; i++)
        spawned +=
            atomic_load_explicit(&system->cells[i].spawned, memory_order_seq_cst) % TEFFI_SPAWNING;
    return (uint32_t)(spawned - ended);
}
