/* warn.c - warnings about what a scheduler does: long turns, late items, long queues.
 * Way:     monitor.c (a turn runs on), group.c (late, long) -> [warn] -> teffi_logf
 * Threads: see warn.h. Nothing is written to the log under a lock.
 * Source:  Orleans WorkItemGroup's warnings; Go's sysmon for looking from outside
 *
 * A turn is seen to be long by the monitor, which finds the same run on the same worker again and
 * again; the first line is written while the turn still runs, since some never end. Time in a
 * declared blocking region does not count: others have the worker's core meanwhile. */
#include "sched/warn.h"

#include <stdio.h>
#include <string.h>
#include "base/log.h"
#include "sched/worker.h"

enum { LOOKS = 8 };          /* at a turn, within its limit */
enum { LOOK_MAX_MS = 100 };  /* so that dumps can say how long a turn has run */
enum { REPORTS_MAX = 8 };    /* long turns told of in one look */
#define AGAIN_NS 1000000000u /* between two lines of one kind */
#define MS_NS 1000000u

static uint32_t or_default(uint32_t ms, uint32_t standard)
{
    return ms ? ms : standard;
}

void teffi_warn_init(teffi_warn *warn, const teff_sched_options *opt)
{
    memset(warn, 0, sizeof *warn);
    warn->turn_warn_ms = or_default(opt->turn_warn_ms, TEFFI_TURN_WARN_MS);
    warn->delay_warn_ms = or_default(opt->delay_warn_ms, TEFFI_DELAY_WARN_MS);
    warn->queue_warn = or_default(opt->queue_warn, UINT32_MAX);
}

void teffi_warn_tick(teffi_real *real, uint64_t now_ns)
{
    uint32_t ms = (uint32_t)(now_ns / MS_NS);
    atomic_store_explicit(&real->exec.warn.coarse_ms, ms, memory_order_relaxed);
}

void teffi_warn_sleep(teffi_real *real)
{
    atomic_store_explicit(&real->exec.warn.coarse_ms, 0, memory_order_relaxed);
}

void teffi_warn_describe(teffi_group *group, char *text)
{
    if (group->ops->describe)
        group->ops->describe(group, text, TEFFI_DESCRIBE_MAX);
    else
        snprintf(text, TEFFI_DESCRIBE_MAX, "a group");
}

void teffi_warn_running(uintptr_t running, char *text)
{
    if (running & 1)
        teffi_warn_describe(teffi_run_group(running), text);
    else
        snprintf(text, TEFFI_DESCRIBE_MAX, "a group");
}

/* May a line of this kind be written now? out: *more, in words, what was not told meanwhile. */
static bool may_tell(teffi_exec *exec, teffi_tell *tell, char more[48])
{
    uint64_t now = teffi_now(exec->platform);
    uint64_t again = atomic_load_explicit(&tell->again_ns, memory_order_relaxed);
    if (now < again ||
        !atomic_compare_exchange_strong_explicit(&tell->again_ns, &again, now + AGAIN_NS,
                                                 memory_order_relaxed, memory_order_relaxed)) {
        atomic_fetch_add_explicit(&tell->untold, 1, memory_order_relaxed);
        return false;
    }
    uint32_t untold = atomic_exchange_explicit(&tell->untold, 0, memory_order_relaxed);
    more[0] = '\0';
    if (untold)
        snprintf(more, 48, "; %u more like it before", untold);
    return true;
}

void teffi_warn_late(teffi_group *group, uint32_t waited_ms)
{
    teffi_exec *exec = group->exec;
    char text[TEFFI_DESCRIBE_MAX], more[48];
    if (!may_tell(exec, &exec->warn.delay, more))
        return;
    teffi_warn_describe(group, text);
    teffi_logf(&exec->platform->log, TEFFI_WARN,
               "scheduler: a work item of %s waited %u ms in its queue (limit %u)%s", text,
               waited_ms, exec->warn.delay_warn_ms, more);
}

void teffi_warn_long(teffi_group *group, uint32_t items)
{
    teffi_exec *exec = group->exec;
    char text[TEFFI_DESCRIBE_MAX], more[48];
    if (!may_tell(exec, &exec->warn.queue, more))
        return;
    teffi_warn_describe(group, text);
    teffi_logf(&exec->platform->log, TEFFI_WARN, "scheduler: %u work items wait at %s (limit %u)%s",
               items, text, exec->warn.queue_warn, more);
}

