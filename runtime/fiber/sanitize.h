/* sanitize.h - tell ASan, TSan and Valgrind about stacks; nothing in a plain build.
 * Way:     fiber.c, stack.c -> [sanitize] -> the tools' own headers
 * Source:  the tools' fiber interfaces: every switch is announced before and finished after */
#ifndef TEFFI_FIBER_SANITIZE_H
#define TEFFI_FIBER_SANITIZE_H

#include "fiber/stack.h"

#if defined(__SANITIZE_ADDRESS__)
#define TEFFI_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TEFFI_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define TEFFI_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TEFFI_TSAN 1
#endif
#endif

#ifdef TEFFI_ASAN
#include <sanitizer/asan_interface.h>
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

/* They must see no return from a stack that was left for good. */
#if defined(TEFFI_ASAN) || defined(TEFFI_TSAN)
enum { TEFFI_SAN_SWITCHED = 1 };
#else
enum { TEFFI_SAN_SWITCHED = 0 };
#endif

/* A stack was mapped. */
static inline void teffi_san_new(teffi_fiber *fiber)
{
#ifdef VALGRIND_STACK_REGISTER
    (void)VALGRIND_STACK_REGISTER(fiber->low, fiber->high);
#endif
    (void)fiber;
}

static inline void teffi_san_free(teffi_fiber *fiber)
{
#ifdef TEFFI_TSAN
    if (fiber->race)
        __tsan_destroy_fiber(fiber->race);
#endif
    (void)fiber;
}

/* A new use. Frames of the last one that never returned left marks on the stack, and entries on
 * TSan's shadow of it, which would overflow. */
static inline void teffi_san_fresh(teffi_fiber *fiber)
{
#ifdef TEFFI_ASAN
    __asan_unpoison_memory_region(fiber->low, (size_t)((char *)fiber - fiber->low));
    fiber->fake = NULL;
#endif
#ifdef TEFFI_TSAN
    if (fiber->race)
        __tsan_destroy_fiber(fiber->race);
    fiber->race = __tsan_create_fiber(0);
#endif
    (void)fiber;
}

/* On the resumer's stack, around the switch. */
static inline void teffi_san_enter(teffi_fiber *fiber)
{
#ifdef TEFFI_ASAN
    __sanitizer_start_switch_fiber(&fiber->back_fake, fiber->low,
                                   (size_t)(fiber->high - fiber->low));
#endif
#ifdef TEFFI_TSAN
    fiber->back_race = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(fiber->race, 0);
#endif
    (void)fiber;
}

static inline void teffi_san_entered_back(teffi_fiber *fiber)
{
#ifdef TEFFI_ASAN
    __sanitizer_finish_switch_fiber(fiber->back_fake, NULL, NULL);
#endif
    (void)fiber;
}

/* On the fiber's stack: first thing after it was switched to. */
static inline void teffi_san_landed(teffi_fiber *fiber)
{
#ifdef TEFFI_ASAN
    __sanitizer_finish_switch_fiber(fiber->fake, &fiber->back_low, &fiber->back_size);
#endif
    (void)fiber;
}

/* On the fiber's stack: last thing before it is left; last: for good. */
static inline void teffi_san_leave(teffi_fiber *fiber, bool last)
{
#ifdef TEFFI_ASAN
    __sanitizer_start_switch_fiber(last ? NULL : &fiber->fake, fiber->back_low, fiber->back_size);
#endif
#ifdef TEFFI_TSAN
    __tsan_switch_to_fiber(fiber->back_race, 0);
#endif
    (void)fiber;
    (void)last;
}

#endif
