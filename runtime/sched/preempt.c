/* preempt.c - how is a turn stopped that calls nothing?
 * Way:     monitor -> SIGURG -> [preempt, on the turn's fiber] -> slice.c -> the worker's own stack
 * Threads: the turn's own; the handler runs on the fiber, and may return on another thread.
 * Source:  Go's asynchronous preemption
 *
 * Go stops a turn anywhere, since its compiler knows what may be stopped where. C code may hold a
 * lock or be in the middle of malloc, so it says where it may be stopped: in a region that only
 * computes. The handler suspends the fiber with the signal's frame on it, which holds all
 * registers; when the fiber goes on, the handler returns and the kernel puts them back. Everywhere
 * else a turn that does not give way loses its slot, and the others run beside it.
 *
 * The worker's flag only says that a signal is worth while. What the
 * handler goes by is the fiber's own, which moves with the fiber. */
#include "sched/worker.h"

#include "fiber/sanitize.h"
#include "platform/interrupt.h"

#ifdef TEFFI_TSAN
/* ThreadSanitizer delivers a signal at the next call it knows of; a loop has none, and its own
 * bookkeeping would be left in the middle. The slot is retaken instead. */
enum { WORKS = 0 };
#else
enum { WORKS = 1 };
#endif

static void on_interrupt(void *context)
{
    teffi_worker *w = teffi_worker_self();
    teffi_fiber *fiber = w ? teffi_fiber_current() : NULL;
    if (!fiber || !teffi_fiber_in_region(fiber, __builtin_frame_address(0)) ||
        !atomic_load_explicit(&w->due, memory_order_relaxed))
        return;
    teffi_fiber_region(fiber, false);
    atomic_store_explicit(&w->in_region, 0, memory_order_relaxed);
    teffi_interrupt_leaves();
    (void)teffi_give_way(w, false);
    teffi_interrupt_is_back(context);
    atomic_store_explicit(&teffi_worker_self()->in_region, 1, memory_order_relaxed);
    teffi_fiber_region(fiber, true);
}

void teffi_preempt_start(void)
{
    if (WORKS)
        teffi_interrupt_install(on_interrupt);
}

void teffi_preempt_allow(void)
{
    if (WORKS)
        teffi_interrupt_allow();
}

void teffi_preempt(teffi_worker *w)
{
    if (atomic_load_explicit(&w->in_region, memory_order_relaxed))
        teffi_interrupt_thread(&w->thread);
}

teff_preemptible teff_preemptible_begin(void)
{
    teffi_worker *w = teffi_worker_self();
    if (!WORKS || !w || !teffi_may_give_way(w))
        return (teff_preemptible){NULL};
    teffi_fiber *fiber = teffi_fiber_current();
    atomic_store_explicit(&w->in_region, 1, memory_order_relaxed);
    teffi_fiber_region(fiber, true);
    return (teff_preemptible){fiber};
}

/* The region's fiber comes with it: to look for it in a thread-local might find another's. */
void teff_preemptible_end(teff_preemptible region)
{
    if (region.turn) {
        teffi_fiber_region(region.turn, false);
        atomic_store_explicit(&teffi_worker_self()->in_region, 0, memory_order_relaxed);
    }
    (void)teff_reschedule();
}
