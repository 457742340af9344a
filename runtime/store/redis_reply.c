/* redis_reply.c - what does the reply of a Redis server say about an operation? */
#include "store/redis_reply.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Indexes of a row's fields in a reply. */
enum { FIELD_ETAG, FIELD_SUM, FIELD_VALUE, FIELDS };

bool teffi_redis_is_put(const teffi_row *row)
{
    return !row->remove && !row->check;
}

/* Parses a number as the script writes it: without a sign or leading zeros. */
static bool parse_digits(const redisReply *reply, uint64_t *number)
{
    char *stop;
    if (reply->type != REDIS_REPLY_STRING || !isdigit((unsigned char)reply->str[0]) ||
        (reply->str[0] == '0' && reply->len > 1))
        return false;
    errno = 0;
    *number = strtoull(reply->str, &stop, 10);
    return errno == 0 && stop == reply->str + reply->len;
}

/* Decodes the fields of a row in a reply. in: found: the key is set, all else is 0. out: true:
 * *found is the row; found->etag is 0 if there is no such row. false: the row is damaged, and
 * *found is unchanged. */
static bool decode_row_reply(redisReply *const *field, const char *table, teffi_row *found)
{
    const redisReply *etag = field[FIELD_ETAG], *value = field[FIELD_VALUE];
    teffi_row row = *found;
    uint64_t sum;
    if (etag->type == REDIS_REPLY_NIL && value->type == REDIS_REPLY_NIL)
        return true;
    if (!parse_digits(etag, &row.etag) || row.etag == 0 || value->type != REDIS_REPLY_STRING)
        return false;
    row.value = (teffi_bytes){value->str, value->len};
    if (!parse_digits(field[FIELD_SUM], &sum) ||
        teffi_store_hash_row(table, row.key, row.value, 0) != sum)
        return false;
    *found = row;
    return true;
}

static void fail_as_malformed(teffi_store_op *op, const char *what)
{
    teffi_store_op_set_error(op, TEFF_E_MALFORMED, "redis: %s in %s", what, op->rows[0].table);
}

static void set_result_of_read(teffi_store_op *op, const redisReply *reply)
{
    teffi_row found = {.key = op->rows[0].key};
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != FIELDS)
        fail_as_malformed(op, "unexpected reply");
    else if (decode_row_reply(reply->element, op->rows[0].table, &found))
        teffi_store_set_read_result(op, &found);
    else
        teffi_store_set_damaged_row_error(op, "redis", &op->rows[0]);
}

static void set_result_of_scan(teffi_store_op *op, const redisReply *reply)
{
    teffi_row *from = op->rows;
    bool good = reply->type == REDIS_REPLY_ARRAY && reply->elements % (1 + FIELDS) == 0;
    for (size_t i = 0; good && i < reply->elements; i += 1 + FIELDS)
        good = reply->element[i]->type == REDIS_REPLY_STRING;
    if (!good) {
        fail_as_malformed(op, "unexpected reply");
        return;
    }
    for (size_t i = 0; i < reply->elements; i += 1 + FIELDS) {
        const redisReply *key = reply->element[i];
        /* the key is set before decoding, so a damaged row is returned with its key and etag 0 */
        teffi_row found = {.key = {key->str, key->len}};
        (void)decode_row_reply(reply->element + i + 1, from->table, &found);
        if (!teffi_store_add_found_row(op, from, &found))
            return;
    }
}

/* Sets the result of a write. The reply to a successful write is the last etag assigned. The n puts
 * of the write have the etags last - n + 1 to last, in the order of op->rows. */
static void set_result_of_write(teffi_store_op *op, const redisReply *reply)
{
    uint64_t last, puts = 0;
    for (size_t i = 0; i < op->n_rows; i++)
        puts += teffi_redis_is_put(&op->rows[i]);
    if (reply->type == REDIS_REPLY_STRING && strcmp(reply->str, "conflict") == 0) {
        op->err = TEFF_E_CONFLICT;
    } else if (reply->type == REDIS_REPLY_STRING && strcmp(reply->str, "damaged") == 0) {
        fail_as_malformed(op,
                          "damaged row, or a damaged counter of etags, and nothing was written");
    } else if (!parse_digits(reply, &last) || last < puts) {
        teffi_store_op_set_error(op, TEFF_E_UNKNOWN, "redis: unexpected reply to a write");
    } else {
        for (size_t i = 0; i < op->n_rows; i++)
            if (!op->rows[i].check)
                op->rows[i].etag = op->rows[i].remove ? 0 : last - --puts;
    }
}

/* An operation with an error of the server or of the script has written nothing. */
static void set_error_of_reply(teffi_store_op *op, const char *error)
{
    static const struct {
        const char *word;
        teff_err err;
    } kinds[] = {{"WRONGTYPE", TEFF_E_MALFORMED}, {"TOOBIG", TEFF_E_NOMEM}, {"", TEFF_E_IO}};
    size_t i = 0;
    while (!strstr(error, kinds[i].word))
        i++;
    teffi_store_op_set_error(op, kinds[i].err, "redis: %s", error);
}

void teffi_redis_set_result(teffi_store_op *op, const redisReply *reply)
{
    if (reply->type == REDIS_REPLY_ERROR)
        set_error_of_reply(op, reply->str);
    else if (op->kind == TEFFI_STORE_READ)
        set_result_of_read(op, reply);
    else if (op->kind == TEFFI_STORE_SCAN)
        set_result_of_scan(op, reply);
    else
        set_result_of_write(op, reply);
}
