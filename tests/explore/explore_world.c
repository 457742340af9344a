/* explore_world.c - what os/thread.h and base/bug.h promise, for virtual threads.
 * Way:     explored source -> [world] -> explore_start, explore_wait
 * Threads: as explore.h. These stand in for the real functions of the same names: all of thread.h
 *          must be here, or the linker finds the real ones too. */
#include <stdlib.h>
#include "base/bug.h"
#include "explore.h"
#include "os/cpus.h"
#include "os/platform.h"
#include "os/thread.h"

teff_err teffi_thread_start(teffi_thread *thread, const char *name, void (*fn)(void *arg),
                            void *arg)
{
    explore_point("thread", "start a thread");
    explore_flush(ex.current);
    int n = explore_draw(16) < ex.refuse ? -1 : explore_start(name, fn, arg);
    if (n < 0)
        return TEFF_E_IO; /* as a system that has no more */
    thread->id = (pthread_t)n;
    return TEFF_OK;
}

void teffi_thread_join(teffi_thread *thread)
{
    explore_thread *t = &ex.thread[thread->id];
    explore_point("thread", "join");
    while (t->state != EXPLORE_ENDED)
        (void)explore_wait(t, UINT64_MAX);
}

void teffi_thread_yield(void)
{
    explore_back_off("thread");
}

unsigned teffi_cpu_count(void)
{
    return 2;
}

uint64_t teffi_thread_preempted(void)
{
    return explore_draw(4);
}

bool teffi_barrier_start(void)
{
    return explore_draw(4); /* some kernels cannot */
}

void teffi_barrier_all(void)
{
    explore_point("barrier", "barrier on all");
    for (unsigned i = 0; i < ex.n_threads; i++)
        explore_flush(&ex.thread[i]);
}

/* word: 1 = the token is there. */
bool teffi_parker_wait(teffi_parker *parker, uint64_t timeout_ns)
{
    volatile uint32_t *token = (volatile uint32_t *)&parker->word;
    explore_point("parker", "wait");
    if (!*token && timeout_ns)
        (void)explore_wait(parker, timeout_ns == UINT64_MAX ? UINT64_MAX : ex.now_ns + timeout_ns);
    bool taken = *token;
    *token = 0;
    return taken;
}

void teffi_parker_wake(teffi_parker *parker)
{
    explore_point("parker", "wake");
    explore_flush(ex.current);
    *(volatile uint32_t *)&parker->word = 1;
    explore_notify(parker);
}

void teffi_bug(const char *file, int line, const char *what)
{
    explore_fail("bug at %s:%d: %s", file, line, what);
}

void teffi_fatal_in(const char *who, const char *rule)
{
    explore_fail("%s: %s", who, rule);
}

/* ---- the platform ---- */

static void on_log(void *arg, teff_log_level level, const char *line)
{
    (void)arg;
    (void)level;
    explore_note("%s", line);
    if (ex.current && ex.current->n_locks)
        explore_fail("a line is written to the log under a lock: %s", line);
}

static uint64_t mono_ns(void *arg)
{
    (void)arg;
    return ex.now_ns;
}

static uint64_t random_bits(void *arg)
{
    (void)arg;
    uint64_t high = explore_draw(UINT32_MAX);
    return high << 32 | explore_draw(UINT32_MAX);
}

const teffi_platform explore_platform = {
    .mono_ns = mono_ns, .random = random_bits, .log = {.write = on_log, .level = TEFF_LOG_WARN}};
