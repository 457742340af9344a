/* store.c - check the limits of an operation, then submit it; helpers that all engines share. */
#include "store/store.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/bug.h"
#include "base/error.h"
#include "base/hash.h"
#include "store/engine.h"

/* ---- helpers that all engines share: key order, errors, rows found ---- */

int teffi_bytes_cmp(teffi_bytes a, teffi_bytes b)
{
    size_t n = a.len < b.len ? a.len : b.len;
    int order = n ? memcmp(a.data, b.data, n) : 0;
    return order ? order : (a.len > b.len) - (a.len < b.len);
}

int teffi_row_cmp(const teffi_row *a, const teffi_row *b)
{
    int order = strcmp(a->table, b->table);
    return order ? order : teffi_bytes_cmp(a->key, b->key);
}

bool teffi_store_op_is_read(const teffi_store_op *op)
{
    return op->kind == TEFFI_STORE_READ || op->kind == TEFFI_STORE_SCAN;
}

size_t teffi_store_op_sum_value_bytes(const teffi_store_op *op)
{
    size_t bytes = 0;
    for (size_t i = 0; i < op->n_rows && !teffi_store_op_is_read(op); i++)
        bytes += op->rows[i].remove || op->rows[i].check ? 0 : op->rows[i].value.len;
    return bytes;
}

void teffi_store_op_set_error(teffi_store_op *op, teff_err err, const char *fmt, ...)
{
    va_list args;
    op->err = err;
    va_start(args, fmt);
    vsnprintf(op->text, sizeof op->text, fmt, args);
    va_end(args);
}

/* Writes a key for an error text: bytes that are not printable become \\xNN. The text is cut after
 * SHOWN_KEY_MAX characters. */
enum { SHOWN_KEY_MAX = 64 };

static void format_row_key(char text[SHOWN_KEY_MAX + 8], teffi_bytes key)
{
    const unsigned char *bytes = key.data;
    size_t len = 0;
    for (size_t i = 0; i < key.len; i++) {
        bool plain = bytes[i] >= ' ' && bytes[i] < 0x7f && bytes[i] != '"' && bytes[i] != '\\';
        if (len + (plain ? 1 : 4) > SHOWN_KEY_MAX) {
            memcpy(text + len, "...", 3);
            len += 3;
            break;
        }
        len += (size_t)sprintf(text + len, plain ? "%c" : "\\x%02x", bytes[i]);
    }
    text[len] = '\0';
}

void teffi_store_set_damaged_row_error(teffi_store_op *op, const char *engine, const teffi_row *row)
{
    char key[SHOWN_KEY_MAX + 8];
    format_row_key(key, row->key);
    teffi_store_op_set_error(op, TEFF_E_MALFORMED, "%s: damaged row in table %s: key \"%s\"",
                             engine, row->table, key);
}

uint64_t teffi_store_hash_row(const char *table, teffi_bytes key, teffi_bytes value, uint64_t seed)
{
    uint64_t sum = teffi_hash64(table, strlen(table), seed);
    sum = teffi_hash64(key.data, key.len, sum);
    return teffi_hash64(value.data, value.len, sum);
}

/* Makes room for one more row. The array has room for 16 rows at first; its capacity doubles when
 * n_found reaches 16, 32, 64 and so on. So the capacity follows from n_found and is not stored.
 * out: false: no memory. */
static bool reserve_found_row(teffi_store_op *op)
{
    size_t n = op->n_found;
    if (n != 0 && (n < 16 || (n & (n - 1)) != 0))
        return true;
    teffi_row *rows = teff_arena_alloc(op->arena, (n ? 2 * n : 16) * sizeof *rows);
    if (!rows)
        return false;
    if (n)
        memcpy(rows, op->rows, n * sizeof *rows);
    op->rows = rows;
    return true;
}

/* May this key be the next one of the scan's result? A server or a damaged file may return other
 * keys, and callers use the start of a key without comparing it. */
