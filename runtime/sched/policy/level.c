/* level.c - multilevel feedback: decayed run time, queues by level, the chance of level 0. */
#include "sched/policy/level.h"

#include "base/hash.h"

enum { UNIT_NS = 64, TIME_BITS = 24, TIME_MASK = (1 << TIME_BITS) - 1 };
enum { RATIO = 4 }; /* picks of level 1 to picks of level 2 */
enum { CHANCE_MIN = 500, CHANCE_MAX = 980, CHANCE_STEP = 60, SHARE_OFF = 50 }; /* thousandths */
enum { SHARE_DEFAULT = 80 };                                                   /* percent */

static const uint64_t halved_every_ns = 10000000000u, adjusted_every_ns = 1000000000u;
static const uint32_t threshold_us[TEFF_SCHED_LEVELS - 1] = {5000, 100000};

/* ---- decayed run time ---- */

/* out: the run time that `used` holds, in units of UNIT_NS, decayed to `epoch`. */
static uint32_t decayed_run_time_units(uint32_t used, uint32_t epoch)
{
    uint32_t halvings = (epoch - (used >> TIME_BITS)) & UINT8_MAX;
    return halvings < TIME_BITS ? (used & TIME_MASK) >> halvings : 0;
}

static uint32_t epoch_of(uint64_t now_ns)
{
    return (uint32_t)(now_ns / halved_every_ns) & UINT8_MAX;
}

uint32_t teffi_used_time_add(uint32_t used, uint64_t now_ns, uint64_t ns)
{
    uint32_t epoch = epoch_of(now_ns);
    uint64_t count = decayed_run_time_units(used, epoch) + (ns + UNIT_NS / 2) / UNIT_NS;
    return epoch << TIME_BITS | (uint32_t)(count < TIME_MASK ? count : TIME_MASK);
}

uint64_t teffi_used_time_between(uint32_t from, uint32_t to)
{
    uint32_t before = decayed_run_time_units(from, to >> TIME_BITS), now = to & TIME_MASK;
    return now > before ? (uint64_t)(now - before) * UNIT_NS : 0;
}

unsigned teffi_level_of_used_time(const teffi_levels *levels, uint32_t used)
{
    if ((used & TIME_MASK) < levels->threshold[0])
        return 0; /* decay could only make it less */
    uint32_t count = decayed_run_time_units(used, epoch_of(teffi_now(levels->platform)));
    unsigned level = 0;
    while (level < TEFF_SCHED_LEVELS - 1 && count >= levels->threshold[level])
        level++;
    return level;
}

unsigned teffi_level_of_group(const teffi_levels *levels, const teffi_group *group)
{
    if (!group->shares)
        return teffi_level_of_used_time(levels, group->used);
    /* group->used is the number of the account that the group shares */
    const _Atomic uint32_t *used = &levels->account[group->used];
    return teffi_level_of_used_time(levels, atomic_load_explicit(used, memory_order_relaxed));
}

