/* fiber.c - resume, suspend and end: who runs on which stack.
 * Way:     a worker -> resume -> [fn on the fiber's stack] -> suspend or end -> the worker
 * Threads: a fiber moves between threads; the current one is a thread-local that only never-inlined
 *          functions touch, since compilers keep its address over a switch. */
#include "fiber/fiber.h"

#include "base/bug.h"
#include "base/local.h"
#include "fiber/sanitize.h"
#include "fiber/stack.h"
#include "fiber/switch.h"

static TEFFI_LOCAL teffi_fiber *current;

__attribute__((noinline)) teffi_fiber *teffi_fiber_current(void)
{
    return current;
}

static void leave(teffi_fiber *fiber)
{
    teffi_san_leave(fiber, false);
    teffi_switch(&fiber->sp, fiber->back);
}

void *teffi_fiber_main(void *top)
{
    teffi_fiber *fiber = top; /* it lies there */
    teffi_san_landed(fiber);
    fiber->fn(fiber->arg);
    teffi_bug_if(atomic_load_explicit(&fiber->region, memory_order_relaxed)); /* it never ended */
    fiber->ended = true;
    teffi_san_leave(fiber, true);
    if (TEFFI_SAN_SWITCHED) /* this stack is no more for them: no return from here */
        teffi_switch(&fiber->sp, fiber->back);
    return fiber->back;
}

static inline teffi_fiber *begin(teffi_fiber *fiber, void (*fn)(void *arg), void *arg)
{
    fiber->fn = fn;
    fiber->arg = arg;
    fiber->label = NULL;
    fiber->ended = false;
    atomic_init(&fiber->region, false);
    teffi_san_fresh(fiber);
    fiber->sp = fiber;
    return fiber;
}

__attribute__((noinline)) static teffi_fiber *new_cold(teffi_fiber_pool *pool,
                                                       void (*fn)(void *arg), void *arg)
{
    teffi_fiber *fiber = teffi_stack_take(pool);
    return fiber ? begin(fiber, fn, arg) : NULL;
}

__attribute__((noinline)) teffi_fiber *teffi_fiber_new(teffi_fiber_pool *pool,
                                                       void (*fn)(void *arg), void *arg)
{
    teffi_fiber *fiber = teffi_stack_hot(pool);
    return fiber ? begin(fiber, fn, arg) : new_cold(pool, fn, arg);
}

/* It returns on the thread that it was called on, wherever the fiber goes on later. */
__attribute__((noinline)) bool teffi_fiber_resume(teffi_fiber *fiber)
{
    teffi_fiber *outer = current;
    void *sp = fiber->sp;
    teffi_bug_if(!sp); /* it runs already */
    fiber->sp = NULL;
    current = fiber;
    teffi_san_enter(fiber);
    if (sp == fiber)
        teffi_switch_first(&fiber->back, fiber);
    else
        teffi_switch(&fiber->back, sp);
    teffi_san_entered_back(fiber);
    current = outer;
    if (!fiber->ended)
        return false;
    if (!teffi_stack_keep(fiber))
        teffi_stack_give(fiber);
    return true;
}

void teffi_fiber_suspend(teffi_fiber *fiber)
{
    teffi_bug_if(fiber != teffi_fiber_current());
    /* a call that waits, in a preemptible region */
    teffi_bug_if(atomic_load_explicit(&fiber->region, memory_order_relaxed));
    leave(fiber);
    teffi_san_landed(fiber);
}

/* ---- the region: relaxed, since only a handler on the same thread looks ---- */

void teffi_fiber_region(teffi_fiber *fiber, bool on)
{
    atomic_signal_fence(memory_order_seq_cst);
    atomic_store_explicit(&fiber->region, on, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
}

bool teffi_fiber_in_region(const teffi_fiber *fiber, const void *at)
{
    return atomic_load_explicit(&fiber->region, memory_order_relaxed) &&
           (const char *)at >= fiber->low && (const char *)at < fiber->high;
}

void teffi_fiber_label(teffi_fiber *fiber, const char *text)
{
    fiber->label = text;
}
