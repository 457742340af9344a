/* node.h - one silo or client: its identity, its parts, and where each arriving message goes.
 * Way:     wire/net -> [node] -> pending call | system target | grains (upcalls.request)
 * Threads: fields under "immutable" are set before start; the rest as marked. */
#ifndef TEFFI_NODE_H
#define TEFFI_NODE_H

#include <pthread.h>
#include <stdatomic.h>
#include "node/call.h"
#include "platform/platform.h"
#include "process/msg.h"
#include "sched/exec.h"
#include "store/store.h"
#include "wire/net.h"

struct teffi_view;
struct teffi_membership;
struct teffi_grains;
typedef struct teffi_task teffi_task;

/* The seams through which data flows up into the grains layer; all installed
 * by grains/install.c. */
typedef struct teffi_upcalls {
    /* A request or one-way for a grain, from a peer: route it. Owns msg. Must not block. */
    void (*request)(teffi_node *node, teffi_msg *msg);
    /* The view changed, from old (may be NULL) to now. One at a time. Must not block. */
    void (*view)(teffi_node *node, const struct teffi_view *old, const struct teffi_view *now);
} teffi_upcalls;

/* A system target: gets each message to its slot, one at a time, on a worker's stack; owns msg. */
typedef void teffi_target_fn(teffi_node *node, teffi_msg *msg);

/* A message from another silo to a process: borrowed. errs: nobody got it. Must not block. */
typedef teff_err teffi_process_fn(void *arg, const teffi_msg *msg);

typedef struct teffi_target {
    teffi_group group;
    teffi_node *node;
    teffi_target_fn *handle;
} teffi_target;

struct teffi_node {
    /* immutable after start */
    const teffi_platform *platform;
    teffi_exec *exec;
    teffi_net *net;
    teffi_store *store; /* silos */
    uint32_t role;      /* TEFFI_ROLE_* */
    teffi_node_id id;
    char cluster[TEFFI_CLUSTER_MAX + 1];
    char address[TEFFI_ADDRESS_MAX + 1];
    teffi_upcalls upcalls;
    /* installed by runtime/silo; may be NULL. As in net.h. */
    void (*net_up)(teffi_node *node, const teffi_hello *peer);
    void (*net_down)(teffi_node *node, const teffi_hello *peer, bool clean);
    struct teffi_membership *membership;
    struct teffi_grains *grains; /* theirs; opaque here */
    teffi_target targets[TEFFI_SLOT_SYSTEM_END];
    teffi_process_fn *processes; /* messages to PIDs of processes; set before processes_arg */
    void *_Atomic processes_arg; /* NULL: there are none. release: pairs with to_process */
    /* own locks */
    teffi_calls calls;
    /* guarded by lock */
    pthread_mutex_t lock;
    const struct teffi_view *view; /* silos; counted references */
    teffi_task *free_tasks, *all_tasks;
    /* atomic */
    _Atomic uint64_t gateway; /* clients: the node where calls go; written under lock */
    _Atomic uint64_t tasks;   /* running tasks (node/task.h) */
    _Atomic bool leaving;     /* a silo that takes no new clients */
    _Atomic bool closed;
    _Atomic uint32_t users;   /* threads inside teffi_node_enter */
    _Atomic uint64_t dropped; /* messages that could not be delivered or answered */
};

/* teffi_node_init - identity and empty parts; exec is made, net and store are the caller's.
 * errs: TEFF_E_NOMEM, TEFF_E_IO (from the executor). */
TEFF_MUST_USE teff_err teffi_node_init(teffi_node *node, const teffi_platform *platform,
                                       uint32_t role, const char *cluster, unsigned workers,
                                       const teff_sched_options *sched);

/* teffi_node_enter, teffi_node_exit - around what a thread outside does with a node, so that it
 * does not close under it. out: false: the node is closed or closing. */
bool teffi_node_enter(teffi_node *node);
void teffi_node_exit(teffi_node *node);

/* teffi_node_stop - calls of threads end as TEFF_E_CANCELLED, no new ones begin; then nothing runs
 * any more and the transport is gone. Tasks must have ended, but for those that turns begin which
 * had to be dropped. Not from a worker. */
void teffi_node_stop(teffi_node *node);

/* teffi_node_free_exec - the executor and tasks, after stop, when nobody needs items on the stacks
 * of dropped turns any more. */
void teffi_node_free_exec(teffi_node *node);

/* teffi_node_fini - the rest, when its contexts are gone too. Zeroed memory is allowed. */
void teffi_node_fini(teffi_node *node);

/* teffi_node_net_events - what to give to platform.net_new, with the node as arg. */
extern const teffi_net_events teffi_node_net_events;

/* teffi_node_target - serve a system slot. Before messages can arrive. */
void teffi_node_target(teffi_node *node, unsigned slot, teffi_target_fn *handle);

/* teffi_node_processes - this node has processes from now on. Once. in: arg, not NULL. */
void teffi_node_processes(teffi_node *node, teffi_process_fn *deliver, void *arg);

/* teffi_target_name - of a target that is served, in words. */
const char *teffi_target_name(const teffi_target *target);

/* teffi_node_deliver - a message that is here: to a call, a target or the grains. Owns msg.
 * runs: any thread; does not block. */
void teffi_node_deliver(teffi_node *node, teffi_msg *msg);

/* teffi_node_send - to a node, this one included (then as deliver).
 * in:   msg, moves on TEFF_OK only. errs: as net.h's send; surely not sent. */
TEFF_MUST_USE teff_err teffi_node_send(teffi_node *node, teffi_node_id to, teffi_msg *msg);

/* teffi_node_answer - end a request with an error or without a body. in: request, owned; may be a
 * one-way (then it is only freed). text may be NULL. */
void teffi_node_answer(teffi_node *node, teffi_msg *request, teff_err err, const char *text);

/* teffi_node_answer_with - end a request with a body, borrowed, packed. Owns request. */
void teffi_node_answer_with(teffi_node *node, teffi_msg *request, const ProtobufCMessage *body);

/* teffi_node_response - a response to request, with nothing in it yet. out: NULL: memory is out.
 * teffi_node_response_in - request itself, made its own response; its arena stays. out: where to.
 * teffi_node_respond - send it to where the request says. teffi_node_respond_to - to to. Own it. */
teffi_msg *teffi_node_response(const teffi_node *node, const teffi_msg *request);
teffi_node_id teffi_node_response_in(const teffi_node *node, teffi_msg *request);
void teffi_node_respond(teffi_node *node, const teffi_msg *request, teffi_msg *response);
void teffi_node_respond_to(teffi_node *node, teffi_node_id to, teffi_msg *response);

#endif
