/* pool.c - memory of one run of the generator: a list of blocks from calloc. */
#include "model/pool.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct teffi_pool_block {
    struct teffi_pool_block *next;
    _Alignas(max_align_t) unsigned char bytes[];
} block;

/* The alloc function of protobuf-c's allocator; data is the pool. */
static void *alloc_from_pool(void *data, size_t n)
{
    return teffi_pool_alloc(data, n);
}

/* The free function of protobuf-c's allocator. Does nothing, because teffi_pool_fini() frees all
 * memory at once. */
static void ignore_free(void *data, void *p)
{
    (void)data;
    (void)p;
}

void teffi_pool_init(teffi_pool *pool)
{
    pool->allocator = (ProtobufCAllocator){alloc_from_pool, ignore_free, pool};
    pool->last = NULL;
}

void teffi_pool_fini(teffi_pool *pool)
{
    block *next;
    for (block *b = pool->last; b; b = next) {
        next = b->next;
        free(b);
    }
    pool->last = NULL;
}

void *teffi_pool_alloc(teffi_pool *pool, size_t n)
{
    block *b = n <= SIZE_MAX / 2 ? calloc(1, sizeof *b + n) : NULL;
    if (!b) {
        fputs("protoc-gen-teff: out of memory\n", stderr);
        exit(1);
    }
    b->next = pool->last;
    pool->last = b;
    return b->bytes;
}

char *teffi_pool_vprintf(teffi_pool *pool, const char *fmt, va_list args)
{
    va_list again;
    assert(fmt); /* prevents a warning of gcc in builds with sanitizers */
    va_copy(again, args);
    size_t size = (size_t)vsnprintf(NULL, 0, fmt, args) + 1;
    char *s = teffi_pool_alloc(pool, size);
    vsnprintf(s, size, fmt, again);
    va_end(again);
    return s;
}

char *teffi_pool_printf(teffi_pool *pool, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    char *s = teffi_pool_vprintf(pool, fmt, args);
    va_end(args);
    return s;
}
