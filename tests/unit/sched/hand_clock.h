/* hand_clock.h - a clock that the test sets, and a log that it reads back. Conditions are waited
 * for, a minute at the most. */
#pragma once

#include "test.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "base/queue.h"
#include "os/thread.h"
#include "group/closure.h"
#include "sched/exec.h"

enum { LINES_MAX = 256, LINE_MAX_BYTES = 400, PATIENCE_S = 60 };

/* ---- waiting ---- */

static inline bool pause_a_little(time_t *since)
{
    struct timespec now, little = {.tv_nsec = 500000};
    nanosleep(&little, NULL);
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (!*since)
        *since = now.tv_sec;
    return now.tv_sec - *since < PATIENCE_S;
}

#define until(cond)                                                                                \
    do {                                                                                           \
        time_t since_ = 0;                                                                         \
        while (!(cond) && pause_a_little(&since_))                                                 \
            ;                                                                                      \
        if (!(cond))                                                                               \
            fail_msg("waited in vain for: %s", #cond);                                             \
    } while (0)

/* ---- a platform of the test's own ---- */

typedef struct lines { /* what was logged, or dumped */
    pthread_mutex_t lock;
    char text[LINES_MAX][LINE_MAX_BYTES];
    unsigned n;
} lines;

static inline void lines_clear(lines *l)
{
    pthread_mutex_lock(&l->lock);
    l->n = 0;
    pthread_mutex_unlock(&l->lock);
}

static inline void lines_take(void *arg, const char *line)
{
    lines *l = arg;
    pthread_mutex_lock(&l->lock);
    if (l->n < LINES_MAX) {
        snprintf(l->text[l->n], LINE_MAX_BYTES, "%s", line);
        l->n++;
    }
    pthread_mutex_unlock(&l->lock);
}

static inline void lines_log(void *arg, teff_log_level level, const char *line)
{
    if (level == TEFF_LOG_WARN)
        lines_take(arg, line);
}

/* How many lines hold both texts. */
static inline unsigned lines_with(lines *l, const char *one, const char *two)
{
    unsigned n = 0;
    pthread_mutex_lock(&l->lock);
    for (unsigned i = 0; i < l->n; i++)
        n += strstr(l->text[i], one) && strstr(l->text[i], two);
    pthread_mutex_unlock(&l->lock);
    return n;
}

typedef struct world { /* a platform: this machine's, but for the clock and the log */
    teffi_platform platform;
    _Atomic uint64_t now_ns;
    lines log;
} world;

static inline uint64_t world_now(void *arg)
{
    return atomic_load(&((world *)arg)->now_ns);
}

static inline uint64_t world_random(void *arg)
{
    return 88172645463325252u;
}

static inline void world_init(world *w)
{
    memset(w, 0, sizeof *w);
    pthread_mutex_init(&w->log.lock, NULL);
    teffi_platform_init_real(&w->platform, TEFF_LOG_WARN);
    w->platform.arg = w;
    w->platform.mono_ns = world_now;
    w->platform.random = world_random;
    w->platform.log = (teffi_log){.write = lines_log, .arg = &w->log, .level = TEFF_LOG_WARN};
    atomic_store(&w->now_ns, 1000000000u);
}

static inline void world_pass_ms(world *w, uint64_t ms)
{
    atomic_fetch_add(&w->now_ns, ms * 1000000u);
}

static inline teffi_exec *exec_of(const teffi_platform *platform, unsigned workers,
                                  teff_sched_options opt)
{
    teffi_exec *exec;
    assert_int_equal(teffi_exec_real_new(platform, workers, &opt, &exec), TEFF_OK);
    return exec;
}
