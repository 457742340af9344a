/* explore_world.c - what os/thread.h and base/bug.h promise, for virtual threads.
 * Way:     explored source -> [world] -> explore_start, explore_wait
 * Threads: as explore.h. These stand in for the real functions of the same names: all of thread.h
 *          must be here, or the linker finds the real ones too. */
#include <stdlib.h>
#include "base/bug.h"
#include "base/queue.h"
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

uint64_t teffi_thread_count_preemptions(void)
{
    return explore_draw(4);
}

/* It runs whenever the clock advances. Sometimes cores seem contended between two samples,
 * sometimes not, and sometimes this seems to be another thread than before. */
bool teffi_thread_read_run_times(const teffi_thread *thread, uint64_t *ran_ns, uint64_t *delayed_ns)
{
    (void)thread;
    explore_point("thread", "usage");
    *ran_ns = ex.now_ns;
    *delayed_ns = ex.now_ns / 4 + explore_draw(50000000);
    return explore_draw(8); /* it may have ended */
}

/* It never falls, since samples for trials are 20 ms apart. */
uint64_t teffi_os_process_cpu_ns(void)
{
    return ex.now_ns + explore_draw(20000000);
}

bool teffi_barrier_register_process(void)
{
    return explore_draw(4); /* some kernels cannot */
}

void teffi_barrier_run_on_all_threads(void)
{
    explore_point("barrier", "barrier on all");
    for (unsigned i = 0; i < ex.n_threads; i++)
        explore_flush(&ex.thread[i]);
}

/* word: the tokens that are there, and POLLING. */
static volatile uint32_t *word_of(teffi_parker *parker)
{
    return (volatile uint32_t *)&parker->word;
}

static uint32_t take_tokens(teffi_parker *parker)
{
    uint32_t word = *word_of(parker);
    *word_of(parker) = 0;
    return word & ~(uint32_t)TEFFI_PARKER_POLLING;
}

uint32_t teffi_parker_wait_for_tokens(teffi_parker *parker, uint64_t timeout_ns)
{
    explore_point("parker", "wait");
    if (!*word_of(parker) && timeout_ns)
        (void)explore_wait(parker, timeout_ns == UINT64_MAX ? UINT64_MAX : ex.now_ns + timeout_ns);
    return take_tokens(parker);
}

/* As thread.c: a token that came before POLLING was set ends no wait, so it only looks. */
uint32_t teffi_parker_wait_in_poller(teffi_poll_parker *p, teffi_poller *poller,
                                     uint64_t timeout_ns)
{
    if (!poller)
        return teffi_parker_wait_for_tokens(&p->parker, timeout_ns);
    explore_point("parker", "poll");
    explore_flush(ex.current);
    *(teffi_poller *volatile *)&p->poller = poller;
    bool sleeps = !*word_of(&p->parker);
    if (sleeps)
        *word_of(&p->parker) = TEFFI_PARKER_POLLING;
    poller->wait(poller, sleeps ? timeout_ns : 0);
    explore_point("parker", "polled");
    return take_tokens(&p->parker);
}

bool teffi_parker_has_token(const teffi_parker *parker, uint32_t token)
{
    return *(const volatile uint32_t *)&parker->word & token;
}

/* The parker may be gone when the poller is woken. */
void teffi_parker_wake_with_token(teffi_parker *parker, uint32_t token)
{
    explore_point("parker", "wake");
    explore_flush(ex.current);
    uint32_t word = *word_of(parker);
    teffi_poller *poller =
        word & TEFFI_PARKER_POLLING
            ? *(teffi_poller *volatile *)&teffi_container(parker, teffi_poll_parker, parker)->poller
            : NULL;
    *word_of(parker) = word | token;
    if (word == TEFFI_PARKER_POLLING) {
        explore_point("parker", "wake the poller");
        poller->wake(poller);
    } else if (!word) {
        explore_notify(parker);
    }
}

bool teffi_parker_wait(teffi_parker *parker, uint64_t timeout_ns)
{
    return teffi_parker_wait_for_tokens(parker, timeout_ns) != 0;
}

void teffi_parker_wake(teffi_parker *parker)
{
    teffi_parker_wake_with_token(parker, TEFFI_TOKEN);
}

void teffi_abort_for_bug(const char *file, int line, const char *what)
{
    explore_fail("bug at %s:%d: %s", file, line, what);
}

void teffi_abort_for_broken_rule(const char *who, const char *rule)
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
