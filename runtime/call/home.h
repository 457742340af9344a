/* home.h - the part of a node that contexts, pending calls and tasks use.
 * Way:     node embeds it; ctx, wait, call, task -> [home] -> executor, transport
 * Threads: fields under "immutable" are set before messages can arrive; the rest as marked. */
#pragma once

#include "base/siphash.h"
#include "call/deadline.h"
#include "call/lease.h"
#include "link/net.h"

typedef struct teffi_call teffi_call;
struct teff_ctx;
struct teffi_node;
struct teffi_task;

enum { TEFFI_RELAY_SHARES = 1024, TEFFI_ORIGIN_BUCKETS = 4096, TEFFI_ORIGIN_LOCKS = 64 };

/* The pending calls of a node (call.h, calls.h, relay.h). */
typedef struct teffi_calls {
    teffi_slab slab; /* of teffi_call; a block's mark is its earliest deadline */
    teffi_deadlines deadlines;
    teffi_sipkey key;         /* for cookies and the hashes; immutable after teffi_node_init */
    _Atomic uint32_t cancels; /* number of kept cancels; each start of a request reads it */
    /* relays and kept cancels, listed by a keyed hash of the origin (origin.h); each bucket has one
     * of the locks */
    LIST_HEAD(, teffi_call) buckets[TEFFI_ORIGIN_BUCKETS];
    pthread_mutex_t locks[TEFFI_ORIGIN_LOCKS];
    /* number of both, by a keyed hash of the origin node */
    _Atomic uint32_t relays_of[TEFFI_RELAY_SHARES];
    _Atomic uint32_t relays; /* number of relays, until their outcome was sent on */
} teffi_calls;

/* The tasks of a node (task.h). */
typedef struct teffi_tasks {
    pthread_mutex_t lock;             /* guards free and all */
    struct teffi_task *free[2], *all; /* free[0]: with ordinary groups; free[1]: system groups */
    _Atomic uint64_t running;         /* tasks begun and not ended */
} teffi_tasks;

typedef struct teffi_home {
    /* immutable after start; net becomes NULL when the node stops */
    struct teffi_node *node;
    teffi_exec *exec;
    teffi_net *net;
    /* Ends a turn inside its method as if the method had returned err, with the text in ctx. Runs
     * on the turn's fiber, which exits afterwards. Installed by grains/hosting/install.c. */
    void (*exit_turn)(struct teff_ctx *ctx, teff_err err);
    teffi_lease lease; /* silos; atomic */
    /* these have their own locks */
    teffi_calls calls;
    teffi_tasks tasks;
    /* atomic */
    _Atomic bool closed;
    _Atomic uint32_t users; /* threads between teffi_home_enter and teffi_home_exit */
} teffi_home;

/* teffi_home_enter, teffi_home_exit - a foreign thread calls them around its use of the node;
 * teffi_node_stop waits until all threads have called exit. */
static inline void teffi_home_exit(teffi_home *home)
{
    atomic_fetch_sub(&home->users, 1);
}

/* out: false: the node is closed or closing; do not call teffi_home_exit. */
static inline bool teffi_home_enter(teffi_home *home)
{
    /* seq_cst on both sides: this thread reads `closed` as true, or teffi_node_stop() counts it */
    atomic_fetch_add(&home->users, 1);
    if (!atomic_load(&home->closed))
        return true;
    teffi_home_exit(home);
    return false;
}
