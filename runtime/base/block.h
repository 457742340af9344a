/* block.h - large memory that comes and goes: what messages with large bodies live in. The heap
 * would give its pages back to the system with each, and fresh pages cost more than what is copied
 * into them.
 * Way:     arena -> [block] -> heap
 * Threads: any; what one thread took another may give back. One lock a size, for a few steps. */
#ifndef TEFFI_BASE_BLOCK_H
#define TEFFI_BASE_BLOCK_H

#include <stddef.h>
#include <stdint.h>

enum {
    TEFFI_BLOCK_MIN = 16 * 1024,             /* bytes; what is smaller is the heap's own */
    TEFFI_BLOCK_MAX = 2 * 1024 * 1024,       /* and what is larger */
    TEFFI_BLOCK_KEPT_MAX = 32 * 1024 * 1024, /* of all that lie here */
};

/* teffi_block_room - bytes that a block for n really has, at least n. */
size_t teffi_block_room(size_t n);

/* teffi_block_get - n bytes, aligned to 16, not zeroed. out: NULL when memory is out. */
void *teffi_block_get(size_t n);

/* teffi_block_put - give them back. in: memory, may be NULL; n, as it was asked for, or its room.
 */
void teffi_block_put(void *memory, size_t n);

/* teffi_block_age - somebody with a clock calls it now and then: what nobody has needed for half a
 * second goes to the heap. */
void teffi_block_age(uint64_t now_ns);

/* teffi_block_kept - bytes that lie here for later. */
size_t teffi_block_kept(void);

#endif
