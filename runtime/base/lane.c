/* lane.c - numbers for threads: the lowest that is free, given back when the thread ends.
 * Way:     first use -> taken under the lock -> thread-local -> the thread's end
 * Threads: the lock is also how a number's next thread sees what the one before did. */
#include "base/lane.h"

#include <pthread.h>
#include <stdint.h>
#include "base/local.h"

enum { WORDS = TEFFI_LANES / 64, NONE = TEFFI_LANES + 1 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t taken[WORDS];
static TEFFI_LOCAL unsigned own; /* number + 1; 0: not asked for yet; NONE: there was none */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static int has_key;

/* Other destructors of this thread may ask again, and then run again. */
static void leave(void *arg)
{
    unsigned n = (unsigned)(uintptr_t)arg - 1;
    own = 0;
    pthread_mutex_lock(&lock);
    taken[n / 64] &= ~((uint64_t)1 << n % 64);
    pthread_mutex_unlock(&lock);
}

static void make_key(void)
{
    has_key = !pthread_key_create(&key, leave);
}

/* out: the lowest free one, taken; TEFFI_LANES: there is none. */
static unsigned take(void)
{
    unsigned n = TEFFI_LANES;
    pthread_mutex_lock(&lock);
    for (unsigned w = 0; w < WORDS && n == TEFFI_LANES; w++) {
        if (!~taken[w])
            continue;
        unsigned bit = (unsigned)__builtin_ctzll(~taken[w]);
        taken[w] |= (uint64_t)1 << bit;
        n = w * 64 + bit;
    }
    pthread_mutex_unlock(&lock);
    return n;
}

/* Without the key a number would be lost with its thread. */
static unsigned first_use(void)
{
    (void)pthread_once(&once, make_key);
    unsigned n = has_key ? take() : TEFFI_LANES;
    own = n < TEFFI_LANES ? n + 1 : NONE;
    if (n < TEFFI_LANES && pthread_setspecific(key, (void *)(uintptr_t)own)) {
        leave((void *)(uintptr_t)own);
        own = NONE;
    }
    return own - 1;
}

__attribute__((noinline)) unsigned teffi_lane(void)
{
    return own ? own - 1 : first_use();
}
