/* stop_watch.c - has a silo's stop waited too long for turns that do not end? Which turns?
 * Way:     teffi_silo_close -> [stop_watch] -> the log; `lost`, or the end of the process
 * Threads: begin, end: the thread that stops the silo; it may wait for turns without a limit, so
 *          another thread measures the time. The executor is freed after end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "activation/activation.h"
#include "base/log.h"
#include "base/options.h"
#include "call/task.h"
#include "directory/shard.h"
#include "os/thread.h"
#include "silo/silo.h"

enum { STOP_DEFAULT_MS = 30000 };
/* Of grains, and of turns, in the log; bytes of a grain's line. */
enum { LINES_MAX = 16, NAME_MAX_LEN = 160 };

struct teffi_stop_watch {
    teff_silo *silo;
    uint64_t limit_ms;
    teffi_thread thread;
    teffi_parker parker;
    unsigned lines;  /* of turns; the first LINES_MAX are logged */
    unsigned grains; /* in grain, which are in turns */
    char grain[LINES_MAX][NAME_MAX_LEN];
    char turn[NAME_MAX_LEN]; /* the first turn */
};

/* Adds an activation that is in a turn to w->grain. The shard's lock is held, and guards the
 * identity; `doing` is atomic. */
static bool add_grain_in_turn(void *arg, teffi_activation *act)
{
    struct teffi_stop_watch *w = arg;
    if (teffi_group_state_of(&act->group) != TEFFI_GROUP_RUNNING)
        return true;
    char shown[TEFFI_KEY_TEXT_MAX];
    const char *doing = atomic_load_explicit(&act->doing, memory_order_relaxed);
    teff_key key;
    teffi_activation_get_key(act, &key);
    teffi_key_format(&key, shown);
    snprintf(w->grain[w->grains++], NAME_MAX_LEN, "grain %s %s (slot %u), in %s",
             act->type->info->name, shown, (unsigned)act->slot, doing ? doing : "its first turn");
    return w->grains < LINES_MAX;
}

static void log_turn(void *arg, const char *line)
{
    struct teffi_stop_watch *w = arg;
    if (!w->turn[0])
        snprintf(w->turn, sizeof w->turn, "%s", line);
    if (w->lines++ < LINES_MAX)
        teffi_logf(&w->silo->platform.log, TEFF_LOG_ERROR, "stop waits: %s", line);
}

/* Names what the stop waits for, in the log, and tells the program. */
static void report_stop_that_hangs(struct teffi_stop_watch *w)
{
    teff_silo *silo = w->silo;
    teffi_exec *exec = silo->node.home.exec;
    char why[TEFF_TEXT_MAX];
    uint64_t cursor = 0;
    if (silo->node.grains)
        (void)teffi_shards_walk_activations(silo->node.grains, NULL, &cursor, add_grain_in_turn, w);
    for (unsigned i = 0; i < w->grains; i++)
        teffi_logf(&silo->platform.log, TEFF_LOG_ERROR, "stop waits: %s", w->grain[i]);
    unsigned n = exec->ops->turns(exec, log_turn, w);
    int len = snprintf(why, sizeof why, "its stop has waited for %llu ms: %u turns do not end",
                       (unsigned long long)w->limit_ms, n);
    if (n == 0)
        snprintf(why + len, sizeof why - (size_t)len,
                 "; %llu tasks run, %llu threads of the program are in calls",
                 (unsigned long long)teffi_tasks_count_running(&silo->node.home),
                 (unsigned long long)atomic_load(&silo->node.home.users));
    else
        snprintf(why + len, sizeof why - (size_t)len, ", such as %s",
                 w->grains ? w->grain[0] : w->turn);
    teffi_logf(&silo->platform.log, TEFF_LOG_ERROR, "silo %s: %s", silo->node.address, why);
    if (silo->stop_hangs)
        silo->stop_hangs(silo, why);
    else if (silo->opt.lost)
        silo->opt.lost(silo->opt.lost_arg, why);
}

static void watch_stop(void *arg)
{
    struct teffi_stop_watch *w = arg;
    const teffi_platform *platform = &w->silo->platform;
    uint64_t now_ns = teffi_now(platform), until_ns = now_ns + w->limit_ms * 1000000u;
    for (; now_ns < until_ns; now_ns = teffi_now(platform))
        if (teffi_parker_wait(&w->parker, until_ns - now_ns))
            return;
    report_stop_that_hangs(w);
}

void teffi_stop_watch_begin(teff_silo *silo)
{
    if (!silo->node.home.exec->ops->turns)
        return;
    struct teffi_stop_watch *w = calloc(1, sizeof *w);
    if (w) {
        w->silo = silo;
        w->limit_ms = teffi_or_default(silo->opt.stop_ms, STOP_DEFAULT_MS);
    }
    if (w && !teffi_thread_start(&w->thread, "teff-stop", watch_stop, w)) {
        silo->watch = w;
        return;
    }
    free(w);
    teffi_logf(&silo->platform.log, TEFF_LOG_WARN,
               "silo %s: stop_ms is not watched: no thread or no memory", silo->node.address);
}

void teffi_stop_watch_end(teff_silo *silo)
{
    struct teffi_stop_watch *w = silo->watch;
    if (!w)
        return;
    silo->watch = NULL;
    teffi_parker_wake(&w->parker);
    teffi_thread_join(&w->thread);
    free(w);
}
