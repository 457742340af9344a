/* fuzz_redis.c - any bytes as the reply of a Redis server to a batch, a read and a scan; what is
 * set is whole. Of the sums of rows, those that the input has right are few: a sum of 0 stands for
 * the right one. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/bug.h"
#include "store/redis_reply.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char table[] = "words";

/* hiredis makes room for as many elements as an array's head names. */
static bool has_large_array(const uint8_t *data, size_t n)
{
    size_t digits = 0;
    bool is_head = false;
    for (size_t i = 0; i < n; i++) {
        bool is_digit = data[i] >= '0' && data[i] <= '9';
        is_head = data[i] == '*' || (is_head && is_digit);
        digits = is_head && is_digit ? digits + 1 : 0;
        if (digits > 4)
            return true;
    }
    return false;
}

/* in: fields: etag, sum and value of a row. */
static void repair_sum(redisReply *const *fields, teffi_bytes key)
{
    const redisReply *value = fields[2];
    redisReply *sum = fields[1];
    if (sum->type != REDIS_REPLY_STRING || sum->len != 1 || sum->str[0] != '0' ||
        value->type != REDIS_REPLY_STRING)
        return;
    char digits[24];
    teffi_row row = {.key = key, .value = {value->str, value->len}};
    snprintf(digits, sizeof digits, "%" PRIu64, teffi_store_hash_row(table, row.key, row.value, 0));
    char *text = realloc(sum->str, sizeof digits);
    teffi_bug_if(!text);
    strcpy(text, digits);
    sum->str = text;
    sum->len = strlen(digits);
}

static void repair_sums(redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY)
        return;
    if (reply->elements == 3)
        repair_sum(reply->element, (teffi_bytes){"a", 1});
    for (size_t i = 0; i + 4 <= reply->elements; i += 4) {
        const redisReply *key = reply->element[i];
        if (key->type == REDIS_REPLY_STRING)
            repair_sum(reply->element + i + 1, (teffi_bytes){key->str, key->len});
    }
}

static void take_batch(const redisReply *reply)
{
    teffi_row rows[3] = {{.table = table, .etag = 5},
                         {.table = table, .etag = 6, .remove = true},
                         {.table = "fence", .etag = 7, .check = true}};
    teffi_store_op op = {.kind = TEFFI_STORE_BATCH, .rows = rows, .n_rows = 3};
    teffi_redis_set_result(&op, reply);
    teffi_bug_if(op.err ? rows[0].etag != 5 || rows[1].etag != 6
                        : rows[0].etag == 0 || rows[1].etag != 0);
    teffi_bug_if(rows[2].etag != 7);
}

static void take_read_and_scan(const redisReply *reply, teff_arena *arena)
{
    teffi_row row = {.table = table, .key = {"a", 1}, .etag = 77};
    teffi_row start = {.table = table, .key = {"a", 1}};
    teffi_store_op op = {.kind = TEFFI_STORE_READ, .rows = &row, .n_rows = 1, .arena = arena};
    teffi_store_op scan = {.kind = TEFFI_STORE_SCAN,
                           .rows = &start,
                           .n_rows = 1,
                           .to = {"x", 1},
                           .limit = 3,
                           .arena = arena};
    teffi_redis_set_result(&op, reply);
    teffi_bug_if(op.err ? row.etag != 77 || row.value.data : row.etag == 0 && row.value.len);
    teffi_redis_set_result(&scan, reply);
    teffi_bug_if(scan.err && (scan.rows != &start || scan.n_found));
    teffi_bug_if(scan.n_found > scan.limit);
    for (size_t i = 0; i < scan.n_found; i++)
        teffi_bug_if((scan.rows[i].etag == 0 && scan.rows[i].value.len) ||
                     teffi_bytes_cmp(scan.rows[i].key, scan.to) >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    void *reply = NULL;
    teff_arena arena;
    if (has_large_array(data, n))
        return 0;
    redisReader *reader = redisReaderCreate();
    teffi_bug_if(!reader || redisReaderFeed(reader, (const char *)data, n) != REDIS_OK);
    teffi_arena_init(&arena, NULL, 0, 0);
    while (redisReaderGetReply(reader, &reply) == REDIS_OK && reply) {
        repair_sums(reply);
        take_batch(reply);
        take_read_and_scan(reply, &arena);
        freeReplyObject(reply);
        reply = NULL;
    }
    redisReaderFree(reader);
    teffi_arena_fini(&arena);
    return 0;
}
