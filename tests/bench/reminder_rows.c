/* reminder_rows.c - rows reminder-...: reminders on SQLite, registered per second; and ticks per
 * second of those that are due at the same moment, while many others are not due.
 * Way:     bench.c -> [reminder_rows] -> Sleeper turns -> teff/reminder.h -> SQLite's thread */
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <teff/reminder.h>
#include "bench.h"
#include "folder.h"
#include "rows.teff.h"

enum { GRAINS = 64, DUE = 1000, HOUR_MS = 3600000, AHEAD_MS = 2000, PAUSE_MS = 1 };

typedef struct sleepers {
    teff_silo *silo;
    teff_ctx *ctx;
    uint64_t next_name;
} sleepers;

static _Atomic uint64_t ticks, last_tick_ms;

static uint64_t read_wall_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u;
}

/* ---- the grain ---- */

static teff_err register_reminders(rows_sleeper *self, const rows_reminding *in)
{
    uint64_t now_ms = read_wall_ms();
    teff_err err = TEFF_OK;
    for (uint64_t i = 0; i < in->n && !err; i++) {
        char name[24];
        const teff_reminder_options one = {.size = sizeof one,
                                           .due_ms = in->due_ms > now_ms ? in->due_ms - now_ms : 0};
        snprintf(name, sizeof name, "%llu", (unsigned long long)(in->first + i));
        err = teff_reminder_register(self->ctx, name, &one);
    }
    return err;
}

static teff_err on_reminder(rows_sleeper *self, const teff_tick *tick)
{
    (void)self;
    (void)tick;
    last_tick_ms = read_wall_ms();
    ticks++;
    return TEFF_OK;
}

/* ---- the rows ---- */

static void sleepers_must(const sleepers *s, teff_err err)
{
    if (err)
        bench_fatal(s->ctx, err);
}

static sleepers open_sleepers(const char *store)
{
    static const rows_sleeper_methods methods = {.remind = register_reminders,
                                                 .on_reminder = on_reminder};
    sleepers s = {0};
    teff_silo_options opt = {.size = sizeof opt, .silent = 1, .store = store};
    sleepers_must(&s, teff_silo_new(&opt, &s.silo, NULL));
    sleepers_must(&s, teff_silo_host(s.silo, rows_sleeper_type(&methods, NULL)));
    sleepers_must(&s, teff_silo_start(s.silo, NULL));
    s.ctx = teff_silo_new_ctx(s.silo);
    return s;
}

static void close_sleepers(sleepers *s)
{
    teff_ctx_free(s->ctx);
    teff_silo_free(s->silo);
}

/* GRAINS grains register n reminders in all, each one after the other. out: seconds. */
static double register_many(sleepers *s, uint64_t n, uint64_t due_ms)
{
    teff_call calls[GRAINS];
    uint64_t begin = bench_now_ns();
    for (uint64_t i = 0; i < GRAINS; i++) {
        uint64_t share = n * (i + 1) / GRAINS - n * i / GRAINS;
        sleepers_must(s, rows_sleeper_remind_async(
                             s->ctx, (int64_t)i,
                             rows_reminding(.first = s->next_name, .n = share, .due_ms = due_ms),
                             NULL, &calls[i]));
        s->next_name += share;
    }
    sleepers_must(s, teff_await_all(s->ctx, calls, GRAINS));
    teff_ctx_reset(s->ctx);
    return (double)(bench_now_ns() - begin) / 1e9;
}

/* DUE reminders are due in AHEAD_MS. out: milliseconds from then until the last one has ticked. */
static double take_ticks(sleepers *s)
{
    uint64_t due_ms = read_wall_ms() + AHEAD_MS;
    ticks = 0;
    (void)register_many(s, DUE, due_ms);
    if (read_wall_ms() >= due_ms)
        bench_fatal(NULL, TEFF_E_TIMEOUT); /* they were not due at once */
    while (ticks < DUE)
        bench_sleep_ms(PAUSE_MS);
    return (double)last_tick_ms - (double)due_ms;
}

void bench_reminders(const bench *b)
{
    static const char register_name[] = "reminder-registrations", tick_name[] = "reminder-ticks";
    uint64_t many = b->runs > 3 ? 100000 : 10000;
    double rates[RUNS_MAX], times[RUNS_MAX];
    char text[300];
    if (!bench_wanted(b, register_name) && !bench_wanted(b, tick_name))
        return;
    bench_folder f = bench_folder_new();
    snprintf(text, sizeof text, "sqlite:%s/grains.db", f.path);
    sleepers s = open_sleepers(text);
    for (int r = 0; r < b->runs; r++) {
        uint64_t n = many / (uint64_t)b->runs;
        rates[r] = (double)n / register_many(&s, n, read_wall_ms() + HOUR_MS);
    }
    for (int r = 0; r < b->runs; r++)
        times[r] = take_ticks(&s);
    close_sleepers(&s);
    bench_folder_remove(&f);
    snprintf(text, sizeof text, "\"at_once\":%d,\"reminders\":%llu", GRAINS,
             (unsigned long long)many);
    bench_print(b, register_name, text, "registrations/s", rates, b->runs);
    snprintf(text, sizeof text, "\"due_at_once\":%d,\"others\":%llu", DUE,
             (unsigned long long)many);
    bench_print(b, tick_name, text, "ms until all have ticked", times, b->runs);
}
