/* grain.h - for the code of grains and of callers: keys, contexts, pending calls, state. The
 * functions that generated code calls are in generated.h.
 * Way:     methods, callers -> [grain] -> grains/
 * Threads: a teff_ctx belongs to one turn or one thread. */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stdint.h>
#include <teff/arena.h>
#include <teff/error.h>
#include <teff/limits.h>

TEFF_BEGIN_C

/* ---- keys ------------------------------------------------------------------------------- */

/* The bytes are in the order of the text: 00112233-4455-6677-8899-aabbccddeeff begins with 0x00,
 * 0x11 (RFC 9562, section 4: most significant byte first). Windows GUIDs have the bytes of their
 * first three parts in reverse order and must be converted. */
typedef struct teff_uuid {
    uint8_t bytes[16];
} teff_uuid;

/* ---- contexts --------------------------------------------------------------------------- */

/* A context stands for a caller: a turn of a grain (self->ctx), a process (teff_process_ctx), or a
 * thread of the program (teff_silo_new_ctx, teff_client_new_ctx). Calls on the context of a turn or
 * process suspend the turn or process; calls on a thread's context block the thread. */
typedef struct teff_ctx teff_ctx;

/* teff_error - the text of the last error on this context.
 * in:   ctx, borrowed.
 * out:  "" if there was no error; valid until the next call on ctx.
 * runs: in ctx's turn or thread. */
TEFF_API const char *teff_error(const teff_ctx *ctx);

/* teff_fail - set the error's text; for return teff_fail(self->ctx, code, "...") in a method.
 * in:   err: not TEFF_OK; an error of your own is TEFF_E_USER(n). fmt: as for printf; the text is
 *       cut at 511 bytes. An argument may be teff_error(ctx):
 *       teff_fail(ctx, err, "order: %s", teff_error(ctx)).
 * out:  err. If a method returns a code over TEFF_E_MAX, its call ends as TEFF_E_FAILED.
 * runs: in ctx's turn or thread.
 * errs: only err itself. */
