/* reminder.h - reminders of a grain: durable ticks, which wake the grain wherever it is then.
 * Way:     a turn -> [reminder] -> grains/reminder -> a row of the store -> ticks: on_reminder
 * Threads: in a turn of the grain that has the reminder. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <teff/grain.h>

TEFF_BEGIN_C

/* A reminder has a name, unique in its grain, and one row in the store. When it is due, the runtime
 * calls the slot on_reminder of the grain's type; this call is a *tick*. Unlike a timer, a reminder
 * does not end with the activation, the silo or the cluster.
 *   - A tick is a call like any other: it activates the grain if needed, and waits until no other
 *     turn of the grain runs (a type that is `reentrant` lets turns overlap). Ticks of one reminder
 *     do not overlap. A tick counts as a use of the activation.
 *   - Tick n is due at: first tick + n * period, in wall-clock time. So ticks do not drift. Ticks
 *     that were missed, because the grain was busy or the cluster was down, are not made up for one
 *     by one: there is one tick for all of them, whose teff_tick.missed says how many others there
 *     were, and whose due_ms is that of the newest.
 *   - A tick counts as delivered when on_reminder has returned TEFF_OK and, after that, the tick's
 *     turn has written the row. If a silo crashes between the two, the tick comes again. After any
 *     error, of on_reminder or of the call (TEFF_E_OVERLOADED, TEFF_E_TIMEOUT after 30 s, no silo
 *     hosts the type), the tick is tried again after 1 s, then 2 s and so on up to a minute; the
 *     log says so. If hundreds of ticks of a silo fail or wait, tries come later: half of the
 *     ticks under way may be such. So each tick comes at least once, and rarely more often.
 *   - Before on_reminder, the tick's turn reads the row: a tick of a reminder that was unregistered
 *     or registered anew meanwhile does not run. So no tick begins after teff_reminder_unregister
 *     has returned TEFF_OK. Exception: a turn that may overlap with the tick's (`reentrant`,
 *     `always_interleave`). If it unregisters after the tick has read the row, the tick runs.
 *   - The silo that owns the grain's part of the directory keeps its reminders in memory, and
 *     counts the time by the monotonic clock. It compares this with the wall clock when it reads
 *     the rows, which it does when it becomes the owner and every five minutes, and after each
 *     tick. So if the wall clock is set, ticks follow within five minutes. If it was set back, the
 *     next tick comes at most two periods after the last one, and if it comes early, the later
 *     ticks are counted from it. Clocks of silos should not differ by much: a reminder is due by
 *     the clock of the silo that has registered it, and ticks by that of the owner.
 *   - A reminder of a type that no silo hosts, or that has no on_reminder, stays in the store; the
 *     log warns when it is due. While a silo of a build without reminders owns the grain's part of
 *     the directory, there are no ticks; they come when it has left.
 *   - The number of a grain's reminders has no limit. Each uses memory of the owner.
 *   - Reminders are not part of transactions, and are not removed with the grain's state. */

enum {
    TEFF_REMINDER_NAME_MAX = 128,        /* bytes of UTF-8 */
    TEFF_REMINDER_PERIOD_MIN_MS = 60000, /* the default of teff_silo_options */
    TEFF_REMINDER_TRIES_MAX_MS = 60000   /* the longest pause between tries of a tick */
};

/* Options of a reminder. Zeroed, except size: one tick, as soon as possible. */
typedef struct teff_reminder_options {
    size_t size;        /* sizeof(teff_reminder_options) */
    uint64_t due_ms;    /* from now to the first tick */
    uint64_t period_ms; /* from one tick to the next, at least reminder_period_min_ms of the silo
                         * (teff/silo.h); 0: there is one tick */
    /* The reminder ends by itself: a tick that is due later than so long from now does not come,
     * and the row is removed after the tick before it. At least due_ms; 0: it does not end. */
    uint64_t ttl_ms;
} teff_reminder_options;

/* Times are milliseconds since 1970. */
typedef struct teff_reminder {
    const char *name; /* valid until the turn ends */
    uint64_t next_ms; /* when the next tick is due; may have passed */
    uint64_t period_ms;
    uint64_t until_ms; /* no tick is due later; 0: it does not end by itself */
} teff_reminder;

typedef struct teff_tick {
    const char *name;
    uint64_t due_ms; /* when this tick was due */
    uint64_t missed; /* how many earlier ticks were due since the last one that was delivered */
    bool last;       /* the reminder is removed after this tick */
} teff_tick;

/* teff_reminder_register - make a reminder of the running grain, or replace its reminder of this
 * name: the old one's ticks do not come any more.
 * in:   ctx, of a turn of the grain, also of on_activate or on_reminder. name, copied: UTF-8, 1 to
 *       TEFF_REMINDER_NAME_MAX bytes. options, borrowed, copied; NULL: all defaults.
 * out:  TEFF_OK: the row is written. If the owner of the grain's part of the directory cannot be
 *       reached then, the first tick may be up to five minutes late.
 * runs: suspends the turn; not in a part that it has forked (teff/fork.h: the process aborts).
 * errs: TEFF_E_INVALID: not in such a turn, the type has no on_reminder or is a stateless worker,
 *       name, options;
 *       TEFF_E_CONFLICT: the row kept changing; TEFF_E_UNKNOWN: perhaps written; TEFF_E_CLOSED:
 *       this silo's lease is over; the store's. teff_error(ctx) has the text.
 * from: Orleans RegisterOrUpdateReminder. */
TEFF_API TEFF_MUST_USE teff_err teff_reminder_register(teff_ctx *ctx, const char *name,
                                                       const teff_reminder_options *options);

/* teff_reminder_unregister - remove a reminder of the running grain. After TEFF_OK its row is gone,
 * and no tick of it begins (exception: above).
 * in:   as teff_reminder_register.
 * runs: as teff_reminder_register.
 * errs: as teff_reminder_register; TEFF_E_NOT_FOUND: the grain has no such reminder.
 * from: Orleans UnregisterReminder. */
TEFF_API TEFF_MUST_USE teff_err teff_reminder_unregister(teff_ctx *ctx, const char *name);

/* teff_reminder_get - read a reminder of the running grain from the store.
 * in:   as teff_reminder_register. out: *reminder.
 * runs: as teff_reminder_register.
 * errs: TEFF_E_INVALID, TEFF_E_NOT_FOUND; TEFF_E_MALFORMED: the row is damaged; the store's.
 * from: Orleans GetReminder. */
TEFF_API TEFF_MUST_USE teff_err teff_reminder_get(teff_ctx *ctx, const char *name,
                                                  teff_reminder *reminder);

/* teff_reminder_list - read all reminders of the running grain, in the order of their names' bytes.
 * Damaged rows are left out.
 * in:   ctx, of a turn of the grain.
 * out:  *list, of *n, valid until the turn ends; NULL if *n is 0.
 * runs: as teff_reminder_register.
 * errs: TEFF_E_INVALID; the store's.
 * from: Orleans GetReminders. */
TEFF_API TEFF_MUST_USE teff_err teff_reminder_list(teff_ctx *ctx, teff_reminder **list, size_t *n);

TEFF_END_C
