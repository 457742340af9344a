/* processes.c - the process system of a silo; its PIDs are valid in the whole cluster.
 * Way:     teff_process_send -> route -> [processes: pack] -> net ===> node -> [unpack] -> deliver
 * Threads: packing on any, unpacking on a transport's thread; neither blocks.
 *
 *   An event to another silo is a one-way message to the process's slot, with this body:
 *     u8 kind (teff_event_kind) | u64 tag | from: u32 silo, incarnation, slot, generation | data
 *   little-endian. A cancel is the same, without data. */
#include <string.h>
#include "call/process_ctx.h"
#include "process/send.h"
#include "process/process.h"
#include "silo/silo.h"

typedef struct __attribute__((packed)) event_head { /* meson.build allows little-endian only */
    uint8_t kind;
    uint64_t tag;
    uint32_t silo, incarnation, slot, generation;
} event_head;

/* ---- to another silo ---- */

static bool pack_event(teffi_msg *msg, const teff_event *event)
{
    const teff_pid from = event->from;
    const event_head head = {(uint8_t)event->kind, event->tag, from.silo,
                             from.incarnation,     from.slot,  from.generation};
    uint8_t *body = teff_arena_alloc(&msg->arena, sizeof head + event->len);
    if (!body)
        return false;
    memcpy(body, &head, sizeof head);
    if (event->len)
        memcpy(body + sizeof head, event->data, event->len);
    msg->raw = body;
    msg->raw_len = sizeof head + event->len;
    return true;
}

static teff_err route_event(void *arg, teff_pid to, const teff_event *event)
{
    teffi_node *node = arg;
    if (!(to.slot & TEFFI_PROCESS_BIT) || !to.silo)
        return TEFF_E_NOT_FOUND;
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_ONEWAY);
    if (!msg)
        return TEFF_E_NOMEM;
    teff_err err = TEFF_E_NOMEM;
    msg->src = node->id;
    msg->to = (teffi_pid){{to.silo, to.incarnation}, to.slot, to.generation};
    if (pack_event(msg, event))
        err = node->home.net->ops->send(node->home.net, msg->to.node, msg);
    if (err)
        teffi_msg_free(msg);
    return err == TEFF_E_CLOSED || err == TEFF_E_UNREACHABLE ? TEFF_E_UNAVAILABLE : err;
}

/* ---- from another silo ---- */

static teff_err deliver_event(void *arg, const teffi_msg *msg)
{
    event_head head;
    if (msg->raw_len < sizeof head)
        return TEFF_E_MALFORMED;
    memcpy(&head, msg->raw, sizeof head);
    teff_event event = {.kind = (teff_event_kind)head.kind,
                        .tag = head.tag,
                        .from = {head.silo, head.incarnation, head.slot, head.generation},
                        .len = msg->raw_len - sizeof head};
    event.data = event.len ? msg->raw + sizeof head : NULL;
    teff_pid to = {msg->to.node.silo, msg->to.node.incarnation, msg->to.slot, msg->to.generation};
    return teffi_process_deliver(arg, to, &event);
}

/* ---- the silo's system ---- */

static teff_err make_processes(teff_silo *silo, const teff_process_options *opt)
{
    teffi_node *node = &silo->node;
    teff_process_system *system;
    if (silo->phase != TEFFI_SILO_SERVING)
        return TEFF_E_CLOSED;
    if (silo->processes)
        return TEFF_E_EXISTS;
    teff_err err = teffi_process_system_on(node->home.exec, opt, &system);
    if (err)
        return err;
    system->route = ((teffi_pid_route){.send = route_event,
                                       .arg = node,
                                       .silo = node->id.silo,
                                       .incarnation = node->id.incarnation});
    system->calls = teffi_process_calls_of(&node->home);
    silo->processes = system;
    teffi_node_processes(node, deliver_event, system);
    return TEFF_OK;
}

teff_err teff_silo_processes(teff_silo *silo, const teff_process_options *opt,
                             teff_process_system **system)
{
    pthread_mutex_lock(&silo->lock);
    teff_err err = make_processes(silo, opt);
    *system = err ? NULL : silo->processes;
    pthread_mutex_unlock(&silo->lock);
    return err;
}

teff_err teffi_silo_stop_processes(teff_silo *silo, uint32_t timeout_ms)
{
    teff_stop_report report;
    if (!silo->processes)
        return TEFF_OK;
    teff_err err = teff_process_system_stop(silo->processes, timeout_ms, &report);
    if (err)
        teffi_logf(&silo->platform.log, TEFF_LOG_WARN,
                   "silo %s: %u of %u processes did not end by themselves, the first: %s",
                   silo->node.address, report.forced, report.told,
                   report.n_named ? report.named[0].name : "?");
    return err;
}
