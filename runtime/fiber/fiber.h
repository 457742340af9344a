/* fiber.h - fibers: pooled stacks for turns that await, and the switch between them.
 * Way:     grains/turn -> [fiber] -> switch_<cpu>.S
 * Threads: a fiber may be resumed on another thread than the one it suspended on. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct teffi_fiber teffi_fiber;
typedef struct teffi_fiber_pool teffi_fiber_pool;

/* teffi_fiber_pool_new - a pool of stacks of stack_bytes each (0 = 64 KiB; 256 KiB with ASan), each
 * above a guard of 64 KiB. It has at most max stacks (0 = 32,768); each thread that has entered the
 * pool caches up to 64 free ones. On kernels before 6.13 all pools together have at most
 * TEFFI_GUARDS_MAX guards, besides the reserved ones, and a stack needs one.
 * out:  NULL: out of memory. When the pool is freed, none of its fibers runs, and none is resumed
 *       afterwards. */
teffi_fiber_pool *teffi_fiber_pool_new(size_t stack_bytes, size_t max);
void teffi_fiber_pool_free(teffi_fiber_pool *pool);

/* teffi_fiber_pool_allow_reserved_guards - allow this pool to use the TEFFI_GUARDS_RESERVED guards,
 * which other pools cannot use. Call it before the pool's first stack is made. */
void teffi_fiber_pool_allow_reserved_guards(teffi_fiber_pool *pool);

/* teffi_fiber_pool_reclaim - decommit a slice of the stacks that were not needed for 0.1 s. Call it
 * at each tick. out: true: more stacks are free than the pool keeps: call again soon. */
bool teffi_fiber_pool_reclaim(teffi_fiber_pool *pool, uint64_t now_ns);

/* teffi_fiber_thread_enter_pool - give this thread a cache of the pool's stacks, and, until the
 * thread ends, an alternate signal stack so that a stack overflow can be reported. Optional; a
 * thread calls it before its work as a worker. A thread is in one pool at a time.
 * out:  true: this thread had never entered a pool before.
 * teffi_fiber_thread_leave_pool - return the cached stacks to the pool, and remove the cache. Call
 * it before the pool is freed. */
bool teffi_fiber_thread_enter_pool(teffi_fiber_pool *pool);
void teffi_fiber_thread_leave_pool(void);

/* teffi_fiber_new - a fiber that runs fn(arg) from its first resume on. Its floating-point control
 * words (rounding mode) are those of the thread that made the pool.
 * out:  NULL: memory, guards or the pool's stacks are used up. The resume in which the fiber ends
 *       returns it to the pool. */
teffi_fiber *teffi_fiber_new(teffi_fiber_pool *pool, void (*fn)(void *arg), void *arg);

/* teffi_fiber_resume - run the fiber until it suspends or ends. The caller is on a thread's own
 * stack or in another fiber; suspend returns to the caller.
 * out:  true: fn has returned, or teffi_fiber_exit was called, and the fiber is gone; false: it
 *       suspended. */
bool teffi_fiber_resume(teffi_fiber *fiber);

/* teffi_fiber_suspend - switch back to the fiber's resumer. Only from inside that fiber. Returns
 * when the fiber is resumed again, maybe on another thread. */
void teffi_fiber_suspend(teffi_fiber *fiber);

/* teffi_fiber_exit - end the current fiber without returning from fn; only on a fiber. Nothing is
 * unwound: resources held by its stack frames are not released. */
_Noreturn void teffi_fiber_exit(void);

/* teffi_fiber_current - the fiber that this thread runs, NULL on a thread's own stack. Never
 * inlined: compilers must not cache the result over a suspend. */
teffi_fiber *teffi_fiber_current(void);

/* teffi_fiber_set_preemptible - begin (on) or end a preemptible region of the current fiber. In
 * a region a signal handler may suspend the fiber at any instruction, and the fiber may continue on
 * another thread. So its code must not suspend by itself or use thread-local variables: suspending,
 * or ending the fiber, aborts the process. */
void teffi_fiber_set_preemptible(teffi_fiber *fiber, bool on);

/* teffi_fiber_may_be_preempted - for a signal handler: is the current fiber in a region, and does
 * the handler run on that fiber's stack? in: frame, an address in the handler's frame. */
bool teffi_fiber_may_be_preempted(const teffi_fiber *fiber, const void *frame);

/* teffi_fiber_set_label - set what the fiber is doing ("words.Word.Add"), for error reports; text
 * is borrowed until the next label or the fiber's end.
 * teffi_fiber_get_label - that text; "a turn" if none was set. */
void teffi_fiber_set_label(teffi_fiber *fiber, const char *text);
const char *teffi_fiber_get_label(const teffi_fiber *fiber);

/* teffi_fiber_newest_join_pointer - the current fiber's pointer to its newest open join; NULL when
 * the fiber begins. Used by fork/fork.c only, on a fiber. */
void **teffi_fiber_newest_join_pointer(void);

/* teffi_fiber_local - a pointer for the code that made the fiber; NULL when the fiber begins. */
void **teffi_fiber_local(teffi_fiber *fiber);
