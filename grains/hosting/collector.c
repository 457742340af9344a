/* collector.c - rounds in which idle activations are found and asked to end; shedding, in which the
 * least recently used ones are.
 * Source:  Orleans' src/Orleans.Runtime/Catalog/ActivationCollector.cs */
#include "hosting/collector.h"

#include <stdlib.h>
#include "activation/type.h"
#include "base/bug.h"
#include "directory/shard.h"
#include "os/memory_use.h"
#include "os/pages.h"

enum { PERIOD_MIN_MS = 10, PERIOD_MAX_MS = 60000, MS_NS = 1000000 };

/* Rounds and walks have slices, so that with millions of idle grains no shard's lock is held for
 * long, and other groups do not wait in the run queue behind all of them. */
enum { SLICE_MS = 1, ENDS_MAX = 256 };

/* ---- rounds: activations that were not used for their type's idle time ---- */

typedef struct slice {
    uint32_t now_ms;
    unsigned looks, ends;
} slice;

/* Asks act to end if its last use is at least its type's idle time ago. Reads act without owning
 * its group, so the check may be outdated; clear_nudge_and_adopt_end_reason() checks again. out:
 * false: the slice is over. */
static bool ask_to_end_if_idle(void *arg, teffi_activation *act)
{
    slice *s = arg;
    s->looks++;
    if (teffi_activation_age_ms(act, s->now_ms) >= teffi_idle_ms(act->type->info)) {
        teffi_activation_ask_to_end(act, TEFF_REASON_IDLE);
        s->ends++;
    }
    return s->looks < TEFFI_LOOKS_MAX && s->ends < ENDS_MAX;
}

/* Asks the idle activations of one slice to end. out: ms until the next slice or the next round. */
static uint32_t run_slice_of_round(teffi_collector *c, uint32_t now_ms)
{
    slice s = {.now_ms = now_ms};
    bool whole = teffi_shards_walk_activations(c->grains, NULL, &c->cursor, ask_to_end_if_idle, &s);
    return whole ? c->round_ms : SLICE_MS;
}

/* ---- shedding: the least recently used activations, if there are too many or memory is short ----
 *
 * There is no list in the order of use, since each call would have to change it. Instead, a walk
 * over all activations takes TEFFI_LOOKS_MAX at a time. Of each slice it asks the oldest ones to
 * end, as many as this slice's share of those that are too many. A slice is a random sample,
 * because the walk is in the order of hashes: so the oldest of each slice are nearly the oldest of
 * all, and exactly these if there is only one slice. */

enum {
    CHECK_MS = 20,  /* from one look at the number to the next; ages are as exact as this */
    PAUSE_MS = 1000 /* after a walk that found nothing that may end, or ends */
};

/* Memory is short from memory_percent on, until MEMORY_POINTS less are used (Orleans: 80 and 75).
 * Each second a part of the activations is asked to end. */
enum {
    MEMORY_MS = 1000,
    MEMORY_POINTS = 5,
    STALLED_PERCENT = 10,
    MEMORY_SHARES = 1024,
    MEMORY_SHARE_MIN = MEMORY_SHARES / 32
};

/* One slice of a walk. */
typedef struct shed {
    teffi_collector *c;
    uint32_t now_ms, looks;
    uint32_t n;              /* ages in c->ages */
    uint32_t ending;         /* activations that were asked to end before */
    uint32_t least_ms, ties; /* those to ask: all that are older than least_ms, and so many of it */
    teff_reason reason;
} shed;

/* May act end, as far as can be seen without owning its group? If so, sets *age_ms. */
static bool may_be_shed(const teffi_activation *act, uint32_t now_ms, uint32_t *age_ms)
{
    int64_t age = teffi_activation_age_ms(act, now_ms);
    *age_ms = (uint32_t)age;
    return age >= 0 && (int32_t)atomic_load_explicit(&act->queued, memory_order_relaxed) <= 0 &&
           !atomic_load_explicit(&act->end_reason, memory_order_relaxed);
}

/* Stores act's age if it may end. out: false: the slice is over. */
static bool note_age(void *arg, teffi_activation *act)
{
    shed *s = arg;
    if (may_be_shed(act, s->now_ms, &s->c->ages[s->n]))
        s->n++;
    s->ending += atomic_load_explicit(&act->end_reason, memory_order_relaxed) != 0;
    return ++s->looks < TEFFI_LOOKS_MAX;
}

/* Asks act to end if it is one of the oldest of the slice. out: false: the slice is over. */
static bool ask_to_end_if_old(void *arg, teffi_activation *act)
{
    shed *s = arg;
    uint32_t age_ms;
    if (may_be_shed(act, s->now_ms, &age_ms) &&
        (age_ms > s->least_ms || (age_ms == s->least_ms && s->ties))) {
        s->ties -= age_ms == s->least_ms;
        teffi_activation_ask_to_end(act, s->reason);
    }
    return ++s->looks < TEFFI_LOOKS_MAX;
}

