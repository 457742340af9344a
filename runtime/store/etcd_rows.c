/* etcd_rows.c - convert operations to etcd's requests, and its responses to results. */
#include "store/etcd_rows.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A row has etcd's key PREFIX TABLE / KEY. Table names have no slash, so two tables never share a
 * key, and all keys of a table are less than PREFIX TABLE 0 (the character after the slash). etcd's
 * value is FORMAT, checksum, row's value. The first two have HEAD_BYTES, a multiple of 3, so that
 * base64 encodes the row's value independently of them. */
enum {
    FORMAT = 1,
    HEAD_BYTES = 9,
    KEY_MAX = TEFFI_ETCD_NAME_MAX + 1 + TEFFI_STORE_TABLE_MAX + 1 + TEFFI_STORE_KEY_MAX + 1,
    /* upper bounds of the bytes in etcd's request that are not keys and values: for the request,
     * and for each row. Measured with the largest row of test_etcd_rows: less than half is used */
    REQUEST_BYTES = 256,
    ROW_BYTES = 64
};

static bool row_has_value(const teffi_row *row)
{
    return !row->remove && !row->check;
}

/* ---- limits ---- */

static size_t get_key_len(const char *prefix, const teffi_row *row)
{
    return strlen(prefix) + strlen(row->table) + 1 + row->key.len;
}

size_t teffi_etcd_op_bytes(const char *prefix, const teffi_store_op *op)
{
    size_t bytes = REQUEST_BYTES;
    for (size_t i = 0; i < op->n_rows; i++) {
        const teffi_row *row = &op->rows[i];
        /* the key is in three lists of the request: compare, success and failure */
        bytes += ROW_BYTES + 3 * get_key_len(prefix, row);
        bytes += row_has_value(row) ? HEAD_BYTES + row->value.len : 0;
    }
    return bytes;
}

/* out: false: a row is in both operations, and at least one of them changes it. */
static bool ops_can_share_request(const teffi_store_op *a, const teffi_store_op *b)
{
    for (size_t i = 0; i < a->n_rows; i++)
        for (size_t k = 0; k < b->n_rows; k++)
            if (!(a->rows[i].check && b->rows[k].check) &&
                teffi_row_cmp(&a->rows[i], &b->rows[k]) == 0)
                return false;
    return true;
}

size_t teffi_etcd_count_fitting_writes(const char *prefix, teffi_store_op *const *ops, size_t n)
{
    size_t rows = 0, bytes = 0, i = 0;
    for (bool fits = true; fits && i < n; i += fits) {
        rows += ops[i]->n_rows;
        bytes += teffi_etcd_op_bytes(prefix, ops[i]);
        fits = i == 0 || (rows <= TEFFI_ETCD_ROWS_MAX && bytes <= TEFFI_ETCD_BYTES_MAX);
        for (size_t k = 0; fits && k < i; k++)
            fits = ops_can_share_request(ops[k], ops[i]);
    }
    return i;
}

/* ---- requests ---- */

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static void add_base64(teffi_etcd_text *text, const void *data, size_t len)
{
    const uint8_t *in = data;
    if (!teffi_etcd_text_reserve(text, (len + 2) / 3 * 4))
        return;
    char *out = text->data + text->len;
    for (size_t i = 0; i < len; i += 3, out += 4) {
        size_t left = len - i;
        uint32_t bits = (uint32_t)in[i] << 16 | (left > 1 ? (uint32_t)in[i + 1] << 8 : 0) |
                        (left > 2 ? in[i + 2] : 0);
        out[0] = letters[bits >> 18];
        out[1] = letters[bits >> 12 & 63];
        out[2] = left > 1 ? letters[bits >> 6 & 63] : '=';
        out[3] = left > 2 ? letters[bits & 63] : '=';
    }
    text->len = (size_t)(out - text->data);
}

static void add_digits(teffi_etcd_text *text, uint64_t number)
{
    char digits[24];
    snprintf(digits, sizeof digits, "%" PRIu64, number);
    teffi_etcd_text_add_string(text, digits);
}

/* Appends etcd's key in base64: prefix, table, slash, key. in: slash: '/' for the key of a row;
 * '/' + 1, with an empty key, for the end of the table (greater than the keys of all its rows). */
