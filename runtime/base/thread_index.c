/* thread_index.c - a thread takes the lowest free index at its first use and frees it when it ends.
 * The lock also orders the writes of successive threads with the same index. */
#include "base/thread_index.h"

#include <pthread.h>
#include <stdint.h>

enum { WORDS = TEFFI_THREAD_INDEXES / 64, NONE = TEFFI_THREAD_INDEXES + 1 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t taken[WORDS];
TEFFI_LOCAL unsigned teffi_own_thread_index;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static int has_key;

/* The destructor of `key`. If another destructor takes an index afterwards, the thread library
 * calls this function again. */
static void free_index(void *arg)
{
    unsigned n = (unsigned)(uintptr_t)arg - 1;
    teffi_own_thread_index = 0;
    pthread_mutex_lock(&lock);
    taken[n / 64] &= ~((uint64_t)1 << n % 64);
    pthread_mutex_unlock(&lock);
}

static void create_thread_key(void)
{
    has_key = !pthread_key_create(&key, free_index);
}

/* out: the lowest free index, now taken; TEFFI_THREAD_INDEXES: none is free. */
static unsigned take_lowest_index(void)
{
    unsigned n = TEFFI_THREAD_INDEXES;
    pthread_mutex_lock(&lock);
    for (unsigned w = 0; w < WORDS && n == TEFFI_THREAD_INDEXES; w++) {
        if (!~taken[w])
            continue;
        unsigned bit = (unsigned)__builtin_ctzll(~taken[w]);
        taken[w] |= (uint64_t)1 << bit;
        n = w * 64 + bit;
    }
    pthread_mutex_unlock(&lock);
    return n;
}

/* Takes an index for this thread. out: the index; TEFFI_THREAD_INDEXES: the thread has none. If
 * `key` cannot be set for the thread, the index is freed at once, since no destructor would free it
 * later. */
__attribute__((cold)) unsigned teffi_thread_index_take(void)
{
    (void)pthread_once(&once, create_thread_key);
    unsigned n = has_key ? take_lowest_index() : TEFFI_THREAD_INDEXES;
    teffi_own_thread_index = n < TEFFI_THREAD_INDEXES ? n + 1 : NONE;
    if (n < TEFFI_THREAD_INDEXES &&
        pthread_setspecific(key, (void *)(uintptr_t)teffi_own_thread_index)) {
        free_index((void *)(uintptr_t)teffi_own_thread_index);
        teffi_own_thread_index = NONE;
    }
    return teffi_own_thread_index - 1;
}
