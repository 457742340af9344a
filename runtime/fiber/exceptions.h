/* exceptions.h - saves and restores the C++ exception state at a switch of stacks. The state
 * (caught exceptions, number being thrown) belongs to a stack; the C++ library keeps it per thread.
 * Way:     fiber.c, sched/run.c -> [exceptions] -> the C++ runtime, if there is one
 * Threads: the calling one; enter and leave of a stack are called on the same thread.
 * Source:  Itanium C++ ABI: Exception Handling, 2.2.2 */
#pragma once

#include <stddef.h>

typedef struct teffi_exceptions { /* the ABI's __cxa_eh_globals */
    void *caught;
    unsigned uncaught;
} teffi_exceptions;

/* out: this thread's state. The function is NULL if no C++ runtime was loaded together with the
 * program or libteff.so. */
extern teffi_exceptions *teffi_exceptions_own(void) __asm__("__cxa_get_globals")
    __attribute__((weak));

/* teffi_exceptions_enter - before a switch to a stack: make its saved state the thread's state.
 * out:  the address of the thread's state, and *before, its old value; NULL: no C++ runtime. */
static inline teffi_exceptions *teffi_exceptions_enter(const teffi_exceptions *stack,
                                                       teffi_exceptions *before)
{
    if (__builtin_expect(!teffi_exceptions_own, 1))
        return NULL;
    teffi_exceptions *own = teffi_exceptions_own();
    *before = *own;
    *own = *stack;
    return own;
}

/* teffi_exceptions_leave - after the switch back: save the thread's state in *stack and restore
 * *before.
 * in:   own and before, from teffi_exceptions_enter. */
static inline void teffi_exceptions_leave(teffi_exceptions *own, const teffi_exceptions *before,
                                          teffi_exceptions *stack)
{
    *stack = *own;
    *own = *before;
}

/* Marks the function that contains it as the first one of its stack for unwinders, so that an
 * exception that leaves a function called by it ends in std::terminate. Only in functions that are
 * not inlined. */
#if defined(__x86_64__)
#define TEFFI_UNWINDING_ENDS __asm__ volatile(".cfi_undefined %rip")
#elif defined(__aarch64__)
#define TEFFI_UNWINDING_ENDS __asm__ volatile(".cfi_undefined x30")
#endif