static void add_key(teffi_etcd_text *text, const char *prefix, const char *table, char slash,
                    teffi_bytes key)
{
    char name[KEY_MAX + 1];
    int len = snprintf(name, sizeof name, "%s%s%c", prefix, table, slash);
    if (key.len)
        memcpy(name + len, key.data, key.len);
    add_base64(text, name, (size_t)len + key.len);
}

static void add_row_key(teffi_etcd_text *text, const char *prefix, const teffi_row *row)
{
    add_key(text, prefix, row->table, '/', row->key);
}

/* Appends the comparison of the row's etag. For etcd, a missing row has mod_revision 0. out: false:
 * nothing was appended, since row->any means that etags are not compared. */
static bool add_etag_comparison(teffi_etcd_text *text, const char *prefix, const teffi_row *row)
{
    if (row->any)
        return false;
    teffi_etcd_text_add_string(text, "{\"target\":\"MOD\",\"key\":\"");
    add_row_key(text, prefix, row);
    teffi_etcd_text_add_string(text, "\",\"mod_revision\":\"");
    add_digits(text, row->etag);
    teffi_etcd_text_add_string(text, "\"}");
    return true;
}

/* Appends a read of the row's etag. out: false: nothing was appended, since row->any means that
 * etags are not compared. */
static bool add_etag_request(teffi_etcd_text *text, const char *prefix, const teffi_row *row)
{
    if (row->any)
        return false;
    teffi_etcd_text_add_string(text, "{\"request_range\":{\"keys_only\":true,\"key\":\"");
    add_row_key(text, prefix, row);
    teffi_etcd_text_add_string(text, "\"}}");
    return true;
}

/* Appends the change of the row. out: false: nothing was appended: the row is only checked. */
static bool add_put_or_delete(teffi_etcd_text *text, const char *prefix, const teffi_row *row)
{
    if (row->check)
        return false;
    uint8_t head[HEAD_BYTES] = {FORMAT};
    uint64_t sum = teffi_store_hash_row(row->table, row->key, row->value, 0);
    memcpy(head + 1, &sum, sizeof sum);
    teffi_etcd_text_add_string(text, row->remove ? "{\"request_delete_range\":{\"key\":\""
                                                 : "{\"request_put\":{\"key\":\"");
    add_row_key(text, prefix, row);
    if (!row->remove) {
        teffi_etcd_text_add_string(text, "\",\"value\":\"");
        add_base64(text, head, sizeof head);
        add_base64(text, row->value.data, row->value.len);
    }
    teffi_etcd_text_add_string(text, "\"}}");
    return true;
}

/* Appends a row's element of a list of a transaction, or nothing. out: was something appended? */
typedef bool add_row(teffi_etcd_text *text, const char *prefix, const teffi_row *row);

/* Calls `add` to append an element for each row of n operations, and puts commas between the
 * elements. in: comma: the text before the first element: "," or "". */
static void add_rows(teffi_etcd_text *text, const char *prefix, teffi_store_op *const *ops,
                     size_t n, add_row *add, const char *comma)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < ops[i]->n_rows; k++) {
            size_t before = text->len;
            teffi_etcd_text_add_string(text, comma);
            if (add(text, prefix, &ops[i]->rows[k]))
                comma = ",";
            else
                text->len = before;
        }
}

static void start_text(teffi_etcd_text *text, const char *begin)
{
    text->len = 0;
    text->failed = false;
    teffi_etcd_text_add_string(text, begin);
}

void teffi_etcd_make_write_request(teffi_etcd_text *text, const char *prefix, const char *fence,
                                   teffi_store_op *const *ops, size_t n)
{
    start_text(text, "{\"compare\":[{\"target\":\"MOD\",\"key\":\"");
    add_base64(text, fence, strlen(fence));
    teffi_etcd_text_add_string(text, "\",\"mod_revision\":\"0\"}");
    add_rows(text, prefix, ops, n, add_etag_comparison, ",");
    teffi_etcd_text_add_string(text, "],\"success\":[");
    add_rows(text, prefix, ops, n, add_put_or_delete, "");
    teffi_etcd_text_add_string(text, "],\"failure\":[");
    add_rows(text, prefix, ops, n, add_etag_request, "");
    teffi_etcd_text_add_string(text, "]}");
}

