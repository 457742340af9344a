/* stack.h - inside a fiber: its fields, the pool of stacks, the switch between two.
 * Way:     fiber.c, thread.c -> [stack] -> os/pages; [switch] -> switch_x86_64.S | switch_aarch64.S
 * Threads: a fiber's fields belong to the thread that runs or resumes it; while it is suspended, to
 *          its owner. */
#pragma once

#include <stdatomic.h>
#include "base/local.h"
#include "fiber/exceptions.h"
#include "fiber/fiber.h"

enum { TEFFI_GUARD_BYTES = 64 * 1024 }; /* a frame without stack probes may skip a smaller guard */

/* A fiber is at the top of its own stack, in a page that the turn touches anyway. */
struct teffi_fiber {
    uint64_t control;       /* immutable: initial floating-point control words; must be first */
    teffi_fiber *next;      /* while free: the pool's or cache's list */
    teffi_fiber_pool *pool; /* immutable, like low and high */
    char *low, *high;       /* the usable stack; the guard is below low */
    void *sp;               /* stack pointer, if suspended; not begun: the fiber; running: NULL */
    void *back;             /* while running: the resumer's stack pointer */
    void (*fn)(void *arg);
    void *arg;
    const char *label;
    void *joins;                 /* for fork/fork.c, see teffi_fiber_newest_join_pointer */
    void *local;                 /* the owner's, see teffi_fiber_local */
    teffi_exceptions exceptions; /* while suspended */
    bool ended;
    _Atomic bool region;    /* atomic: also read by a signal handler on the same thread */
    void *fake, *back_fake; /* ASan: the fake stacks of this side and of the resumer */
    const void *back_low;   /* ASan: the resumer's stack */
    size_t back_size;
    void *race, *back_race; /* TSan: this fiber's and the resumer's contexts */
};

/* A thread's cache of hot stacks. */
typedef struct teffi_stacks {
    teffi_fiber_pool *pool; /* NULL: no cache */
    teffi_fiber *free;
    unsigned count;
} teffi_stacks;

enum { TEFFI_STACKS_MAX = 64 };

TEFFI_LOCAL_EXTERN teffi_stacks teffi_own_stacks;

/* teffi_stack_take - take a free stack of the pool, or make one. out: NULL: memory, guards or the
 * pool's stacks are used up. */
teffi_fiber *teffi_stack_take(teffi_fiber_pool *pool);

/* teffi_stack_take_cached - take a stack from this thread's cache. out: NULL: the cache is empty,
 * or belongs to another pool. Only functions that are never inlined may call it (see fiber.c). */
static inline teffi_fiber *teffi_stack_take_cached(const teffi_fiber_pool *pool)
{
    teffi_stacks *own = &teffi_own_stacks;
    teffi_fiber *fiber = own->free;
    if (!fiber || own->pool != pool)
        return NULL;
    own->free = fiber->next;
    own->count--;
    return fiber;
}

/* teffi_stack_give_to_pool_or_cache - after teffi_stack_try_cache has returned false: return a
 * stack to its pool. If this thread's cache for that pool is full, give half of the cache to the
 * pool, and put the stack into the cache. Not while running on that stack. */
void teffi_stack_give_to_pool_or_cache(teffi_fiber *fiber);

/* teffi_stack_try_cache - return a stack to this thread's cache. out: false: the cache is full, or
 * this thread has no cache for the stack's pool. Only functions that are never inlined may call
 * it. */
static inline bool teffi_stack_try_cache(teffi_fiber *fiber)
{
    teffi_stacks *own = &teffi_own_stacks;
    if (own->pool != fiber->pool || own->count == TEFFI_STACKS_MAX)
        return false;
    fiber->next = own->free;
    own->free = fiber;
    own->count++;
    return true;
}

/* teffi_stacks_begin_cache - give this thread a cache for the pool.
 * teffi_stacks_end_cache - return the cached stacks to the pool, and remove this thread's cache. */
void teffi_stacks_begin_cache(teffi_fiber_pool *pool);
void teffi_stacks_end_cache(void);

/* ---- the switch, in assembly ---- */

/* teffi_switch - save the callee-saved registers and the floating-point control words on this
 * stack, and its stack pointer in *save. Continue on the stack whose pointer is load, saved in the
 * same way. Returns when another switch loads *save, or teffi_fiber_main returns it. */
void teffi_switch(void **save, void *load);

/* teffi_switch_first - as teffi_switch, to a new stack, where it calls teffi_fiber_main(top).
 * in:   top, 16-aligned, points to the initial floating-point control words. */
void teffi_switch_first(void **save, void *top);

/* teffi_switch_control - store this thread's floating-point control words, for
 * teffi_switch_first. */
void teffi_switch_control(uint64_t *control);

/* teffi_fiber_main - the first function on a new stack; called by the assembly only.
 * out:  the stack pointer saved by the fiber's last resumer, where execution continues. */
void *teffi_fiber_main(void *top);
