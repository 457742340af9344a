/* exceptions.h - saves and restores the C++ exception state at a switch of stacks. The state
 * (caught exceptions, number being thrown) belongs to a stack; the C++ library keeps it per thread.
 * Way:     fiber.c, sched/run.c -> [exceptions] -> the C++ runtime, if there is one
 * Threads: the calling one; for one stack, teffi_exceptions_swap_in and teffi_exceptions_swap_out
 *          are called on the same thread.
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

/* teffi_exceptions_swap_in - before a switch to a stack: save the thread's exception state in
 * *before, and replace it by *stack, the state that was saved for that stack.
 * out:  the address of the thread's state, for teffi_exceptions_swap_out; NULL: there is no C++
 *       runtime, and nothing was done. */
static inline teffi_exceptions *teffi_exceptions_swap_in(const teffi_exceptions *stack,
                                                         teffi_exceptions *before)
{
    if (__builtin_expect(!teffi_exceptions_own, 1))
        return NULL;
    teffi_exceptions *own = teffi_exceptions_own();
    *before = *own;
    *own = *stack;
    return own;
}

/* teffi_exceptions_swap_out - after the switch back: save the thread's state in *stack, and
 * restore the old state from *before.
 * in:   own: what teffi_exceptions_swap_in returned. before: the state that it saved. */
static inline void teffi_exceptions_swap_out(teffi_exceptions *own, const teffi_exceptions *before,
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
