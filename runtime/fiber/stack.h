/* stack.h - the inside of a fiber, shared by the pool, the switch and the overflow report.
 * Way:     fiber.c, overflow.c -> [stack] -> stack.c (memory)
 * Threads: a fiber's fields belong to whoever runs or holds it. */
#ifndef TEFFI_FIBER_STACK_H
#define TEFFI_FIBER_STACK_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include "base/local.h"
#include "fiber/fiber.h"

enum { TEFFI_GUARD_BYTES = 64 * 1024 }; /* a frame without stack probes may jump a smaller one */

/* Lives at the top of its own stack, in the page that a turn touches anyway. */
struct teffi_fiber {
    teffi_fiber *next;        /* the pool's list while free */
    teffi_fiber_pool *pool;   /* immutable, as low and high */
    struct region *region_of; /* immutable, stack.c's */
    char *low, *high;         /* the usable stack; the guard lies below low */
    void *sp;                 /* while suspended; the fiber itself: not begun */
    void *back;               /* while running: the resumer's stack pointer */
    void (*fn)(void *arg);
    void *arg;
    const char *label;
    bool ended;
    _Atomic bool region;    /* atomic: also read by a handler on its own thread */
    void *fake, *back_fake; /* ASan: the fake stacks of this side and of the resumer */
    const void *back_low;   /* ASan: the resumer's stack */
    size_t back_size;
    void *race, *back_race; /* TSan: this fiber's and the resumer's contexts */
};

/* The hot stacks that a thread keeps for itself. */
typedef struct teffi_stacks {
    teffi_fiber_pool *pool; /* NULL: it keeps none */
    teffi_fiber *free;
    unsigned count;
    void *signal_stack;
} teffi_stacks;

enum { TEFFI_STACKS_MAX = 64 };

TEFFI_LOCAL_EXTERN teffi_stacks teffi_own_stacks;

/* teffi_stack_take - a free stack; NULL when memory or the pool is out. teffi_stack_hot - one of
 * this thread's, NULL when it has none: for never-inlined functions. */
teffi_fiber *teffi_stack_take(teffi_fiber_pool *pool);

static inline teffi_fiber *teffi_stack_hot(const teffi_fiber_pool *pool)
{
    teffi_stacks *own = &teffi_own_stacks;
    teffi_fiber *fiber = own->free;
    if (!fiber || own->pool != pool)
        return NULL;
    own->free = fiber->next;
    own->count--;
    return fiber;
}

/* teffi_stack_give - back to its pool. Not from its own stack. teffi_stack_keep - the same, to this
 * thread's; false: it does not take it. For never-inlined functions. */
void teffi_stack_give(teffi_fiber *fiber);

static inline bool teffi_stack_keep(teffi_fiber *fiber)
{
    teffi_stacks *own = &teffi_own_stacks;
    if (own->pool != fiber->pool || own->count == TEFFI_STACKS_MAX)
        return false;
    fiber->next = own->free;
    own->free = fiber;
    own->count++;
    return true;
}

/* teffi_overflow_install - the process's handler for faults on guards; once, idempotent. */
void teffi_overflow_install(void);

/* teffi_overflow_stack, _unstack - an alternate signal stack for this thread, unless it has one.
 * out:  what to give to unstack; NULL: none was set. */
void *teffi_overflow_stack(void);
void teffi_overflow_unstack(void *stack);

/* teffi_overflow_visits - one for a thread that is not ours, until it ends. out: true: it had not
 * asked before. */
bool teffi_overflow_visits(void);

#endif