void teffi_etcd_make_read_request(teffi_etcd_text *text, const char *prefix,
                                  teffi_store_op *const *ops, size_t n)
{
    start_text(text, "{\"success\":[");
    for (size_t i = 0; i < n; i++) {
        teffi_etcd_text_add_string(text, i ? ",{\"request_range\":{\"key\":\""
                                           : "{\"request_range\":{\"key\":\"");
        add_row_key(text, prefix, &ops[i]->rows[0]);
        teffi_etcd_text_add_string(text, "\"}}");
    }
    teffi_etcd_text_add_string(text, "]}");
}

void teffi_etcd_make_scan_request(teffi_etcd_text *text, const char *prefix,
                                  const teffi_store_op *op, const teffi_row *from, size_t limit,
                                  uint64_t revision)
{
    start_text(text, "{\"key\":\"");
    add_row_key(text, prefix, from);
    teffi_etcd_text_add_string(text, "\",\"range_end\":\"");
    add_key(text, prefix, from->table, op->to.len ? '/' : '/' + 1, op->to);
    teffi_etcd_text_add_string(text, "\",\"limit\":\"");
    add_digits(text, limit);
    teffi_etcd_text_add_string(text, "\",\"revision\":\"");
    add_digits(text, revision);
    teffi_etcd_text_add_string(text, "\"}");
}

void teffi_etcd_make_put_request(teffi_etcd_text *text, const char *key, uint64_t lease)
{
    start_text(text, "{\"key\":\"");
    add_base64(text, key, strlen(key));
    teffi_etcd_text_add_string(text, "\",\"lease\":\"");
    add_digits(text, lease);
    teffi_etcd_text_add_string(text, "\"}");
}

void teffi_etcd_make_get_request(teffi_etcd_text *text, const char *key)
{
    start_text(text, "{\"key\":\"");
    add_base64(text, key, strlen(key));
    teffi_etcd_text_add_string(text, "\"}");
}

void teffi_etcd_make_create_request(teffi_etcd_text *text, const char *key, const char *value)
{
    start_text(text, "{\"compare\":[{\"target\":\"MOD\",\"key\":\"");
    add_base64(text, key, strlen(key));
    teffi_etcd_text_add_string(text, "\",\"mod_revision\":\"0\"}],"
                                     "\"success\":[{\"request_put\":{\"key\":\"");
    add_base64(text, key, strlen(key));
    teffi_etcd_text_add_string(text, "\",\"value\":\"");
    add_base64(text, value, strlen(value));
    teffi_etcd_text_add_string(text, "\"}}]}");
}

/* ---- responses: etcd leaves out members that are 0, false or empty ---- */

uint64_t teffi_etcd_get_number(const json_t *object, const char *name)
{
    const json_t *member = json_object_get(object, name);
    const char *digits = json_string_value(member);
    char *end;
    if (json_is_integer(member))
        return json_integer_value(member) > 0 ? (uint64_t)json_integer_value(member) : 0;
    if (!digits || !isdigit((unsigned char)digits[0]))
        return 0;
    errno = 0;
    uint64_t number = strtoull(digits, &end, 10);
    return errno == 0 && !*end ? number : 0;
}

static uint64_t get_revision(const json_t *response)
{
    return teffi_etcd_get_number(json_object_get(response, "header"), "revision");
}

/* out: the value of a letter of base64, 0..63; 64: c is not such a letter. */
static uint32_t decode_base64_letter(char c)
{
    return c >= 'A' && c <= 'Z'   ? (uint32_t)(c - 'A')
           : c >= 'a' && c <= 'z' ? (uint32_t)(c - 'a') + 26
           : c >= '0' && c <= '9' ? (uint32_t)(c - '0') + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : 64;
}

/* Decodes the member `name` of a JSON object and appends the bytes to room. If there is no such
 * member, appends nothing. out: false: not base64, or no memory (room->failed). */
static bool decode_base64(const json_t *object, const char *name, teffi_etcd_text *room)
{
    const json_t *member = json_object_get(object, name);
    const char *in = json_string_value(member);
    size_t len = json_string_length(member), bytes = len / 4 * 3;
    bytes -= len >= 4 ? (size_t)(in[len - 1] == '=') + (in[len - 2] == '=') : 0;
    if (!in || len % 4 != 0 || !teffi_etcd_text_reserve(room, len / 4 * 3 + 1))
        return !member; /* true: there is no such member */
    char *out = room->data + room->len;
    for (size_t i = 0; i < len; i += 4, out += 3) {
        uint32_t bits = 0, wrong = 0;
        for (size_t k = i; k < i + 4; k++) {
            /* `=` is valid only after the letters that encode the last output byte */
            bool pads = in[k] == '=' && k / 4 * 3 + k % 4 >= bytes + 1;
            uint32_t letter = pads ? 0 : decode_base64_letter(in[k]);
            wrong |= letter & 64;
            bits = bits << 6 | (letter & 63);
        }
        if (wrong)
            return false;
        out[0] = (char)(bits >> 16);
        out[1] = (char)(bits >> 8);
        out[2] = (char)bits;
    }
    room->len += bytes;
    return true;
}

