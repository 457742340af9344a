/* test_sqlite_file.c - which files engine `sqlite` takes, and what it says to the others. */
#include <errno.h>
#include <grp.h>
#include <sched.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "ask.h"
#include "scratch.h"
#include "setup.h"
#include "store/sqlite_file.h"

enum { NOBODY = 65534 };

static char text[TEFF_TEXT_MAX];

static teff_err open_path(const char *path, teffi_store **store)
{
    char address[SCRATCH_PATH_MAX + 16];
    snprintf(address, sizeof address, "sqlite:%s", path);
    return teffi_store_open(address, store, text);
}

/* Opening path must fail, say why, and leave every byte of it as it was. */
static void expect_refused(const char *path, teff_err err, const char *why)
{
    static char before[65536], after[65536];
    struct stat st;
    bool plain = stat(path, &st) == 0 && S_ISREG(st.st_mode);
    size_t n = plain ? scratch_read(path, before, sizeof before) : 0;
    teffi_store *store;
    assert_int_equal(open_path(path, &store), err);
    assert_null(store);
    if (!strstr(text, why))
        fail_msg("'%s' does not say '%s'", text, why);
    assert_non_null(strstr(text, path));
    if (plain) {
        assert_int_equal(scratch_read(path, after, sizeof after), n);
        assert_memory_equal(before, after, n);
    }
}

static void run_sql(const char *path, const char *sql)
{
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* A store's file with one row in it, closed. */
static void make_store(char *path, const char *name)
{
    teffi_store *store;
    uint64_t etag = 0;
    scratch_path(path, name);
    assert_int_equal(open_path(path, &store), TEFF_OK);
    assert_int_equal(ask_put(store, "words", ask_str("a"), ask_str("1"), &etag), TEFF_OK);
    teffi_store_close(store);
}

static void not_files(void **state)
{
    char path[SCRATCH_PATH_MAX];
    scratch_path(path, "directory");
    assert_int_equal(mkdir(path, 0700), 0);
    expect_refused(path, TEFF_E_IO, "is a directory");
    scratch_path(path, "fifo");
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_refused(path, TEFF_E_IO, "not a regular file");
    expect_refused("/dev/null", TEFF_E_IO, "not a regular file");
    scratch_path(path, "none/x.db");
    expect_refused(path, TEFF_E_IO, "No such file or directory");
    scratch_path(path, "file");
    scratch_write(path, "", 0);
    scratch_path(path, "file/x.db");
    expect_refused(path, TEFF_E_IO, "Not a directory");
}

static void not_databases(void **state)
{
    static const size_t sizes[] = {1, 50, 99, 100, 511, 512, 4096, 10000};
    static char bytes[10000];
    char path[SCRATCH_PATH_MAX];
    memset(bytes, 'x', sizeof bytes);
    scratch_path(path, "garbage");
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        scratch_write(path, bytes, sizes[i]);
        expect_refused(path, TEFF_E_MALFORMED, "not an SQLite database");
    }
}

static void others_databases(void **state)
{
    char path[SCRATCH_PATH_MAX];
    scratch_path(path, "other.db");
    run_sql(path, "CREATE TABLE rows(a)");
    expect_refused(path, TEFF_E_REFUSED, "another application");
    scratch_path(path, "version.db");
    run_sql(path, "PRAGMA user_version = 1; VACUUM");
    expect_refused(path, TEFF_E_REFUSED, "another application");
    scratch_path(path, "id.db");
    run_sql(path, "PRAGMA application_id = 77; VACUUM");
    expect_refused(path, TEFF_E_REFUSED, "another application's database (application id 0x4d)");
}

static void other_schemas(void **state)
{
    static const char *const changes[] = {
        "ALTER TABLE rows ADD COLUMN more",
        "DROP TABLE etags",
        "CREATE TABLE more(a)",
        "CREATE TRIGGER t AFTER INSERT ON rows BEGIN DELETE FROM rows; END",
        "CREATE VIEW v AS SELECT 1",
        "DROP TABLE rows; CREATE TABLE rows(tab, key, etag, sum, value, PRIMARY KEY(tab, key))",
    };
    char path[SCRATCH_PATH_MAX], name[16];
    for (unsigned i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        snprintf(name, sizeof name, "schema%u", i);
        make_store(path, name);
        run_sql(path, changes[i]);
        expect_refused(path, TEFF_E_REFUSED, "not those of a store");
    }
    make_store(path, "newer");
    run_sql(path, "PRAGMA user_version = 2");
    expect_refused(path, TEFF_E_REFUSED, "schema version 2, this program knows 1");
}

