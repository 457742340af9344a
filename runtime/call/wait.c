/* wait.c - waiting: a turn suspends its fiber, a thread parks. */
#include "call/wait.h"

#include <string.h>
#include "base/bug.h"
#include "call/ctx.h"

enum { WAIT_NEW, WAIT_AWAITED, WAIT_DONE };

void teffi_wait_init(teffi_wait *wait, teff_ctx *ctx, void (*arrive)(teffi_wait *wait))
{
    memset(wait, 0, sizeof *wait);
    wait->item.kind = TEFFI_ITEM_WAIT;
    wait->ctx = ctx;
    wait->group = ctx->group;
    wait->arrive = arrive;
}

/* Frees a wait that was signalled after its group had ended. The wait must be an orphan, since its
 * context ended before the group. The acquire load in teffi_group_state_of makes the turn's last
 * writes visible, such as wait->orphan. */
static void free_orphan(teffi_wait *wait)
{
    (void)teffi_group_state_of(wait->group);
    teffi_bug_if(!wait->orphan || !wait->arrive);
    wait->arrive(wait);
}

/* Signals a wait of a thread's context, and unparks the thread if it sleeps and this was the last
 * signal it needs. The context and the wait may be gone when this returns. */
static void signal_wait_of_thread(teffi_wait *wait, teff_ctx *ctx)
{
    /* release: publishes the result to a waiter that finds WAIT_DONE and may free the wait;
     * acquire: pairs with the waiter's change to WAIT_AWAITED */
    if (atomic_exchange_explicit(&wait->word, WAIT_DONE, memory_order_acq_rel) != WAIT_AWAITED)
        return;
    /* The last signal unparks the thread. acq_rel: it also publishes the results of the earlier
     * signals. */
    if (atomic_fetch_sub_explicit(&ctx->asleep_for, 1, memory_order_acq_rel) == 1)
        teffi_parker_wake_with_token(&ctx->parker.parker, TEFFI_TOKEN);
}

/* Signals a wait of a thread's context, and the context's notifier, for the thread's own event loop
 * (teff_ctx_fd). The context may be gone after signal_wait_of_thread, so a reference to the
 * notifier is taken first. */
__attribute__((noinline)) static void signal_wait_and_notifier(teffi_wait *wait, teff_ctx *ctx,
                                                               teffi_notifier *notifier)
{
    teffi_notifier_ref(notifier);
    signal_wait_of_thread(wait, ctx);
    teffi_notifier_signal(notifier);
    teffi_notifier_unref(notifier);
}

void teffi_wait_notify_waiter(teffi_wait *wait)
{
    if (wait->group) {
        if (!teffi_group_push(wait->group, &wait->item)) /* false: the group has ended */
            free_orphan(wait);
        return;
    }
    teff_ctx *ctx = wait->ctx;
    /* acquire: pairs with teff_ctx_fd, which may run while a call is pending */
    teffi_notifier *notifier = atomic_load_explicit(&ctx->notifier, memory_order_acquire);
    if (notifier)
        signal_wait_and_notifier(wait, ctx, notifier);
    else
        signal_wait_of_thread(wait, ctx);
}

/* Marks a turn's wait as done, calls arrive(), and resumes the fiber if the turn awaits no other
 * wait any more. out: true: the fiber was resumed and has ended. */
bool teffi_wait_mark_done_and_resume(teffi_item *item, teff_ctx **ctx_out)
{
    teffi_wait *wait = teffi_container(item, teffi_wait, item);
    bool orphan = wait->orphan; /* read first: arrive() frees an orphan */
    wait->done = true;
    if (wait->arrive)
        wait->arrive(wait);
    if (orphan || !wait->awaited)
        return false;
    teff_ctx *ctx = wait->ctx;
    wait->awaited = false;
    /* A process is resumed later, by its own turn. Until it is resumed, several waits of one
     * teffi_await_any may arrive, but ctx->waiting was set to 1 for all of them together. */
    if (ctx->suspend) {
        ctx->waiting -= ctx->waiting > 0;
        return false;
    }
    if (--ctx->waiting > 0)
        return false;
    *ctx_out = ctx;
    return teffi_fiber_resume(ctx->fiber);
}

