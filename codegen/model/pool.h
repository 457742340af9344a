/* pool.h - memory of one run of the generator: freed all at once. It is also protobuf-c's
 * allocator.
 * Way:     codegen -> [pool] -> everything the run builds */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

struct teffi_pool_block;

typedef struct teffi_pool {
    ProtobufCAllocator allocator;  /* allocates from this pool; its free does nothing */
    struct teffi_pool_block *last; /* the list of all blocks, newest first */
} teffi_pool;

typedef struct teffi_bytes {
    const uint8_t *data;
    size_t n;
} teffi_bytes;

/* teffi_pool_init - make a pool empty. The pool must stay at its address until teffi_pool_fini,
 * which frees the memory: `allocator` points to the pool. */
void teffi_pool_init(teffi_pool *pool);
void teffi_pool_fini(teffi_pool *pool);

/* teffi_pool_alloc - allocate n zeroed bytes, aligned for any type.
 * out:  never NULL: if memory is out, the process prints an error and exits with status 1. */
void *teffi_pool_alloc(teffi_pool *pool, size_t n);

/* teffi_pool_printf, teffi_pool_vprintf - format a string as printf does.
 * out:  in the pool; lives until teffi_pool_fini. */
char *teffi_pool_printf(teffi_pool *pool, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
char *teffi_pool_vprintf(teffi_pool *pool, const char *fmt, va_list args)
    __attribute__((format(printf, 2, 0)));
