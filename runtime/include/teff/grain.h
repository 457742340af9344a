/* grain.h - what generated code and grain code need: keys, descriptions of types, calls.
 * Way:     x.proto -> protoc-gen-teff -> x.teff.[ch] -> [this contract] -> grains/
 * Threads: descriptions are constant; a teff_ctx belongs to one turn or one thread. */
#ifndef TEFF_GRAIN_H
#define TEFF_GRAIN_H

#include <errno.h>
#include <protobuf-c/protobuf-c.h>
#include <stdint.h>
#include <teff/arena.h>
#include <teff/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- keys ------------------------------------------------------------------------------- */

typedef struct teff_uuid {
    uint8_t bytes[16];
} teff_uuid;

typedef enum teff_key_kind {
    TEFF_KEY_STRING = 1, /* UTF-8, 1 .. TEFF_KEY_MAX bytes */
    TEFF_KEY_INT64 = 2,
    TEFF_KEY_UUID = 3,
    TEFF_KEY_INT64_STRING = 4, /* compound: a number and a name */
    TEFF_KEY_UUID_STRING = 5
} teff_key_kind;

#define TEFF_KEY_MAX 1024 /* bytes of a key's text */

/* A grain's key as the caller gives it; text is borrowed. Which members count is told by kind. */
typedef struct teff_key {
    teff_key_kind kind;
    const char *text;
    int64_t number;
    teff_uuid uuid;
} teff_key;

/* ---- contexts --------------------------------------------------------------------------- */

/* Who is calling: a turn of a grain (self->ctx), or a thread outside (teff_silo_ctx,
 * teff_client_ctx). Calls on a turn's context suspend the turn; on a thread's they block it. */
typedef struct teff_ctx teff_ctx;

/* teff_error - the text of the last error on this context.
 * out:  "" when there was none; valid until the next call on ctx. */
TEFF_API const char *teff_error(const teff_ctx *ctx);

/* teff_fail - end a method with an error and a text: return teff_fail(self->ctx, code, "...").
 * in:   err, not TEFF_OK; fmt as for printf; the text is cut at 511 bytes.
 * out:  err. */
