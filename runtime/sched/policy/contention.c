/* contention.c - trials of fewer workers while other threads want the cores. */
#include "sched/policy/contention.h"

#define MS_NS 1000000u
#define WATCH_NS (50 * MS_NS)
#define WINDOW_NS (20 * MS_NS)
#define LATE_NS (100 * MS_NS) /* a sample later than that: the monitor has slept */
#define PAUSE_MIN_NS (1000ull * MS_NS)
#define PAUSE_MAX_NS (4 * PAUSE_MIN_NS)
#define KEPT_NS (3 * PAUSE_MAX_NS) /* how long the gain of a trial counts */

enum { WINDOWS = 8 };
enum { DELAYED = 6 };      /* contended: for each ns of delay, at most so many ns of run time */
enum { BUSY = 10 };        /* and workers wanted to run for 1/BUSY of the time at least */
enum { GAIN_ONE = 65536 }; /* the unit of a gain */
enum { GAIN_MAX = GAIN_ONE / 4 };  /* a larger one counts as this, so that it is soon forgotten */
enum { GAIN_MIN = GAIN_ONE / 32 }; /* the limit is lowered only for a greater gain */
enum { ITEMS_MIN = 256 };          /* in the windows of each limit; else their costs tell nothing */

void teffi_contention_reset(teffi_contention *c, uint32_t n)
{
    *c = (teffi_contention){.n = n, .limit = n};
}

bool teffi_contention_sample_is_due(const teffi_contention *c, uint64_t now_ns)
{
    return now_ns >= c->due_ns;
}

/* Were the cores contended during a time of time_ns? in: ran_ns: how long workers ran in that time.
 * delayed_ns: how long they were ready to run but had no core. */
static bool is_contended(uint64_t time_ns, uint64_t ran_ns, uint64_t delayed_ns)
{
    return (ran_ns + delayed_ns) * BUSY >= time_ns && delayed_ns * DELAYED >= ran_ns;
}

/* Begin a trial, which compares the present limit with a lower or a higher limit.
 *  - Half the limit can be tried if the cores are contended and the limit is over 1.
 *  - A higher limit can be tried if the limit is below n: twice the limit, but at most n, if the
 *    cores are contended; else n.
 * If both can be tried, successive trials alternate between them. If neither, begin none. */
static void begin_trial_if_possible(teffi_contention *c, bool contended)
{
    bool is_full = c->limit == c->n, may_double = contended && c->limit * 2 < c->n;
    c->went_down = contended && c->limit > 1 && (is_full || !c->went_down);
    if (is_full && !c->went_down)
        return;
    c->low = c->went_down ? c->limit / 2 : c->limit;
    c->high = c->went_down ? c->limit : may_double ? c->limit * 2 : c->n;
    c->sums[0] = c->sums[1] = (teffi_contention_sums){0};
    c->window = 1;
}

/* Is the trial conclusive? Not if there were few items, or if the cores were not contended with the
 * higher limit. */
static bool trial_is_conclusive(const teffi_contention_sums *high, const teffi_contention_sums *low)
{
    return high->items >= ITEMS_MIN && low->items >= ITEMS_MIN &&
           is_contended(WINDOWS / 2 * WINDOW_NS, high->ran_ns, high->delayed_ns);
}

/* out: the processor time that an item saves with the lower limit, in 1/GAIN_ONE of its cost with
 * the higher limit. Negative if an item costs more with the lower limit. */
static int32_t compute_gain(const teffi_contention_sums *high, const teffi_contention_sums *low)
{
    /* the cost of an item, in 1/256 ns */
    int64_t high_cost = (int64_t)((high->cpu_ns << 8) / high->items);
    int64_t low_cost = (int64_t)((low->cpu_ns << 8) / low->items);
    int64_t gain = (high_cost - low_cost) * GAIN_ONE / (high_cost ? high_cost : 1);
    return (int32_t)(gain > GAIN_MAX ? GAIN_MAX : gain < -GAIN_MAX ? -GAIN_MAX : gain);
}

/* Remember the gain of the trial that ends. A trial is short, so its gain is partly noise: if an
 * earlier trial of the same limits is remembered, take the mean of both. out: the gain that counts
 * now. */
static int32_t average_and_remember_gain(teffi_contention *c, int32_t gain, uint64_t now_ns)
{
    teffi_contention_gain *g = &c->gains[c->gains[1].ended_ns < c->gains[0].ended_ns];
    for (unsigned i = 0; i < 2; i++)
        if (c->gains[i].low == c->low && c->gains[i].high == c->high)
            g = &c->gains[i];
    bool counts = g->low == c->low && g->high == c->high && now_ns - g->ended_ns < KEPT_NS;
    *g = (teffi_contention_gain){c->low, c->high, counts ? (g->gain + gain) / 2 : gain, now_ns};
    return g->gain;
}

/* Remember the gain of the trial that ends, if the trial is conclusive. out: true: its lower limit
 * is better than the higher one. For that, the gain must exceed 1/32 if the higher limit is the
 * present one, and 0 if the lower one is. With the same threshold for both, noise would change the
 * limit in every second trial. */
static bool remember_gain_and_judge_lower_limit(teffi_contention *c, uint64_t now_ns)
{
    const teffi_contention_sums *high = &c->sums[0], *low = &c->sums[1];
    return trial_is_conclusive(high, low) &&
           average_and_remember_gain(c, compute_gain(high, low), now_ns) >
               (c->went_down ? GAIN_MIN : 0);
}

/* Keep the better one of the trial's two limits. The next trial may begin after a pause: of 1 s if
 * the limit has changed, else of twice the last pause, up to 4 s. */
static void end_trial(teffi_contention *c, uint64_t now_ns)
{
    uint32_t before = c->went_down ? c->high : c->low;
    c->limit = remember_gain_and_judge_lower_limit(c, now_ns) ? c->low : c->high;
    c->window = 0;
    if (c->limit != before || !c->pause_ns)
        c->pause_ns = PAUSE_MIN_NS;
    else if (c->pause_ns < PAUSE_MAX_NS)
        c->pause_ns *= 2;
    c->trial_ns = now_ns + c->pause_ns;
}

/* Add a sample to the sums of the present window's limit: sums[0] for the high one, sums[1] for the
 * low one. */
static void add_sample_to_trial(teffi_contention *c, const teffi_contention_sample *sample)
{
    teffi_contention_sums *sums = &c->sums[c->window % 2];
    sums->items += sample->items - c->items_seen;
    sums->cpu_ns += sample->cpu_ns - c->cpu_seen_ns;
    sums->ran_ns += sample->ran_ns;
    sums->delayed_ns += sample->delayed_ns;
}

void teffi_contention_update(teffi_contention *c, const teffi_contention_sample *sample)
{
    if (sample->now_ns > c->due_ns + LATE_NS) /* the monitor has slept */
        teffi_contention_reset(c, c->n);
    if (c->window) {
        add_sample_to_trial(c, sample);
        if (++c->window > WINDOWS)
            end_trial(c, sample->now_ns);
    } else if (c->due_ns && sample->now_ns >= c->trial_ns) {
        /* due_ns is 0 at the first sample, which does not cover WATCH_NS */
        begin_trial_if_possible(c, is_contended(WATCH_NS, sample->ran_ns, sample->delayed_ns));
    }
    if (c->window)
        c->limit = c->window % 2 ? c->low : c->high; /* the windows alternate */
    c->items_seen = sample->items;
    c->cpu_seen_ns = sample->cpu_ns;
    c->due_ns = sample->now_ns + (c->window ? WINDOW_NS : WATCH_NS);
}
