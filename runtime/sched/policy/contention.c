/* contention.c - trials of fewer workers while other threads want the cores. */
#include "sched/policy/contention.h"

#define MS_NS 1000000u
#define WATCH_NS (50 * MS_NS)
#define WINDOW_NS (20 * MS_NS)
#define PAUSE_MIN_NS (1000ull * MS_NS)
#define PAUSE_MAX_NS (8 * PAUSE_MIN_NS)

enum { WINDOWS = 8 };
enum { DELAYED = 4 }; /* contended: for each ns of delay, at most so many ns of run time */
enum { GAIN = 16 };   /* the lower limit stays if an item costs 1/GAIN less with it */

void teffi_contention_reset(teffi_contention *c, uint32_t n)
{
    *c = (teffi_contention){.n = n, .limit = n};
}

bool teffi_contention_is_due(const teffi_contention *c, uint64_t now_ns, bool *usage)
{
    *usage = !c->window;
    return now_ns >= c->due_ns;
}

/* Begin a trial of half the limit if the cores are contended, or of twice the limit; in turn if
 * both are possible. */
static void begin_trial(teffi_contention *c, bool contended)
{
    bool is_full = c->limit == c->n;
    c->went_down = contended && c->limit > 1 && (is_full || !c->went_down);
    if (is_full && !c->went_down)
        return;
    c->low = c->went_down ? c->limit / 2 : c->limit;
    c->high = c->went_down ? c->limit : c->limit * 2 < c->n ? c->limit * 2 : c->n;
    c->items[0] = c->items[1] = c->cpu_ns[0] = c->cpu_ns[1] = 0;
    c->window = 1;
}

/* out: the cost of an item in the windows with low (1) or high (0), in 1/256 ns; 0: no items. */
static uint64_t cost_of(const teffi_contention *c, unsigned low)
{
    return c->items[low] ? (c->cpu_ns[low] << 8) / c->items[low] : 0;
}

static void end_trial(teffi_contention *c, uint64_t now_ns)
{
    uint32_t before = c->went_down ? c->high : c->low;
    bool is_cheaper = c->items[1] && cost_of(c, 1) * GAIN < cost_of(c, 0) * (GAIN - 1);
    c->limit = is_cheaper ? c->low : c->high;
    c->window = 0;
    if (c->limit != before || !c->pause_ns)
        c->pause_ns = PAUSE_MIN_NS;
    else if (c->pause_ns < PAUSE_MAX_NS)
        c->pause_ns *= 2;
    c->trial_ns = now_ns + c->pause_ns;
}

void teffi_contention_update(teffi_contention *c, const teffi_contention_sample *sample)
{
    if (c->window) {
        c->items[c->window % 2] += sample->items - c->items_seen;
        c->cpu_ns[c->window % 2] += sample->cpu_ns - c->cpu_seen_ns;
        if (++c->window > WINDOWS)
            end_trial(c, sample->now_ns);
    } else if (c->due_ns && sample->now_ns >= c->trial_ns) {
        begin_trial(c, sample->delayed_ns && sample->delayed_ns * DELAYED >= sample->ran_ns);
    }
    if (c->window)
        c->limit = c->window % 2 ? c->low : c->high;
    c->items_seen = sample->items;
    c->cpu_seen_ns = sample->cpu_ns;
    c->due_ns = sample->now_ns + (c->window ? WINDOW_NS : WATCH_NS);
}
