/* fiber.c - begins, resumes, suspends and ends fibers.
 * Way:     a worker -> resume -> [fn on the fiber's stack] -> suspend or end -> the worker
 * Threads: a fiber moves between threads. The thread-local `current` is used only in functions that
 *          are never inlined, since compilers may cache its address over a switch. */
#include "fiber/fiber.h"

#include "base/bug.h"
#include "base/held.h"
#include "fiber/exceptions.h"
#include "fiber/sanitize.h"
#include "fiber/stack.h"

static TEFFI_LOCAL teffi_fiber *current;

__attribute__((noinline)) teffi_fiber *teffi_fiber_current(void)
{
    return current;
}

/* Aborts the process, because the turn broke a rule of preemptible regions. Ends the region first,
 * so that no signal suspends the fiber meanwhile. */
__attribute__((noinline, cold)) static void abort_for_broken_region_rule(teffi_fiber *fiber,
                                                                         const char *rule)
{
    teffi_fiber_set_preemptible(fiber, false);
    teffi_abort_for_broken_rule(teffi_fiber_get_label(fiber), rule);
}

void *teffi_fiber_main(void *top)
{
    teffi_fiber *fiber = top; /* the struct is at the top of its stack */
    teffi_san_end_switch_to_fiber(fiber);
    fiber->fn(fiber->arg);
    if (__builtin_expect(atomic_load_explicit(&fiber->region, memory_order_relaxed), 0))
        abort_for_broken_region_rule(
            fiber, "it returned after teff_preemptible_begin without teff_preemptible_end");
    fiber->ended = true;
    teffi_san_begin_switch_back(fiber, true);
    if (TEFFI_SAN_SWITCHED) /* for the sanitizer, the resumer's stack is in use: do not return */
        teffi_switch(&fiber->sp, fiber->back);
    return fiber->back;
}

__attribute__((noinline)) void teffi_fiber_exit(void)
{
    teffi_fiber *fiber = current;
    if (atomic_load_explicit(&fiber->region, memory_order_relaxed))
        abort_for_broken_region_rule(
            fiber, "it ended after teff_preemptible_begin without teff_preemptible_end");
    fiber->ended = true;
    teffi_san_begin_switch_back(fiber, true);
    teffi_switch(&fiber->sp, fiber->back);
    __builtin_unreachable();
}

/* Sets the fields of a fiber on a free stack; teffi_fiber_resume begins it. out: fiber. */
static inline teffi_fiber *prepare_fiber(teffi_fiber *fiber, void (*fn)(void *arg), void *arg)
{
    fiber->fn = fn;
    fiber->arg = arg;
    fiber->label = NULL;
    fiber->joins = NULL;
    fiber->local = NULL;
    fiber->ended = false;
    fiber->exceptions = (teffi_exceptions){0};
    atomic_init(&fiber->region, false);
    teffi_san_prepare_stack(fiber);
    fiber->sp = fiber; /* marks a fiber that has not begun */
    return fiber;
}

/* Makes a fiber on a stack of the pool's shared part, since this thread's cache has none. out: NULL
 * in the same cases as teffi_fiber_new. */
__attribute__((noinline)) static teffi_fiber *new_fiber_slow(teffi_fiber_pool *pool,
                                                             void (*fn)(void *arg), void *arg)
{
    teffi_fiber *fiber = teffi_stack_take(pool);
    return fiber ? prepare_fiber(fiber, fn, arg) : NULL;
}

__attribute__((noinline)) teffi_fiber *teffi_fiber_new(teffi_fiber_pool *pool,
                                                       void (*fn)(void *arg), void *arg)
{
    teffi_fiber *fiber = teffi_stack_take_cached(pool);
    return fiber ? prepare_fiber(fiber, fn, arg) : new_fiber_slow(pool, fn, arg);
}

/* The thread-local `current` is safe also after the switch: the fiber switches back on this thread.
 * The next call for this fiber may come from another thread. */
__attribute__((noinline)) bool teffi_fiber_resume(teffi_fiber *fiber)
{
    teffi_fiber *outer = current;
    void *sp = fiber->sp;
    teffi_exceptions before __attribute__((uninitialized));
    teffi_bug_if(!sp); /* the fiber is running already */
    fiber->sp = NULL;
    current = fiber;
    teffi_exceptions *exceptions = teffi_exceptions_swap_in(&fiber->exceptions, &before);
    teffi_san_begin_switch_to_fiber(fiber);
    if (sp == fiber) /* it has not begun */
        teffi_switch_first(&fiber->back, fiber);
    else
        teffi_switch(&fiber->back, sp);
    teffi_san_end_switch_back(fiber);
    if (exceptions)
        teffi_exceptions_swap_out(exceptions, &before, &fiber->exceptions);
    current = outer;
    if (!fiber->ended)
        return false;
    if (!teffi_stack_try_cache(fiber))
        teffi_stack_give_to_pool_or_cache(fiber);
    return true;
}

void teffi_fiber_suspend(teffi_fiber *fiber)
{
    teffi_may_suspend();
    teffi_bug_if(fiber != teffi_fiber_current());
    if (__builtin_expect(atomic_load_explicit(&fiber->region, memory_order_relaxed), 0))
        abort_for_broken_region_rule(
            fiber, "it waits between teff_preemptible_begin and teff_preemptible_end");
    teffi_san_begin_switch_back(fiber, false);
    teffi_switch(&fiber->sp, fiber->back);
    teffi_san_end_switch_to_fiber(fiber);
}

/* ---- preemptible regions ---- */

/* relaxed: only the fiber itself, and a signal handler on its thread, read fiber->region. The
 * fences keep the compiler from moving code into or out of the preemptible region. */
void teffi_fiber_set_preemptible(teffi_fiber *fiber, bool on)
{
    atomic_signal_fence(memory_order_seq_cst);
    atomic_store_explicit(&fiber->region, on, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
}

bool teffi_fiber_may_be_preempted(const teffi_fiber *fiber, const void *frame)
{
    return atomic_load_explicit(&fiber->region, memory_order_relaxed) &&
           (const char *)frame >= fiber->low && (const char *)frame < fiber->high;
}

__attribute__((noinline)) void **teffi_fiber_newest_join_pointer(void)
{
    return &current->joins;
}

void **teffi_fiber_local(teffi_fiber *fiber)
{
    return &fiber->local;
}

void teffi_fiber_set_label(teffi_fiber *fiber, const char *text)
{
    fiber->label = text;
}

const char *teffi_fiber_get_label(const teffi_fiber *fiber)
{
    return fiber->label ? fiber->label : "a turn";
}