static long file_system; /* instead of the one that files are on; 0: their own; -1: unknown */

/* Instead of the C library's. */
int statfs(const char *path, struct statfs *fs)
{
    if (file_system < 0) {
        fs->f_type = 0x6969;
        errno = EACCES;
        return -1;
    }
    if (syscall(SYS_statfs, path, fs) != 0)
        return -1;
    if (file_system)
        fs->f_type = file_system;
    return 0;
}

/* Processes of several machines share no memory, which the write-ahead log needs. */
static void on_the_network(void **state)
{
    static const long networks[] = {0x6969, 0x517b, 0xff534d42, 0xfe534d42, 0x00c36400};
    char path[SCRATCH_PATH_MAX];
    make_store(path, "shared.db");
    for (unsigned i = 0; i < sizeof networks / sizeof networks[0]; i++) {
        file_system = networks[i];
        expect_refused(path, TEFF_E_REFUSED, "network");
    }
    for (file_system = -1; file_system <= 0; file_system++) {
        teffi_store *store;
        assert_int_equal(open_path(path, &store), TEFF_OK);
        teffi_store_close(store);
    }
    file_system = 0;
}

static void codes_have_errors_and_texts(void **state)
{
    static const struct {
        int code;
        teff_err err;
        const char *text;
    } rows[] = {
        {SQLITE_NOMEM, TEFF_E_NOMEM, "out of memory (SQLite code 7)"},
        {SQLITE_TOOBIG, TEFF_E_TOO_LARGE, "string or blob too big (SQLite code 18)"},
        {SQLITE_CORRUPT, TEFF_E_MALFORMED, "damaged (SQLite code 11)"},
        {SQLITE_NOTADB, TEFF_E_MALFORMED, "not an SQLite database (SQLite code 26)"},
        {SQLITE_BUSY, TEFF_E_IO, "locked by another process for too long (SQLite code 5)"},
        {SQLITE_READONLY_DBMOVED, TEFF_E_IO,
         "it or its directory is not writable (SQLite code 1032)"},
        {SQLITE_CANTOPEN, TEFF_E_IO, "it or its directory is not writable (SQLite code 14)"},
        {SQLITE_FULL, TEFF_E_IO, "database or disk is full (SQLite code 13)"},
    };
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char why[TEFFI_SQLITE_TEXT];
        assert_int_equal(teffi_sqlite_convert_error(rows[i].code, why), rows[i].err);
        assert_string_equal(why, rows[i].text);
    }
}

static void maintained_by_hand(void **state)
{
    char path[SCRATCH_PATH_MAX];
    teffi_store *store;
    make_store(path, "vacuumed");
    run_sql(path, "ANALYZE; VACUUM");
    assert_int_equal(open_path(path, &store), TEFF_OK);
    assert_string_equal(text, "");
    teffi_store_close(store);
}

static void empty_file_is_new(void **state)
{
    char path[SCRATCH_PATH_MAX];
    teffi_store *store;
    scratch_path(path, "empty");
    scratch_write(path, "", 0);
    assert_int_equal(open_path(path, &store), TEFF_OK);
    teffi_store_close(store);
    run_sql(path, "SELECT * FROM rows");
}

/* Names that SQLite itself would read as something else than a file's name. */
static void odd_names(void **state)
{
    static const char *const names[] = {":memory:", "file:x?mode=memory"};
    char path[SCRATCH_PATH_MAX], old[SCRATCH_PATH_MAX];
    scratch_path(path, "");
    assert_non_null(getcwd(old, sizeof old));
    assert_int_equal(chdir(path), 0);
    for (size_t i = 0; i < 2; i++) {
        teffi_store *store;
        assert_int_equal(open_path(names[i], &store), TEFF_OK);
        assert_int_equal(access(names[i], F_OK), 0);
        teffi_store_close(store);
    }
    assert_int_equal(chdir(old), 0);
}

