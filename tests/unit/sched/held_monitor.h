/* held_monitor.h - the scheduler's monitor stands still, or does as many ticks as a test allows.
 * Without it no turn's slice ends and no processor is retaken, so what one worker does is known.
 * The monitor reads the platform's clock as each tick begins; here it waits in that reading. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include "os/platform.h"

static struct {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    bool held, waits;
    unsigned ticks;                 /* that it may still do */
    uint64_t (*mono_ns)(void *arg); /* the platform's own clock */
} monitor = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};

static inline bool is_monitor(void)
{
    static _Thread_local enum { UNKNOWN, YES, NO } known;
    char name[16];
    if (known == UNKNOWN)
        known = pthread_getname_np(pthread_self(), name, sizeof name) == 0 &&
                        strcmp(name, "teff-monitor") == 0
                    ? YES
                    : NO;
    return known == YES;
}

/* Does a tick begin? The monitor's first reading tells from where it reads then. In other readings,
 * inside a tick, it may hold locks. */
static inline bool is_tick_begin(const void *reader)
{
    static _Thread_local const void *begin;
    if (!begin)
        begin = reader;
    return reader == begin;
}

static __attribute__((noinline, unused)) uint64_t monitor_clock(void *arg)
{
    if (is_monitor() && is_tick_begin(__builtin_return_address(0))) {
        pthread_mutex_lock(&monitor.lock);
        monitor.waits = true;
        pthread_cond_broadcast(&monitor.moved);
        while (monitor.held && !monitor.ticks)
            pthread_cond_wait(&monitor.moved, &monitor.lock);
        monitor.ticks -= monitor.ticks > 0;
        monitor.waits = false;
        pthread_mutex_unlock(&monitor.lock);
    }
    return monitor.mono_ns(arg);
}

/* monitor_hold - before the executor is made. monitor_release - before it is freed. */
static inline void monitor_hold(teffi_platform *on)
{
    if (on->mono_ns != monitor_clock)
        monitor.mono_ns = on->mono_ns;
    on->mono_ns = monitor_clock;
    monitor.held = true;
}

static inline void monitor_release(void)
{
    pthread_mutex_lock(&monitor.lock);
    monitor.held = false;
    pthread_cond_broadcast(&monitor.moved);
    pthread_mutex_unlock(&monitor.lock);
}

/* monitor_tick - one tick, while some worker is in a turn; it has ended when this returns. */
static inline void monitor_tick(void)
{
    pthread_mutex_lock(&monitor.lock);
    monitor.ticks++;
    pthread_cond_broadcast(&monitor.moved);
    while (monitor.ticks || !monitor.waits)
        pthread_cond_wait(&monitor.moved, &monitor.lock);
    pthread_mutex_unlock(&monitor.lock);
}
