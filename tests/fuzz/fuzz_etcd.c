/* fuzz_etcd.c - any bytes as etcd's answer to writes, reads and a scan; what is set is whole. */
#include <string.h>
#include "base/bug.h"
#include "store/etcd_rows.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void take_writes(const json_t *answer)
{
    teffi_row rows[3] = {{.table = "words", .etag = 5},
                         {.table = "words", .key = {"a", 1}, .any = true},
                         {.table = "fence", .check = true}};
    teffi_store_op first = {.kind = TEFFI_STORE_BATCH, .rows = rows, .n_rows = 2};
    teffi_store_op second = {.kind = TEFFI_STORE_BATCH, .rows = rows + 2, .n_rows = 1};
    teffi_store_op *ops[] = {&first, &second};
    size_t ended = teffi_etcd_set_write_results(answer, ops, 2);
    teffi_bug_if(ended > 2 || (ops[0] == ops[1]));
    for (size_t i = 0; i < 2; i++)
        teffi_bug_if(i >= ended && ops[i]->err);
    teffi_bug_if(ended == 2 && !first.err && rows[1].etag == 0);
}

static void take_reads(const json_t *answer, teff_arena *arena, teffi_etcd_text *room)
{
    teffi_row row = {.table = "words", .key = {"a", 1}, .etag = 77}, start = {.table = "words"};
    teffi_store_op op = {.kind = TEFFI_STORE_READ, .rows = &row, .n_rows = 1, .arena = arena};
    teffi_store_op scan = {
        .kind = TEFFI_STORE_SCAN, .rows = &start, .n_rows = 1, .limit = 4, .arena = arena};
    teffi_store_op *ops[] = {&op};
    bool more = false;
    if (!teffi_etcd_set_read_results(answer, ops, 1, room) || op.err)
        teffi_bug_if(row.etag != 77 || row.value.data);
    if (!teffi_etcd_append_scan_page(answer, "t/", &scan, &start, room, &more))
        teffi_bug_if(!scan.err || scan.rows != &start || scan.n_found);
    teffi_bug_if(scan.n_found > scan.limit);
    teffi_bytes value;
    if (!teffi_etcd_decode_value(answer, room, &value))
        teffi_bug_if(value.len);
    for (size_t i = 0; i < scan.n_found; i++)
        teffi_bug_if(scan.rows[i].etag == 0 && scan.rows[i].value.len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    teff_arena arena;
    teffi_etcd_text room = {0};
    json_t *answer = json_loadb((const char *)data, n, 0, NULL);
    teffi_arena_init(&arena, NULL, 0, 0);
    if (answer) {
        take_writes(answer);
        take_reads(answer, &arena, &room);
    }
    json_decref(answer);
    teffi_etcd_text_fini(&room);
    teffi_arena_fini(&arena);
    return 0;
}