/* Who may not write; the superuser may everything, so a child gives that up. */
static int open_as_nobody(const char *path, const char *why)
{
    teffi_store *store;
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        if (geteuid() == 0 &&
            (setgroups(0, NULL) != 0 || setgid(NOBODY) != 0 || setuid(NOBODY) != 0))
            _exit(9);
        _exit(open_path(path, &store) == TEFF_E_IO && strstr(text, why) ? 0 : 1);
    }
    return waitpid(pid, &status, 0) == pid ? status : -1;
}

static void not_writable(void **state)
{
    char path[SCRATCH_PATH_MAX], directory[SCRATCH_PATH_MAX];
    scratch_path(directory, "");
    make_store(path, "readonly");
    assert_int_equal(chmod(directory, 0755), 0);
    assert_int_equal(chmod(path, 0444), 0);
    assert_int_equal(open_as_nobody(path, "not writable"), 0);
    assert_int_equal(chmod(path, 0000), 0);
    assert_int_equal(open_as_nobody(path, "Permission denied"), 0);
    assert_int_equal(chmod(path, 0600), 0);
    if (geteuid() == 0) { /* a file of one's own in a directory of somebody else's */
        assert_int_equal(chown(path, NOBODY, NOBODY), 0);
        assert_int_equal(open_as_nobody(path, "it or its directory is not writable"), 0);
    }
}

typedef struct opener {
    pthread_t thread;
    pthread_barrier_t *start;
    const char *path;
    teff_err err;
    char text[TEFF_TEXT_MAX];
} opener;

static void *open_and_close(void *arg)
{
    opener *o = arg;
    char address[SCRATCH_PATH_MAX + 16];
    teffi_store *store;
    snprintf(address, sizeof address, "sqlite:%s", o->path);
    pthread_barrier_wait(o->start);
    o->err = teffi_store_open(address, &store, o->text);
    teffi_store_close(store);
    return NULL;
}

/* A file that is made, changed to WAL and left by several at once. */
static void made_by_many_at_once(void **state)
{
    enum { OPENERS = 6, ROUNDS = 15 };
    static opener openers[OPENERS];
    char path[SCRATCH_PATH_MAX], name[16];
    pthread_barrier_t barrier;
    assert_int_equal(pthread_barrier_init(&barrier, NULL, OPENERS), 0);
    for (unsigned round = 0; round < ROUNDS; round++) {
        snprintf(name, sizeof name, "many%u", round);
        scratch_path(path, name);
        for (unsigned i = 0; i < OPENERS; i++) {
            openers[i] = (opener){.start = &barrier, .path = path};
            assert_int_equal(pthread_create(&openers[i].thread, NULL, open_and_close, &openers[i]),
                             0);
        }
        for (unsigned i = 0; i < OPENERS; i++)
            pthread_join(openers[i].thread, NULL);
        for (unsigned i = 0; i < OPENERS; i++)
            if (openers[i].err != TEFF_OK)
                fail_msg("%s", openers[i].text);
    }
    pthread_barrier_destroy(&barrier);
}

static int count_tables(sqlite3 *db)
{
    return sqlite3_exec(db, "SELECT * FROM sqlite_master", NULL, NULL, NULL);
}

