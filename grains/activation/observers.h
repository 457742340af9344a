/* observers.h - the observers that an activation notifies: its sets, one for each interface.
 * Way:     generated _subscribe function -> [observers] <- request/notify; hosting/handler: bounces
 *          and the end
 * Threads: on the activation's group.
 * Source:  Orleans' src/Orleans.Core/Utils/ObserverManager.cs */
#pragma once

#include <teff/observer.h>
#include "activation/activation.h"
#include "base/table.h"
#include "message/notice.h"

/* One observer in a set, on the heap. */
typedef struct teffi_subscription {
    teffi_tnode by_ref; /* its hash is that of ref */
    uint32_t index;     /* in teffi_observers.at */
    uint32_t interface;
    uint64_t number; /* differs from those of all other subscriptions of the silo */
    uint64_t expires_ns;
    uint32_t breaks; /* of the gateway, when the first notification was sent */
    bool sent;       /* a notification was sent */
    uint32_t ref_len;
    uint8_t ref[]; /* the reference, which a zero byte follows */
} teffi_subscription;

/* All sets of one activation, on the heap: act->more->observers. Never empty. */
typedef struct teffi_observers {
    teffi_subscription **at; /* NULL: free */
    uint32_t n_at, n;        /* places in at; those in use */
    uint32_t low;            /* no lower place is free */
    teffi_table by_ref;
} teffi_observers;

/* A reference that was checked. */
typedef struct teffi_observer_ref {
    int kind;                /* TEFFI_REF_CLIENT or TEFFI_REF_GRAIN */
    teffi_client_ref client; /* if it is one */
    uint32_t type;           /* of a grain */
    teff_key key;            /* of a grain; points into the bytes that were read */
} teffi_observer_ref;

/* teffi_observers_read_ref - check a reference to an observer of an interface.
 * in:   ref, followed by a zero byte. out: false: it is none. */
TEFF_MUST_USE bool teffi_observers_read_ref(uint32_t interface, const uint8_t *ref, size_t len,
                                            teffi_observer_ref *out);

/* teffi_observers_next - iterate over the set for an interface. Drops those that have expired, and
 * those to which notifications may have been lost, since the connection to their gateway broke.
 * Sets may change during the iteration.
 * in:   *at, 0 at first. out: NULL: no more; else valid until the set changes. */
teffi_subscription *teffi_observers_next(teffi_activation *act, uint32_t interface, uint32_t *at);

/* teffi_observers_send - send a notification to the gateway of a client's observer.
 * in:   act, the notifier. s, NULL: the observer is in no set, and no bounce is wanted. raw,
 *       copied.
 * errs: it was not sent: as teffi_node_send; TEFF_E_NOMEM. */
TEFF_MUST_USE teff_err teffi_observers_send(const teffi_activation *act, teffi_subscription *s,
                                            const teffi_client_ref *ref, uint32_t method_id,
                                            const uint8_t *raw, size_t len);

/* teffi_observers_mark_disconnected - its gateway could not be reached: the next use of the set
 * drops the observer, and tells it so. */
void teffi_observers_mark_disconnected(const teffi_activation *act, teffi_subscription *s);

/* teffi_observers_drop - remove an observer from its set, and tell a client why, unless it is GONE.
 * Frees s. */
void teffi_observers_drop(teffi_activation *act, teffi_subscription *s, teff_drop_reason why);

/* teffi_observers_handle_bounce - handle a TEFFI_ITEM_BOUNCE: drop the observer, if it is still the
 * same subscription. Owns msg. */
void teffi_observers_handle_bounce(teffi_activation *act, teffi_msg *msg);

/* teffi_observers_record_break - a connection to this silo broke: what was sent on it may be lost.
 * runs: on any thread. */
void teffi_observers_record_break(teffi_grains *grains, teffi_node_id silo);

/* teffi_observers_end_all - the activation ends: tell all observers of clients; free the sets.
 * teffi_observers_discard_all - free the sets only. */
void teffi_observers_end_all(teffi_activation *act);
void teffi_observers_discard_all(teffi_activation *act);
