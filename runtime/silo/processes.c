/* processes.c - processes of a silo: PIDs that are good in the whole cluster.
 * Way:     teff_process_send -> route -> [processes: pack] -> net ===> node -> [unpack] -> deliver
 * Threads: packing on any, unpacking on a transport's thread; neither blocks.
 *
 *   A message travels as a one-way to the process's slot, its body:
 *     u8 kind (teff_event_kind) | u64 tag | from: u32 silo, incarnation, slot, generation | data
 *   little-endian. A cancel is the same, without data. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "process/process.h"
#include "silo/silo.h"

enum { HEAD = 1 + 8 + 16 };

static void put(uint8_t **at, uint64_t value, size_t n)
{
    for (size_t i = 0; i < n; i++)
        *(*at)++ = (uint8_t)(value >> (8 * i));
}

static uint64_t get(const uint8_t **at, size_t n)
{
    uint64_t value = 0;
    for (size_t i = 0; i < n; i++)
        value |= (uint64_t) * (*at)++ << (8 * i);
    return value;
}

/* ---- to another silo ---- */

static bool pack(teffi_msg *msg, const teff_event *event)
{
    uint8_t *body = teff_arena_alloc(&msg->arena, HEAD + event->len), *at = body;
    if (!body)
        return false;
    put(&at, event->kind, 1);
    put(&at, event->tag, 8);
    put(&at, event->from.silo, 4);
    put(&at, event->from.incarnation, 4);
    put(&at, event->from.slot, 4);
    put(&at, event->from.generation, 4);
    if (event->len)
        memcpy(at, event->data, event->len);
    msg->raw = body;
    msg->raw_len = HEAD + event->len;
    return true;
}

static teff_err route(void *arg, teff_pid to, const teff_event *event)
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
    if (pack(msg, event))
        err = node->net->ops->send(node->net, msg->to.node, msg);
    if (err)
        teffi_msg_free(msg);
    return err == TEFF_E_CLOSED || err == TEFF_E_UNREACHABLE ? TEFF_E_UNAVAILABLE : err;
}

/* ---- from another silo ---- */

static teff_err deliver(void *arg, const teffi_msg *msg)
{
    const uint8_t *at = msg->raw;
    teff_event event = {.len = 0};
    if (msg->raw_len < HEAD)
        return TEFF_E_MALFORMED;
    event.kind = (teff_event_kind)get(&at, 1);
    event.tag = get(&at, 8);
    event.from.silo = (uint32_t)get(&at, 4);
    event.from.incarnation = (uint32_t)get(&at, 4);
    event.from.slot = (uint32_t)get(&at, 4);
    event.from.generation = (uint32_t)get(&at, 4);
    event.len = msg->raw_len - HEAD;
    event.data = event.len ? at : NULL;
    teff_pid to = {msg->to.node.silo, msg->to.node.incarnation, msg->to.slot, msg->to.generation};
    return teffi_process_deliver(arg, to, &event);
}

/* ---- the silo's system ---- */

static teff_err make(teff_silo *silo, const teff_process_options *opt)
{
    teffi_node *node = &silo->node;
    teff_process_system *system;
    if (silo->phase != TEFFI_SILO_SERVING)
        return TEFF_E_CLOSED;
    if (silo->processes)
        return TEFF_E_EXISTS;
    teff_err err = teffi_process_system_on(node->exec, opt, &system);
    if (err)
        return err;
    teffi_process_route(system, &(teffi_pid_route){.send = route,
                                                   .arg = node,
                                                   .silo = node->id.silo,
                                                   .incarnation = node->id.incarnation});
    silo->processes = system;
    teffi_node_processes(node, deliver, system);
    return TEFF_OK;
}

teff_err teff_silo_processes(teff_silo *silo, const teff_process_options *opt,
                             teff_process_system **system)
{
    pthread_mutex_lock(&silo->lock);
    teff_err err = make(silo, opt);
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
        teffi_logf(&silo->platform.log, TEFFI_WARN,
                   "silo %s: %u of %u processes did not end by themselves, the first: %s",
                   silo->node.address, report.forced, report.told,
                   report.n_named ? report.named[0].name : "?");
    return err;
}
