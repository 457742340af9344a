/* pool.h - memory of one run of the generator: freed all at once, also protobuf-c's allocator.
 * Way:     codegen -> [pool] -> everything the run builds */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

struct teffi_pool_block;

typedef struct teffi_pool {
    ProtobufCAllocator allocator; /* hands out the pool's memory; its free does nothing */
    struct teffi_pool_block *last;
} teffi_pool;

typedef struct teffi_bytes {
    const uint8_t *data;
    size_t n;
} teffi_bytes;

void teffi_pool_init(teffi_pool *pool);
void teffi_pool_fini(teffi_pool *pool);

/* teffi_pool_alloc - n zeroed bytes, aligned for any type.
 * out:  never NULL: a generator that is out of memory says so and exits. */
void *teffi_pool_alloc(teffi_pool *pool, size_t n);

/* teffi_pool_printf, teffi_pool_vprintf - a string made as printf makes it.
 * out:  in the pool; lives until teffi_pool_fini. */
char *teffi_pool_printf(teffi_pool *pool, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
char *teffi_pool_vprintf(teffi_pool *pool, const char *fmt, va_list args)
    __attribute__((format(printf, 2, 0)));
