/* sanitize.h - tells ASan, TSan and Valgrind about fiber stacks. A plain build has only Valgrind's
 * part, if Valgrind's header was found.
 * Way:     fiber.c, stack.c -> [sanitize] -> the tools' own headers
 * Source:  sanitizer/common_interface_defs.h, sanitizer/tsan_interface.h, valgrind/valgrind.h */
#pragma once

#include "base/poison.h"
#include "fiber/stack.h"

#if defined(__SANITIZE_THREAD__)
#define TEFFI_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TEFFI_TSAN 1
#endif
#endif

#ifdef TEFFI_POISONS
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef TEFFI_TSAN
#include <sanitizer/tsan_interface.h>
#endif
#if defined(__has_include)
#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#endif
#endif

/* Sanitizers must not see a function return on a stack that was left for good. */
#if defined(TEFFI_POISONS) || defined(TEFFI_TSAN)
enum { TEFFI_SAN_SWITCHED = 1 };
#else
enum { TEFFI_SAN_SWITCHED = 0 };
#endif

/* Tells Valgrind about a stack that was mapped. */
static inline void teffi_san_register_stack(teffi_fiber *fiber)
{
#ifdef VALGRIND_STACK_REGISTER
    (void)VALGRIND_STACK_REGISTER(fiber->low, fiber->high);
#endif
    (void)fiber;
}

/* Clears the poison that ASan still has on the stack for frames that never returned. fiber->low is
 * NULL if the stack is decommitted. */
static inline void teffi_san_unpoison(teffi_fiber *fiber)
{
#ifdef TEFFI_POISONS
    if (fiber->low)
        __asan_unpoison_memory_region(fiber->low, (size_t)((char *)fiber - fiber->low));
#endif
    (void)fiber;
}

/* Called before a stack is decommitted or unmapped. Clears ASan's poison, since other memory may be
 * mapped there later. Frees the TSan context, since the teffi_fiber that refers to it is lost with
 * the stack's memory. */
static inline void teffi_san_drop_stack_state(teffi_fiber *fiber)
{
    teffi_san_unpoison(fiber);
#ifdef TEFFI_TSAN
    if (fiber->race)
        __tsan_destroy_fiber(fiber->race);
#endif
    (void)fiber;
}

/* Prepares a stack for a new fiber: clears ASan's poison and makes a new TSan context. The old
 * context cannot be reused: its shadow stack still has entries of frames that never returned, and
 * would overflow after many fibers. */
static inline void teffi_san_prepare_stack(teffi_fiber *fiber)
{
    teffi_san_unpoison(fiber);
#ifdef TEFFI_POISONS
    fiber->fake = NULL;
#endif
#ifdef TEFFI_TSAN
    if (fiber->race)
        __tsan_destroy_fiber(fiber->race);
    fiber->race = __tsan_create_fiber(0);
#endif
    (void)fiber;
}

/* TSan records each function's entry and exit on the current shadow stack. A non-inlined function
 * that announces a switch would enter on one shadow stack and exit on the other. After the switch
 * from a stack that is left for good, the resumer's shadow stack would lack an entry. So
 * teffi_san_begin_switch_to_fiber and teffi_san_begin_switch_back are always inlined. */
#define TEFFI_SAN_INLINE static inline __attribute__((always_inline))

/* Tells ASan and TSan that a switch to the fiber follows. Called on the resumer's stack. */
TEFFI_SAN_INLINE void teffi_san_begin_switch_to_fiber(teffi_fiber *fiber)
{
#ifdef TEFFI_POISONS
    __sanitizer_start_switch_fiber(&fiber->back_fake, fiber->low,
                                   (size_t)(fiber->high - fiber->low));
#endif
#ifdef TEFFI_TSAN
    fiber->back_race = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(fiber->race, 0);
#endif
    (void)fiber;
}

/* Tells ASan that a switch back from the fiber is complete. Called on the resumer's stack, after
 * the switch. */
static inline void teffi_san_end_switch_back(teffi_fiber *fiber)
{
#ifdef TEFFI_POISONS
    __sanitizer_finish_switch_fiber(fiber->back_fake, NULL, NULL);
#endif
    (void)fiber;
}

/* Tells ASan that a switch to the fiber is complete. Called on the fiber's stack, right after the
 * switch. */
static inline void teffi_san_end_switch_to_fiber(teffi_fiber *fiber)
{
#ifdef TEFFI_POISONS
    __sanitizer_finish_switch_fiber(fiber->fake, &fiber->back_low, &fiber->back_size);
#endif
    (void)fiber;
}

/* Tells ASan and TSan that a switch back to the resumer follows. Called on the fiber's stack. in:
 * last: the stack is left for good. */
TEFFI_SAN_INLINE void teffi_san_begin_switch_back(teffi_fiber *fiber, bool last)
{
#ifdef TEFFI_POISONS
    __sanitizer_start_switch_fiber(last ? NULL : &fiber->fake, fiber->back_low, fiber->back_size);
#endif
#ifdef TEFFI_TSAN
    __tsan_switch_to_fiber(fiber->back_race, 0);
#endif
    (void)fiber;
    (void)last;
}
