/* generated.h - the contract of generated code: descriptions of types, functions called by stubs.
 * Programs include x.teff.h, which includes this file; they do not call these functions directly.
 * Way:     x.proto -> protoc-gen-teff -> x.teff.[ch] -> [generated] -> grains/
 * Threads: descriptions are constant; a teff_ctx belongs to one turn or one thread. */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdint.h>
#include <teff/arena.h>
#include <teff/copy.h>
#include <teff/grain.h>
#include <teff/observer.h>
#include <teff/reminder.h>
#include <teff/timer.h>

TEFF_BEGIN_C

/* ---- keys ------------------------------------------------------------------------------- */

typedef enum teff_key_kind {
    TEFF_KEY_STRING = 1, /* UTF-8, 1 .. TEFF_KEY_MAX bytes */
    TEFF_KEY_INT64 = 2,
    TEFF_KEY_UUID = 3,
    TEFF_KEY_INT64_STRING = 4, /* compound: a number and a name */
    TEFF_KEY_UUID_STRING = 5
} teff_key_kind;

/* A grain's key as the caller passes it; text is borrowed. kind says which members are used. */
typedef struct teff_key {
    teff_key_kind kind;
    const char *text;
    int64_t number;
    teff_uuid uuid;
} teff_key;

/* ---- messages --------------------------------------------------------------------------- */

/* A message type's functions for the runtime. */
typedef struct teff_message_ops {
    const ProtobufCMessageDescriptor *desc;
    /* Deep copy into arena, including unknown fields. NULL: out of memory, over TEFF_DEPTH_MAX, or
     * src, or a message in a list or in a required field, is NULL. A NULL string or bytes field
     * becomes "" or empty. */
    ProtobufCMessage *(*copy)(teff_arena *arena, const ProtobufCMessage *src);
} teff_message_ops;

/* The argument of generated thunks: the running activation, as seen from this turn. */
typedef struct teff_grain {
    teff_ctx *ctx;
    teff_key key;
    ProtobufCMessage *state; /* NULL for a type without state */
    void *user;              /* as passed to the type's constructor */
} teff_grain;

/* ---- types ------------------------------------------------------------------------------ */

/* teff_method.flags */
enum {
    TEFF_METHOD_READ_ONLY = 1,         /* may interleave with other read-only methods */
    TEFF_METHOD_ALWAYS_INTERLEAVE = 2, /* may interleave with every method */
    TEFF_METHOD_ONE_WAY = 4,           /* returns teff.Void; no response is sent */
    TEFF_METHOD_IDEMPOTENT = 8,    /* the runtime may run it again when the outcome is unknown */
    TEFF_METHOD_TRANSACTIONAL = 16 /* runs in its caller's transaction, or begins one */
};

/* C++: no exception may leave a method or any other function that the runtime calls: the process
 * would end in std::terminate. A method may wait in a catch block: the caught exception is kept per
 * turn if the C++ library was loaded at the program's start, not by a later dlopen. */
typedef struct teff_method {
    const char *name; /* full: "words.Word.Add" */
    uint32_t id;      /* explicit, or hashed from the full name; never 0 */
    uint32_t flags;
    uint32_t timeout_ms;         /* 0 = the default, 30 s */
    const teff_message_ops *in;  /* NULL for teff.Void */
    const teff_message_ops *out; /* NULL for teff.Void */
    /* Calls the user's method; in and out are NULL for teff.Void; *out is initialised. */
    teff_err (*invoke)(const teff_grain *grain, const void *methods, const ProtobufCMessage *in,
                       ProtobufCMessage *out);
} teff_method;

typedef enum teff_placement {
    TEFF_PLACE_RANDOM = 0,       /* any silo that hosts the type */
    TEFF_PLACE_PREFER_LOCAL = 1, /* the caller's silo if it hosts the type, else random */
    TEFF_PLACE_HASH = 2,         /* by the key's hash over the silos that host the type */
    TEFF_PLACE_STATELESS = 3     /* a stateless worker: each silo has activations of its own */
} teff_placement;

enum { TEFF_TYPE_REENTRANT = 1 /* every method may interleave with every other */ };

