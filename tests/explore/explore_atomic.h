/* explore_atomic.h - comes before everything else in the explored copies of the runtime's sources:
 * atomic operations, locks, threads and waits become calls to the explorer. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include "explore.h"
#define teffi_may_suspend() explore_may_suspend(EXPLORE_AT)
#include "fiber/fiber.h"
#include "memory/pool.h"
#include "os/thread.h"

#define EXPLORE_TEXT(x) #x
#define EXPLORE_LINE(x) EXPLORE_TEXT(x)
#define EXPLORE_AT __FILE__ ":" EXPLORE_LINE(__LINE__)

/* A variable of what p points to, without _Atomic. */
#define EXPLORE_VALUE(p) __typeof__(((void)0, *(p)))

#undef atomic_init
#define atomic_init(p, v)                                                                          \
    __extension__({                                                                                \
        EXPLORE_VALUE(p) x_init = (v);                                                             \
        explore_plain((p), &x_init, sizeof x_init);                                                \
    })

#undef atomic_load_explicit
#define atomic_load_explicit(p, order)                                                             \
    __extension__({                                                                                \
        EXPLORE_VALUE(p) x_load;                                                                   \
        explore_load((p), &x_load, sizeof x_load, (order), EXPLORE_AT);                            \
        x_load;                                                                                    \
    })
#undef atomic_load
#define atomic_load(p) atomic_load_explicit(p, memory_order_seq_cst)

#undef atomic_store_explicit
#define atomic_store_explicit(p, v, order)                                                         \
    __extension__({                                                                                \
        EXPLORE_VALUE(p) x_store = (v);                                                            \
        explore_store_to((p), &x_store, sizeof x_store, (order), EXPLORE_AT);                      \
    })
#undef atomic_store
#define atomic_store(p, v) atomic_store_explicit(p, v, memory_order_seq_cst)

#undef atomic_exchange_explicit
#define atomic_exchange_explicit(p, v, order)                                                      \
    __extension__({                                                                                \
        EXPLORE_VALUE(p) x_new = (v), x_old;                                                       \
        explore_exchange((p), &x_new, &x_old, sizeof x_new, (order), EXPLORE_AT);                  \
        x_old;                                                                                     \
    })
#undef atomic_exchange
#define atomic_exchange(p, v) atomic_exchange_explicit(p, v, memory_order_seq_cst)

#define EXPLORE_CAS(p, e, v, order, failed, weak)                                                  \
    __extension__({                                                                                \
        EXPLORE_VALUE(p) x_want = (v);                                                             \
        explore_cas((p), (e), &x_want, sizeof x_want, (order), (failed), (weak), EXPLORE_AT);      \
    })
#undef atomic_compare_exchange_strong_explicit
#define atomic_compare_exchange_strong_explicit(p, e, v, order, failed)                            \
    EXPLORE_CAS(p, e, v, order, failed, false)
#undef atomic_compare_exchange_weak_explicit
#define atomic_compare_exchange_weak_explicit(p, e, v, order, failed)                              \
    EXPLORE_CAS(p, e, v, order, failed, true)
#undef atomic_compare_exchange_strong
#define atomic_compare_exchange_strong(p, e, v)                                                    \
    EXPLORE_CAS(p, e, v, memory_order_seq_cst, memory_order_seq_cst, false)
#undef atomic_compare_exchange_weak
#define atomic_compare_exchange_weak(p, e, v)                                                      \
    EXPLORE_CAS(p, e, v, memory_order_seq_cst, memory_order_seq_cst, true)

#define EXPLORE_FETCH(p, op, v, order)                                                             \
    __extension__({                                                                                \
        EXPLORE_VALUE(p) x_by = (v), x_old;                                                        \
        explore_fetch((p), (op), &x_by, &x_old, sizeof x_by, (order), EXPLORE_AT);                 \
        x_old;                                                                                     \
    })
#undef atomic_fetch_add_explicit
#undef atomic_fetch_sub_explicit
#undef atomic_fetch_and_explicit
#undef atomic_fetch_or_explicit
#undef atomic_fetch_add
#undef atomic_fetch_sub
#define atomic_fetch_add_explicit(p, v, order) EXPLORE_FETCH(p, EXPLORE_ADD, v, order)
#define atomic_fetch_sub_explicit(p, v, order) EXPLORE_FETCH(p, EXPLORE_SUB, v, order)
#define atomic_fetch_and_explicit(p, v, order) EXPLORE_FETCH(p, EXPLORE_AND, v, order)
#define atomic_fetch_or_explicit(p, v, order) EXPLORE_FETCH(p, EXPLORE_OR, v, order)
#define atomic_fetch_add(p, v) atomic_fetch_add_explicit(p, v, memory_order_seq_cst)
#define atomic_fetch_sub(p, v) atomic_fetch_sub_explicit(p, v, memory_order_seq_cst)

#undef atomic_thread_fence
#define atomic_thread_fence(order) explore_fence((order), EXPLORE_AT)

#define pthread_self() ((pthread_t)(ex.current - ex.thread)) /* as teffi_thread_start sets it */
#define pthread_mutex_init(m, attr) explore_lock_init(m)
#define pthread_mutex_destroy(m) ((void)(m))
#define pthread_mutex_lock(m) explore_lock_take((m), EXPLORE_AT)
#define pthread_mutex_unlock(m) explore_lock_give((m), EXPLORE_AT)
/* Zeroed, an explorer's lock is free too. */
#define teffi_spinlock_lock(l) explore_lock_take((l), EXPLORE_AT)
#define teffi_spinlock_unlock(l) explore_lock_give((l), EXPLORE_AT)

#define teffi_cpu_relax() explore_back_off(EXPLORE_AT)
#define free explore_free /* also members of structs that have this name */
/* From the heap, where explore_free and AddressSanitizer see each use. */
#define teffi_pool_get(n) malloc(n)
#define teffi_pool_put(memory, n) ((void)(n), explore_free(memory))

#define teffi_slab_put explore_slab_put

/* Turns run on stacks of the explorer's; the real pool is for those and for virtual threads. */
#define teffi_fiber_new(pool, fn, arg)                                                             \
    ((void)(pool), (teffi_fiber *)(void *)explore_stack_new((fn), (arg)))
#define teffi_fiber_resume(fiber) explore_stack_resume((explore_stack *)(void *)(fiber))
#define teffi_fiber_suspend(fiber) explore_stack_suspend((explore_stack *)(void *)(fiber))
#define teffi_fiber_current() ((teffi_fiber *)(void *)explore_stack_current())
#define teffi_fiber_local(fiber) (&((explore_stack *)(void *)(fiber))->local)
#define teffi_fiber_set_label(fiber, text) ((void)(fiber), (void)(text))
#define teffi_fiber_get_label(fiber) ((void)(fiber), "a turn")
#define teffi_fiber_set_preemptible(fiber, on) ((void)(fiber))
#define teffi_fiber_pool_new(bytes, max) ((teffi_fiber_pool *)(void *)&ex)
#define teffi_fiber_pool_allow_reserved_guards(pool) ((void)(pool))
#define teffi_fiber_pool_free(pool) ((void)(pool))
#define teffi_fiber_pool_reclaim(pool, now_ns) ((void)(pool), (void)(now_ns), false)
#define teffi_fiber_thread_enter_pool(pool) ((void)(pool), false)
#define teffi_fiber_thread_leave_pool() ((void)0)

/* Signals do not come to virtual threads. */
#define teffi_interrupt_thread(thread) ((void)(thread))

/* Swapped when the virtual thread changes. */
#undef _Thread_local
#define _Thread_local __attribute__((section("explore_locals"), used))