void teffi_levels_charge_group(teffi_levels *levels, teffi_group *group, uint64_t now_ns,
                               uint64_t ns)
{
    if (!group->shares) {
        group->used = teffi_used_time_add(group->used, now_ns, ns);
        return;
    }
    /* group->used is the number of the account that the group shares.
     * relaxed: the account is only a sum */
    _Atomic uint32_t *used = &levels->account[group->used];
    uint32_t was = atomic_load_explicit(used, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(used, &was, teffi_used_time_add(was, now_ns, ns),
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

/* ---- the queue ---- */

static void levels_push(teffi_order *order, teffi_group *group)
{
    teffi_levels *levels = (teffi_levels *)order;
    unsigned level = teffi_level_of_group(levels, group);
    teffi_queue_push(&levels->level[level], &group->link);
    if (level)
        atomic_fetch_add_explicit(&levels->n_above_0, 1, memory_order_relaxed);
}

unsigned teffi_levels_pop_above_0(teffi_order *order, teffi_group **out, unsigned n)
{
    teffi_levels *levels = (teffi_levels *)order;
    (void)n; /* pops one group at most */
    unsigned level = teffi_random_next(&levels->rng) % (RATIO + 1) < RATIO ? 1 : 2;
    unsigned got = teffi_groups_pop(&levels->level[level], out, 1);
    if (!got)
        got = teffi_groups_pop(&levels->level[3 - level], out, 1);
    atomic_fetch_sub_explicit(&levels->n_above_0, got, memory_order_relaxed);
    return got;
}

/* Pop up to n groups of level 0. If level 0 is empty, pop one group of level 1 or 2, never more:
 * all but the first popped group go to a deque, which may hold groups of level 0 only. */
static unsigned levels_pop(teffi_order *order, teffi_group **out, unsigned n)
{
    teffi_levels *levels = (teffi_levels *)order;
    unsigned got = teffi_groups_pop(&levels->level[0], out, n);
    return got || !n ? got : teffi_levels_pop_above_0(order, out, 1);
}

uint32_t teffi_level_threshold_us(const teff_sched_options *opt, unsigned level)
{
    return opt->level_us[level - 1] ? opt->level_us[level - 1] : threshold_us[level - 1];
}

void teffi_levels_init(teffi_levels *levels, const teffi_platform *platform,
                       const teff_sched_options *opt)
{
    *levels =
        (teffi_levels){.order = {.push = levels_push, .pop = levels_pop}, .platform = platform};
    for (unsigned i = 0; i < TEFF_SCHED_LEVELS - 1; i++)
        levels->threshold[i] =
            (uint32_t)((uint64_t)teffi_level_threshold_us(opt, i + 1) * 1000 / UNIT_NS);
    levels->target = (opt->level0_percent ? opt->level0_percent : SHARE_DEFAULT) * 10;
    levels->rng = platform->random(platform->arg) | 1;
    atomic_init(&levels->chance, SHARE_DEFAULT * 10);
}

/* ---- the chance of level 0 ---- */

/* out: `chance`, raised or lowered by one step if level 0's `share` of the run time is not close to
 * `target`. All numbers are in thousandths. */
static uint32_t adjusted_chance(uint32_t chance, uint32_t share, uint32_t target)
{
    if (share + SHARE_OFF < target)
        return chance + CHANCE_STEP < CHANCE_MAX ? chance + CHANCE_STEP : CHANCE_MAX;
    if (share > target + SHARE_OFF)
        return chance > CHANCE_MIN + CHANCE_STEP ? chance - CHANCE_STEP : CHANCE_MIN;
    return chance;
}

void teffi_levels_adjust_chance_if_due(teffi_levels *levels, uint64_t level0_ns, uint64_t all_ns)
{
    /* acquire: before last_level0_ns and last_ns are read; pairs with the release below */
    if (atomic_exchange_explicit(&levels->adjusting, true, memory_order_acquire))
        return; /* another thread adjusts now */
    /* all_ns may be less than last_ns: another thread may have read the sums later but got here
     * first. */
    uint64_t all = all_ns > levels->last_ns ? all_ns - levels->last_ns : 0;
    if (all >= adjusted_every_ns) {
        uint64_t level0 =
            level0_ns > levels->last_level0_ns ? level0_ns - levels->last_level0_ns : 0;
        uint64_t share = level0 / (all / TEFFI_CHANCE_ONE);
        uint32_t chance = atomic_load_explicit(&levels->chance, memory_order_relaxed);
        atomic_store_explicit(&levels->chance,
                              adjusted_chance(chance, (uint32_t)share, levels->target),
                              memory_order_relaxed);
        levels->last_level0_ns = level0_ns;
        levels->last_ns = all_ns;
    }
    atomic_store_explicit(&levels->adjusting, false, memory_order_release);
}
