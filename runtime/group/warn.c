/* warn.c - descriptions of groups; warnings: late items, long queues. */
#include "group/warn.h"

#include <stdio.h>
#include <string.h>
#include "base/log.h"
#include "base/options.h"
#include "group/exec.h"

#define LINE_EVERY_NS 1000000000u

void teffi_group_describe(teffi_group *group, char *text)
{
    if (group->ops->describe)
        group->ops->describe(group, text, TEFFI_DESCRIBE_MAX);
    else
        snprintf(text, TEFFI_DESCRIBE_MAX, "a forked part");
}

void teffi_running_group_describe(uintptr_t running, char *text)
{
    if (running & 1)
        teffi_group_describe(teffi_running_group_unpack(running), text);
    else /* a forked part runs; its group may have been freed, so do not read the group */
        snprintf(text, TEFFI_DESCRIBE_MAX, "a forked part");
}

void teffi_warn_init(teffi_warn *warn, const teff_sched_options *opt)
{
    memset(warn, 0, sizeof *warn);
    warn->turn_warn_ms = teffi_or_default(opt->turn_warn_ms, TEFFI_TURN_WARN_MS);
    warn->delay_warn_ms = teffi_or_default(opt->delay_warn_ms, TEFFI_DELAY_WARN_MS);
    warn->queue_warn = teffi_or_default(opt->queue_warn, UINT32_MAX);
}

bool teffi_warn_claim_line_or_skip(teffi_exec *exec, teffi_warn_limiter *limiter, char more[48])
{
    uint64_t now = teffi_now(exec->platform);
    uint64_t next = atomic_load_explicit(&limiter->next_ns, memory_order_relaxed);
    if (now < next ||
        !atomic_compare_exchange_strong_explicit(&limiter->next_ns, &next, now + LINE_EVERY_NS,
                                                 memory_order_relaxed, memory_order_relaxed)) {
        /* too early, or another thread writes this second's line */
        atomic_fetch_add_explicit(&limiter->skipped, 1, memory_order_relaxed);
        return false;
    }
    uint32_t skipped = atomic_exchange_explicit(&limiter->skipped, 0, memory_order_relaxed);
    more[0] = '\0';
    if (skipped)
        snprintf(more, 48, "; %u more like it before", skipped);
    return true;
}

void teffi_warn_late_item(teffi_group *group, uint32_t pushed_ms, uint32_t now_ms)
{
    teffi_exec *exec = group->exec;
    char text[TEFFI_DESCRIBE_MAX], more[48];
    if (!pushed_ms || !now_ms || !teffi_warn_claim_line_or_skip(exec, &exec->warn.delay, more))
        return;
    teffi_group_describe(group, text);
    teffi_logf(&exec->platform->log, TEFF_LOG_WARN,
               "scheduler: a work item of %s waited %u ms in its queue (limit %u)%s", text,
               now_ms - pushed_ms, exec->warn.delay_warn_ms, more);
}

void teffi_warn_long_queue(teffi_group *group, uint32_t items)
{
    teffi_exec *exec = group->exec;
    char text[TEFFI_DESCRIBE_MAX], more[48];
    if (!teffi_warn_claim_line_or_skip(exec, &exec->warn.queue, more))
        return;
    teffi_group_describe(group, text);
    teffi_logf(&exec->platform->log, TEFF_LOG_WARN,
               "scheduler: %u work items wait at %s (limit %u)%s", items, text,
               exec->warn.queue_warn, more);
}
