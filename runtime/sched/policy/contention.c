/* contention.c - trials of fewer workers while other threads want the cores. */
#include "sched/policy/contention.h"

#define MS_NS 1000000u
#define WATCH_NS (50 * MS_NS)
#define WINDOW_NS (20 * MS_NS)
#define LATE_NS (100 * MS_NS) /* a sample later than that: the monitor has slept */
#define PAUSE_MIN_NS (1000ull * MS_NS)
#define PAUSE_MAX_NS (4 * PAUSE_MIN_NS)

enum { WINDOWS = 8 };
enum { DELAYED = 6 };     /* contended: for each ns of delay, at most so many ns of run time */
enum { BUSY = 10 };       /* and workers wanted to run for 1/BUSY of the time at least */
enum { GAIN = 32 };       /* the limit is lowered if an item then costs over 1/GAIN less */
enum { ITEMS_MIN = 256 }; /* in the windows of each limit; else their costs tell nothing */

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
 * If both can be tried, successive trials alternate between them. If neither, begin none. If the
 * last trial had the same two limits, half of its items and processor time count in this one, too:
 * a single trial is short, so what it says of a small gain is mostly noise. */
static void begin_trial_if_possible(teffi_contention *c, bool contended)
{
    bool is_full = c->limit == c->n, may_double = contended && c->limit * 2 < c->n;
    c->went_down = contended && c->limit > 1 && (is_full || !c->went_down);
    if (is_full && !c->went_down)
        return;
    uint32_t low = c->went_down ? c->limit / 2 : c->limit;
    uint32_t high = c->went_down ? c->limit : may_double ? c->limit * 2 : c->n;
    if (low != c->low || high != c->high)
        c->sums[0] = c->sums[1] = (teffi_contention_sums){0};
    for (unsigned i = 0; i < 2; i++)
        c->sums[i] =
            (teffi_contention_sums){.items = c->sums[i].items / 2, .cpu_ns = c->sums[i].cpu_ns / 2};
    c->low = low;
    c->high = high;
    c->window = 1;
}

/* Is the trial's lower limit better than the higher one? Only if the cores were contended with the
 * higher one, and an item cost less processor time with the lower one. The gain must be over 1/GAIN
 * if the higher limit is the present one; without that margin, noise would change the limit in
 * every second trial. */
static bool lower_limit_is_better(const teffi_contention_sums *high,
                                  const teffi_contention_sums *low, bool high_is_present)
{
    if (high->items < ITEMS_MIN || low->items < ITEMS_MIN ||
        !is_contended(WINDOWS / 2 * WINDOW_NS, high->ran_ns, high->delayed_ns))
        return false;
    /* the cost of an item, in 1/256 ns */
    uint64_t high_cost = (high->cpu_ns << 8) / high->items;
    uint64_t low_cost = (low->cpu_ns << 8) / low->items;
    return low_cost < high_cost - (high_is_present ? high_cost / GAIN : 0);
}

/* Keep the better one of the trial's two limits. The next trial may begin after a pause: of 1 s if
 * the limit has changed, else of twice the last pause, up to 4 s. */
static void end_trial(teffi_contention *c, uint64_t now_ns)
{
    uint32_t before = c->went_down ? c->high : c->low;
    c->limit = lower_limit_is_better(&c->sums[0], &c->sums[1], c->went_down) ? c->low : c->high;
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
