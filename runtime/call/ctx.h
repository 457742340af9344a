/* ctx.h - a context: a turn (a fiber on a group) or a foreign thread that makes calls; its arena,
 * its calls (begun, awaited, dropped with it), its last error.
 * Way:     grains/reference, grains/turn, task, node/ask -> [ctx, ctx_calls] -> call, wait, home
 * Threads: one turn or thread at a time; any thread may signal a wait of the context. */
#pragma once

#include <stddef.h>
#include <teff/grain.h>
#include "memory/arena.h"
#include "base/zero.h"
#include "fiber/fiber.h"
#include "os/notifier.h"
#include "call/call.h"

typedef struct teffi_node teffi_node;

struct teff_ctx {
    teffi_home *home;
    teffi_node *node;   /* home->node */
    teffi_fiber *fiber; /* the turn's; NULL: a thread's context */
    teffi_group *group; /* the turn's; NULL: a thread's context */
    void *owner;        /* grains: the turn */
    void *transaction;  /* grains: the turn's lock (grains/activation/lock.h); NULL: none */
    /* grains: the teffi_ask of the call that the turn awaits, if that call has neither
     * TEFFI_CALL_HAS_ASKED nor TEFFI_CALL_TARGETS_NO_GRAIN; else not valid */
    const void *asking;
    /* Suspends until waiting is 0; NULL: teffi_fiber_suspend. A process's (process_ctx.c). */
    void (*suspend)(teff_ctx *ctx);
    teff_arena arena;
    LIST_HEAD(, teffi_call) calls; /* started, not released; newest first */
    uint32_t n_calls;              /* calls ever begun; wraps around */
    uint32_t waiting;              /* turn: awaited waits that are not done; teffi_await_any: 1 */
    _Atomic uint32_t
        asleep_for; /* thread: signals to wait for, see sleep_until_all_waits_done, _for_first */
    teffi_poll_parker parker; /* thread: unparked by the signal that brings asleep_for to 0 */
    _Atomic uint16_t doomed;  /* turn: end it with this teff_err when its fiber resumes; relaxed */
    bool waits_for_any;       /* turn: suspended by teffi_await_any, for one of several waits */
    bool filters;             /* grains: in the outgoing filters of a call, or in that call */
    uint32_t suspended_ms;    /* turn: when it was first suspended (exec.h's clock); 0: never yet */
    uint32_t timeout_ms;      /* teff_ctx_set_timeout */
    uint32_t due_ms;          /* the caller's deadline, see teffi_ms_until_due; 0: none */
    teff_err text_err;        /* the error that text belongs to */
    const char *text;         /* the last error's text; NULL: none */
    _Atomic(teffi_notifier *)
        notifier;     /* thread: signalled when a call ends; NULL: no teff_ctx_fd */
    teffi_exec *runs; /* thread: its park() runs work during a wait (simulator);
                                  * NULL: the thread sleeps */
    char text_buf[TEFF_TEXT_MAX];
};

/* teffi_ctx_init - initialize the context of a turn or of a thread. The caller sets a turn's fiber
 * when the turn starts. in: group: the group that runs the turn; NULL: the context of a thread. */
static inline void teffi_ctx_init(teff_ctx *ctx, teffi_home *home, teffi_group *group)
{
    teffi_zero(ctx, offsetof(teff_ctx, text_buf)); /* text_buf, 0.5 KiB, is written before read */
    ctx->home = home;
    ctx->node = home->node;
    ctx->group = group;
    teffi_arena_init(&ctx->arena, NULL, 0, 0);
}

/* due_ms: a deadline that a context's calls inherit: the low 32 bits of the platform clock's
 * milliseconds, as the executor's coarse clock. 0: none (a real deadline is 0 once in 2^32 ms).
 * Compared times differ by less than 2^31 ms, since timeouts are at most TEFFI_TIMEOUT_MAX_MS,
 * 12 days. */
enum { TEFFI_TIMEOUT_MAX_MS = 1 << 30, TEFFI_EXACT_BELOW_MS = 1000 };

/* teffi_ms_until_due - out: milliseconds until the deadline due_ms; 0 or less: the deadline has
 * passed; INT32_MAX: there is none (due_ms 0). */
static inline int32_t teffi_ms_until_due(uint32_t due_ms, uint32_t now_ms)
{
    return due_ms ? (int32_t)(due_ms - now_ms) : INT32_MAX;
}

/* teffi_due_ms_of - convert a deadline to due_ms: the low 32 bits of its milliseconds, rounded up.
 * in: UINT64_MAX: no deadline. out: 0: no deadline. */
static inline uint32_t teffi_due_ms_of(uint64_t deadline_ns)
{
    return deadline_ns == UINT64_MAX ? 0 : (uint32_t)((deadline_ns + 999999) / 1000000);
}

/* teffi_is_late - has a deadline passed? Reads the exact clock only if the coarse clock is stopped
 * or at most TEFFI_EXACT_BELOW_MS are left. in: deadline_ns; if 0 or UINT64_MAX: no deadline. */