/* Ends a grain's turn, since the silo has lost its lease. */
__attribute__((noinline)) static void exit_turn_because_lease_is_lost(teff_ctx *ctx)
{
    (void)teff_fail(ctx, TEFF_E_UNREACHABLE, "%s", teffi_lease_over_text);
    teffi_ctx_exit_turn(ctx, TEFF_E_UNREACHABLE);
}

/* Suspends the turn until ctx->waiting is 0. Afterwards ends the turn if it is doomed, or if it is
 * a grain's turn and the silo has no lease any more. The silo's own tasks, whose ctx->owner is
 * NULL, go on without a lease. */
static void suspend_turn(teff_ctx *ctx)
{
    teffi_ctx_check_fiber(ctx);
    if (!ctx->suspended_ms)
        ctx->suspended_ms = teffi_coarse_or_exact_ms(ctx->home->exec);
    if (ctx->suspend)
        ctx->suspend(ctx);
    else
        teffi_fiber_suspend(ctx->fiber);
    teff_err err = (teff_err)atomic_load_explicit(&ctx->doomed, memory_order_relaxed);
    if (err)
        teffi_ctx_exit_turn(ctx, err);
    if (ctx->owner && !teffi_lease_holds_coarse(&ctx->home->lease, ctx->home->exec))
        exit_turn_because_lease_is_lost(ctx);
}

/* Suspends the turn until all waits are done; a wait may be listed twice. If all are done already,
 * the turn is not suspended, but yields if its slice is over. */
static void await_in_turn(teff_ctx *ctx, teffi_wait *const *waits, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (waits[i]->done || waits[i]->awaited)
            continue;
        waits[i]->awaited = true;
        ctx->waiting++;
    }
    if (!ctx->waiting) {
        (void)teff_yield_if_due();
        return;
    }
    suspend_turn(ctx);
}

/* Suspends the turn until one of the waits is done. In a grain's turn or a task, no second wait can
 * be marked done before the last loop clears `awaited`, because the group runs one item at a time.
 * In a process, other waits may be marked done before that loop; teffi_wait_mark_done_and_resume()
 * allows that. */
static void await_any_in_turn(teff_ctx *ctx, teffi_wait *const *waits, size_t n)
{
    for (size_t i = 0; i < n; i++)
        waits[i]->awaited = true;
    ctx->waiting = 1;
    ctx->waits_for_any = n > 1;
    suspend_turn(ctx);
    ctx->waits_for_any = false;
    for (size_t i = 0; i < n; i++)
        waits[i]->awaited = false;
}

/* Writes this thread's pending messages to the sockets, then parks the thread. out: the tokens that
 * unparked it. ops->wait writes the messages. On a client, ops->wait also parks the thread, which
 * may read sockets meanwhile. Therefore it parks inside the node (teffi_home_enter); a client that
 * closes cancels all calls, which unparks it. In all other cases the thread parks outside the node,
 * and teffi_node_stop does not wait for it. */
static uint32_t flush_and_park(teff_ctx *ctx)
{
    uint32_t tokens;
    bool slept = false;
    if (teffi_home_enter(ctx->home)) { /* a closing node flushes its links itself */
        teffi_net *net = ctx->home->net;
        slept = net && net->ops->wait && net->ops->wait(net, &ctx->parker, &tokens);
        teffi_home_exit(ctx->home);
    }
    return slept ? tokens : teffi_parker_wait_for_tokens(&ctx->parker.parker, UINT64_MAX);
}

/* Sleeps until the last signaller has left its token. To wait for asleep_for == 0 would not be
 * enough: the signaller that sets it to 0 still uses the context until it has left the token. */
static void sleep_until_signalled(teff_ctx *ctx)
{
    uint32_t tokens = 0;
    while (!(tokens & TEFFI_TOKEN)) {
        if (!ctx->runs)
            tokens = flush_and_park(ctx);
        else
            ctx->runs->ops->park(ctx->runs); /* in the simulator: runs work */
        tokens |= teffi_parker_wait_for_tokens(&ctx->parker.parker, 0);
    }
}

