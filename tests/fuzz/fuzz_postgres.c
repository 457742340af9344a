/* fuzz_postgres.c - any columns and cells as PostgreSQL's reply to a batch, a read and a scan; what
 * is set is whole. The input: number and format of the columns, a type for each column; then for
 * each cell its length (255: SQL's NULL) and its bytes. */
#include <string.h>
#include "base/bug.h"
#include "store/postgres_reply.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { COLUMNS_MAX = 4, ROWS_MAX = 5 };

static uint8_t take_byte(const uint8_t **data, size_t *n)
{
    return *n ? (--*n, *(*data)++) : 0;
}

static PGresult *make_any_result(const uint8_t *data, size_t n)
{
    static const Oid types[] = {20, 17, 1016, 25};
    static char name[] = "column";
    PGresAttDesc columns[COLUMNS_MAX] = {{0}};
    PGresult *result = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
    uint8_t head = take_byte(&data, &n);
    int n_columns = head % (COLUMNS_MAX + 1);
    for (int i = 0; i < n_columns; i++)
        columns[i] = (PGresAttDesc){
            .name = name, .format = head < 128, .typid = types[take_byte(&data, &n) % 4]};
    teffi_bug_if(!PQsetResultAttrs(result, n_columns, columns) && n_columns > 0);
    for (int cell = 0; n > 0 && n_columns > 0 && cell < ROWS_MAX * n_columns; cell++) {
        char bytes[256] = "";
        size_t len = take_byte(&data, &n);
        bool is_null = len == 255;
        len = is_null ? 0 : len < n ? len : n;
        memcpy(bytes, data, len);
        data += len;
        n -= len;
        teffi_bug_if(!PQsetvalue(result, cell / n_columns, cell % n_columns, bytes,
                                 is_null ? -1 : (int)len));
    }
    return result;
}

static void take_batch(const PGresult *result)
{
    teffi_row rows[3] = {{.table = "words", .etag = 5},
                         {.table = "words", .etag = 6, .remove = true},
                         {.table = "fence", .etag = 7, .check = true}};
    teffi_store_op op = {.kind = TEFFI_STORE_BATCH, .rows = rows, .n_rows = 3};
    teffi_postgres_set_result(&op, result);
    teffi_bug_if(op.err ? rows[0].etag != 5 || rows[1].etag != 6
                        : rows[0].etag == 0 || rows[1].etag != 0);
    teffi_bug_if(rows[2].etag != 7);
}

static void take_read_and_scan(const PGresult *result, teff_arena *arena)
{
    teffi_row row = {.table = "words", .key = {"a", 1}, .etag = 77};
    teffi_row start = {.table = "words", .key = {"a", 1}};
    teffi_store_op op = {.kind = TEFFI_STORE_READ, .rows = &row, .n_rows = 1, .arena = arena};
    teffi_store_op scan = {.kind = TEFFI_STORE_SCAN,
                           .rows = &start,
                           .n_rows = 1,
                           .to = {"x", 1},
                           .limit = 3,
                           .arena = arena};
    teffi_postgres_set_result(&op, result);
    teffi_bug_if(op.err ? row.etag != 77 || row.value.data : row.etag == 0 && row.value.len);
    teffi_postgres_set_result(&scan, result);
    teffi_bug_if(scan.err && (scan.rows != &start || scan.n_found));
    teffi_bug_if(scan.n_found > scan.limit);
    for (size_t i = 0; i < scan.n_found; i++)
        teffi_bug_if((scan.rows[i].etag == 0 && scan.rows[i].value.len) ||
                     teffi_bytes_cmp(scan.rows[i].key, scan.to) >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    teff_arena arena;
    PGresult *result = make_any_result(data, n);
    teffi_arena_init(&arena, NULL, 0, 0);
    take_batch(result);
    take_read_and_scan(result, &arena);
    PQclear(result);
    teffi_arena_fini(&arena);
    return 0;
}