typedef struct teff_type_info {
    const char *name; /* full service name: "words.Word" */
    uint32_t id;      /* hashed from the name; never 0 */
    uint32_t flags;
    teff_key_kind key_kind;
    teff_placement placement;
    uint32_t idle_ms;           /* deactivate after this time without use; 0 = 15 min */
    uint32_t queue_max;         /* requests that may be queued at one activation; 0 = 10,000 */
    uint32_t max_message_bytes; /* of one packed request or response; 0 = TEFF_MESSAGE_MAX */
    uint32_t answers_max;       /* kept, to calls with idempotency keys; 0 = TEFF_ANSWERS_DEFAULT */
    const teff_message_ops *state; /* NULL: no state */
    const teff_method *methods;    /* sorted by id, rising */
    size_t n_methods;
    /* Call the user's on_activate / on_deactivate; TEFF_OK when the slot is NULL. */
    teff_err (*activate)(const teff_grain *grain, const void *methods);
    teff_err (*deactivate)(const teff_grain *grain, const void *methods, teff_reason why);
    /* Offsets of those slots in methods. The runtime starts no turn for a NULL slot; 0: unknown. */
    size_t on_activate_at, on_deactivate_at;
    uint32_t version;  /* of the interface, at most 63; 0: none */
    uint32_t pool_max; /* activations of a stateless worker's grain on one silo; 0: as workers */
    /* Call the user's on_reminder (teff/reminder.h); offset of its slot. NULL, 0: the type has no
     * such slot. */
    teff_err (*remind)(const teff_grain *grain, const void *methods, const teff_tick *tick);
    size_t on_reminder_at;
} teff_type_info;

/* teff_grain_type_new - bind an implementation to a type.
 * in:   info, constant; methods, the type's generated struct of slots, and user: both borrowed
 *       for as long as a silo hosts the type.
 * out:  owned by the caller until a silo takes it. Never NULL: without memory it is a type that
 *       every silo refuses with TEFF_E_NOMEM.
 * runs: any thread.
 * from: called by the generated <package>_<service>_type(). */
TEFF_API teff_grain_type *teff_grain_type_new(const teff_type_info *info, const void *methods,
                                              void *user);

/* ---- calls ------------------------------------------------------------------------------ */

/* teff_ask - call a method of a grain and wait for its response.
 * in:   ctx, the caller. key, of type->key_kind, borrowed. in, borrowed, copied or packed before
 *       the return; NULL for teff.Void.
 * out:  *out, if not NULL and the method returns a message: valid until the turn ends,
 *       teff_ctx_rewind or, on the context of a thread or process, teff_ctx_reset.
 * runs: suspends a turn (other requests enter only as admission allows), blocks a thread. From a
 *       turn, an idle grain of the same silo runs its method at once, inside the caller's turn,
 *       which cannot time out before the method waits or returns.
 * errs: TEFF_E_TIMEOUT, TEFF_E_UNREACHABLE, TEFF_E_CANCELLED (outcome unknown);
 *       TEFF_E_OVERLOADED, TEFF_E_UNAVAILABLE, TEFF_E_INVALID, TEFF_E_REFUSED, TEFF_E_CLOSED (not
 *       run); TEFF_E_TOO_LARGE, TEFF_E_MALFORMED (see teff/limits.h; of the request: not run; of
 *       the response: it ran); TEFF_E_NOT_FOUND, TEFF_E_UNIMPLEMENTED; TEFF_E_VERSION and
 *       TEFF_E_DEADLOCK (not run);
 *       TEFF_E_NOMEM; the method's own; those of transactions (teff/grain.h). teff_error(ctx) has
 *       the text.
 * from: Orleans GrainReference; ARCHITECTURE "The way of a call". */
TEFF_API TEFF_MUST_USE teff_err teff_ask(teff_ctx *ctx, const teff_type_info *type,
                                         const teff_key *key, const teff_method *method,
                                         const ProtobufCMessage *in, ProtobufCMessage **out);