bool teffi_wait_is_done(const teffi_wait *wait)
{
    /* acquire: pairs with signal_wait_of_thread */
    return wait->group ? wait->done
                       : atomic_load_explicit(&wait->word, memory_order_acquire) == WAIT_DONE;
}

static size_t count_done(teffi_wait *const *waits, size_t n)
{
    size_t done = 0;
    for (size_t i = 0; i < n; i++)
        done += teffi_wait_is_done(waits[i]);
    return done;
}

/* If the wait's word is `from`, sets it to `to`. out: false: the word was not `from`, so it was not
 * changed: it is WAIT_DONE or, if the wait is listed twice, already WAIT_AWAITED. */
static bool change_word_if_equal(teffi_wait *wait, uint32_t from, uint32_t to)
{
    /* acquire: pairs with signal_wait_of_thread, if the word is WAIT_DONE; release: publishes
     * asleep_for to the signal that finds WAIT_AWAITED */
    return atomic_compare_exchange_strong_explicit(&wait->word, &from, to, memory_order_acq_rel,
                                                   memory_order_acquire);
}

/* Sleeps until all n waits are signalled. asleep_for counts those that are not. If a wait is listed
 * twice, the second one counts as done. */
static void sleep_until_all_waits_done(teff_ctx *ctx, teffi_wait *const *waits, size_t n)
{
    uint32_t done = 0;
    teffi_bug_if(n > UINT32_MAX);
    /* relaxed: published by the words below */
    atomic_store_explicit(&ctx->asleep_for, (uint32_t)n, memory_order_relaxed);
    for (size_t i = 0; i < n; i++)
        done += !change_word_if_equal(waits[i], WAIT_NEW, WAIT_AWAITED);
    /* acquire: pairs with signal_wait_of_thread. No token comes if this thread brings the count to
     * 0. */
    if (!done || atomic_fetch_sub_explicit(&ctx->asleep_for, done, memory_order_acquire) > done)
        sleep_until_signalled(ctx);
}

/* Sleeps until the first signal, which brings asleep_for from 1 to 0. Afterwards sets the waits'
 * words back to WAIT_NEW. If a word cannot be set back, its wait was signalled: `signals` counts
 * these waits. Each of their signals subtracts 1 from asleep_for. The initial 1 counts one of them,
 * so this function adds signals - 1 for the others. If asleep_for is not 0 after that, some signals
 * have not subtracted yet and still use the context: sleeps until the last of them brings
 * asleep_for to 0 and sends a token.
 * `awaited` marks the waits already seen: a wait that is listed twice is skipped the second time.
 * Model: tests/model/wait_any.pml */
static void sleep_until_first_wait_done(teff_ctx *ctx, teffi_wait *const *waits, size_t n)
{
    uint32_t signals = 0;
    size_t marked = 0;
    /* relaxed: published by the words below */
    atomic_store_explicit(&ctx->asleep_for, 1, memory_order_relaxed);
    for (; marked < n &&
           (waits[marked]->awaited || change_word_if_equal(waits[marked], WAIT_NEW, WAIT_AWAITED));
         marked++)
        waits[marked]->awaited = true;
    if (marked == n)
        sleep_until_signalled(ctx);
    for (size_t i = 0; i < marked; i++) {
        signals += waits[i]->awaited && !change_word_if_equal(waits[i], WAIT_AWAITED, WAIT_NEW);
        waits[i]->awaited = false;
    }
    /* If a wait was done already, this thread has not slept. If another one was signalled
     * meanwhile, the first such signal sends a token, which is taken here. */
    if (marked < n && signals > 0)
        sleep_until_signalled(ctx);
    /* acquire: pairs with signal_wait_of_thread */
    if (signals > 1 && atomic_fetch_add_explicit(&ctx->asleep_for, signals - 1,
                                                 memory_order_acquire) != 1 - signals)
        sleep_until_signalled(ctx);
}

