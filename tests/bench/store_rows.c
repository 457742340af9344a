/* store_rows.c - rows saves-sqlite-N: saves per second of N grains that save at once, durably; and
 * what a plain C loop does with the same rows, pragmas and transactions (saves-sqlite-loop).
 * Way:     bench.c -> [store_rows] -> store_savers -> store -> SQLite's thread; or -> SQLite
 * The loop and the grains take turns, so that both meet the same disk. */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "folder.h"
#include "store_savers.h"

enum { VALUE_BYTES = 12 };

/* ---- the plain loop ---- */

enum { BEGIN, COMMIT, LOOK, PUT, ETAG, STATEMENTS };

typedef struct loop {
    sqlite3 *db;
    sqlite3_stmt *sql[STATEMENTS];
    int64_t etag;
} loop;

static void sql_must(const loop *l, bool good)
{
    if (good)
        return;
    fprintf(stderr, "bench: sqlite: %s\n", sqlite3_errmsg(l->db));
    exit(1);
}

/* The same tables and pragmas as the store's. */
static void loop_open(loop *l, const bench_folder *f)
{
    static const char *const text[STATEMENTS] = {
        [BEGIN] = "BEGIN IMMEDIATE",
        [COMMIT] = "COMMIT",
        [LOOK] = "SELECT key, etag, sum, value FROM rows WHERE tab = ?1 AND key = ?2",
        [PUT] = ("INSERT INTO rows(tab, key, etag, sum, value) VALUES(?1, ?2, ?3, ?4, ?5) "
                 "ON CONFLICT(tab, key) DO UPDATE SET etag = ?3, sum = ?4, value = ?5"),
        [ETAG] = "INSERT OR REPLACE INTO etags(id, etag, sum) VALUES(1, ?1, ?2)"};
    char path[300];
    *l = (loop){0};
    snprintf(path, sizeof path, "%s/loop.db", f->path);
    sql_must(l, sqlite3_open(path, &l->db) == SQLITE_OK);
    sql_must(l, sqlite3_exec(l->db,
                             "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
                             "PRAGMA cell_size_check = ON; PRAGMA journal_size_limit = 67108864;"
                             "CREATE TABLE rows(tab TEXT NOT NULL, key BLOB NOT NULL, "
                             "etag INTEGER NOT NULL, sum INTEGER NOT NULL, value BLOB NOT NULL, "
                             "PRIMARY KEY(tab, key));"
                             "CREATE TABLE etags(id INTEGER PRIMARY KEY, etag INTEGER NOT NULL, "
                             "sum INTEGER NOT NULL)",
                             NULL, NULL, NULL) == SQLITE_OK);
    for (int i = 0; i < STATEMENTS; i++)
        sql_must(l, sqlite3_prepare_v2(l->db, text[i], -1, &l->sql[i], NULL) == SQLITE_OK);
}

static void loop_close(loop *l)
{
    for (int i = 0; i < STATEMENTS; i++)
        sqlite3_finalize(l->sql[i]);
    sqlite3_close(l->db);
}

static void step(const loop *l, int which)
{
    int rc = sqlite3_step(l->sql[which]);
    sql_must(l, rc == SQLITE_DONE || rc == SQLITE_ROW);
    sqlite3_reset(l->sql[which]);
}

static void bind_table_and_key(sqlite3_stmt *sql, const char *key)
{
    sqlite3_bind_text(sql, 1, "state", -1, SQLITE_STATIC);
    sqlite3_bind_blob(sql, 2, key, (int)strlen(key), SQLITE_STATIC);
}

static void loop_save(loop *l, uint64_t i)
{
    char key[40], value[VALUE_BYTES];
    snprintf(key, sizeof key, "dev rows.Saver %llu", (unsigned long long)(i % SAVERS_MAX));
    memset(value, (int)i, sizeof value);
    bind_table_and_key(l->sql[LOOK], key);
    step(l, LOOK);
    bind_table_and_key(l->sql[PUT], key);
    sqlite3_bind_int64(l->sql[PUT], 3, ++l->etag);
    sqlite3_bind_int64(l->sql[PUT], 4, l->etag * 31);
    sqlite3_bind_blob(l->sql[PUT], 5, value, sizeof value, SQLITE_STATIC);
    step(l, PUT);
}

/* n saves, so many in a transaction. out: seconds. */
static double loop_run(loop *l, uint64_t n, uint64_t together)
{
    uint64_t begin = bench_now_ns();
    for (uint64_t i = 0; i < n;) {
        step(l, BEGIN);
        for (uint64_t k = 0; k < together && i < n; k++)
            loop_save(l, i++);
        sqlite3_bind_int64(l->sql[ETAG], 1, l->etag);
        sqlite3_bind_int64(l->sql[ETAG], 2, l->etag * 31);
        step(l, ETAG);
        step(l, COMMIT);
    }
    return (double)(bench_now_ns() - begin) / 1e9;
}

/* ---- the rows ---- */

/* Grains, the loop with one save a transaction, and the loop with as many as grains, in turn. */
static void rows(const bench *b, const savers *s, loop *l, uint64_t together)
{
    double grains[RUNS_MAX] = {0}, groups[RUNS_MAX] = {0};
    double ratios[RUNS_MAX] = {0}, ones[RUNS_MAX] = {0};
    char name[40], loop_name[40];
    snprintf(name, sizeof name, "saves-sqlite-%d", (int)together);
    snprintf(loop_name, sizeof loop_name, "saves-sqlite-loop-%d", (int)together);
    if (!bench_wanted(b, name) && !bench_wanted(b, loop_name) &&
        !bench_wanted(b, "saves-sqlite-loop"))
        return;
    uint64_t n = savers_fitting(b, s, together);
    uint64_t one_by_one = together == 1 ? n : n / 8 + 1;
    for (int r = 0; r < b->runs; r++) {
        grains[r] = (double)n / savers_run(s, n, together);
        ones[r] = (double)one_by_one / loop_run(l, one_by_one, 1);
        groups[r] = (double)n / loop_run(l, n, together);
        ratios[r] = grains[r] / ones[r];
    }
    savers_print(b, name, together, n, grains, "to_sqlite_loop", ratios);
    if (together == 1)
        savers_print(b, "saves-sqlite-loop", 1, one_by_one, ones, NULL, NULL);
    else
        savers_print(b, loop_name, together, n, groups, NULL, NULL);
}

void bench_store(const bench *b)
{
    static const uint64_t at_once[] = {1, 64, 1024};
    loop l;
    bool wanted = bench_wanted(b, "saves-sqlite-loop");
    for (size_t i = 0; i < sizeof at_once / sizeof at_once[0]; i++) {
        char name[40];
        snprintf(name, sizeof name, "saves-sqlite-%d", (int)at_once[i]);
        wanted |= bench_wanted(b, name);
        snprintf(name, sizeof name, "saves-sqlite-loop-%d", (int)at_once[i]);
        wanted |= bench_wanted(b, name);
    }
    if (!wanted)
        return;
    bench_folder f = bench_folder_new();
    char address[300];
    snprintf(address, sizeof address, "sqlite:%s/grains.db", f.path);
    savers s = savers_open(address);
    loop_open(&l, &f);
    for (size_t i = 0; i < sizeof at_once / sizeof at_once[0]; i++)
        rows(b, &s, &l, at_once[i]);
    loop_close(&l);
    savers_close(&s);
    bench_folder_remove(&f);
}