TEFF_API teff_err teff_fail(teff_ctx *ctx, teff_err err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* teff_alloc, teff_strdup - memory of this turn: zeroed; freed when the method has returned and
 * its answer was copied (on a thread's context: at teff_ctx_reset).
 * out:  never NULL: a process without memory stops. */
TEFF_API void *teff_alloc(teff_ctx *ctx, size_t n);
TEFF_API char *teff_strdup(teff_ctx *ctx, const char *s);

/* teff_ctx_timeout - how long later calls on ctx wait for an answer.
 * in:   ms; 0 = each method's own timeout (30 s unless its option says otherwise). */
TEFF_API void teff_ctx_timeout(teff_ctx *ctx, uint32_t ms);

/* teff_post - run fn(arg) soon, without waiting for it.
 * in:   ctx, a turn's: fn runs as work of the same grain, never at the same time as a step of its
 *       turns, behind what the grain has queued. A thread's: fn runs on the silo's or client's
 *       workers in no context, one after another with all that was posted so.
 * runs: fn on a worker's stack; it must not wait. Once, unless the silo is closed before.
 * errs: TEFF_E_NOMEM, TEFF_E_CLOSED: it will not run.
 * from: Orleans ClosureWorkItem. */
TEFF_API TEFF_MUST_USE teff_err teff_post(teff_ctx *ctx, void (*fn)(void *arg), void *arg);

/* teff_ctx_mark, teff_ctx_forget - what a long loop keeps its memory small with: forget drops the
 * answers and allocations that ctx gave out since mark.
 *     teff_mark mark = teff_ctx_mark(ctx);
 *     for (...) { ... calls, answers ...; teff_ctx_forget(ctx, mark); }
 * in:   mark, of this context, in this turn and since its last reset; marks taken since are void.
 * runs: calls started since and still under way are abandoned: their answers are dropped. */
typedef struct teff_mark {
    void *at[3];
    size_t used;
    uint32_t n_calls;
} teff_mark;
TEFF_API teff_mark teff_ctx_mark(teff_ctx *ctx);
TEFF_API void teff_ctx_forget(teff_ctx *ctx, teff_mark mark);

/* teff_ctx_reset - forget every answer and allocation of a thread's context.
 * in:   ctx, a thread's; on a turn's context it does nothing. Answers got before are gone. */
TEFF_API void teff_ctx_reset(teff_ctx *ctx);

/* teff_ctx_free - end a thread's context. in: ctx, may be NULL. */
TEFF_API void teff_ctx_free(teff_ctx *ctx);

/* ---- descriptions, written by protoc-gen-teff ------------------------------------------- */

/* A message type as the runtime handles it. */
typedef struct teff_message_ops {
    const ProtobufCMessageDescriptor *desc;
    /* Deep copy into arena; NULL when memory is out. A NULL string or bytes becomes "" or empty. */
    ProtobufCMessage *(*copy)(teff_arena *arena, const ProtobufCMessage *src);
} teff_message_ops;

/* What a generated thunk gets: the activation that runs, seen from this turn. */
typedef struct teff_grain {
    teff_ctx *ctx;
    teff_key key;
    ProtobufCMessage *state; /* NULL for a type without state */
    void *user;              /* as given to the type's constructor */
} teff_grain;

/* why an activation ends */
typedef enum teff_reason {
    TEFF_REASON_IDLE = 1,      /* not used for the type's idle time */
    TEFF_REASON_STOPPING = 2,  /* its silo leaves the cluster */
    TEFF_REASON_REQUESTED = 3, /* teff_deactivate */
    TEFF_REASON_DUPLICATE = 4  /* another activation of the grain is the registered one */
} teff_reason;

/* teff_method.flags */
enum {
    TEFF_METHOD_READ_ONLY = 1,         /* may run beside other read-only methods */
    TEFF_METHOD_ALWAYS_INTERLEAVE = 2, /* may run beside anything */
    TEFF_METHOD_ONE_WAY = 4,           /* returns teff.Void; nobody waits */
    TEFF_METHOD_IDEMPOTENT = 8 /* the runtime may run it again when the outcome is unknown */
};

typedef struct teff_method {
    const char *name; /* full: "words.Word.Add" */
    uint32_t id;      /* explicit, or hashed from the full name; never 0 */
    uint32_t flags;
    uint32_t timeout_ms;         /* 0 = the cluster's default, 30 s */
    const teff_message_ops *in;  /* NULL for teff.Void */
    const teff_message_ops *out; /* NULL for teff.Void */
    /* Calls the user's slot; in and out are NULL for teff.Void; *out is initialised. */
    teff_err (*invoke)(const teff_grain *grain, const void *methods, const ProtobufCMessage *in,
                       ProtobufCMessage *out);
} teff_method;

typedef enum teff_placement {
    TEFF_PLACE_RANDOM = 0,       /* any silo that hosts the type */
    TEFF_PLACE_PREFER_LOCAL = 1, /* the caller's silo if it hosts the type, else random */
    TEFF_PLACE_HASH = 2          /* by the key's hash over the silos that host the type */
} teff_placement;

enum { TEFF_TYPE_REENTRANT = 1 /* every method may interleave with every other */ };

typedef struct teff_type_info {
    const char *name; /* full service name: "words.Word" */
    uint32_t id;      /* hashed from the name; never 0 */
    uint32_t flags;
    teff_key_kind key_kind;
    teff_placement placement;
    uint32_t idle_ms;           /* deactivate after this long unused; 0 = default, 15 min */
    uint32_t queue_max;         /* requests that may wait at one activation; 0 = default, 10,000 */
    uint32_t max_message_bytes; /* of one packed request or reply; 0 = the cluster's limit */
    const teff_message_ops *state; /* NULL: no state */
    const teff_method *methods;    /* sorted by id, rising */
    size_t n_methods;
    /* Call the user's on_activate / on_deactivate; TEFF_OK when the slot is NULL. */
    teff_err (*activate)(const teff_grain *grain, const void *methods);
    teff_err (*deactivate)(const teff_grain *grain, const void *methods, teff_reason why);
    /* Where those slots are in methods, so that nothing is started to find them NULL; 0: not told.
     */
    size_t on_activate_at, on_deactivate_at;
} teff_type_info;

/* A type with its implementation, ready to be given to a silo. */
typedef struct teff_grain_type teff_grain_type;

/* teff_grain_type_new - bind an implementation to a type.
 * in:   info, constant; methods, the type's generated struct of slots, and user: both borrowed
 *       for as long as a silo hosts the type.
 * out:  owned by the caller until a silo takes it; NULL when memory is out.
 * from: called by the generated <package>_<service>_type(). */
TEFF_API teff_grain_type *teff_grain_type_new(const teff_type_info *info, const void *methods,
                                              void *user);
TEFF_API void teff_grain_type_free(teff_grain_type *type);

/* teff_grain_type_priority - the higher the earlier, on silos with TEFF_SCHED_PRIORITY; 0 = as
 * others. Where the scheduler limits what waits (teff_sched_options.waiting_max), requests for
 * grains of the lowest are refused as TEFF_E_OVERLOADED instead of waiting; turns under way go on.
 * in:   type, before a silo takes it. */
TEFF_API void teff_grain_type_priority(teff_grain_type *type, int8_t priority);

/* ---- calls, used by generated stubs ----------------------------------------------------- */

/* A call under way; a value, filled in by <method>_start, good until its context's turn ends, is
 * reset, or forgets it. A zeroed one is "none": awaiting it gives TEFF_E_INVALID. */
typedef struct teff_call {
    struct teffi_call *impl;
} teff_call;

/* teff_ask - call a method of a grain and wait for its answer.
 * in:   ctx, the caller. key, of type->key_kind, borrowed. in, borrowed, copied or packed before
 *       the return; NULL for teff.Void.
 * out:  *out, when not NULL and the method returns a message: valid until the turn ends, or
 *       teff_ctx_reset on a thread's context.
 * runs: suspends a turn (other requests enter only as admission allows), blocks a thread. From a
 *       turn, an idle grain of the same silo runs its method at once, inside the caller's turn,
 *       which cannot time out before the method waits or returns.
 * errs: TEFF_E_TIMEOUT, TEFF_E_UNREACHABLE (outcome unknown); TEFF_E_OVERLOADED,
 *       TEFF_E_UNAVAILABLE, TEFF_E_TOO_LARGE, TEFF_E_INVALID (not run); TEFF_E_NOT_FOUND,
 *       TEFF_E_UNIMPLEMENTED; what the method returned. teff_error(ctx) has the text.
 * from: Orleans GrainReference; ARCHITECTURE "The way of a call". */
TEFF_API TEFF_MUST_USE teff_err teff_ask(teff_ctx *ctx, const teff_type_info *type,
                                         const teff_key *key, const teff_method *method,
                                         const ProtobufCMessage *in, ProtobufCMessage **out);

/* teff_start - as teff_ask, without waiting: pair with teff_await_all and teff_reply.
 * out:  *call, set also on an error (the call then has ended with that error).
 * runs: from a turn, the method may have run until it waits, or returned, before this returns. */
TEFF_API TEFF_MUST_USE teff_err teff_start(teff_ctx *ctx, const teff_type_info *type,
                                           const teff_key *key, const teff_method *method,
                                           const ProtobufCMessage *in, teff_call *call);

/* teff_send - one way: no answer, no error from the grain.
 * runs: as teff_start.
 * errs: what keeps the message from leaving: TEFF_E_INVALID, TEFF_E_TOO_LARGE,
 *       TEFF_E_OVERLOADED, TEFF_E_UNAVAILABLE. */
TEFF_API TEFF_MUST_USE teff_err teff_send(teff_ctx *ctx, const teff_type_info *type,
                                          const teff_key *key, const teff_method *method,
                                          const ProtobufCMessage *in);

/* teff_await_all - wait until each of n calls has ended.
 * in:   calls started on this ctx.
 * out:  TEFF_OK, or the error of the first failed call in the array's order; all have ended. */
TEFF_API TEFF_MUST_USE teff_err teff_await_all(teff_ctx *ctx, const teff_call *calls, size_t n);

/* teff_reply - the end of a call, awaited first when it has not been.
 * out:  *out as in teff_ask; returns the call's own error, its text in teff_error(ctx). */
TEFF_API TEFF_MUST_USE teff_err teff_reply(teff_ctx *ctx, teff_call call, ProtobufCMessage **out);

/* teff_drop - this call's answer is not needed any more: its memory is used again at once, where
 * many calls are under way in one long turn. *call is none then. A call under way is abandoned.
 * in:   call, started on this ctx, or none; not one from before a teff_ctx_forget. */
TEFF_API void teff_drop(teff_ctx *ctx, teff_call *call);

/* ---- state, used by generated <service>_save and friends -------------------------------- */

/* teff_state_save - write the running activation's state to the store.
 * runs: in a turn of a type with state; suspends it.
 * errs: TEFF_E_CONFLICT (somebody else wrote: the activation is ended, its next call loads
 *       afresh), TEFF_E_UNKNOWN (likewise), TEFF_E_IO, TEFF_E_TOO_LARGE. */
TEFF_API TEFF_MUST_USE teff_err teff_state_save(teff_ctx *ctx);

/* teff_state_clear - remove the stored row and empty the state in memory. errs: as above. */
TEFF_API TEFF_MUST_USE teff_err teff_state_clear(teff_ctx *ctx);

/* teff_state_alloc, teff_state_strdup - memory for fields of the state: lives as long as the
 * state; the runtime reclaims what the state no longer points to between turns.
 * out:  never NULL: a process without memory, or with a state of 64 MiB, stops. */
TEFF_API void *teff_state_alloc(teff_ctx *ctx, size_t n);
TEFF_API char *teff_state_strdup(teff_ctx *ctx, const char *s);

/* teff_deactivate - end this activation when its running turns have returned. */
TEFF_API void teff_deactivate(teff_ctx *ctx);

/* ---- errno -------------------------------------------------------------------------------
 * A turn may go on in another thread after a call, and compilers cache &errno across calls. In
 * grain code errno is therefore a call that they may not cache. Other thread-local variables are
 * dead across a call. */
TEFF_API int *teff_errno(void);
#undef errno
#define errno (*teff_errno())

#ifdef __cplusplus
}
#endif
#endif