static int compare_ages_from_oldest(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x < y) - (x > y);
}

/* Chooses how old the activations are that are asked to end: the `wanted` oldest of the slice. */
static void choose_least_age(shed *s, uint32_t wanted)
{
    uint32_t *ages = s->c->ages, older = 0;
    wanted = wanted < s->n ? wanted : s->n;
    qsort(ages, s->n, sizeof *ages, compare_ages_from_oldest);
    s->least_ms = ages[wanted - 1];
    while (ages[older] > s->least_ms)
        older++;
    s->ties = wanted - older;
}

static uint64_t get_activation_count(const teffi_collector *c)
{
    return atomic_load_explicit(&c->grains->shards->activations, memory_order_relaxed);
}

/* out: how many activations of a slice shall end because there are too many, rounded up. */
static uint32_t get_share_over_limit(const teffi_collector *c, uint32_t looks)
{
    uint64_t n = get_activation_count(c), low = c->grains->activations_max;
    low -= low / 16;
    return c->is_over && n > low ? (uint32_t)((looks * (n - low) + n - 1) / n) : 0;
}

/* out: how many activations of a slice shall end, and why. */
static uint32_t get_share(const teffi_collector *c, uint32_t looks, teff_reason *reason)
{
    uint32_t limit = get_share_over_limit(c, looks);
    uint32_t memory = (looks * c->memory_share + MEMORY_SHARES - 1) / MEMORY_SHARES;
    *reason = limit < memory ? TEFF_REASON_MEMORY : TEFF_REASON_LIMIT;
    return limit < memory ? memory : limit;
}

/* Asks the oldest activations of one slice to end. out: true: the walk has reached the end. */
static bool shed_slice(teffi_collector *c, uint32_t now_ms)
{
    shed s = {.c = c, .now_ms = now_ms};
    uint64_t begin = c->shed_cursor;
    bool whole = teffi_shards_walk_activations(c->grains, NULL, &c->shed_cursor, note_age, &s);
    uint32_t share = get_share(c, s.looks, &s.reason);
    c->has_found |= s.n || s.ending;
    if (share > s.ending && s.n) {
        choose_least_age(&s, share - s.ending);
        s.looks = 0;
        (void)teffi_shards_walk_activations(c->grains, NULL, &begin, ask_to_end_if_old, &s);
    }
    return whole;
}

/* More than activations_max are too many, and then more than a sixteenth less: else each new
 * activation would need a walk. */
static void look_at_number(teffi_collector *c)
{
    uint64_t n = get_activation_count(c), max = c->grains->activations_max;
    c->is_over = max && (n > max || (c->is_over && n > max - max / 16));
}

/* Is memory short? in: used: percent of the limit. */
static bool memory_is_short(const teffi_collector *c, uint64_t used, const teffi_memory_use *use)
{
    uint32_t high = c->grains->memory_percent;
    return used >= high || (used > high - MEMORY_POINTS &&
                            (c->is_short || use->stalled_percent >= STALLED_PERCENT));
}

static void log_short_memory(const teffi_collector *c, uint64_t used, const teffi_memory_use *use)
{
    teffi_logf(&c->grains->node->platform->log, TEFF_LOG_WARN,
               "memory: %llu %% of the limit of %llu MiB are used, and threads waited for memory "
               "for %u %% of the time: idle grains end, least recently used first",
               (unsigned long long)used, (unsigned long long)(use->limit_bytes >> 20),
               use->stalled_percent);
}

/* out: which part of the activations shall end now. in: used: percent of the limit; memory is
 * short. If the activations were all that uses memory, one walk would be enough. */
static uint32_t choose_memory_share(const teffi_collector *c, uint64_t used)
{
    uint64_t low = c->grains->memory_percent - MEMORY_POINTS;
    teffi_bug_if(used <= low);
    uint32_t share = (uint32_t)((used - low) * MEMORY_SHARES / used);
    return share < MEMORY_SHARE_MIN ? MEMORY_SHARE_MIN : share;
}

/* Reads the use of memory, once in MEMORY_MS. If memory is short, sets memory_share, for one walk.
 * Memory that was freed since the last walk is first returned to the system, so that it does not
 * count as used. */