bool teffi_etcd_decode_value(const json_t *response, teffi_etcd_text *room, teffi_bytes *value)
{
    const json_t *kv = json_array_get(json_object_get(response, "kvs"), 0);
    room->len = 0;
    room->failed = false;
    *value = (teffi_bytes){0};
    if (kv && decode_base64(kv, "value", room))
        *value = (teffi_bytes){room->data, room->len};
    return kv != NULL;
}

/* Sets the etag and value of *found, whose key is set; the value points into room. out: false: the
 * row is damaged, or there is no memory (room->failed); *found is not changed. */
static bool decode_row_value(const json_t *kv, const char *table, teffi_etcd_text *room,
                             teffi_row *found)
{
    size_t from = room->len;
    uint64_t sum, etag = teffi_etcd_get_number(kv, "mod_revision");
    if (!decode_base64(kv, "value", room) || room->len - from < HEAD_BYTES || etag == 0 ||
        room->data[from] != FORMAT)
        return false;
    teffi_bytes value = {room->data + from + HEAD_BYTES, room->len - from - HEAD_BYTES};
    memcpy(&sum, room->data + from + 1, sizeof sum);
    if (sum != teffi_store_hash_row(table, found->key, value, 0))
        return false;
    found->etag = etag;
    found->value = value;
    return true;
}

/* Fails op with NOMEM if room->failed, otherwise with MALFORMED. in: what: the cause of MALFORMED,
 * for the error text; NULL: the row that op reads is damaged. */
static void fail_op_for_bad_row(teffi_store_op *op, const teffi_etcd_text *room, const char *what)
{
    if (room->failed)
        teffi_store_op_set_error(op, TEFF_E_NOMEM, "etcd: no memory for a row of %s",
                                 op->rows[0].table);
    else if (!what)
        teffi_store_set_damaged_row_error(op, "etcd", &op->rows[0]);
    else
        teffi_store_op_set_error(op, TEFF_E_MALFORMED, "etcd: %s in %s", what, op->rows[0].table);
}

/* in: kv: the row in etcd's response; NULL: there is no such row. */
static void set_read_result(const json_t *kv, teffi_store_op *op, teffi_etcd_text *room)
{
    teffi_row found = {.key = op->rows[0].key};
    room->len = 0;
    room->failed = false;
    if (kv && !decode_row_value(kv, op->rows[0].table, room, &found))
        fail_op_for_bad_row(op, room, NULL);
    else
        teffi_store_set_read_result(op, &found);
}

/* out: the response to the read `at` of one key; NULL: it is missing, or has another form. */
static const json_t *get_range_response(const json_t *op_responses, size_t at)
{
    const json_t *range = json_object_get(json_array_get(op_responses, at), "response_range");
    const json_t *kvs = json_object_get(range, "kvs"); /* left out if there is no such row */
    size_t n = json_array_size(kvs);
    bool good = !kvs || (json_is_array(kvs) && n == 0) ||
                (n == 1 && json_is_object(json_array_get(kvs, 0)));
    return good && json_is_object(range) ? range : NULL;
}

bool teffi_etcd_set_read_results(const json_t *response, teffi_store_op *const *ops, size_t n,
                                 teffi_etcd_text *room)
{
    const json_t *op_responses = json_object_get(response, "responses");
    if (json_array_size(op_responses) != n)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!get_range_response(op_responses, i))
            return false;
    for (size_t i = 0; i < n; i++) {
        const json_t *range = get_range_response(op_responses, i);
        set_read_result(json_array_get(json_object_get(range, "kvs"), 0), ops[i], room);
    }
    return true;
}

/* The etag of each written row is the transaction's revision, which etcd stores as mod_revision.
 * The cluster's revision rises with each transaction that writes, so the etags of a row rise, also
 * if the row is removed and created again. A new cluster has revision 1, so no etag is below 2. */