TEFF_API teff_err teff_fail(teff_ctx *ctx, teff_err err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* teff_alloc, teff_strdup - memory of this turn: zeroed; freed when the method has returned and
 * its response was copied (on the context of a thread or process: at teff_ctx_reset).
 * in:   n, bytes. s, borrowed, copied.
 * out:  never NULL. If the turn's memory would exceed TEFF_TURN_MEMORY_MAX, or the system is out of
 *       memory, the turn ends at once: the method does not return, its locks and C++ objects are
 *       not released, and its caller gets TEFF_E_NOMEM. The parts that the turn has forked end
 *       first. If the grain has state, its activation ends, too, because the state may be half
 *       changed: the activation's other turns end in the same way, on_deactivate is not called, and
 *       the next call loads the saved state. The context of a thread or process has no limit. When
 *       the system is out of memory, these functions then try again for a second; after that the
 *       program aborts.
 * runs: in ctx's turn or thread. */
TEFF_API void *teff_alloc(teff_ctx *ctx, size_t n);
TEFF_API char *teff_strdup(teff_ctx *ctx, const char *s);

/* teff_ctx_set_timeout - set the timeout of later calls on ctx. In a turn, the deadline of the
 * turn's own caller also limits each call. A call may end up to 2 ms after that deadline or, if it
 * begins in place (inside the caller's turn), up to an eighth of its timeout after the deadline. A
 * call that is made after the deadline of the turn's caller ends at once as TEFF_E_TIMEOUT and does
 * not run. The turn of a one-way message has no such deadline.
 * in:   ms, up to 12 days; 0 = each method's own timeout (30 s unless its option says so).
 * runs: in ctx's turn or thread. */
TEFF_API void teff_ctx_set_timeout(teff_ctx *ctx, uint32_t ms);

/* teff_ctx_check - does the caller of this turn still wait for its response? For long computations.
 * in:   ctx; left_ms may be NULL.
 * out:  *left_ms: milliseconds to the caller's deadline, rounded up; UINT32_MAX: it has none, as in
 *       the turn of a one-way message, and on the context of a thread or process.
 * runs: in ctx's turn or thread, and in the parts that the turn has forked (teff/fork.h), on any
 *       thread. Does not wait.
 * errs: TEFF_E_TIMEOUT: the deadline has passed. TEFF_E_CANCELLED: the caller, on any silo or
 *       client, has cancelled its call (teff_cancel_fire); a caller on the same silo has dropped
 *       the call (teff_drop) or has ended; or the turn must end with its activation (see
 *       teff_alloc). */
TEFF_API TEFF_MUST_USE teff_err teff_ctx_check(const teff_ctx *ctx, uint32_t *left_ms);

/* teff_sleep - wait for a time.
 * in:   ms, any number; 0: let others run first.
 * out:  nothing. It never returns early: the deadline of the turn's own caller does not shorten the
 *       sleep, and a cancel does not either. After a long sleep, ask teff_ctx_check whether the
 *       caller still waits.
 * runs: in a turn or process: suspends it. Other requests enter the grain as admission allows, and
 *       the worker does other work. On a thread: blocks it; the silo or client may stop
 *       meanwhile, and if it has stopped before, the function returns at once. Not in a part that
 *       the turn has forked (teff/fork.h): the process aborts.
 *       A turn that sleeps when the silo loses its lease ends in teff_sleep, when its time is over,
 *       as a turn that waits for a response does. A silo that stops waits for the turn, and drops
 *       it after the timeout of teff_silo_stop. A process that is ended by force ends after its
 *       sleep.
 * from: Orleans grains await Task.Delay; Erlang timer:sleep. */
TEFF_API void teff_sleep(teff_ctx *ctx, uint32_t ms);

/* teff_post - queue a closure, fn(arg), without waiting for it.
 * in:   ctx, a turn's: fn runs as work of the grain, after the work that is queued there, and never
 *       at the same time as a turn of the grain. A thread's: fn runs on a worker of the silo or
 *       client; the closures of all threads run one after another.
 * runs: fn runs once, on a worker's stack, unless the silo closes before. fn must not wait. It must
 *       not use the turn's context or memory, since the turn may have ended, nor the grain's state,
 *       which the runtime may move or free between turns. To change the state, send the grain a
 *       message.
 * errs: TEFF_E_NOMEM, TEFF_E_CLOSED: it will not run.
 * from: Orleans ClosureWorkItem. */
TEFF_API TEFF_MUST_USE teff_err teff_post(teff_ctx *ctx, void (*fn)(void *arg), void *arg);

/* teff_ctx_mark, teff_ctx_rewind - limit the memory of a long loop: rewind frees all responses and
 * allocations that ctx has got since the mark was taken.
 *     teff_mark mark = teff_ctx_mark(ctx);
 *     for (...) { ... calls, responses ...; teff_ctx_rewind(ctx, mark); }
 * in:   mark: taken on this context, in this turn, and after its last reset. rewind makes marks
 *       invalid that were taken after this one.
 * out:  mark: a value, the position of ctx's memory and calls now.
 * runs: in ctx's turn or thread. rewind abandons pending calls that began after the mark, except
 *       those of a transaction, which stay until the turn ends. */
typedef struct teff_mark {
    void *at[3];
    size_t used;
    uint32_t n_calls;
} teff_mark;
TEFF_API teff_mark teff_ctx_mark(teff_ctx *ctx);
TEFF_API void teff_ctx_rewind(teff_ctx *ctx, teff_mark mark);

/* teff_ctx_reset - free all responses and allocations of a thread's or process's context; abandon
 * its calls.
 * in:   ctx; for the context of a turn nothing happens.
 * runs: on ctx's thread, or in ctx's process. */
TEFF_API void teff_ctx_reset(teff_ctx *ctx);

/* teff_ctx_free - end a thread's context. in: ctx, may be NULL. runs: on ctx's thread. */
TEFF_API void teff_ctx_free(teff_ctx *ctx);

/* The reason why an activation ends. */
typedef enum teff_reason {
    TEFF_REASON_IDLE = 1,      /* not used for the type's idle time */
    TEFF_REASON_STOPPING = 2,  /* its silo leaves the cluster */
    TEFF_REASON_REQUESTED = 3, /* teff_deactivate */
    TEFF_REASON_DUPLICATE = 4, /* another activation of the grain is the registered one */
    TEFF_REASON_VERSION = 5,   /* a caller has a newer version; a newer silo activates the grain */
    TEFF_REASON_LIMIT = 6, /* its silo has more activations than activations_max (teff/silo.h) */
    TEFF_REASON_MEMORY = 7 /* its silo is short of memory (memory_percent in teff/silo.h) */
} teff_reason;

/* The hooks of a grain type, on_activate and on_deactivate, run while calls of the grain wait. A
 * hook that has not returned after TEFF_HOOK_MAX_MS is ended if a call waits: where it is
 * suspended, as described at teff_alloc. Its pending calls end as cancelled; if it waits for
 * something else, such as the store or teff_sleep, it is ended after that. After on_activate, the
 * waiting calls fail with TEFF_E_UNAVAILABLE, and the next call tries again. After on_deactivate,
 * they reach the next activation, which loads the stored state. A hook that computes or blocks its
 * thread is not ended, since another activation must not run beside it. */

/* A type with its implementation, ready to be given to a silo. */
typedef struct teff_grain_type teff_grain_type;

/* teff_grain_type_free - free a type that no silo took. in: type, may be NULL. runs: any thread. */
TEFF_API void teff_grain_type_free(teff_grain_type *type);

/* teff_grain_type_priority - set the priority of a type's grains, for silos with
 * TEFF_SCHED_PRIORITY: grains with a higher priority run earlier; the default is 0. If more grains,
 * processes and components wait than teff_sched_options.waiting_max allows, queued requests to
 * grains of the lowest priority fail with TEFF_E_OVERLOADED; turns that have begun continue.
 * in:   type, before a silo takes it.
 * runs: any thread. */
TEFF_API void teff_grain_type_priority(teff_grain_type *type, int8_t priority);

/* ---- pending calls ---------------------------------------------------------------------- */

/* A handle to a call, filled in by <method>_async. It is valid until the turn ends, or until
 * teff_ctx_reset, teff_ctx_rewind or teff_drop releases the call. A zeroed one is "none". */
typedef struct teff_call {
    struct teffi_call *impl;
} teff_call;

/* Ends many calls at once, from any thread: see teff_cancel_new. */
typedef struct teff_cancel teff_cancel;

/* Options of one call. Zeroed, except size: the defaults of its method and context. */
typedef struct teff_call_options {
    size_t size;         /* sizeof(teff_call_options) */
    uint32_t timeout_ms; /* 0: that of teff_ctx_set_timeout or, if that is 0, the method's */
    teff_cancel *cancel; /* borrowed until the call has ended; NULL: none */
    /* An idempotency key: the call counts once. Borrowed, copied; NULL: none. Draw it at random, or
     * take it from what the call is about, such as an order's id. Two grains may get the same key.
     *     The answer, which is the response or the method's error, is stored in one write with the
     * grain's state, before it is sent. A later call of the grain with the same key, method and
     * request, even from another caller, gets that answer and runs nothing, as long as the grain
     * still keeps the answer: it keeps the newest answers_max (teff/grain.proto). So after an error
     * for which teff_call_may_have_run() is true, or an error of the store, make the same call
     * again.
     *     In the turn of such a call, teff_state_save and teff_state_clear only check the state.
     * The state is written when the method has returned, even if the method did not save. If this
     * write fails, the call ends with the write's error, and the grain is deactivated. So no later
     * turn sees changes that are not stored, unless on_deactivate saves them, with the answer.
     * Turns that overlap with this turn wait in teff_state_save until this turn has ended.
     *     An answer over TEFF_ANSWER_MAX bytes is not kept: a later call gets TEFF_E_TOO_LARGE. If
     * a call that the method makes ends with an unknown outcome, the method should not return that
     * error, since the error would be stored as the answer.
     *     errs, of the call: TEFF_E_INVALID: the grain type has no state, the method is read-only,
     * or the key was used with another method or request; the call did not run. */
    const teff_uuid *once;
} teff_call_options;

/* ---- transactions ------------------------------------------------------------------------
 * A method with the option `transactional` (teff/grain.proto) begins a transaction, as its root, or
 * joins the transaction of the transactional method that calls it.
 *   - Each grain in a transaction, even one without state, is locked until the transaction ends.
 *     Calls from outside of transactions to a locked grain wait.
 *   - teff_state_save and teff_state_clear check the state, and mark it to be written. All marked
 *     states are written in one batch when the root has returned. The batch also checks that no
 *     state that was only read has changed. A batch has at most 256 rows (127 on etcd): one for
 *     each grain with state, and one for each silo with such grains.
 *   - If a method in the transaction returns an error, the states of all its grains become what
 *     they were when the grains were locked, in memory, too. This is so even if the method's caller
 *     ignores the error. The root's caller gets the error that the root returned or, if the root
 *     returned none, that of the method.
 *   - If the transaction meets an older one that has locked a grain, or if a silo is lost, the root
 *     runs again, from its start, after a pause of 1 to 128 ms. At the deadline of the root's
 *     caller, the root's call fails with TEFF_E_ABORTED, and nothing was changed.
 *   - Calls in the transaction that a method has not awaited, or has dropped, are awaited when the
 *     method returns.
 *   - Calls to methods that are not transactional, and one-way messages, are not part of the
 *     transaction: they take effect even if it is rolled back. Such a call to a grain that the
 *     transaction has locked fails with TEFF_E_INVALID. Such a call to a grain that an older
 *     transaction has locked does not wait: it fails with TEFF_E_ABORTED, and did not run. Return
 *     this error, and the transaction begins again. The same holds for the calls that such a method
 *     makes itself. Exception: if it begins another transaction, or is the first call of a grain
 *     whose on_activate makes calls, these calls wait for locked grains, and may wait in a cycle
 *     until a deadline.
 *   - Give an idempotency key to the call that begins the transaction; the root's grain must have
 *     state. The answer is written in the same batch as the states.
 *   - errs, of the root's call: an error of the store: nothing was changed; TEFF_E_UNKNOWN: the
 *     states may have been written; TEFF_E_TOO_LARGE: too many rows. */

/* teff_await_all - wait until each of n calls has ended.
 * in:   calls, begun on this ctx.
 * out:  nothing: take each response with <method>_await, which then does not wait.
 * runs: suspends a turn once, blocks a thread. Then runs the outgoing filters of each call, which
 *       may wait (teff/filter.h).
 * errs: the error of the first failed call in the array's order, after all have ended. A call that
 *       is none counts as failed with TEFF_E_INVALID. teff_error(ctx) has the text. */
TEFF_API TEFF_MUST_USE teff_err teff_await_all(teff_ctx *ctx, const teff_call *calls, size_t n);

/* teff_await_any - wait until one of n calls has ended, with or without an error.
 * in:   calls, begun on this ctx; one that is none ({0}) is skipped. After you have taken a call's
 *       response, set the call to none before the next wait.
 * out:  *index, the first call in the array's order that has ended.
 * runs: suspends a turn, blocks a thread; returns at once if one has ended.
 * errs: TEFF_E_INVALID: all are none. <method>_await returns the call's own error. */
TEFF_API TEFF_MUST_USE teff_err teff_await_any(teff_ctx *ctx, const teff_call *calls, size_t n,
                                               size_t *index);

/* teff_call_ended - has a call ended?
 * in:   call, begun on ctx, or none.
 * out:  true: <method>_await will not wait, unless an outgoing filter does (teff/filter.h).
 * runs: in ctx's turn or thread; does not wait. In a turn the value changes only while the
 *       turn waits. */
TEFF_API bool teff_call_ended(const teff_ctx *ctx, teff_call call);

/* teff_ctx_fd - a descriptor for an event loop (poll, epoll, libuv) on the context's own thread.
 * in:   ctx, a thread's. Get the descriptor before the first call whose end the loop waits for.
 * out:  a non-blocking eventfd, owned by the context, closed by teff_ctx_free. It is readable when
 *       a call has ended since the last read: read 8 bytes, then test each call with
 *       teff_call_ended. It may be readable although no call has ended. -1: ctx is that of a turn
 *       or process, or the system is out of descriptors or memory.
 * runs: on ctx's thread. Requests of the thread are written within two milliseconds. */
TEFF_API int teff_ctx_fd(teff_ctx *ctx);

/* teff_cancel_new - an object that can end all calls begun with it (teff_call_options). After a
 * silo or client that made such calls was freed, you may only free the object: do not fire it, and
 * do not pass it to another call.
 * out:  owned; NULL: out of memory.
 * runs: any thread. */
TEFF_API teff_cancel *teff_cancel_new(void);

/* teff_cancel_fire - end each pending call that was begun with cancel, as TEFF_E_CANCELLED. Later
 * calls with cancel fail with TEFF_E_CANCELLED and do not run. A second fire does nothing.
 *     The cancel follows the requests to their grains, also through other silos. A request that has
 * not started does not run, whether it waits for the grain, for its activation or to be located. A
 * running turn can learn of the cancel by teff_ctx_check. The turn is not stopped, and its own
 * calls are not cancelled, but its response is dropped. A cancel may come too late, or be lost, as
 * any message may: then the request runs. A cancel does not stop a request to a process
 * (teff_pid_ask_async).
 * in:   cancel, see teff_cancel_new.
 * runs: any thread, also a turn's. Does not wait. */
TEFF_API void teff_cancel_fire(teff_cancel *cancel);

/* teff_cancel_free - in: cancel, may be NULL; no pending call may use it. runs: any thread. */
TEFF_API void teff_cancel_free(teff_cancel *cancel);

/* teff_drop - release a call and its response, to save memory in a long turn; *call becomes none. A
 * pending call is abandoned, which does not cancel it: its request still runs if it can start
 * before its deadline. Calls are abandoned in the same way by teff_ctx_rewind, teff_ctx_reset,
 * teff_ctx_free, and the end of a turn or client.
 * in:   call, begun on this ctx, or none; not one that teff_ctx_rewind has released.
 * runs: in ctx's turn or thread. */
TEFF_API void teff_drop(teff_ctx *ctx, teff_call *call);

/* ---- state ------------------------------------------------------------------------------ */

/* teff_state_alloc, teff_state_strdup - memory for fields of the state: zeroed, valid as long as
 * the state points to it. The runtime reclaims other memory of the state when no turn of the grain
 * runs. If turns overlap all the time, new turns are delayed for that, by at most a second.
 * in:   n, bytes. s, borrowed, copied; NULL: as "".
 * out:  never NULL. If the state's memory would exceed TEFF_STATE_MEMORY_MAX, the turn ends, as
 *       described at teff_alloc.
 * runs: in a turn of a grain with state. A turn of a grain without state ends with TEFF_E_INVALID.
 *       On the context of a thread or process the program aborts. */
TEFF_API void *teff_state_alloc(teff_ctx *ctx, size_t n);
TEFF_API char *teff_state_strdup(teff_ctx *ctx, const char *s);

/* teff_state_copy_bytes - a copy of src for the state.
 * in:   src, borrowed.
 * out:  {0, NULL} if src is empty; otherwise data is not NULL, as in teff_state_strdup.
 * runs: as teff_state_strdup. */
TEFF_API ProtobufCBinaryData teff_state_copy_bytes(teff_ctx *ctx, ProtobufCBinaryData src);

/* teff_deactivate - end this activation after its running turns have returned.
 * in:   ctx, of a turn of the activation.
 * runs: in that turn; does not wait. */
TEFF_API void teff_deactivate(teff_ctx *ctx);

/* teff_delay_deactivation - keep this activation for at least a time, even if no call comes: it
 * counts as used until then, and its type's idle time begins then. If it is called again, only the
 * last call counts, even if its time ends earlier.
 *     The delay is for this activation only, and holds only against reasons for activations that
 * are not used (TEFF_REASON_IDLE, _LIMIT and _MEMORY): teff_deactivate, the stop of the silo, and
 * all other reasons end the activation as usual. It is not part of a transaction: it stays if the
 * transaction is rolled back.
 * in:   ctx, of a turn of the activation, also of on_activate. ms: more than 12 days count as 12
 *       days; 0 or less: no delay any more, the idle time begins now.
 * runs: in that turn; does not wait. With the context of a thread or process nothing happens.
 * from: Orleans Grain.DelayDeactivation. */
TEFF_API void teff_delay_deactivation(teff_ctx *ctx, int64_t ms);

TEFF_END_C
