/* postgres_reply.c - check and decode the server's replies, in its binary form. */
#include "store/postgres_reply.h"

/* Numbers of types in the server's catalog. */
enum { TYPE_BYTEA = 17, TYPE_INT8 = 20, TYPE_INT8_ARRAY = 1016 };

/* Columns of the replies to the statements read (without the key), scan and scan_to. */
enum { COLUMN_ETAG, COLUMN_VALUE, COLUMN_KEY, READ_COLUMNS = 2, SCAN_COLUMNS };

enum {
    ETAG_BYTES = 8,
    ARRAY_HEAD = 20, /* five numbers of 4 bytes, see is_etag_array() */
    ELEMENT_BYTES = 4 + ETAG_BYTES
};

static uint64_t decode_big_endian(const char *data, size_t bytes)
{
    uint64_t number = 0;
    for (size_t i = 0; i < bytes; i++)
        number = number << 8 | (uint8_t)data[i];
    return number;
}

static teffi_bytes get_result_bytes(const PGresult *result, int row, int column)
{
    return (teffi_bytes){PQgetvalue(result, row, column), (size_t)PQgetlength(result, row, column)};
}

/* Does the reply have exactly n columns of these types, all in binary form? */
static bool result_has_columns(const PGresult *result, const Oid *types, int n)
{
    bool good = PQnfields(result) == n;
    for (int i = 0; good && i < n; i++)
        good = PQftype(result, i) == types[i] && PQfformat(result, i) == 1;
    return good;
}

static bool result_has_row_columns(const PGresult *result, int n)
{
    static const Oid types[] = {TYPE_INT8, TYPE_BYTEA, TYPE_BYTEA};
    return result_has_columns(result, types, n);
}

static void fail_op_for_reply(teffi_store_op *op, const char *what)
{
    bool reads = teffi_store_op_is_read(op);
    teffi_store_op_set_error(op, reads ? TEFF_E_MALFORMED : TEFF_E_UNKNOWN, "postgres: %s in %s",
                             what, op->rows[0].table);
}

/* Sets the etag and value of *found. out: false: one of them is missing, or the etag is not a
 * number over 0 in 8 bytes; *found is unchanged. */
static bool decode_result_row(const PGresult *result, int row, teffi_row *found)
{
    teffi_bytes etag = get_result_bytes(result, row, COLUMN_ETAG);
    uint64_t number = etag.len == ETAG_BYTES ? decode_big_endian(etag.data, ETAG_BYTES) : 0;
    if (number == 0 || PQgetisnull(result, row, COLUMN_VALUE))
        return false;
    found->etag = number;
    found->value = get_result_bytes(result, row, COLUMN_VALUE);
    return true;
}

static void set_found_row(teffi_store_op *op, const PGresult *result)
{
    teffi_row found = {0};
    if (!result_has_row_columns(result, READ_COLUMNS) || PQntuples(result) > 1)
        fail_op_for_reply(op, "unexpected reply to a read");
    else if (PQntuples(result) == 1 && !decode_result_row(result, 0, &found))
        teffi_store_set_damaged_row_error(op, "postgres", &op->rows[0]);
    else
        teffi_store_set_read_result(op, &found);
}

static void set_found_rows(teffi_store_op *op, const PGresult *result)
{
    teffi_row *from = op->rows;
    bool good = result_has_row_columns(result, SCAN_COLUMNS);
    for (int i = 0; good && i < PQntuples(result); i++)
        good = !PQgetisnull(result, i, COLUMN_KEY);
    if (!good) {
        fail_op_for_reply(op, "unexpected reply to a scan");
        return;
    }
    for (int i = 0; i < PQntuples(result); i++) {
        teffi_row found = {.key = get_result_bytes(result, i, COLUMN_KEY)};
        (void)decode_result_row(result, i, &found); /* a damaged row has etag 0 */
        if (!teffi_store_add_found_row(op, from, &found))
            return;
    }
}

/* Is this the array of op's new etags? The array contains: number of dimensions, flag for NULLs,
 * type, length, first index; then for each row 4 bytes of length and 8 of etag. The etag is 0 if
 * the row has no new value. */
static bool is_etag_array(const teffi_store_op *op, teffi_bytes array)
{
    const uint64_t head[] = {1, 0, TYPE_INT8, op->n_rows, 1};
    const char *data = array.data;
    if (array.len != ARRAY_HEAD + ELEMENT_BYTES * op->n_rows)
        return false;
    for (size_t i = 0; i < sizeof head / sizeof head[0]; i++)
        if (decode_big_endian(data + 4 * i, 4) != head[i])
            return false;
    data += ARRAY_HEAD;
    for (size_t i = 0; i < op->n_rows; i++, data += ELEMENT_BYTES) {
        bool has_value = !op->rows[i].remove && !op->rows[i].check;
        if (decode_big_endian(data, 4) != ETAG_BYTES ||
            (decode_big_endian(data + 4, ETAG_BYTES) != 0) != has_value)
            return false;
    }
    return true;
}

/* Sets the result of a write. teff.write returns NULL for a conflict, otherwise the new etags. */
static void set_etags_or_conflict(teffi_store_op *op, const PGresult *result)
{
    static const Oid types[] = {TYPE_INT8_ARRAY};
    if (!result_has_columns(result, types, 1) || PQntuples(result) != 1) {
        fail_op_for_reply(op, "unexpected reply to a write");
        return;
    }
    teffi_bytes array = get_result_bytes(result, 0, 0);
    if (PQgetisnull(result, 0, 0))
        op->err = TEFF_E_CONFLICT;
    else if (!is_etag_array(op, array))
        fail_op_for_reply(op, "unexpected etags from a write");
    else
        for (size_t i = 0; i < op->n_rows; i++)
            if (!op->rows[i].check)
                op->rows[i].etag = decode_big_endian(
                    (const char *)array.data + ARRAY_HEAD + ELEMENT_BYTES * i + 4, ETAG_BYTES);
}

void teffi_postgres_set_result(teffi_store_op *op, const PGresult *result)
{
    if (op->kind == TEFFI_STORE_READ)
        set_found_row(op, result);
    else if (op->kind == TEFFI_STORE_SCAN)
        set_found_rows(op, result);
    else
        set_etags_or_conflict(op, result);
}
