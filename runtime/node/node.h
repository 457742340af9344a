/* node.h - one silo or client: its identity and its parts.
 * Way:     silo, client -> [node] -> executor, calls, tasks; deliver.h sends messages through it
 * Threads: fields under "immutable" are set before start; the rest as marked. */
#pragma once

#include "call/home.h"
#include "node/gateways.h"
#include "store/store.h"

struct teffi_view;
struct teffi_membership;
struct teffi_grains;

typedef struct teffi_node teffi_node;

/* Callbacks into the grains layer. Installed by grains/hosting/install.c; a client's unsent by
 * grains/silo/client.c. */
typedef struct teffi_upcalls {
    /* A request or one-way for a grain, from a peer: route it. Owns msg. Must not block. */
    void (*request)(teffi_node *node, teffi_msg *msg);
    /* A message to a grain, or a client's message to a gateway, did not reach that node: route it
     * again. Owns msg. Must not block. */
    void (*unsent)(teffi_node *node, teffi_node_id to, teffi_msg *msg);
    /* A message to TEFFI_SLOT_OBSERVER (message/notice.h). unsent: a notification, a drop or a
     * bounce of this node that did not reach its next hop. Owns msg. Must not block. Installed
     * also by silo/observer.c. */
    void (*notice)(teffi_node *node, teffi_msg *msg, bool unsent);
    /* The view changed from old (may be NULL) to now, both borrowed. Runs under membership's
     * follow.lock, so calls do not overlap. Must not block. */
    void (*view)(teffi_node *node, const struct teffi_view *old, const struct teffi_view *now);
} teffi_upcalls;

/* Handles a message to a system target, one at a time, on a worker's stack. Owns msg. */
typedef void teffi_target_fn(teffi_node *node, teffi_msg *msg);

typedef struct teffi_target {
    teffi_group group;
    teffi_node *node;
    teffi_target_fn *handle;
} teffi_target;

enum {
    TEFFI_MESSAGE_BYTES_DEFAULT = 256 * 1024 * 1024,
    TEFFI_GRAIN_BYTES_DEFAULT = 16 * 1024 * 1024
};

struct teffi_node {
    /* immutable after start */
    const teffi_platform *platform;
    teffi_store *store;       /* silos */
    teffi_budget *budget;     /* bytes of all messages queued or running here */
    uint32_t grain_bytes_max; /* bytes of requests queued at one grain */
    uint32_t role;            /* TEFFI_ROLE_* */
    teffi_node_id id;
    char cluster[TEFFI_CLUSTER_MAX + 1];
    char address[TEFFI_ADDRESS_MAX + 1];
    teffi_upcalls upcalls;
    /* net.h's up and down events. Installed by grains/silo; may be NULL. */
    void (*net_up)(teffi_node *node, const teffi_hello *peer);
    void (*net_down)(teffi_node *node, const teffi_hello *peer, bool clean);
    /* This silo's lease has ended. Called once; must not block. Installed by grains/silo; may be
     * NULL. */
    void (*lost)(teffi_node *node, const char *why);
    /* May this request or one-way of a client, for a grain, be delivered? Called before that. Must
     * not block. Installed by grains/silo; NULL: it may. */
    bool (*authorize)(teffi_node *node, const teffi_hello *client, const teffi_msg *msg);
    /* May a silo that dialled us connect? errs: TEFF_E_REFUSED, text. Installed by membership. */
    teff_err (*check_silo)(teffi_node *node, const teffi_hello *peer, char *text);
    /* May a silo that we dialled have its certificate's key? As check_silo. */
    teff_err (*check_key)(teffi_node *node, const teffi_hello *peer, char *text);
    /* Another silo knows this version of the view. Must not block. Installed by
     * membership. */
    void (*hear_view)(teffi_node *node, uint64_t version);
    /* Keeps or refuses a message of a silo that the view does not know, or of which messages are
     * kept. Owns msg if it returns true; false: deliver msg. Called while `strangers` is not 0.
     * Must not block. Installed by membership. */
    bool (*hold)(teffi_node *node, teffi_msg *msg);
    struct teffi_membership *membership;
    struct teffi_grains *grains;          /* opaque here */
    struct teffi_borrowers *borrowers;    /* the same; silos */
    const struct teffi_filters *outgoing; /* the same: of calls from here; NULL: none */
    teffi_target targets[TEFFI_SLOT_SYSTEM_END];
    /* of this silo's PIDs; NULL: none. Set once, with release (pid.h) */
    struct teff_process_system *_Atomic processes;
    /* these have their own locks */
    teffi_home home;
    /* guarded by lock */
    pthread_mutex_t lock;
    const struct teffi_view *view; /* silos; counted references */
    /* atomic */
    teffi_gateways gateways;   /* clients: written under lock */
    _Atomic bool leaving;      /* silos: refuse new clients */
    _Atomic bool open;         /* every target of messages is initialized; set once, with release */
    _Atomic uint64_t seed;     /* the only node that may connect before open; 0: none */
    _Atomic uint32_t greeting; /* clients between accepted hello and up or gone */
    /* silos whose messages hold() takes; relaxed, because the count is set before the first message
     * of a connection is reported */
    _Atomic uint32_t strangers;
    _Atomic uint64_t dropped; /* messages that could not be delivered or responded to */
};

/* teffi_node_init - initialize the node and make its executor; the caller sets net and store.
 * errs: TEFF_E_NOMEM, TEFF_E_IO (from the executor); then node needs no fini. */
TEFF_MUST_USE teff_err teffi_node_init(teffi_node *node, const teffi_platform *platform,
                                       uint32_t role, const char *cluster, unsigned workers,
                                       const teff_sched_options *sched);

/* teffi_node_stop - end pending calls as TEFF_E_CANCELLED, refuse new ones, stop the executor, free
 * the transport. All tasks must have ended (teffi_tasks_count_running).
 * runs: not on a worker. */
void teffi_node_stop(teffi_node *node);

/* teffi_node_free_exec_and_tasks - free the executor and tasks. Call it after teffi_node_stop, when
 * no item on the stack of a dropped turn is referenced any more: the stacks are unmapped. */
void teffi_node_free_exec_and_tasks(teffi_node *node);

/* teffi_node_fini - free the rest, after all contexts of the node. Accepts zeroed memory. */
void teffi_node_fini(teffi_node *node);

/* teffi_node_set_target - install the handler of a system slot. Once for each slot, before messages
 * can arrive. */
void teffi_node_set_target(teffi_node *node, unsigned slot, teffi_target_fn *handle);

/* teffi_target_name - the name of an installed target, for reports. */
const char *teffi_target_name(const teffi_target *target);

/* teffi_node_net_events - the callbacks to pass to platform.net_new, with the node as arg. */
extern const teffi_net_events teffi_node_net_events;
