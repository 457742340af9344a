/* pool.h - memory of small objects that come and go: messages, events, yields.
 * Way:     process/, grains/ -> [a thread's own lists] -> the depot, in whole batches -> heap
 * Threads: any; what one thread took another may give back. The depot has a lock, taken once for a
 *          batch.
 * Source:  Bonwick and Adams, "Magazines and Vmem" (2001): magazines, the working set of a depot */
#ifndef TEFFI_BASE_POOL_H
#define TEFFI_BASE_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TEFFI_POOL_MAX = 1024 }; /* bytes; what is larger is the heap's own */

/* teffi_pool_get - n bytes, aligned to 16, not zeroed. out: NULL when memory is out. */
void *teffi_pool_get(size_t n);

/* teffi_pool_put - give them back. in: memory, may be NULL; n, as it was asked for. */
void teffi_pool_put(void *memory, size_t n);

/* teffi_pool_idle - whoever is about to sleep says so: the heap gets a part of what nobody has
 * needed since somebody said it last. Cheap when there is nothing to give. */
void teffi_pool_idle(void);

/* teffi_pool_age - somebody with a clock calls it now and then: of what nobody has needed for a
 * while a slice goes to the heap.
 * out:  *gone_bytes, more by that. true: there is more than is kept for good: call again soon. */
bool teffi_pool_age(uint64_t now_ns, size_t *gone_bytes);

/* teffi_pool_kept - bytes that the depot holds for later; threads hold two batches a size more. */
size_t teffi_pool_kept(void);

#endif
