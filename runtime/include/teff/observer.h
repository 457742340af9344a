/* observer.h - observers: typed callbacks that grains notify, in clients or in other grains.
 * Way:     grains/request/notify -> the client's gateway -> client -> [observer] -> callback
 * Threads: a client's callbacks run on the client's own worker, not on the thread that made the
 *          observer: those of one observer one after the other, those of different observers maybe
 *          side by side. */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <teff/grain.h>

TEFF_BEGIN_C

/* A service with the option observer describes notifications:
 *
 *     service Listener {
 *       option (teff.observer) = true;
 *       rpc Said (Line) returns (teff.Void);
 *     }
 *     message Joining { bytes listener = 1; }        // a reference to an observer
 *
 * A client makes an observer with chat_listener_observe(), gets a reference to it with
 * teff_observer_get_ref(), and passes the reference to a grain, as a field of type bytes. A grain
 * whose type has `observes: "chat.Listener"` is an observer, too: chat_listener_of_grain() makes
 * the reference, and the grain type has a slot for each notification, such as listener_said. A
 * grain that got a reference adds it to its set of observers with chat_listener_subscribe(), and
 * notifies the set with chat_listener_said_notify().
 *
 *   - A notification is a one-way message: it is delivered at most once, and the grain does not
 *     wait for it. Notifications of one activation to one observer arrive in order.
 *   - Each activation has a set of its own for each kind of observer. A set is not stored: it ends
 *     with the activation. A subscription ends at its expiry unless subscribe is called again with
 *     the same reference before; TEFF_OBSERVER_EXPIRY_MS is the default. So a client subscribes
 *     again in half that time, as long as it wants notifications.
 *   - If a notification of a set cannot be delivered to a client, the observer is dropped from the
 *     set, for one of these reasons: the client is gone (TEFF_DROPPED_GONE), or it is slow: already
 *     TEFF_OBSERVER_QUEUE_MAX notifications wait for the observer's callback, or the connection to
 *     the client, or on the way to its gateway, has no room (TEFF_DROPPED_SLOW). The client's
 *     callback on_dropped learns when an observer was dropped because it is slow or expired, or
 *     because the activation has ended; it may subscribe again. A client that is gone is found at
 *     the next notification, or at the expiry.
 *   - A reference leads to one gateway. If the client's connection to it breaks, on_dropped runs
 *     with TEFF_DROPPED_DISCONNECTED: notifications may be lost, the reference is no longer valid,
 *     and the client has to get a new one and to subscribe with it. If the connection between the
 *     grain's silo and the gateway breaks, the set drops the observer for the same reason when it
 *     is next used.
 *   - So the observer of a client misses no notification of a set without being told, except if the
 *     silo of the grain dies, or if the message that tells it is lost, because a connection breaks
 *     again, or because there is no memory or no room on a connection: renew subscriptions, so that
 *     the grain's set has them again. The callback on_dropped may come after later notifications.
 *   - A notification to a grain is an ordinary one-way message to it: it activates the grain if
 *     needed, is admitted like other requests, follows the grain to another silo, and is dropped if
 *     the grain's queue is full. Such an observer stays in the set until it expires or
 *     unsubscribes.
 *   - A set belongs to no transaction: subscriptions and notifications of a transactional method
 *     stay, also if the transaction is rolled back.
 *   - A reference to a client's observer cannot be guessed, and does not reveal the id of the
 *     client. Whoever has the reference can let grains notify this observer, but nothing else. A
 *     reference to a grain is no secret, as the grain's key is none: SECURITY.md. */

/* Why an observer gets no more notifications from a set. */
typedef enum teff_drop_reason {
    TEFF_DROPPED_GONE = 1,        /* no client has the observer; never told */
    TEFF_DROPPED_SLOW = 2,        /* a notification found no room; it was lost */
    TEFF_DROPPED_EXPIRED = 3,     /* nobody subscribed again in time */
    TEFF_DROPPED_ENDED = 4,       /* the activation that had the set has ended */
    TEFF_DROPPED_DISCONNECTED = 5 /* a connection on the way broke; notifications may be lost */
} teff_drop_reason;

/* What on_dropped learns; borrowed until it returns. */
typedef struct teff_dropped {
    teff_drop_reason why;
    /* The name of the grain type, and the key, of the grain that has dropped the observer; NULL if
     * the client has lost the gateway of the reference, which ends all subscriptions. */
    const char *grain_type;
    const struct teff_key *key;
} teff_dropped;

/* An observer of a client. The generated <package>_<service>_observe() makes it:
 *
 *     teff_err <package>_<service>_observe(teff_ctx *ctx,
 *                                          const <package>_<service>_methods *methods,
 *                                          void *user, teff_observer **observer);
 *
 * See teff_observer_new() in teff/generated.h. In a callback, self->ctx may make calls, which
 * suspend the callback; what it has allocated is freed after the callback. If a callback returns an
 * error, the log says so. */
typedef struct teff_observer teff_observer;

/* teff_observer_get_ref - get a reference to the observer, to be passed to grains.
 * in:   ctx, of the observer's client.
 * out:  *ref: bytes, valid as long as teff_alloc's of ctx. The same bytes until the connection to
 *       the gateway breaks, different ones afterwards. Equal references are equal bytes.
 * runs: as a call of ctx: it asks a gateway, if the observer has none. While none can be reached,
 *       it waits, at most for the timeout of ctx.
 * errs: as a call: TEFF_E_UNAVAILABLE, TEFF_E_TIMEOUT, TEFF_E_UNREACHABLE, TEFF_E_CANCELLED,
 *       TEFF_E_CLOSED, TEFF_E_NOMEM; TEFF_E_REFUSED: the gateway is older than observers. */
TEFF_API TEFF_MUST_USE teff_err teff_observer_get_ref(teff_ctx *ctx, teff_observer *observer,
                                                      ProtobufCBinaryData *ref);

/* teff_observer_free - end an observer: no callback begins any more. Grains drop it when they next
 * notify it, or at the expiry.
 * in:   observer, may be NULL; of a client that is not freed yet. Frees it.
 * runs: on any thread but the client's worker: waits until a callback that runs has returned. Not
 *       in a callback: the process aborts. */
TEFF_API void teff_observer_free(teff_observer *observer);

TEFF_END_C