/* teff_ask_async - begin a call without waiting; then teff_await, teff_await_all or _any.
 * in:   as teff_ask. options, borrowed, copied; NULL: all defaults.
 * out:  *call: the pending call, or none on an error.
 * runs: as teff_ask, without waiting; on a client's context it waits while no gateway can be
 *       reached, at most until the deadline. From a turn and without options->cancel, the method
 *       may run inside this function until it waits or returns.
 * errs: the call could not begin and did not run. TEFF_E_INVALID: also for options;
 *       TEFF_E_CANCELLED: options->cancel has fired; TEFF_E_TIMEOUT: the deadline of the turn's own
 *       caller has passed; TEFF_E_CLOSED, TEFF_E_TOO_LARGE, TEFF_E_MALFORMED, TEFF_E_NOMEM.
 *       teff_error(ctx) has the text. */
TEFF_API TEFF_MUST_USE teff_err teff_ask_async(teff_ctx *ctx, const teff_type_info *type,
                                               const teff_key *key, const teff_method *method,
                                               const ProtobufCMessage *in,
                                               const teff_call_options *options, teff_call *call);

/* teff_send - send a one-way message: no response, no error from the grain.
 * in:   as teff_ask.
 * runs: as teff_ask_async.
 * errs: the message was not sent: TEFF_E_INVALID, TEFF_E_TOO_LARGE, TEFF_E_MALFORMED,
 *       TEFF_E_OVERLOADED, TEFF_E_UNAVAILABLE, TEFF_E_CLOSED, TEFF_E_NOMEM. */
TEFF_API TEFF_MUST_USE teff_err teff_send(teff_ctx *ctx, const teff_type_info *type,
                                          const teff_key *key, const teff_method *method,
                                          const ProtobufCMessage *in);

/* teff_await - wait until a call has ended, and take its response.
 * in:   call, begun on this ctx. It may be awaited again.
 * out:  *out as in teff_ask.
 * runs: suspends a turn, blocks a thread; returns at once if the call has ended.
 * errs: TEFF_E_INVALID: the call is none; the call's own error. teff_error(ctx) has the text. */
TEFF_API TEFF_MUST_USE teff_err teff_await(teff_ctx *ctx, teff_call call, ProtobufCMessage **out);

/* ---- timers ----------------------------------------------------------------------------- */

/* teff_timer_start - start a timer of the running activation: see teff/timer.h.
 * in:   ctx, of a turn of the grain; on_activate may start timers, on_deactivate may not. type and
 *       method: of that grain, one-way. in, borrowed, copied; NULL for teff.Void. options,
 *       borrowed, copied; NULL: all defaults.
 * out:  *timer, if timer is not NULL; none on an error. The timer is freed when it has no tick any
 *       more, or with the activation.
 * runs: in that turn, not in a part that it has forked (teff/fork.h: the process aborts). Does not
 *       wait, and runs no tick.
 * errs: TEFF_E_INVALID: not in such a turn, or for options; TEFF_E_CLOSED: in on_deactivate;
 *       TEFF_E_OVERLOADED: the activation has TEFF_TIMERS_MAX timers; TEFF_E_TOO_LARGE,
 *       TEFF_E_MALFORMED: of the message, as for a request; TEFF_E_NOMEM. teff_error(ctx) has the
 *       text.
 * from: Orleans RegisterGrainTimer; Erlang erlang:send_after(Time, self(), Message). */
TEFF_API TEFF_MUST_USE teff_err teff_timer_start(teff_ctx *ctx, const teff_type_info *type,
                                                 const teff_method *method,
                                                 const ProtobufCMessage *in,
                                                 const teff_timer_options *options,
                                                 teff_timer *timer);

/* ---- observers: see teff/observer.h ------------------------------------------------------- */

/* An observer interface. The methods' thunks get the client's callbacks as methods, and a
 * teff_grain with ctx and user only. */
typedef struct teff_observer_info {
    teff_type_info type; /* name, id and methods, which are one-way; the rest is zero */
    /* Calls the user's on_dropped, if there is one. */
    void (*dropped)(const teff_grain *grain, const void *methods, const teff_dropped *how);
} teff_observer_info;

