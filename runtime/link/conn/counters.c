/* counters.c - counters and rate-limited log lines. */
#include "link/conn/counters.h"

#include <stdarg.h>
#include <stdio.h>

void teffi_counters_add(link_counters *counters, link_counter which, uint64_t n)
{
    atomic_fetch_add_explicit(&counters->counts[which], n, memory_order_relaxed);
}

void teffi_counters_add_one_and_log(link_counters *counters, link_counter which, const char *fmt,
                                    ...)
{
    char line[TEFF_TEXT_MAX];
    va_list args;
    teffi_counters_add(counters, which, 1);
    /* at least 1, because 0 in logged_s means that nothing was logged yet */
    uint64_t second = teffi_now(counters->platform) / 1000000000u + 1;
    uint64_t last = atomic_load_explicit(&counters->logged_s[which], memory_order_relaxed);
    if (last == second ||
        !atomic_compare_exchange_strong_explicit(&counters->logged_s[which], &last, second,
                                                 memory_order_relaxed, memory_order_relaxed))
        return;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    teffi_logf(&counters->platform->log, TEFF_LOG_WARN, "link: %s", line);
}
