/* warn.h - what a group is, in words; warnings: items that waited too long, queues too long.
 * Way:     group, sched/report, process/, grains/ -> [warn] -> ops->describe, the log
 * Threads: any, unless a function says otherwise. At most one line a second of each kind.
 * Source:  Orleans' src/Orleans.Runtime/Configuration/Options/SchedulingOptions.cs */
#pragma once

#include <teff/sched.h>
#include "group/group.h"

enum { TEFFI_TURN_WARN_MS = 1000, TEFFI_DELAY_WARN_MS = 10000, TEFFI_WARN_MS_MAX = 86400000 };

/* Limits the lines of one kind. relaxed: no other data is ordered by these fields. */
typedef struct teffi_warn_limiter {
    _Atomic uint64_t next_ns; /* no line is written before */
    _Atomic uint32_t skipped; /* lines, since the last one written */
} teffi_warn_limiter;

typedef struct teffi_warn {
    /* immutable after init */
    uint32_t turn_warn_ms, delay_warn_ms;
    uint32_t queue_warn; /* items; UINT32_MAX, or 0 without init: off */
    teffi_warn_limiter turn, delay, queue;
} teffi_warn;

/* teffi_warn_init - set the limits, 0 = the default. in: opt, checked. */
void teffi_warn_init(teffi_warn *warn, const teff_sched_options *opt);

/* teffi_warn_late_item - log how long an item of the group waited in its queue.
 *       in: the coarse clock when it was pushed, and now; 0: not known, then nothing is logged.
 * teffi_warn_long_queue - log how many items wait at the group.
 * runs: in a turn of the group, or while its memory cannot be freed. */
void teffi_warn_late_item(teffi_group *group, uint32_t pushed_ms, uint32_t now_ms);
void teffi_warn_long_queue(teffi_group *group, uint32_t items);

/* teffi_warn_claim_line_or_skip - may a line of this kind be written now? If not, the line counts
 * as skipped.
 * out:  true: the caller writes the line, and ends it with more: how many were skipped before. */
bool teffi_warn_claim_line_or_skip(struct teffi_exec *exec, teffi_warn_limiter *limiter,
                                   char more[48]);

/* ---- descriptions ---- */

enum { TEFFI_DESCRIBE_MAX = 160 }; /* bytes of a description */

/* teffi_group_describe - describe the group in words. in: text, of TEFFI_DESCRIBE_MAX bytes. runs:
 * in a turn of the group, or while its memory cannot be freed. */
void teffi_group_describe(teffi_group *group, char *text);

/* teffi_running_group_pack - pack a running group into one word for other threads. out: the group's
 * address, with the low bit set if the group has ops->describe: such a group's memory stays valid.
 * The word 0 stands for no group. */
static inline uintptr_t teffi_running_group_pack(const teffi_group *group)
{
    return (uintptr_t)group | (group->ops->describe != NULL);
}

/* teffi_running_group_unpack - the group in a word that teffi_running_group_pack packed; NULL: no
 * group. */
static inline teffi_group *teffi_running_group_unpack(uintptr_t running)
{
    return (teffi_group *)(running & ~(uintptr_t)1);
}

/* teffi_running_group_describe - as teffi_group_describe, for a word of teffi_running_group_pack,
 * not 0.
 * runs: any thread, until the executor has stopped. */
void teffi_running_group_describe(uintptr_t running, char *text);
