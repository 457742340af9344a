/* pool.c - memory of one run of the generator.
 * Way:     codegen -> [pool] -> everything the run builds */
#include "pool.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCK_BYTES = 64 * 1024, ALIGN = 16 };

typedef struct teffi_pool_block {
    struct teffi_pool_block *next;
    size_t used;
    size_t size;
    _Alignas(ALIGN) unsigned char bytes[];
} block;

static void *pool_alloc(void *data, size_t n)
{
    return teffi_pool_alloc(data, n);
}

static void pool_free(void *data, void *p)
{
    (void)data;
    (void)p;
}

void teffi_pool_init(teffi_pool *pool)
{
    pool->allocator = (ProtobufCAllocator){pool_alloc, pool_free, pool};
    pool->last = NULL;
}

void teffi_pool_fini(teffi_pool *pool)
{
    block *next;

    for (block *b = pool->last; b != NULL; b = next) {
        next = b->next;
        free(b);
    }
    pool->last = NULL;
}

static block *block_add(teffi_pool *pool, size_t n)
{
    size_t size = n > BLOCK_BYTES ? n : BLOCK_BYTES;
    block *b = calloc(1, sizeof *b + size);

    if (b == NULL) {
        fputs("protoc-gen-teff: out of memory\n", stderr);
        exit(1);
    }
    b->size = size;
    b->next = pool->last;
    pool->last = b;
    return b;
}

void *teffi_pool_alloc(teffi_pool *pool, size_t n)
{
    block *b = pool->last;
    void *p;

    if (n > (size_t)-1 / 2) { /* the rounding below cannot wrap */
        fputs("protoc-gen-teff: out of memory\n", stderr);
        exit(1);
    }
    n = (n + ALIGN - 1) / ALIGN * ALIGN;
    if (b == NULL || b->size - b->used < n) {
        b = block_add(pool, n);
    }
    p = b->bytes + b->used;
    b->used += n;
    return p;
}

char *teffi_pool_printf(teffi_pool *pool, const char *fmt, ...)
{
    va_list args;
    int n;
    char *s;

    assert(fmt != NULL); /* also tells gcc's sanitized build, which warns otherwise */
    va_start(args, fmt);
    n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    s = teffi_pool_alloc(pool, (size_t)n + 1);
    va_start(args, fmt);
    vsnprintf(s, (size_t)n + 1, fmt, args);
    va_end(args);
    return s;
}
