/* send.h - find a process by its PID, and send it messages and signals (cancel, kill, poke).
 * Way:     a sender -> [send -> pid, mailbox] -> the process's group | the route to another silo
 * Threads: any. A slot is taken under the lock only near processes_max, and for new slots. */
#pragma once

#include "process/process.h"

/* teffi_process_at - the memory of a slot; NULL: it was never used. */
teff_process *teffi_process_at(teff_process_system *system, uint32_t slot);

/* teffi_process_find - the live process with this PID of this system. It may end at any moment.
 * errs: TEFF_E_NOT_FOUND, TEFF_E_CLOSED: *process is NULL. */
TEFF_MUST_USE teff_err teffi_process_find(teff_process_system *system, teff_pid pid,
                                          teff_process **process);

/* teffi_slots_init - set up system->slab; teffi_slab_fini frees it. out: false: memory is out.
 * teffi_slot_take - take a free slot, from this thread's list if possible, and count it in
 * *spawned, a cell's. errs: TEFF_E_OVERLOADED, TEFF_E_NOMEM. */
bool teffi_slots_init(teff_process_system *system);
TEFF_MUST_USE teff_err teffi_slot_take(teff_process_system *system, _Atomic uint64_t *spawned,
                                       teff_process **process);

/* teffi_own_cell - the counters of this thread's worker; cell 0 on other threads. */
teffi_cell *teffi_own_cell(teff_process_system *system);

/* teffi_processes_alive - how many. acquire: the stores of ended ones. */
uint32_t teffi_processes_alive(teff_process_system *system);

/* teffi_stripe - the lock over signals, commands and the generation of a slot. */
pthread_mutex_t *teffi_stripe(const teff_process *p);

/* A mailbox counts the messages that wait, and their bytes: sent - taken, both packed as
 * messages << TEFFI_MAILBOX_SHIFT | bytes. */
enum { TEFFI_MAILBOX_SHIFT = 40 };

/* teffi_mailbox_charge - what a message with len bytes of data counts. */
static inline uint64_t teffi_mailbox_charge(size_t len)
{
    return ((uint64_t)1 << TEFFI_MAILBOX_SHIFT) + sizeof(teffi_event) + len;
}

/* teffi_mailbox_release - a message with len bytes of data was handled. runs: the process's turn,
 * the only writer of `taken`. */
static inline void teffi_mailbox_release(teff_process *p, size_t len)
{
    uint64_t taken = atomic_load_explicit(&p->taken, memory_order_relaxed);
    /* release: pairs with teffi_mailbox_load */
    atomic_store_explicit(&p->taken, taken + teffi_mailbox_charge(len), memory_order_release);
}

/* teffi_mailbox_load - waiting messages and bytes, packed; the true value may be less. */
uint64_t teffi_mailbox_load(const teff_process *p);

/* teffi_process_send_here - teff_process_send to a process of this system, without yielding: for
 * callers that hold a lock. in: message, of kind MESSAGE or REQUEST. */
TEFF_MUST_USE teff_err teffi_process_send_here(teff_process_system *system, teff_pid to,
                                               const teff_event *message);

/* teffi_process_return - an evicted process gives a message back to its sender, in this silo or
 * another. If the sender cannot get it, it is counted as dropped. in: event, moves to the sender;
 * from, the process that was evicted. */
void teffi_process_return(teff_process_system *system, teffi_event *event, teff_pid from);

/* teffi_process_deliver - an event from outside to a process of this system: a message, a request
 * or a returned message with all its fields, or a cancel.
 * errs: as teff_process_send; TEFF_E_INVALID: another kind. */
TEFF_MUST_USE teff_err teffi_process_deliver(teff_process_system *system, teff_pid pid,
                                             const teff_event *event);

/* teffi_process_refuse - a message will not be handled: if it is a request, respond with err. */
void teffi_process_refuse(teff_process_system *system, const teff_event *event, teff_err err);

/* teffi_process_signal - set bits of signals, in this life only. errs: as teffi_process_find. */
teff_err teffi_process_signal(teff_process_system *system, teff_pid pid, uint32_t bits);

/* teffi_process_room - would a message of len bytes be taken now? */
bool teffi_process_room(teff_process_system *system, teff_pid pid, size_t len);

/* teffi_process_wake - after a push: wake its turn if it sleeps on its own stack. */
void teffi_process_wake(teff_process *p);
