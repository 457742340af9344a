/* held.h - checks that no lock is held where a turn may be suspended: otherwise other turns of this
 * thread would deadlock on it, and another thread might unlock it. Debug and sanitizer builds
 * (TEFFI_HELD) include this header everywhere and count each thread's locks. */
#pragma once

#if defined(TEFFI_HELD) && !defined(__ASSEMBLER__)
#include <pthread.h>

/* teffi_held_locks_add - count a lock that this thread took (1) or released (-1). Never inlined,
 * because a turn may be on another thread at its next lock (base/local.h). */
void teffi_held_locks_add(int locks);

/* teffi_abort_if_lock_is_held - abort if this thread holds a lock. */
void teffi_abort_if_lock_is_held(const char *file, int line);

static inline int teffi_lock_and_count(pthread_mutex_t *mutex)
{
    int err = pthread_mutex_lock(mutex);
    teffi_held_locks_add(1);
    return err;
}

static inline int teffi_trylock_and_count(pthread_mutex_t *mutex)
{
    int err = pthread_mutex_trylock(mutex);
    if (!err)
        teffi_held_locks_add(1);
    return err;
}

static inline int teffi_unlock_and_uncount(pthread_mutex_t *mutex)
{
    teffi_held_locks_add(-1);
    return pthread_mutex_unlock(mutex);
}

#define pthread_mutex_lock(mutex) teffi_lock_and_count(mutex)
#define pthread_mutex_trylock(mutex) teffi_trylock_and_count(mutex)
#define pthread_mutex_unlock(mutex) teffi_unlock_and_uncount(mutex)
#define teffi_may_suspend() teffi_abort_if_lock_is_held(__FILE__, __LINE__)
#elif !defined(teffi_may_suspend) /* tests/explore has its own */

/* teffi_may_suspend - marks a place where the running turn may be suspended: no lock may be
 * held. */
#define teffi_may_suspend() ((void)0)
#endif
