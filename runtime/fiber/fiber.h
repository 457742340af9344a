/* fiber.h - stacks for turns that await: switch in, switch out, pooled and reused hot.
 * Way:     grains/turn -> [fiber] -> switch_<cpu>.S
 * Threads: a fiber may be resumed on another thread than the one it suspended on; never on two. */
#ifndef TEFFI_FIBER_H
#define TEFFI_FIBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct teffi_fiber teffi_fiber;
typedef struct teffi_fiber_pool teffi_fiber_pool;

/* teffi_fiber_pool_new - a pool of stacks of stack_bytes each (0 = 64 KiB), each behind a guard of
 * 64 KiB where the kernel allows; at most max at once (0 = 100,000; each thread that entered the
 * pool may keep 64 of them for itself).
 * out:  NULL when memory is out. Fibers in use must have ended before the pool is freed. */
teffi_fiber_pool *teffi_fiber_pool_new(size_t stack_bytes, size_t max);
void teffi_fiber_pool_free(teffi_fiber_pool *pool);

/* teffi_fiber_pool_trim - somebody with a clock calls it now and then: of the stacks that nobody
 * has needed for a while a slice gives its memory back to the system.
 * out:  true: more are free than it keeps; it is to be called again soon. */
bool teffi_fiber_pool_trim(teffi_fiber_pool *pool, uint64_t now_ns);

/* teffi_fiber_thread_enter, _leave - this thread will run fibers of the pool: it gets a cache of
 * hot stacks, and an alternate signal stack so that an overflow can be reported. Optional; a worker
 * calls them around its loop. leave before the pool is freed. */
void teffi_fiber_thread_enter(teffi_fiber_pool *pool);
void teffi_fiber_thread_leave(void);

/* teffi_fiber_thread_visits, _departs - the same for a thread that is not ours, around what it runs
 * now: it keeps its alternate signal stack until it ends, and departs gives back what the cache
 * holds. out: true: for the first time. */
bool teffi_fiber_thread_visits(teffi_fiber_pool *pool);
void teffi_fiber_thread_departs(void);

/* teffi_fiber_new - a fiber that will run fn(arg) on its first resume; a hot stack if one is free.
 * out:  NULL when memory or the pool is out. It goes back to the pool by itself when fn returns. */
teffi_fiber *teffi_fiber_new(teffi_fiber_pool *pool, void (*fn)(void *arg), void *arg);

/* teffi_fiber_resume - run it until it suspends or ends. From a thread's (worker's) own stack, or
 * from another fiber (nested: the resumer is who suspend goes back to).
 * out:  true: fn has returned and the fiber is gone; false: it suspended. */
bool teffi_fiber_resume(teffi_fiber *fiber);

/* teffi_fiber_suspend - back to whoever resumed it. Only from inside that fiber. Returns when
 * resumed again, maybe on another thread. */
void teffi_fiber_suspend(teffi_fiber *fiber);

/* teffi_fiber_current - the fiber this thread runs now, NULL on a thread's own stack. Never
 * inlined: its answer must not be cached over a suspend. */
teffi_fiber *teffi_fiber_current(void);

/* teffi_fiber_region - true: from here on this fiber, the current one, may be suspended at any
 * instruction, by a signal's handler, and must not suspend by itself; false: not any more. Until
 * then its thread may change at any instruction: nothing thread-local can be used. */
void teffi_fiber_region(teffi_fiber *fiber, bool on);

/* teffi_fiber_in_region - from a handler: was this, the current fiber, interrupted in a region, on
 * its own stack? in: at, an address in the handler's frame. */
bool teffi_fiber_in_region(const teffi_fiber *fiber, const void *at);

/* teffi_fiber_label - what the fiber is doing ("words.Word.Add key"), for the report of a stack
 * overflow; text is borrowed until the next label or the fiber's end. */
void teffi_fiber_label(teffi_fiber *fiber, const char *text);

#endif
