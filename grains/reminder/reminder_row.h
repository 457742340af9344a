/* reminder_row.h - a reminder's row in table "reminder": its key, its value, its next tick.
 * Way:     reminder/reminder, load, tick, remind -> [reminder_row] -> store
 * Threads: pure; the functions with a context: in its turn or task.
 *
 * key: the cluster's name, a zero byte, the partition (1 byte), the grain's type id (4 bytes, big
 * endian), the length of the grain's key (2 bytes, big endian), that key, the reminder's name. So
 * the rows of a partition are one range of keys, and those of a grain, too.
 * value: teff.cluster.Reminder */
#pragma once

#include "activation/ident.h"
#include "call/ctx.h"
#include "cluster.pb-c.h"
#include "cluster/view.h"
#include "store/store.h"

#define TEFFI_TABLE_REMINDER "reminder"

enum {
    /* partition, type, length of the grain's key */
    TEFFI_REMINDER_FIXED_BYTES = 7,
    TEFFI_REMINDER_KEY_MAX = TEFFI_CLUSTER_MAX + 1 + TEFFI_REMINDER_FIXED_BYTES +
                             TEFFI_KEY_BYTES_MAX + TEFF_REMINDER_NAME_MAX + 1
};

/* Times and periods are below this, the year 2248: sums do not overflow, nor do nanoseconds. */
#define TEFFI_REMINDER_MS_MAX (UINT64_C(1) << 43)

_Static_assert((int)TEFFI_REMINDER_KEY_MAX < (int)TEFFI_STORE_KEY_MAX, "a key of a row");

/* A parsed key; its members point into the key. */
typedef struct teffi_reminder_key {
    unsigned partition;
    uint32_t type;
    const uint8_t *grain; /* the grain's key */
    uint32_t grain_len;
    const uint8_t *name; /* not terminated */
    uint32_t name_len;
} teffi_reminder_key;

/* A value, without the type's name. */
typedef struct teffi_reminder_value {
    uint64_t id, next_ms, period_ms, until_ms;
    bool ticked;
    uint8_t placement;
} teffi_reminder_value;

/* teffi_reminder_make_key - write the key of a grain's reminder to out. in: name, of name_len
 * bytes; with 0, the key is less than those of all reminders of the grain. out: the length. */
size_t teffi_reminder_make_key(const char *cluster, const teffi_ident *ident, const char *name,
                               size_t name_len, uint8_t out[TEFFI_REMINDER_KEY_MAX]);

/* teffi_reminder_make_partition_key - write the key that is less than those of all rows of the
 * partition to out. in: partition, up to TEFFI_PARTITIONS, which makes the end of the last one's
 * rows. out: the length. */
size_t teffi_reminder_make_partition_key(const char *cluster, unsigned partition,
                                         uint8_t out[TEFFI_REMINDER_KEY_MAX]);

/* teffi_reminder_raise_prefix - change a key to the least one that does not begin with it. in: not
 * all its bytes are 255. */
void teffi_reminder_raise_prefix(uint8_t *key, size_t *len);

/* teffi_reminder_make_key_after - write the least key after `key` to out; if key is too long for a
 * reminder's, the least one that does not begin with its first bytes. out: the length. */
size_t teffi_reminder_make_key_after(teffi_bytes key, uint8_t out[TEFFI_REMINDER_KEY_MAX]);

/* teffi_reminder_parse_key - out: false: it is no key of this cluster's reminders, or the grain is
 * in another partition. */
bool teffi_reminder_parse_key(const char *cluster, teffi_bytes bytes, teffi_reminder_key *key);

/* teffi_reminder_name_is_valid - does a reminder's name have 1 to TEFF_REMINDER_NAME_MAX bytes, all
 * of UTF-8, and no zero byte? in: name, may be NULL if len is 0. */
bool teffi_reminder_name_is_valid(const uint8_t *name, size_t len);

/* teffi_reminder_read_value - check a message and copy its members. out: false: a time or period is
 * out of range, or the placement is not known. */
bool teffi_reminder_read_value(const Teff__Cluster__Reminder *from, teffi_reminder_value *value);

/* teffi_reminder_fill_message - the reverse. in: type, the grain type's name, borrowed. */
void teffi_reminder_fill_message(const teffi_reminder_value *value, const char *type,
                                 Teff__Cluster__Reminder *to);

/* teffi_reminder_unpack - unpack and check the value of a row.
 * in:   arena, for the message.
 * out:  *value; *type, the type's name, in arena; may be NULL.
 * errs: TEFF_E_MALFORMED, TEFF_E_NOMEM. */
TEFF_MUST_USE teff_err teffi_reminder_unpack(teffi_bytes bytes, teff_arena *arena,
                                             teffi_reminder_value *value, const char **type);

/* teffi_reminder_pack - pack a value for a row. out: in ctx's memory. */
teffi_bytes teffi_reminder_pack(teff_ctx *ctx, const teffi_reminder_value *value, const char *type);

/* teffi_reminder_read_row - read a row. in: row->key. out: *row, *value, *type (may be NULL); no
 * such row: row->etag is 0.
 * errs: the store's; TEFF_E_MALFORMED: it is damaged; text in ctx. */
TEFF_MUST_USE teff_err teffi_reminder_read_row(teff_ctx *ctx, teffi_row *row,
                                               teffi_reminder_value *value, const char **type);

/* teffi_reminder_write_row - write or remove a row, if this silo is not dead (cluster/rows.h). in:
 * row, with key, value and etag, or with remove. out: row->etag, the new one.
 * errs: the store's; TEFF_E_CONFLICT: the row or the fence has changed; TEFF_E_CLOSED: this silo's
 *       lease is over; text in ctx. */
TEFF_MUST_USE teff_err teffi_reminder_write_row(teff_ctx *ctx, teffi_row *row);

/* Which tick comes next, and what is due after it. */
typedef struct teffi_reminder_step {
    uint64_t due_ms, missed;
    uint64_t next_ms; /* unless last */
    bool last;
} teffi_reminder_step;

/* teffi_reminder_plan - plan the tick that is sent at now_ms (wall clock). */
teffi_reminder_step teffi_reminder_plan(const teffi_reminder_value *value, uint64_t now_ms);

/* teffi_reminder_wait_ms - how long to wait for the next tick. in: now_ms (wall clock). out:
 * *limited (may be NULL): the tick seems so far away that the clock was set back: two periods. */
uint64_t teffi_reminder_wait_ms(const teffi_reminder_value *value, uint64_t now_ms, bool *limited);
