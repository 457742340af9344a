/* pid_receive.c - events and requests that arrive for the processes of this node. */
#include <string.h>
#include "node/pid.h"
#include "process/send.h"

teff_err teffi_pid_deliver_event(teffi_node *node, const teffi_msg *msg)
{
    teffi_event_head head;
    /* acquire: pairs with teffi_pid_attach_system */
    teff_process_system *system = atomic_load_explicit(&node->processes, memory_order_acquire);
    bool is_request = msg->item.kind == TEFFI_MSG_REQUEST;
    if (!system)
        return TEFF_E_UNAVAILABLE;
    if (msg->raw_len < sizeof head)
        return TEFF_E_MALFORMED;
    memcpy(&head, msg->raw, sizeof head);
    if (is_request != (head.kind == TEFF_EVENT_REQUEST))
        return TEFF_E_MALFORMED;
    teff_event event = {.kind = (teff_event_kind)head.kind,
                        .tag = head.tag,
                        .from = {head.silo, head.incarnation, head.slot, head.generation},
                        .len = msg->raw_len - sizeof head};
    event.data = event.len ? msg->raw + sizeof head : NULL;
    if (is_request) { /* event.from and event.call name the call that waits for the response */
        event.from =
            (teff_pid){msg->src.silo, msg->src.incarnation, msg->call.slot, msg->call.generation};
        event.call = msg->call.cookie;
    }
    teff_pid to = {msg->to.node.silo, msg->to.node.incarnation, msg->to.slot, msg->to.generation};
    return teffi_process_deliver(system, to, &event);
}