/* For each of a thread's waits that is done: calls wait->arrive() and sets this pointer to NULL, so
 * that it is called only once; context_has_handled_end (call.c) tests the pointer. In a turn,
 * teffi_wait_mark_done_and_resume calls arrive(). */
static void run_arrive_callbacks(teffi_wait *const *waits, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!waits[i]->arrive || !teffi_wait_is_done(waits[i]))
            continue;
        waits[i]->arrive(waits[i]);
        waits[i]->arrive = NULL;
    }
}

void teffi_await(teff_ctx *ctx, teffi_wait *const *waits, size_t n)
{
    if (ctx->group) {
        await_in_turn(ctx, waits, n);
        return;
    }
    if (count_done(waits, n) < n)
        sleep_until_all_waits_done(ctx, waits, n);
    run_arrive_callbacks(waits, n);
}

/* In a turn, if a wait is done already, the turn is not suspended, but yields if its slice is over.
 * Only a thread calls arrive() itself; for a turn teffi_wait_mark_done_and_resume() does. */
void teffi_await_any(teff_ctx *ctx, teffi_wait *const *waits, size_t n)
{
    bool found = count_done(waits, n) > 0;
    if (ctx->group) {
        if (found)
            (void)teff_yield_if_due();
        else
            await_any_in_turn(ctx, waits, n);
        return;
    }
    if (!found)
        sleep_until_first_wait_done(ctx, waits, n);
    run_arrive_callbacks(waits, n);
}

typedef struct sleeper {
    teffi_wait wait;
    teffi_timer timer;
} sleeper;

static void signal_sleeper(teffi_timer *timer)
{
    teffi_wait_notify_waiter(&teffi_container(timer, sleeper, timer)->wait);
}

void teffi_ctx_sleep(teff_ctx *ctx, uint32_t ms)
{
    sleeper s = {.timer = {.fire = signal_sleeper}};
    teffi_wait *wait = &s.wait;
    teffi_exec *exec = ctx->home->exec;
    teffi_wait_init(wait, ctx, NULL);
    exec->ops->timer_set(exec, &s.timer, teffi_now(exec->platform) + ms * 1000000ull);
    teffi_await(ctx, &wait, 1);
}

/* Blocks the calling thread. Uses no timer of the executor, so that the silo or client can stop
 * meanwhile. */
static void block_thread_for_ms(teff_ctx *ctx, const teffi_platform *platform, uint32_t ms)
{
    uint64_t now_ns = teffi_now(platform), until_ns = now_ns + ms * 1000000ull;
    for (; now_ns < until_ns; now_ns = teffi_now(platform))
        (void)teffi_parker_wait_for_tokens(&ctx->parker.parker, until_ns - now_ns);
}

void teff_sleep(teff_ctx *ctx, uint32_t ms)
{
    if (!teffi_ctx_enter(ctx))
        return;
    const teffi_platform *platform = ctx->home->exec->platform;
    bool blocks = !ctx->group && !ctx->runs; /* a thread, but not the simulator's */
    if (!blocks)
        teffi_ctx_sleep(ctx, ms);
    (void)teffi_ctx_leave(ctx, TEFF_OK);
    if (blocks)
        block_thread_for_ms(ctx, platform, ms);
}

typedef struct worker_call {
    teffi_wait wait;
    void (*fn)(void *arg);
    void *arg;
} worker_call;

static void run_worker_call(teffi_wait *wait)
{
    worker_call *w = teffi_container(wait, worker_call, wait);
    w->fn(w->arg);
}

/* Signals a wait first and awaits it afterwards: the wait's arrive() function, which calls fn, runs
 * on the stack of the worker or thread. */
void teffi_ctx_run_off_fiber(teff_ctx *ctx, void (*fn)(void *arg), void *arg)
{
    worker_call w = {.fn = fn, .arg = arg};
    teffi_wait *wait = &w.wait;
    teffi_wait_init(wait, ctx, run_worker_call);
    teffi_wait_notify_waiter(wait);
    teffi_await(ctx, &wait, 1);
}