static bool scan_expects_key(const teffi_store_op *op, const teffi_row *from, teffi_bytes key)
{
    size_t n = op->n_found;
    return n < op->limit && key.len <= TEFFI_STORE_KEY_MAX &&
           (n ? teffi_bytes_cmp(key, op->rows[n - 1].key) > 0
              : teffi_bytes_cmp(key, from->key) >= 0) &&
           (op->to.len == 0 || teffi_bytes_cmp(key, op->to) < 0);
}

static void drop_found_rows(teffi_store_op *op, teffi_row *from)
{
    op->rows = from;
    op->n_found = 0;
}

bool teffi_store_add_found_row(teffi_store_op *op, teffi_row *from, const teffi_row *found)
{
    if (!scan_expects_key(op, from, found->key)) {
        teffi_store_op_set_error(op, TEFF_E_MALFORMED,
                                 "row %zu of a scan of %s is over its limit, outside its range or "
                                 "not in order",
                                 op->n_found, from->table);
        drop_found_rows(op, from);
        return false;
    }
    teffi_row row = {.etag = found->etag, .key.len = found->key.len, .value.len = found->value.len};
    row.key.data = teff_arena_copy(op->arena, found->key.data, found->key.len);
    row.value.data = teff_arena_copy(op->arena, found->value.data, found->value.len);
    row.table = op->n_found ? op->rows[0].table
                            : teff_arena_copy(op->arena, from->table, strlen(from->table));
    if (!row.key.data || !row.value.data || !row.table || !reserve_found_row(op)) {
        teffi_store_op_set_error(op, TEFF_E_NOMEM, "no memory for a scan of over %zu rows",
                                 op->n_found);
        drop_found_rows(op, from);
        return false;
    }
    op->rows[op->n_found++] = row;
    return true;
}

void teffi_store_set_read_result(teffi_store_op *op, const teffi_row *found)
{
    const void *copy = teff_arena_copy(op->arena, found->value.data, found->value.len);
    if (!copy) {
        teffi_store_op_set_error(op, TEFF_E_NOMEM, "no memory for a value of %zu bytes",
                                 found->value.len);
        return;
    }
    op->rows[0].value = (teffi_bytes){copy, found->value.len};
    op->rows[0].etag = found->etag;
}

teff_err teffi_store_check_format(teffi_bytes found, unsigned known, char *text)
{
    char digits[10] = "";
    bool fits = found.len < sizeof digits;
    if (fits && found.len)
        memcpy(digits, found.data, found.len);
    bool valid = fits && found.len && strspn(digits, "0123456789") == found.len && *digits != '0';
    if (!valid)
        return teffi_fail(text, TEFF_E_REFUSED, "'%.*s' is no format of a teff",
                          (int)(found.len < 40 ? found.len : 40),
                          found.len ? (const char *)found.data : "");
    if (strtoul(digits, NULL, 10) > known)
        return teffi_fail(text, TEFF_E_REFUSED,
                          "format %s is of a newer teff; this build knows formats up to %u", digits,
                          known);
    return TEFF_OK;
}

/* ---- limits; on an error, check_op functions set op->err and op->text and return false ---- */

static bool is_table_name(const char *table)
{
    size_t n = table ? strspn(table, "abcdefghijklmnopqrstuvwxyz0123456789_") : 0;
    return n > 0 && n <= TEFFI_STORE_TABLE_MAX && table[n] == '\0';
}

static bool check_op_bytes(teffi_store_op *op, const char *what, teffi_bytes bytes, size_t max)
{
    if (bytes.len > max)
        teffi_store_op_set_error(op, TEFF_E_TOO_LARGE, "%s of %zu bytes: at most %zu", what,
                                 bytes.len, max);
    else if (bytes.len && !bytes.data)
        teffi_store_op_set_error(op, TEFF_E_INVALID, "%s without data", what);
    return op->err == TEFF_OK;
}

static bool check_op_rows_distinct(teffi_store_op *op)
{
    for (size_t i = 0; i < op->n_rows; i++)
        for (size_t k = 0; k < i; k++)
            if (teffi_row_cmp(&op->rows[i], &op->rows[k]) == 0) {
                teffi_store_op_set_error(op, TEFF_E_INVALID,
                                         "rows %zu and %zu of a batch are the same", k, i);
                return false;
            }
    return true;
}

