/* pid.h - slots of processes, and the process that a PID names.
 * Way:     spawn -> [slot_take]; a sender -> [find] -> send
 * Threads: any. teffi_slot_alloc_and_count_spawn takes the system's lock only near processes_max,
 *          and the slab's only if this thread has no list of free slots, or an empty one. */
#pragma once

#include "process/process.h"

/* teffi_process_at - the memory of a slot, in use or free. in: slot: any number. out: NULL if
 * slot lacks TEFFI_PROCESS_BIT (so it is not the slot of a process), or does not exist yet. */
static inline teff_process *teffi_process_at(teff_process_system *system, uint32_t slot)
{
    return slot & TEFFI_PROCESS_BIT ? teffi_slab_at(&system->slab, slot & ~TEFFI_PROCESS_BIT)
                                    : NULL;
}

/* teffi_process_find - find the live process that has this PID. It may end at any moment.
 * in:   pid: a PID of this system; its silo and incarnation are not checked.
 * out:  NULL: there is none, see teffi_process_missing_err. */
static inline teff_process *teffi_process_find(teff_process_system *system, teff_pid pid)
{
    teff_process *p = teffi_process_at(system, pid.slot);
    /* acquire: makes the process's fields visible; pairs with publish_process() */
    bool found = p &&
                 atomic_load_explicit(&p->generation, memory_order_acquire) == pid.generation &&
                 pid.generation % 2;
    return found ? p : NULL;
}

/* teffi_process_missing_err - the error for a PID that teffi_process_find did not find:
 * TEFF_E_CLOSED: the process has ended; TEFF_E_NOT_FOUND: there was never such a process. */
teff_err teffi_process_missing_err(teff_process_system *system, teff_pid pid);

/* teffi_slots_init - set up system->slab; teffi_slab_fini frees it. out: false: memory is out.
 * teffi_slot_alloc_and_count_spawn - get a free slot, from this thread's list if possible, and
 * count the spawn.
 * in:   spawned, that of a cell; it already counts this spawn as in progress.
 * errs: TEFF_E_OVERLOADED, TEFF_E_NOMEM: the spawn is not counted. */
bool teffi_slots_init(teff_process_system *system);
TEFF_MUST_USE teff_err teffi_slot_alloc_and_count_spawn(teff_process_system *system,
                                                        _Atomic uint64_t *spawned,
                                                        teff_process **process);

/* teffi_processes_count_alive - the number of processes that were spawned and have not ended; while
 * some spawn or end, it may be larger, never smaller. What the ended ones stored is visible to the
 * caller. */
uint32_t teffi_processes_count_alive(teff_process_system *system);

/* teffi_stripe_lock_of - the lock that guards a process's signals and commands in flight. The
 * process's end changes its generation under it. */
pthread_mutex_t *teffi_stripe_lock_of(const teff_process *p);
