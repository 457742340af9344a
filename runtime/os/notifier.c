/* notifier.c - an eventfd with a count of its users. */
#include "os/notifier.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

teffi_notifier *teffi_notifier_new(void)
{
    teffi_notifier *notifier = malloc(sizeof *notifier);
    if (!notifier)
        return NULL;
    notifier->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (notifier->fd < 0) {
        free(notifier);
        return NULL;
    }
    atomic_init(&notifier->refs, 1);
    return notifier;
}

void teffi_notifier_ref(teffi_notifier *notifier)
{
    /* relaxed: there is another reference, which is not dropped during this call */
    atomic_fetch_add_explicit(&notifier->refs, 1, memory_order_relaxed);
}

void teffi_notifier_unref(teffi_notifier *notifier)
{
    /* acq_rel: the close happens after the other users' writes */
    if (!notifier || atomic_fetch_sub_explicit(&notifier->refs, 1, memory_order_acq_rel) != 1)
        return;
    close(notifier->fd);
    free(notifier);
}

void teffi_notifier_signal(teffi_notifier *notifier)
{
    const uint64_t one = 1;
    /* The write fails only if the count is at its maximum; in that case fd is readable already. */
    (void)!write(notifier->fd, &one, sizeof one);
}