static inline bool teffi_is_late(teffi_exec *exec, uint64_t deadline_ns)
{
    uint32_t due_ms = teffi_due_ms_of(deadline_ns), now_ms = teffi_coarse_ms(exec);
    if (!due_ms || (now_ms && teffi_ms_until_due(due_ms, now_ms) > TEFFI_EXACT_BELOW_MS))
        return false;
    return teffi_now(exec->platform) >= deadline_ns;
}

/* teffi_ctx_compute_call_deadline - the deadline of a call of ctx that begins now: now plus the
 * timeout, or the deadline of the turn's own caller, rounded up by less than 2 ms, if that is
 * earlier.
 * in:   ms; 0: teff_ctx_set_timeout's, else TEFFI_TIMEOUT_DEFAULT_MS.
 * out:  monotonic nanoseconds; 0: the caller's deadline has passed: fail with
 *       teffi_ctx_late_text. */
enum { TEFFI_TIMEOUT_DEFAULT_MS = 30000 };
uint64_t teffi_ctx_compute_call_deadline(const teff_ctx *ctx, uint32_t ms);
extern const char teffi_ctx_late_text[];

/* teffi_ctx_abort_in_forked_part - abort: a part that a turn has forked uses the turn's context. */
_Noreturn void teffi_ctx_abort_in_forked_part(void);

/* teffi_ctx_check_fiber - abort unless the caller runs on the turn's own fiber. A part that the
 * turn has forked runs on another fiber, and must not use the turn's context.
 * in:   ctx, of a turn. */
static inline void teffi_ctx_check_fiber(const teff_ctx *ctx)
{
    if (teffi_fiber_current() != ctx->fiber)
        teffi_ctx_abort_in_forked_part();
}

/* teffi_ctx_enter - called at the beginning of a public function that uses the node. In a turn,
 * yields if the turn's slice is over. On a thread, keeps the node open until teffi_ctx_leave.
 * out:  false: the node is closed; do not call teffi_ctx_leave. */
static inline bool teffi_ctx_enter(teff_ctx *ctx)
{
    if (!ctx->group)
        return teffi_home_enter(ctx->home);
    teffi_ctx_check_fiber(ctx);
    (void)teff_yield_if_due();
    return true;
}

/* teffi_ctx_leave - called at the end of a public function that has called teffi_ctx_enter.
 * out:  err. */
static inline teff_err teffi_ctx_leave(const teff_ctx *ctx, teff_err err)
{
    if (!ctx->group)
        teffi_home_exit(ctx->home);
    return err;
}

/* teffi_ctx_exit_turn - end the turn from inside its method. Does not return; resources held by the
 * method's stack frames are not released. The caller gets err and ctx's error text.
 * in:   ctx, of a grain's turn, on its own fiber. With any other context the process aborts with
 *       the text. */
_Noreturn void teffi_ctx_exit_turn(teff_ctx *ctx, teff_err err);

/* teffi_ctx_fini - abandon pending calls, release the others, free memory. The context can be used
 * again after that. A thread waits for signals that are on the way.
 * runs: in ctx's turn or thread; or after the executor has stopped. */
void teffi_ctx_fini(teff_ctx *ctx);

/* teffi_ctx_new - a thread's context on the heap; teff_ctx_free ends it. NULL: out of memory. */
teff_ctx *teffi_ctx_new(teffi_home *home);

/* The first member of what a handle of a call with filters points to. */
typedef struct teffi_call_proxy {
    teffi_call *call; /* NULL: there is none; the call has an outcome */
} teffi_call_proxy;

/* teffi_call_make_proxy_handle - a handle that points to a proxy: its lowest bit is set.
 * teffi_call_proxy_of_handle - its proxy; NULL: the handle points to a call, or is none.
 * teffi_call_of_handle - the call; NULL: none, or the proxy has none. */
static inline teff_call teffi_call_make_proxy_handle(teffi_call_proxy *proxy)
{
    return (teff_call){(teffi_call *)(void *)((char *)proxy + 1)};
}

static inline teffi_call_proxy *teffi_call_proxy_of_handle(teff_call call)
{
    bool is_proxy = (uintptr_t)call.impl & 1;
    return is_proxy ? (teffi_call_proxy *)(void *)((char *)call.impl - 1) : NULL;
}

static inline teffi_call *teffi_call_of_handle(teff_call call)
{
    const teffi_call_proxy *proxy = teffi_call_proxy_of_handle(call);
    return proxy ? proxy->call : call.impl;
}

/* teffi_ctx_call_new - teffi_call_new, then add the call to ctx's list. out: as teffi_call_new. */
teffi_call *teffi_ctx_call_new(teff_ctx *ctx, uint64_t deadline_ns);

/* teffi_ctx_await_call - wait until the call has ended.
 * in:   call, of ctx; it is not released. response may be NULL.
 * out:  *response, the response's body, valid until the call is released; unchanged on an error.
 * errs: the call's error, text in ctx. */
TEFF_MUST_USE teff_err teffi_ctx_await_call(teff_ctx *ctx, teffi_call *call,
                                            ProtobufCMessage **response);