static void set_written_etags(teffi_store_op *op, uint64_t revision)
{
    for (size_t i = 0; i < op->n_rows; i++)
        if (!op->rows[i].check)
            op->rows[i].etag = op->rows[i].remove ? 0 : revision;
}

/* Does a row of op have another etag than expected? in, out: *at: the index of op's first response;
 * advanced past op's responses. A row with `any` has no response, since no etag is compared.
 * out: *malformed is set if a response is missing. */
static bool op_conflicts(const teffi_store_op *op, const json_t *op_responses, size_t *at,
                         bool *malformed)
{
    bool conflict = false;
    for (size_t i = 0; i < op->n_rows; i++) {
        if (op->rows[i].any)
            continue;
        const json_t *range = get_range_response(op_responses, (*at)++);
        const json_t *kv = json_array_get(json_object_get(range, "kvs"), 0);
        conflict |= teffi_etcd_get_number(kv, "mod_revision") != op->rows[i].etag;
        *malformed |= !range;
    }
    return conflict;
}

/* Sets CONFLICT for operations with a wrong etag, and moves them to the front. out: their number;
 * 0 if the response is malformed. */
static size_t fail_conflicting_ops(const json_t *op_responses, teffi_store_op **ops, size_t n)
{
    size_t ended = 0, at = 0;
    bool malformed = false;
    for (size_t i = 0; i < n && !malformed; i++)
        if (op_conflicts(ops[i], op_responses, &at, &malformed) && !malformed) {
            teffi_store_op *op = ops[i];
            op->err = TEFF_E_CONFLICT;
            ops[i] = ops[ended];
            ops[ended++] = op;
        }
    for (size_t i = 0; i < ended && malformed; i++)
        ops[i]->err = TEFF_OK;
    return malformed ? 0 : ended;
}

size_t teffi_etcd_set_write_results(const json_t *response, teffi_store_op **ops, size_t n)
{
    const json_t *op_responses = json_object_get(response, "responses");
    uint64_t revision = get_revision(response);
    if (revision == 0)
        return 0;
    if (!json_is_true(json_object_get(response, "succeeded")))
        return fail_conflicting_ops(op_responses, ops, n);
    for (size_t i = 0; i < n; i++)
        set_written_etags(ops[i], revision);
    return n;
}

/* Decodes kv, one row of a page, and adds the row to op's result. in: room: scratch memory.
 * out: false: op has failed. */
static bool add_scanned_row(const json_t *kv, const char *prefix, teffi_store_op *op,
                            teffi_row *from, teffi_etcd_text *room)
{
    char head[KEY_MAX + 1];
    size_t len = (size_t)snprintf(head, sizeof head, "%s%s/", prefix, from->table);
    room->len = 0;
    room->failed = false;
    /* One call reserves room for both the key and the value: found.key points to room->data, which
     * must not move when the value is appended. */
    bool fits =
        teffi_etcd_text_reserve(room, json_string_length(json_object_get(kv, "key")) +
                                          json_string_length(json_object_get(kv, "value")) + 2);
    if (!fits || !decode_base64(kv, "key", room) || room->len < len ||
        memcmp(room->data, head, len) != 0) {
        fail_op_for_bad_row(op, room, "a key of another table");
        return false;
    }
    teffi_row found = {.key = {room->data + len, room->len - len}};
    (void)decode_row_value(kv, from->table, room, &found); /* a damaged row has etag 0 */
    return teffi_store_add_found_row(op, from, &found);
}

bool teffi_etcd_append_scan_page(const json_t *response, const char *prefix, teffi_store_op *op,
                                 teffi_row *from, teffi_etcd_text *room, bool *more)
{
    const json_t *kvs = json_object_get(response, "kvs");
    size_t n = json_array_size(kvs);
    if (get_revision(response) == 0 || n > op->limit - op->n_found || (kvs && !json_is_array(kvs)))
        teffi_store_op_set_error(op, TEFF_E_MALFORMED, "etcd: unexpected response to a scan");
    for (size_t i = 0; op->err == TEFF_OK && i < n; i++)
        (void)add_scanned_row(json_array_get(kvs, i), prefix, op, from, room);
    *more = n > 0 && json_is_true(json_object_get(response, "more"));
    if (op->err == TEFF_OK)
        return true;
    op->rows = from;
    op->n_found = 0;
    return false;
}