/* A reader of an empty file keeps its tables from being committed. */
static void made_while_others_read(void **state)
{
    char path[SCRATCH_PATH_MAX];
    sqlite3 *reader, *other;
    scratch_path(path, "read");
    pthread_barrier_t barrier;
    opener o = {.start = &barrier, .path = path};
    assert_int_equal(pthread_barrier_init(&barrier, NULL, 1), 0);
    assert_int_equal(sqlite3_open(path, &reader), SQLITE_OK);
    assert_int_equal(sqlite3_open(path, &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(reader, "BEGIN", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(count_tables(reader), SQLITE_OK);
    assert_int_equal(pthread_create(&o.thread, NULL, open_and_close, &o), 0);
    while (count_tables(other) == SQLITE_OK) /* until the commit waits for readers */
        sched_yield();
    while (count_tables(other) == SQLITE_BUSY) /* until it was taken back */
        sched_yield();
    assert_int_equal(sqlite3_exec(reader, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    pthread_join(o.thread, NULL);
    if (o.err)
        fail_msg("%s", o.text);
    sqlite3_close(reader);
    sqlite3_close(other);
    pthread_barrier_destroy(&barrier);
}

/* Another process that never lets go of the file. */
static void locked_for_good(void **state)
{
    char path[SCRATCH_PATH_MAX];
    sqlite3 *db;
    teffi_store *store;
    teff_arena arena;
    teffi_bytes value;
    uint64_t etag = 0;
    make_store(path, "locked");
    assert_int_equal(open_path(path, &store), TEFF_OK);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    teffi_row row = {.table = "words", .key = ask_str("b")};
    ask_op write = {.op = {.kind = TEFFI_STORE_WRITE, .rows = &row, .n_rows = 1}};
    ask_start(store, &write);
    teffi_arena_init(&arena, NULL, 0, 0);
    assert_int_equal(ask_get(store, &arena, "words", ask_str("a"), &value, &etag), TEFF_OK);
    assert_int_equal(value.len, 1); /* reads go on */
    assert_int_equal(ask_wait(&write), TEFF_E_IO);
    assert_non_null(strstr(write.op.text, "locked by another process"));
    assert_int_equal(sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    ask_start(store, &write);
    assert_int_equal(ask_wait(&write), TEFF_OK);
    teffi_arena_fini(&arena);
    sqlite3_close(db);
    teffi_store_close(store);
}

/* Behind a lock writes wait: so many bytes of them, and reads beside. */
static void writes_that_wait_are_limited_in_bytes(void **state)
{
    enum { N = 5, EACH = 16 * 1024 * 1024 };
    char path[SCRATCH_PATH_MAX];
    uint8_t *bytes = calloc(1, EACH);
    ask_op writes[N] = {0};
    teffi_row rows[N];
    teffi_store *store;
    sqlite3 *db;
    assert_non_null(bytes);
    make_store(path, "heavy");
    assert_int_equal(open_path(path, &store), TEFF_OK);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    for (int i = 0; i < N; i++) {
        static const char *const keys[N] = {"1", "2", "3", "4", "5"};
        rows[i] = (teffi_row){.table = "words", .key = ask_str(keys[i]), .value = {bytes, EACH}};
        writes[i].op = (teffi_store_op){.kind = TEFFI_STORE_WRITE, .rows = &rows[i], .n_rows = 1};
        ask_start(store, &writes[i]);
    }
    assert_int_equal(ask_wait(&writes[N - 1]), TEFF_E_OVERLOADED);
    assert_int_equal(sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    for (int i = 0; i < N - 1; i++)
        assert_int_equal(ask_wait(&writes[i]), TEFF_OK);
    ask_start(store, &writes[N - 1]); /* there is room again */
    assert_int_equal(ask_wait(&writes[N - 1]), TEFF_OK);
    sqlite3_close(db);
    teffi_store_close(store);
    free(bytes);
}

static _Atomic unsigned n_done, system_done_as;
static _Atomic bool others_failed;

static void count_done(teffi_store_op *op)
{
    others_failed = others_failed || op->err;
    n_done++;
}

static void note_done(teffi_store_op *op)
{
    others_failed = others_failed || op->err;
    system_done_as = ++n_done;
}

/* What the cluster writes of itself goes before all that waits, however much that is; others have
 * room again when what waited is done. */
static void the_clusters_own_rows_go_first(void **state)
{
    enum { N = 64 * 1024, GROUP = 1024 };
    static teffi_store_op writes[N - 1];
    char path[SCRATCH_PATH_MAX];
    teffi_store *store;
    sqlite3 *db;
    make_store(path, "cluster");
    assert_int_equal(open_path(path, &store), TEFF_OK);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    teffi_row row = {.table = "words", .key = ask_str("b"), .any = true};
    for (unsigned i = 0; i < N - 1; i++) {
        writes[i] = (teffi_store_op){
            .kind = TEFFI_STORE_WRITE, .rows = &row, .n_rows = 1, .done = count_done};
        teffi_store_submit(store, &writes[i]);
    }
    ask_op last = {.op = {.kind = TEFFI_STORE_WRITE, .rows = &row, .n_rows = 1}}, more = last;
    ask_start(store, &last);
    ask_start(store, &more);
    assert_int_equal(ask_wait(&more), TEFF_E_OVERLOADED);
    teffi_row alive = {.table = TEFFI_TABLE_ALIVE, .key = ask_str("me"), .any = true};
    teffi_store_op own = {
        .kind = TEFFI_STORE_WRITE, .rows = &alive, .n_rows = 1, .done = note_done};
    teffi_store_submit(store, &own);
    assert_int_equal(sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(ask_wait(&last), TEFF_OK);
    ask_start(store, &more);
    assert_int_equal(ask_wait(&more), TEFF_OK);
    assert_false(others_failed);
    assert_int_equal(n_done, N);
    assert_in_range(system_done_as, 1, GROUP + 1);
    sqlite3_close(db);
    teffi_store_close(store);
}

static int setup(void **state)
{
    return scratch_open();
}

static int teardown(void **state)
{
    scratch_close();
    return 0;
}

/* Writes a row that checks another one, which has this etag. */
static teff_err write_checking(teffi_sqlite_file *file, const char *key, uint64_t guard,
                               uint64_t *etag)
{
    static teffi_row rows[4][2]; /* a checked row is remembered until the transaction ends */
    static unsigned used;
    teffi_row *row = rows[used++ % 4];
    row[0] = (teffi_row){.table = "words", .key = ask_str(key), .any = true};
    row[1] = (teffi_row){.table = "words", .key = ask_str("guard"), .etag = guard, .check = true};
    teffi_store_op op = {.kind = TEFFI_STORE_BATCH, .rows = row, .n_rows = 2};
    assert_int_equal(teffi_sqlite_write(file, &op, etag), SQLITE_OK);
    return op.err;
}

/* A row that was checked in a transaction is not checked again, until it is written there. */
static void a_checked_row_that_changes_is_checked_again(void **state)
{
    char path[SCRATCH_PATH_MAX];
    teffi_sqlite_file file = {0};
    uint64_t etag = 0;
    scratch_path(path, "checked.db");
    assert_int_equal(teffi_sqlite_file_open(&file, path, text), TEFF_OK);
    assert_int_equal(teffi_sqlite_run(&file, TEFFI_SQL_BEGIN), SQLITE_OK);
    teffi_row row = {.table = "words", .key = ask_str("guard"), .any = true};
    teffi_store_op guard = {.kind = TEFFI_STORE_WRITE, .rows = &row, .n_rows = 1};
    assert_int_equal(teffi_sqlite_write(&file, &guard, &etag), SQLITE_OK);
    uint64_t first = etag;
    assert_int_equal(write_checking(&file, "a", first, &etag), TEFF_OK);
    assert_int_equal(write_checking(&file, "b", first, &etag), TEFF_OK);
    assert_int_equal(teffi_sqlite_write(&file, &guard, &etag), SQLITE_OK);
    assert_int_equal(write_checking(&file, "c", first, &etag), TEFF_E_CONFLICT);
    assert_int_equal(write_checking(&file, "d", first + 3, &etag), TEFF_OK);
    assert_int_equal(teffi_sqlite_run(&file, TEFFI_SQL_ROLLBACK), SQLITE_OK);
    teffi_sqlite_file_close(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(not_files),
        cmocka_unit_test(not_databases),
        cmocka_unit_test(others_databases),
        cmocka_unit_test(other_schemas),
        cmocka_unit_test(on_the_network),
        cmocka_unit_test(codes_have_errors_and_texts),
        cmocka_unit_test(maintained_by_hand),
        cmocka_unit_test(empty_file_is_new),
        cmocka_unit_test(odd_names),
        cmocka_unit_test(not_writable),
        cmocka_unit_test(made_by_many_at_once),
        cmocka_unit_test(made_while_others_read),
        cmocka_unit_test(locked_for_good),
        cmocka_unit_test(writes_that_wait_are_limited_in_bytes),
        cmocka_unit_test(the_clusters_own_rows_go_first),
        cmocka_unit_test(a_checked_row_that_changes_is_checked_again),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