static void look_at_memory(teffi_collector *c)
{
    const teffi_platform *platform = c->grains->node->platform;
    teffi_memory_use use;
    if (!c->reads_memory || c->due_ns < c->memory_ns)
        return;
    c->memory_ns = c->due_ns + (uint64_t)MEMORY_MS * MS_NS;
    if (c->is_short)
        teffi_pages_trim_heap();
    if (!platform->memory_use(platform->arg, &use) || !use.limit_bytes)
        use = (teffi_memory_use){.limit_bytes = 1}; /* no limit: nothing is used of it */
    uint64_t used = use.used_bytes * 100 / use.limit_bytes;
    bool is_short = memory_is_short(c, used, &use);
    if (is_short && !c->is_short)
        log_short_memory(c, used, &use);
    c->is_short = is_short;
    c->memory_share = is_short ? choose_memory_share(c, used) : 0;
}

/* out: ms until the next call. */
static uint32_t shed_if_needed(teffi_collector *c, uint32_t now_ms)
{
    look_at_number(c);
    look_at_memory(c);
    if (!c->is_over && !c->memory_share)
        return CHECK_MS;
    if (!c->shed_cursor)
        c->has_found = false;
    if (!shed_slice(c, now_ms))
        return SLICE_MS;
    c->memory_share = 0;
    return c->has_found ? CHECK_MS : PAUSE_MS;
}

/* ---- the timer ---- */

/* Updates grains->coarse_ms, which no other function does. out: now. */
static uint64_t update_coarse_ms(teffi_collector *c)
{
    uint64_t now = teffi_now(c->grains->node->platform);
    /* relaxed: readers may see a slightly older time */
    atomic_store_explicit(&c->grains->coarse_ms, now / MS_NS, memory_order_relaxed);
    return now;
}

/* Sets the timer for what comes next, unless teffi_collector_stop() was called. */
static void set_collector_timer(teffi_collector *c)
{
    teffi_exec *exec = c->grains->node->home.exec;
    c->due_ns = c->shed_ns < c->round_ns ? c->shed_ns : c->round_ns;
    pthread_mutex_lock(&c->lock);
    if (!c->grains->closed)
        exec->ops->timer_set(exec, &c->timer, c->due_ns);
    pthread_mutex_unlock(&c->lock);
}

/* The timer's function. Ages are measured until the previous update of the coarse clock: an
 * activation that was used just after an update has the time of that update, so with the present
 * time it would seem too old. */
static void collect_activations(teffi_timer *timer)
{
    teffi_collector *c = teffi_container(timer, teffi_collector, timer);
    uint32_t before_ms =
        (uint32_t)atomic_load_explicit(&c->grains->coarse_ms, memory_order_relaxed);
    bool round = c->due_ns >= c->round_ns, sheds = c->due_ns >= c->shed_ns;
    uint32_t round_in_ms = round ? run_slice_of_round(c, before_ms) : 0;
    uint32_t shed_in_ms = sheds ? shed_if_needed(c, before_ms) : 0;
    uint64_t now = update_coarse_ms(c);
    if (round)
        c->round_ns = now + (uint64_t)round_in_ms * MS_NS;
    if (sheds)
        c->shed_ns = now + (uint64_t)shed_in_ms * MS_NS;
    set_collector_timer(c);
}

void teffi_collector_init(teffi_collector *c, teffi_grains *grains)
{
    c->grains = grains;
    c->timer.fire = collect_activations;
    pthread_mutex_init(&c->lock, NULL);
}

void teffi_collector_fini(teffi_collector *c)
{
    pthread_mutex_destroy(&c->lock);
}

/* The pause between two rounds is a quarter of the shortest idle time of all types, but at least
 * PERIOD_MIN_MS and at most PERIOD_MAX_MS. */
void teffi_collector_start(teffi_collector *c)
{
    const teffi_grains *grains = c->grains;
    uint64_t now = update_coarse_ms(c);
    uint32_t period = PERIOD_MAX_MS;
    for (size_t i = 0; i < grains->n_types; i++)
        if (teffi_idle_ms(grains->types[i]->info) / 4 < period)
            period = teffi_idle_ms(grains->types[i]->info) / 4;
    c->round_ms = period < PERIOD_MIN_MS ? PERIOD_MIN_MS : period;
    c->round_ns = now + (uint64_t)c->round_ms * MS_NS;
    c->reads_memory = grains->memory_percent && grains->node->platform->memory_use;
    c->shed_ns = grains->activations_max || c->reads_memory ? now : UINT64_MAX;
    set_collector_timer(c);
}

/* set_collector_timer() reads `closed` under the lock. Because `closed` is set already, that
 * function does not set the timer after the cancel below. */
void teffi_collector_stop(teffi_collector *c)
{
    teffi_exec *exec = c->grains->node->home.exec;
    pthread_mutex_lock(&c->lock);
    exec->ops->timer_cancel(exec, &c->timer);
    pthread_mutex_unlock(&c->lock);
}
