/* pid.c - which process is behind this PID? Slots in chunks that never move or go.
 * Way:     send, complete, cancel -> [pid] -> the process's memory
 * Threads: lookups from anywhere, without a lock; take and give under the system's lock.
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

teff_err teffi_slot_take(teff_process_system *system, teff_process **process)
{
    uint32_t alive = atomic_load_explicit(&system->alive, memory_order_relaxed);
    if (alive >= system->opt.processes_max)
        return TEFF_E_OVERLOADED;
    uint32_t free_one = system->first_free;
    uint32_t n = atomic_load_explicit(&system->n_slots, memory_order_relaxed);
    if (free_one) {
        *process = teffi_process_at(system, (free_one - 1) | TEFFI_PROCESS_BIT);
        system->first_free = (*process)->next_free;
    } else {
        if (n % TEFFI_PROCESS_CHUNK == 0 && !add_chunk(system, n))
            return TEFF_E_NOMEM;
        *process = teffi_process_at(system, n | TEFFI_PROCESS_BIT);
        /* release: pairs with who walks all slots */
        atomic_store_explicit(&system->n_slots, n + 1, memory_order_release);
    }
    atomic_fetch_add_explicit(&system->alive, 1, memory_order_relaxed);
    return TEFF_OK;
}

void teffi_slot_give(teff_process_system *system, teff_process *p)
{
    p->next_free = system->first_free;
    system->first_free = (p->slot & ~TEFFI_PROCESS_BIT) + 1;
}
