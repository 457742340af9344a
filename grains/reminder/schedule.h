/* schedule.h - the reminders that this silo keeps in memory: those of the directory's partitions
 * that it owns. When is which due?
 * Way:     load, server, reminder (rows) -> [schedule] -> the executor's timers -> tick
 * States:  of a reminder: ARMED -its time has come-> DUE -a task takes it-> TICKS -the tick has
 *          ended, the row is written-> ARMED or freed. A change of the row: ARMED or DUE -> ARMED.
 *          of a partition: NONE -this silo serves it-> WANTED -load begins-> LOADING -> LOADED
 *          -every five minutes, or the load fails-> WANTED. Each of them -> NONE: it has another
 *          owner.
 * Threads: any; reminders and partitions under the lock. The task that ticks a reminder reads the
 *          reminder's key and type without it, which do not change.
 *
 * The rows are the truth; this is a copy that may be old: a tick reads the row again (remind.h). */
#pragma once

#include <sys/queue.h>
#include "reminder/reminder_row.h"
#include "base/table.h"
#include "call/calls.h"
#include "directory/shard.h"

/* At most so many ticks of a silo's reminders are under way, each in a task of its own. */
enum { TEFFI_REMINDER_TICKS_MAX = 256 };

typedef enum teffi_reminder_state {
    TEFFI_REMINDER_ARMED,
    TEFFI_REMINDER_DUE,
    TEFFI_REMINDER_TICKS
} teffi_reminder_state;

typedef struct teffi_reminder { /* on the heap */
    teffi_tnode node;           /* in teffi_reminders.parts */
    teffi_timer timer;
    TAILQ_ENTRY(teffi_reminder) due_link;
    struct teffi_reminders *all;
    teffi_reminder_value value;
    uint64_t etag;   /* of the row that has this value */
    uint64_t due_ns; /* platform's monotonic clock */
    uint32_t tries;  /* of the present tick, which failed */
    uint8_t state;   /* teffi_reminder_state */
    uint8_t partition;
    bool gone; /* not in parts any more; whoever holds it frees it: the timer, or the tick's task */
    bool rereads; /* the row may be another one: read it before the next tick */
    bool retries; /* DUE or TICKS: as a try again; says which list it is in */
    uint16_t key_len;
    uint8_t key[]; /* of the row; then the type's name, terminated */
} teffi_reminder;

typedef enum teffi_load_state {
    TEFFI_LOAD_NONE,
    TEFFI_LOAD_WANTED,
    TEFFI_LOAD_LOADING,
    TEFFI_LOAD_LOADED
} teffi_load_state;

typedef void teffi_task_fn(teff_ctx *ctx, void *arg);

typedef struct teffi_reminders {
    teffi_grains *grains; /* immutable, as the next three */
    teffi_task_fn *run_ticks, *run_load;
    uint64_t tick_timeout_ms;
    teff_cancel *cancel;  /* of ticks under way; has a lock of its own */
    pthread_mutex_t lock; /* guards the rest; a shard's lock may be taken under it */
    teffi_table parts[TEFFI_PARTITIONS];
    uint8_t load[TEFFI_PARTITIONS];      /* teffi_load_state */
    TAILQ_HEAD(, teffi_reminder) due[2]; /* by teffi_reminder.retries */
    uint32_t n_due[2];
    uint32_t tasks;        /* tick.c's */
    uint32_t ticking;      /* of tasks: those with a tick */
    uint32_t retrying;     /* of ticking: those with a try again */
    uint32_t failed_loads; /* since the last one that did not fail */
    bool loads;            /* load.c's task is queued or runs */
    bool lacks_memory;     /* for a row, since the load began */
    bool closed;
    teffi_timer timer;  /* load all again, or start a task for which there was no memory */
    uint64_t timer_ns;  /* when it fires; 0: it is not set */
    uint64_t reload_ns; /* when to load all again */
    teffi_warn_limiter failed, damaged; /* of lines */
} teffi_reminders;

/* teffi_reminders_init - in zeroed memory. in: run_ticks, run_load: functions of tasks, whose
 * argument is all. errs: false: out of memory. teffi_reminders_fini - when
 * the executor has stopped; zeroed memory is allowed. */
bool teffi_reminders_init(teffi_reminders *all, teffi_grains *grains, teffi_task_fn *run_ticks,
                          teffi_task_fn *run_load);
void teffi_reminders_fini(teffi_reminders *all);

/* teffi_reminders_stop - the silo closes: no tick begins any more, and the calls of those under way
 * end. */
void teffi_reminders_stop(teffi_reminders *all);

/* teffi_reminders_apply_phases - drop the reminders of partitions that this silo does not own any
 * more, and load those that it serves since. Called when a partition's phase has changed. */
void teffi_reminders_apply_phases(teffi_grains *grains);

/* teffi_reminders_note - keep a reminder, unless a newer row of it is known.
 * in:   key, of the row: it is valid; parsed from it: partition. type, the grain type's name.
 * out:  false: this silo does not own the partition.
 * If there is no memory, the reminder is loaded later. */
bool teffi_reminders_note(teffi_reminders *all, teffi_bytes key, unsigned partition,
                          const char *type, uint64_t etag, const teffi_reminder_value *value);

/* teffi_reminders_forget - drop a reminder whose row was removed, unless a newer row of it is
 * known. in: etag, of the row when it was removed. out: as teffi_reminders_note. */
bool teffi_reminders_forget(teffi_reminders *all, teffi_bytes key, unsigned partition,
                            uint64_t etag);

/* ---- for tick.c ---- */

/* teffi_reminders_take_due - take the reminder that is due longest: its state is TICKS. Tries again
 * wait while too many of them are under way. out: NULL: none; the calling task must end, and does
 * not count any more. *etag, *value, *rereads: its. */
teffi_reminder *teffi_reminders_take_due(teffi_reminders *all, uint64_t *etag,
                                         teffi_reminder_value *value, bool *rereads);

typedef enum teffi_tick_end {
    TEFFI_TICK_KEPT,  /* the reminder waits for its next tick */
    TEFFI_TICK_GONE,  /* the row is gone, or cannot be read: the reminder is dropped */
    TEFFI_TICK_FAILED /* it is tried again after a pause */
} teffi_tick_end;

/* teffi_reminders_end_tick - a tick has ended, or was not due yet.
 * in:   etag, value: of the row, as known now. began: the etag that teffi_reminders_take_due
 *       returned. */
void teffi_reminders_end_tick(teffi_reminder *r, teffi_tick_end end, uint64_t began, uint64_t etag,
                              const teffi_reminder_value *value);

/* teffi_reminders_is_closed - was teffi_reminders_stop called? */
bool teffi_reminders_is_closed(teffi_reminders *all);

/* ---- for load.c ---- */

/* teffi_reminders_begin_load - the WANTED partitions are LOADING now. out: set: they. false: there
 * are none; the calling task must end, and does not count any more.
 * teffi_reminders_end_load - the partitions below `loaded` that are LOADING still are LOADED. If
 * that is not all of them, or there was no memory for a row, others are WANTED, and a load begins
 * again after a pause: 1 s, which doubles up to a minute. out: false: so it is; the calling task
 * must end, and does not count any more. */
bool teffi_reminders_begin_load(teffi_reminders *all, uint8_t *set);
bool teffi_reminders_end_load(teffi_reminders *all, unsigned loaded);

/* The functions of tasks. */
void teffi_reminders_run_ticks(teff_ctx *ctx, void *all); /* tick.c */
void teffi_reminders_load(teff_ctx *ctx, void *all);      /* load.c */
