/* interrupt.h - interrupt one of our threads, which may leave its stack in the middle.
 * Way:     sched/monitor -> [interrupt] -> a signal -> fn on the thread's current stack
 * Threads: install: any; allow: the thread itself; thread: any, while the other is not joined.
 * Source:  Go's SIGURG: ignored by default, and programs expect stray ones */
#ifndef TEFFI_PLATFORM_INTERRUPT_H
#define TEFFI_PLATFORM_INTERRUPT_H

#include "platform/thread.h"

/* teffi_interrupt_install - what an interrupted thread does; once in a process, idempotent for the
 * same fn. fn runs where the signal came, on the stack that was in use, with the signal blocked.
 * Between _leaves and _is_back it may switch to another stack, and come back much later on another
 * thread. A handler that was there before gets the signals that are not from here. */
void teffi_interrupt_install(void (*fn)(void *context));

/* teffi_interrupt_allow - this thread may be interrupted from now on. */
void teffi_interrupt_allow(void);

/* teffi_interrupt_thread - soon, wherever it is; it may see EINTR. */
void teffi_interrupt_thread(const teffi_thread *thread);

/* teffi_interrupt_leaves, _is_back - from fn, around what leaves its stack: the thread that is left
 * may be interrupted again; the one that comes back not until fn returns. context: fn's. */
void teffi_interrupt_leaves(void);
void teffi_interrupt_is_back(void *context);

#endif