/* teff_observer_new - make an observer of a client: see teff/observer.h.
 * in:   ctx, of a client. info, constant. methods, the interface's generated struct of callbacks,
 *       and user: borrowed until the observer is freed.
 * out:  *observer, to be freed by teff_observer_free; NULL on an error. It needs no connection yet.
 * runs: on ctx's thread, or in a callback of the same client.
 * errs: TEFF_E_INVALID: ctx belongs to a silo; TEFF_E_OVERLOADED: the client has
 *       TEFF_CLIENT_OBSERVERS_MAX observers; TEFF_E_CLOSED; TEFF_E_NOMEM.
 * from: Orleans IGrainFactory.CreateObjectReference. */
TEFF_API TEFF_MUST_USE teff_err teff_observer_new(teff_ctx *ctx, const teff_observer_info *info,
                                                  const void *methods, void *user,
                                                  teff_observer **observer);

/* teff_observer_of_grain - make a reference to the running grain as an observer.
 * in:   ctx, of a turn of the grain.
 * out:  *ref, valid as long as teff_alloc's of ctx. It does not depend on the activation: a
 *       notification goes to the grain, wherever it is.
 * runs: in that turn.
 * errs: TEFF_E_INVALID: not in a turn, or the grain's type does not implement info. */
TEFF_API TEFF_MUST_USE teff_err teff_observer_of_grain(teff_ctx *ctx,
                                                       const teff_observer_info *info,
                                                       ProtobufCBinaryData *ref);

/* teff_observers_subscribe - add an observer to the running activation's set for info or, if the
 * set has it, renew its expiry.
 * in:   ctx, of a turn of the grain; on_deactivate may not subscribe. ref, copied. expiry_ms, from
 *       now; 0: TEFF_OBSERVER_EXPIRY_MS.
 * runs: in that turn. Does not wait.
 * errs: TEFF_E_INVALID: not in a turn, or in one of a stateless worker; ref is no reference to an
 *       observer of this kind; TEFF_E_CLOSED: in on_deactivate; TEFF_E_OVERLOADED: the activation
 *       has TEFF_OBSERVERS_MAX observers; TEFF_E_NOMEM. teff_error(ctx) has the text.
 * from: Orleans ObserverManager.Subscribe, which never forgets an observer that is slow. */
TEFF_API TEFF_MUST_USE teff_err teff_observers_subscribe(teff_ctx *ctx,
                                                         const teff_observer_info *info,
                                                         ProtobufCBinaryData ref,
                                                         uint32_t expiry_ms);

/* teff_observers_unsubscribe - remove an observer from the set; it is not told.
 * in:   ctx, of a turn of the grain. ref, borrowed.
 * out:  false: the set did not have it, or it had expired.
 * runs: in that turn. */
TEFF_API bool teff_observers_unsubscribe(teff_ctx *ctx, const teff_observer_info *info,
                                         ProtobufCBinaryData ref);

/* teff_observers_count - count the observers in the set, without those that have expired.
 * in:   ctx, of a turn of the grain.
 * out:  0: also if ctx is not in a turn.
 * runs: in that turn. */
TEFF_API size_t teff_observers_count(teff_ctx *ctx, const teff_observer_info *info);

/* teff_notify - notify all observers of the running activation's set for info. Removes those that
 * have expired, and those that cannot be reached, as far as this is known at once.
 * in:   in, borrowed; NULL for teff.Void.
 * runs: in a turn of the grain. Does not wait; an observer that is an idle grain of this silo may
 *       run its method inside this function.
 * errs: nobody was notified: TEFF_E_INVALID: not in a turn, or in is NULL; TEFF_E_TOO_LARGE,
 *       TEFF_E_MALFORMED: of the message, as for a request. teff_error(ctx) has the text.
 * teff_notify_one - notify one observer, which need not be in the set.
 * errs: as teff_notify; TEFF_E_INVALID: also for ref; TEFF_E_UNREACHABLE, TEFF_E_CLOSED,
 *       TEFF_E_OVERLOADED, TEFF_E_NOMEM: it was not sent. TEFF_OK: it may still be lost.
 * from: Orleans ObserverManager.Notify. */
TEFF_API TEFF_MUST_USE teff_err teff_notify(teff_ctx *ctx, const teff_observer_info *info,
                                            const teff_method *method, const ProtobufCMessage *in);
