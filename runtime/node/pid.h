/* pid.h - what is sent to a PID: events of processes, and requests that await a response.
 * Way:     teff_pid_*, teff_process_send -> [pid] -> deliver | net ===> deliver -> [pid_receive]
 *          -> process/send
 * Threads: any; only teff_pid_ask and teff_pid_ask_await wait.
 *
 *   An event is a message to the process's slot, with this body:
 *     u8 kind (teff_event_kind) | u64 tag | from: u32 silo, incarnation, slot, generation | data
 *   little-endian. A cancel is the same, without data; a message that returns has its tag and data,
 *   and from is the evicted receiver. An event is a one-way, or, of kind REQUEST, a request: its
 *   from is not used, since the response goes to the call that the message names. */
#pragma once

#include <teff/pid.h>
#include "node/node.h"
#include "process/process.h"

typedef struct __attribute__((packed))
teffi_event_head { /* meson.build allows little-endian only */
    uint8_t kind;
    uint64_t tag;
    uint32_t silo, incarnation, slot, generation;
} teffi_event_head;

/* teffi_pid_attach_system - let a silo's process system use the node: give it a route, and give it
 * the events that arrive for its PIDs. Once, before the first spawn, and after node->id is set. */
void teffi_pid_attach_system(teffi_node *node, teff_process_system *system);

/* teffi_pid_deliver_event - deliver an event that has arrived for a process of this node. Does not
 * block.
 * in:   msg, which holds the event, borrowed.
 * errs: the event was not delivered: TEFF_E_UNAVAILABLE: the node has no processes;
 *       TEFF_E_MALFORMED; those of teffi_process_deliver. */
teff_err teffi_pid_deliver_event(teffi_node *node, const teffi_msg *msg);
