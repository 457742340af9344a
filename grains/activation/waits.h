/* waits.h - the activations of a silo that have set requests aside: each of them is visited about
 * every 25 ms, while requests wait there.
 * Way:     hosting/handler (a request is set aside) -> [waits] -> timer -> an item of the group
 *          -> request/deadlock
 * Threads: on the activation's group; the timer: any worker. Both change act->watched, by atomic
 *          read-modify-write operations: so if the timer removes an activation from the list, and
 *          the activation sets a request aside, the later of them sees what the other has done.
 *
 * A request that waits for less than 25 ms costs the test of a flag, and at most once in 25 ms a
 * place in the list: the activation is not visited. The timer runs only while the list is not
 * empty. A probe (request/deadlock.h) is due two visits after one that found new requests, so it
 * never follows from a wait of less than 50 ms. Then probes are repeated, since messages may be
 * lost; each pause is twice as long as the one before, up to a second. New requests shorten the
 * pause again. */
#pragma once

#include <pthread.h>
#include "activation/activation.h"

enum {
    TEFFI_VISIT_MS = 25,
    /* A few more activations than this may be watched: threads count at the same time. */
    TEFFI_VISITED_MAX = 64 * 1024,
    /* With more activations than this, visits are further apart: 40,000 a second. */
    TEFFI_VISITS_MAX = 1024
};

typedef struct teffi_waits {
    teffi_node *node;         /* immutable */
    pthread_mutex_t lock;     /* guards the next four; a leaf, but the timer is set under it */
    teffi_queue listed;       /* activations to visit */
    teffi_timer timer;        /* set if an activation is listed */
    bool is_set;              /* timer is set, and has not fired */
    bool closed;              /* the timer is not set any more */
    _Atomic uint32_t watched; /* relaxed: activations listed, and visits on the way */
    /* of deadlock.c: */
    uint64_t window_ns;       /* by the target's handler only: the current window's end */
    uint32_t received;        /* the same: probes received in this window */
    _Atomic uint64_t probes;  /* relaxed: probes sent or pushed */
    _Atomic uint64_t reports; /* relaxed: requests that ended with TEFF_E_DEADLOCK */
} teffi_waits;

/* teffi_waits_init - in zeroed memory.
 * teffi_waits_stop - set the timer no more. teffi_waits_fini - after the executor has stopped. */
void teffi_waits_init(teffi_waits *waits, teffi_node *node);
void teffi_waits_stop(teffi_waits *waits);
void teffi_waits_fini(teffi_waits *waits);

/* teffi_activation.watched */
enum {
    TEFFI_WATCHED = 1, /* listed, or a visit is on the way */
    TEFFI_WAITED = 2   /* a request was set aside since the last look or visit */
};

/* teffi_waits_watch - a request was set aside at act: list act for visits, unless it is listed. If
 *       the list is full, or there is no memory, does nothing: the next request tries again. */
void teffi_waits_watch(teffi_activation *act);

/* teffi_waits_both_flags_are_set - are TEFFI_WATCHED and TEFFI_WAITED both set? If so, there is no
 * need to call teffi_waits_watch(), because it would change nothing.
 * relaxed: if the timer clears TEFFI_WAITED at the same time, act stays listed. When the timer
 * looks at act again, it finds the request in act->queued. */
static inline bool teffi_waits_both_flags_are_set(const teffi_activation *act)
{
    return atomic_load_explicit(&act->watched, memory_order_relaxed) ==
           (TEFFI_WATCHED | TEFFI_WAITED);
}

/* teffi_waits_list_again_and_count_down - handle a TEFFI_ITEM_VISIT: list act again and, if
 * requests are set aside there, count down to the next probe. If act's memory was reused for
 * another grain after the visit was made, only free the visit. Owns item.
 * out: true: a probe is due now. */
TEFF_MUST_USE bool teffi_waits_list_again_and_count_down(teffi_activation *act, teffi_item *item);

/* teffi_waits_free_visit - free a TEFFI_ITEM_VISIT that will not be handled. */
void teffi_waits_free_visit(teffi_item *item);
