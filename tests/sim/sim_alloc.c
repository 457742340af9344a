/* sim_alloc.c - malloc and its family, the pool and the blocks with them, counted and shuffled. */
#include "sim_alloc.h"

#include <stdlib.h>
#include <string.h>
#include "base/bug.h"
#include "base/hash.h"
#include "memory/pool.h"

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void __real_free(void *p);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
void __wrap_free(void *p);
char *__wrap_strdup(const char *s);
void *__wrap_teffi_pool_get(size_t n);
void __wrap_teffi_pool_put(void *p, size_t n);
void *__wrap_teffi_block_get(size_t n);
void __wrap_teffi_block_put(void *p, size_t n);

enum { FILL_MAX = 4096, SHIFT_MAX = 128 };

static int64_t live;
static uint64_t state;
static int fill_byte;

void sim_alloc_shuffle(uint64_t salt, int fill)
{
    state = salt;
    fill_byte = fill;
}

int64_t sim_alloc_live(void)
{
    return live;
}

static size_t block_shift(void)
{
    state += 0x9e3779b97f4a7c15u;
    return state ? teffi_mix64(state) % SHIFT_MAX : 0;
}

void *__wrap_malloc(size_t n)
{
    void *p = __real_malloc(n + block_shift());
    live += p != NULL;
    if (p)
        memset(p, fill_byte, n < FILL_MAX ? n : FILL_MAX);
    return p;
}

void *__wrap_calloc(size_t n, size_t size)
{
    void *p = __real_calloc(n, size);
    live += p != NULL;
    return p;
}

void *__wrap_realloc(void *p, size_t n)
{
    void *q = __real_realloc(p, n);
    live += !p && q;
    return q;
}

void *__wrap_aligned_alloc(size_t align, size_t n)
{
    void *p = __real_aligned_alloc(align, n);
    live += p != NULL;
    return p;
}

void __wrap_free(void *p)
{
    live -= p != NULL;
    __real_free(p);
}

char *__wrap_strdup(const char *s)
{
    size_t n = strlen(s) + 1;
    char *copy = __wrap_malloc(n);
    return copy ? memcpy(copy, s, n) : NULL;
}

/* ---- pools and blocks: freed at once, as a free list would hide leaks and uses after free ---- */

/* Before the memory; as long as malloc's alignment. */
typedef struct head {
    _Alignas(16) size_t n; /* bytes that were asked for */
} head;

static void *get_sized(size_t n)
{
    head *h = __wrap_malloc(sizeof *h + n);
    if (!h)
        return NULL;
    h->n = n;
    return h + 1;
}

/* A size that is not the one asked for would put the memory into another free list. */
static void put_sized(void *p, size_t n, size_t (*room)(size_t n))
{
    head *h = p ? (head *)p - 1 : NULL;
    teffi_bug_if(h && room(h->n) != room(n));
    __wrap_free(h);
}

static size_t itself(size_t n)
{
    return n;
}

void *__wrap_teffi_pool_get(size_t n)
{
    return get_sized(n);
}

void __wrap_teffi_pool_put(void *p, size_t n)
{
    put_sized(p, n, itself);
}

void *__wrap_teffi_block_get(size_t n)
{
    return get_sized(n);
}

void __wrap_teffi_block_put(void *p, size_t n)
{
    put_sized(p, n, teffi_block_usable_bytes);
}