/* ---- long turns ---- */

typedef struct report {
    teffi_worker *worker;
    uintptr_t running;
    uint64_t run, since_ns;
} report;

/* idle_lock held: is this worker in the turn in which it was seen before, and for too long? */
static bool is_long(teffi_worker *w, uint64_t now_ns, report *r)
{
    /* acquire: pairs with teffi_run_begin */
    uintptr_t running = atomic_load_explicit(&w->running, memory_order_acquire);
    uint64_t run = atomic_load_explicit(&w->run, memory_order_relaxed);
    bool blocked = atomic_load_explicit(&w->blocked, memory_order_relaxed);
    if (!running || run != w->seen_run || blocked) {
        w->seen_run = run;
        /* Not now_ns: should the monitor have stood still since, the turn is no older for it. */
        w->seen_ns = teffi_now(w->real->exec.platform);
        return false;
    }
    *r = (report){w, running, run, w->seen_ns};
    return now_ns - w->seen_ns >= w->real->exec.warn.turn_warn_ms * (uint64_t)MS_NS &&
           atomic_load_explicit(&w->told, memory_order_relaxed) != run;
}

static unsigned look(teffi_real *real, uint64_t now_ns, report reports[REPORTS_MAX])
{
    unsigned n = 0;
    pthread_mutex_lock(&real->idle_lock);
    for (unsigned i = 0; i < real->n_workers && n < REPORTS_MAX; i++)
        n += is_long(real->workers[i], now_ns, &reports[n]);
    if (n < REPORTS_MAX)
        n += is_long(&real->visitor, now_ns, &reports[n]);
    pthread_mutex_unlock(&real->idle_lock);
    return n;
}

/* Is the worker, so far as one can see, still in that run? Then what is told of it is noted. */
static bool note(const report *r, const char *text)
{
    teffi_worker *w = r->worker;
    pthread_mutex_lock(&w->real->idle_lock);
    bool same = atomic_load_explicit(&w->running, memory_order_relaxed) == r->running &&
                atomic_load_explicit(&w->run, memory_order_relaxed) == r->run;
    if (same) {
        memcpy(w->told_text, text, TEFFI_DESCRIBE_MAX);
        w->told_ns = r->since_ns;
        /* relaxed: the text is guarded by the lock; an end that is missed is not told of */
        atomic_store_explicit(&w->told, r->run, memory_order_relaxed);
    }
    pthread_mutex_unlock(&w->real->idle_lock);
    return same;
}

/* Workers are never freed while the monitor runs. */
static void tell_turn(const report *r, uint64_t now_ns)
{
    teffi_exec *exec = &r->worker->real->exec;
    char text[TEFFI_DESCRIBE_MAX], more[48];
    teffi_warn_running(r->running, text);
    if (!note(r, text) || !may_tell(exec, &exec->warn.turn, more))
        return;
    teffi_logf(&exec->platform->log, TEFFI_WARN,
               "scheduler: a turn of %s runs for %llu ms without a pause (limit %u)%s", text,
               (unsigned long long)((now_ns - r->since_ns) / MS_NS), exec->warn.turn_warn_ms, more);
}

void teffi_warn_turns(teffi_real *real, uint64_t now_ns)
{
    teffi_warn *warn = &real->exec.warn;
    report reports[REPORTS_MAX];
    uint64_t every_ms = warn->turn_warn_ms / LOOKS;
    every_ms = every_ms > LOOK_MAX_MS ? LOOK_MAX_MS : every_ms;
    if (now_ns - warn->looked_ns < every_ms * MS_NS)
        return;
    warn->looked_ns = now_ns;
    unsigned n = look(real, now_ns, reports);
    for (unsigned i = 0; i < n; i++)
        tell_turn(&reports[i], now_ns);
}

void teffi_warn_ended(teffi_worker *w)
{
    teffi_real *real = w->real;
    char text[TEFFI_DESCRIBE_MAX];
    pthread_mutex_lock(&real->idle_lock);
    memcpy(text, w->told_text, sizeof text);
    uint64_t since_ns = w->told_ns;
    pthread_mutex_unlock(&real->idle_lock);
    atomic_store_explicit(&w->told, 0, memory_order_relaxed);
    teffi_logf(&real->exec.platform->log, TEFFI_WARN,
               "scheduler: that turn of %s has ended or given way, after %llu ms", text,
               (unsigned long long)((teffi_now(real->exec.platform) - since_ns) / MS_NS));
}
