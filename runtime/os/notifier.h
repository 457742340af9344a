/* notifier.h - a descriptor that becomes readable, for a program with its own event loop.
 * Way:     call/wait -> [notifier] -> the program's poll
 * Threads: any. Reference counted, because teffi_notifier_signal() may run while the owner drops
 *          its reference. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

typedef struct teffi_notifier {
    _Atomic uint32_t refs; /* acq_rel: the last drop closes fd */
    int fd;                /* a nonblocking eventfd; immutable */
} teffi_notifier;

/* teffi_notifier_new - out: with one reference; NULL: no memory or no descriptor. */
teffi_notifier *teffi_notifier_new(void);

void teffi_notifier_ref(teffi_notifier *notifier);
void teffi_notifier_unref(teffi_notifier *notifier); /* notifier may be NULL */

/* teffi_notifier_signal - make the descriptor readable until it is read. */
void teffi_notifier_signal(teffi_notifier *notifier);