/* Checks the rows of op: their number, table names and keys; if op writes, also their values, and
 * that a row with `check` is in a batch and has neither `any` nor `remove`. */
static bool check_op_rows(teffi_store_op *op, bool writes)
{
    size_t max = op->kind == TEFFI_STORE_BATCH ? TEFFI_STORE_BATCH_MAX : 1, sum = 0;
    if (op->n_rows > max)
        teffi_store_op_set_error(op, TEFF_E_TOO_LARGE, "%zu rows: at most %zu", op->n_rows, max);
    else if (op->n_rows == 0 || !op->rows)
        teffi_store_op_set_error(op, TEFF_E_INVALID, "an operation without rows");
    for (size_t i = 0; op->err == TEFF_OK && i < op->n_rows; i++) {
        const teffi_row *row = &op->rows[i];
        if (writes && row->check && (op->kind != TEFFI_STORE_BATCH || row->any || row->remove))
            teffi_store_op_set_error(op, TEFF_E_INVALID,
                                     "a checked row outside a batch, or with another mark");
        else if (!is_table_name(row->table))
            teffi_store_op_set_error(op, TEFF_E_INVALID, "table name: 1..%d of [a-z0-9_] expected",
                                     TEFFI_STORE_TABLE_MAX);
        else if (check_op_bytes(op, "key", row->key, TEFFI_STORE_KEY_MAX) && writes &&
                 !row->remove && !row->check &&
                 check_op_bytes(op, "value", row->value, TEFFI_STORE_VALUE_MAX))
            sum += row->value.len;
    }
    if (op->err == TEFF_OK && sum > TEFFI_STORE_BATCH_BYTES_MAX)
        teffi_store_op_set_error(op, TEFF_E_TOO_LARGE, "values of %zu bytes in a batch: at most %d",
                                 sum, TEFFI_STORE_BATCH_BYTES_MAX);
    return op->err == TEFF_OK;
}

static bool check_op_scan(teffi_store_op *op)
{
    if (op->limit == 0)
        teffi_store_op_set_error(op, TEFF_E_INVALID, "a scan with limit 0");
    else if (op->limit > TEFFI_STORE_SCAN_MAX)
        teffi_store_op_set_error(op, TEFF_E_TOO_LARGE, "a scan of %zu rows: at most %d", op->limit,
                                 TEFFI_STORE_SCAN_MAX);
    return op->err == TEFF_OK && check_op_bytes(op, "end of a scan", op->to, TEFFI_STORE_KEY_MAX);
}

static bool check_op(teffi_store_op *op)
{
    bool reads = teffi_store_op_is_read(op);
    if (op->kind < TEFFI_STORE_READ || op->kind > TEFFI_STORE_SCAN)
        teffi_store_op_set_error(op, TEFF_E_INVALID, "no such kind of operation: %d",
                                 (int)op->kind);
    else if (reads && !op->arena)
        teffi_store_op_set_error(op, TEFF_E_INVALID, "a read without an arena");
    if (op->err != TEFF_OK || !check_op_rows(op, !reads))
        return false;
    return op->kind == TEFFI_STORE_SCAN ? check_op_scan(op) : check_op_rows_distinct(op);
}

/* Only the first row's table is tested. A batch that writes a fence begins with a row of
 * TEFFI_TABLE_MEMBERSHIP. A batch of states may check a fence. */
bool teffi_store_op_is_system(const teffi_store_op *op)
{
    const char *table = op->n_rows ? op->rows[0].table : "";
    return strcmp(table, TEFFI_TABLE_MEMBERSHIP) == 0 || strcmp(table, TEFFI_TABLE_ALIVE) == 0;
}

void teffi_store_submit(teffi_store *store, teffi_store_op *op)
{
    teffi_bug_if(!op->done);
    op->err = TEFF_OK;
    op->text[0] = '\0';
    op->n_found = 0;
    if (!check_op(op)) {
        op->done(op);
        return;
    }
    op->system = teffi_store_op_is_system(op);
    store->ops->submit(store, op);
}

void teffi_store_close(teffi_store *store)
{
    if (!store)
        return;
    store->ops->close(store);
    store->ops->free(store);
}