TEFF_API TEFF_MUST_USE teff_err teff_notify_one(teff_ctx *ctx, const teff_observer_info *info,
                                                const teff_method *method, ProtobufCBinaryData ref,
                                                const ProtobufCMessage *in);

/* ---- state ------------------------------------------------------------------------------ */

/* teff_state_save - write the running activation's whole state to the store, including unsaved
 * changes of other turns. Unknown fields, written by a newer version of the message, are kept.
 * in:   ctx, of the turn.
 * runs: in a turn of a type with state; suspends it. In a transaction, and in the turn of a call
 *       with an idempotency key, it only checks the state: see teff_call_options.once.
 * errs: TEFF_E_INVALID: not in such a turn.
 *       TEFF_E_TOO_LARGE, TEFF_E_MALFORMED (see the limits; the text names the field), TEFF_E_IO,
 *       TEFF_E_OVERLOADED, TEFF_E_NOMEM, TEFF_E_CLOSED: nothing was written. The state in memory
 *       keeps all changes, and the next successful save, in any turn or in on_deactivate, writes
 *       them. A method that does not want that must undo its change before it returns the error.
 *       TEFF_E_UNKNOWN: it may have been written. The activation ends, and the next call loads the
 *       stored state. Until then a save (in a running turn or in on_deactivate) reads the row
 *       first, to tell its own earlier write from a conflict.
 *       TEFF_E_CONFLICT: nothing was written; another writer has changed the row. The activation
 *       ends without writing (a save in on_deactivate fails in the same way), and the next call
 *       loads the other writer's state.
 * from: Orleans IPersistentState: WriteStateAsync, InconsistentStateException. */
TEFF_API TEFF_MUST_USE teff_err teff_state_save(teff_ctx *ctx);

/* teff_state_clear - remove the stored row and empty the state in memory.
 * in, runs, errs: as teff_state_save. */
TEFF_API TEFF_MUST_USE teff_err teff_state_clear(teff_ctx *ctx);

/* teff_state_copy - a deep copy of a message for the state, including unknown fields; generated
 * <message>_keep() calls it with the message's own types.
 * in:   ops, of src's type. src, any message, also a part of the same state; NULL: none.
 * out:  NULL only for src NULL; lives as long as memory of teff_state_alloc.
 * runs: as teff_state_alloc.
 * errs: none returned. The turn ends as on exhausted memory, but with TEFF_E_TOO_LARGE if src nests
 *       deeper than TEFF_DEPTH_MAX, with TEFF_E_MALFORMED if src has a NULL message in a list or in
 *       a required field. Received requests and responses never do.
 * from: Orleans keeps references; here whatever outlives the turn is copied. */
TEFF_API ProtobufCMessage *teff_state_copy(teff_ctx *ctx, const teff_message_ops *ops,
                                           const ProtobufCMessage *src);

/* teff_state_append - append an element to a list of the state. A full list doubles its capacity,
 * so an append is O(1) amortized. Generated <message>_append_<field>() functions call these with
 * the field's own types.
 * in:   list, the address of the message's list field: T **; n, its number of elements; element, of
 *       size bytes, copied bitwise. _text, _bytes and _message append a (deep) copy of src, which
 *       may be part of the same state; NULL: an empty one. No two fields may share such a list.
 * out:  *list and *n. When the list grows, *list moves; the old list stays readable until the turn
 *       ends and is then reclaimed as teff_state_alloc says. _message: the copy, never NULL.
 * runs: as teff_state_alloc.
 * errs: as teff_state_alloc, teff_state_copy.
 * from: Go's append. */
TEFF_API void teff_state_append(teff_ctx *ctx, void *list, size_t *n, const void *element,
                                size_t size);
TEFF_API void teff_state_append_text(teff_ctx *ctx, void *list, size_t *n, const char *src);
TEFF_API void teff_state_append_bytes(teff_ctx *ctx, void *list, size_t *n,
                                      ProtobufCBinaryData src);
TEFF_API ProtobufCMessage *teff_state_append_message(teff_ctx *ctx, void *list, size_t *n,
                                                     const teff_message_ops *ops,
                                                     const ProtobufCMessage *src);

TEFF_END_C
