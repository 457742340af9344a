/* pool.h - free memory that is kept for reuse: small short-lived objects (messages, events,
 * commands) and, in block.c, large blocks.
 * Way:     message/, process/, grains/ -> [a thread's own lists] -> the depot, in batches -> heap
 * Threads: any; one thread may get and another put. A depot has a lock, taken once per batch.
 * Source:  Bonwick and Adams, "Magazines and Vmem" (2001): magazines, the working set of a depot */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TEFFI_POOL_MAX = 1024 }; /* bytes; larger objects are left to the heap */

/* teffi_pool_get - out: n bytes, aligned to 16, not zeroed; NULL: no memory. */
void *teffi_pool_get(size_t n);

/* teffi_pool_put - free an object. in: memory, may be NULL; n, as requested. */
void teffi_pool_put(void *memory, size_t n);

/* teffi_pool_reclaim - free a part of the batches that stayed unused for 0.1 s. Call it at each
 * tick.
 * out:  *gone_bytes grows by the bytes freed. true: a depot still has more batches than it keeps,
 *       so call again soon. */
bool teffi_pool_reclaim(uint64_t now_ns, size_t *gone_bytes);

/* ---- block.c: blocks for messages with large bodies. The heap would return their pages to the
 * system at each free, and fresh pages cost more than copying the body. One lock, held for a few
 * steps ---- */

enum {
    TEFFI_BLOCK_MIN = 16 * 1024,             /* bytes; smaller blocks are left to the heap */
    TEFFI_BLOCK_MAX = 2 * 1024 * 1024,       /* bytes; larger blocks too */
    TEFFI_BLOCK_KEPT_MAX = 32 * 1024 * 1024, /* bytes of free blocks; from then on none is kept */
};

/* teffi_block_usable_bytes - size of the block that a request of n bytes gets, at least n. */
size_t teffi_block_usable_bytes(size_t n);

/* teffi_block_get - out: teffi_block_usable_bytes(n) bytes, aligned to 16, not zeroed; NULL: no
 * memory. */
void *teffi_block_get(size_t n);

/* teffi_block_put - free a block, or keep it for reuse. in: memory, may be NULL. n: the bytes
 * requested, or teffi_block_usable_bytes() of them. */
void teffi_block_put(void *memory, size_t n);

/* teffi_block_reclaim - return to the heap the blocks that stayed free for half a second. Call it
 * at each tick. out: how many bytes of free blocks are still kept. */
size_t teffi_block_reclaim(uint64_t now_ns);
