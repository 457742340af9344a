/* send.h - send messages and signals (cancel, kill, poke) to a process; its mailbox.
 * Way:     a sender -> [send -> pid, mailbox] -> the process's group | the route to another silo
 * Threads: any. */
#pragma once

#include "process/pid.h"

/* A mailbox counts the messages that wait, and their bytes: sent - taken, both packed as
 * messages << TEFFI_MAILBOX_SHIFT | bytes. */
enum { TEFFI_MAILBOX_SHIFT = 40 };

/* teffi_mailbox_charge - out: what a message with len bytes of data adds to `sent` when it is sent,
 * and to `taken` when it leaves the mailbox. */
static inline uint64_t teffi_mailbox_charge(size_t len)
{
    return ((uint64_t)1 << TEFFI_MAILBOX_SHIFT) + sizeof(teffi_event) + len;
}

/* teffi_mailbox_count_removal - a message with len bytes of data leaves the mailbox: add its charge
 * to `taken`, the sum of the charges of all messages that have left. runs: in the process's turn,
 * the only writer of `taken`. */
static inline void teffi_mailbox_count_removal(teff_process *p, size_t len)
{
    uint64_t taken = atomic_load_explicit(&p->taken, memory_order_relaxed);
    /* release: pairs with teffi_mailbox_get_load */
    atomic_store_explicit(&p->taken, taken + teffi_mailbox_charge(len), memory_order_release);
}

/* teffi_mailbox_get_load - out: the number of waiting messages and their bytes, packed. Both may be
 * too large, but never too small. */
uint64_t teffi_mailbox_get_load(const teff_process *p);

/* teffi_process_send_here - as teff_process_send to a process of this system, without yielding: for
 * callers that hold a lock. in: message, of kind MESSAGE or REQUEST; its kind is kept. */
TEFF_MUST_USE teff_err teffi_process_send_here(teff_process_system *system, teff_pid to,
                                               const teff_event *message);

/* teffi_process_return_message - give a message of an evicted process back to its sender, in this
 * silo or another. If the sender cannot get it, it is freed and counted as dropped.
 * in:   event, moves to this function; it counts in no mailbox any more. from, the evicted process.
 */
void teffi_process_return_message(teff_process_system *system, teffi_event *event, teff_pid from);

/* teffi_process_deliver - give a process of this system an event from outside.
 * in:   event, borrowed: a message, a request or a returned message, of which kind, tag, data, from
 *       and call are kept; or a cancel.
 * errs: as teff_process_send; TEFF_E_INVALID: another kind. */
TEFF_MUST_USE teff_err teffi_process_deliver(teff_process_system *system, teff_pid pid,
                                             const teff_event *event);

/* teffi_process_refuse_request - respond with err to a message that will not be handled, if it is a
 * request. in: event, borrowed. */
void teffi_process_refuse_request(teff_process_system *system, const teff_event *event,
                                  teff_err err);

/* teffi_process_signal - set bits of a process's signals, and push its signal item unless it is
 * queued. Takes the stripe's lock. errs: as teffi_process_missing_err. */
teff_err teffi_process_signal(teff_process_system *system, teff_pid pid, uint32_t bits);

/* teffi_process_has_room - would a message of len bytes be accepted now? out: false also if there
 * is no such process. */
bool teffi_process_has_room(teff_process_system *system, teff_pid pid, size_t len);

/* teffi_process_wake - after a push: wake the process's turn if it sleeps on its worker's stack. */
void teffi_process_wake(teff_process *p);
