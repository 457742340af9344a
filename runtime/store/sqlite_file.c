/* sqlite_file.c - the file of engine `sqlite`: application id "teff", user_version = the schema's
 * version, two tables (SCHEMA_ROWS, SCHEMA_ETAGS).
 * States:  check the path -> open -> identify -> (new: create tables) -> check the schema ->
 *          prepare */
#include "store/sqlite_file.h"

#include <errno.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

enum {
    APPLICATION_ID = 0x74656666, /* "teff" */
    SCHEMA_VERSION = 1,
    HEADER_BYTES = 100, /* the shortest SQLite file (one of 1 byte passes as empty) */
    CHECK_BYTES_MAX = 16 * 1024 * 1024, /* files up to this are checked whole when opened */
    PATH_MAX_BYTES = 4000
};

/* sum is the checksum of the row's other columns, see sqlite_rows.c. */
#define SCHEMA_ROWS                                                                                \
    "CREATE TABLE rows(tab TEXT NOT NULL, key BLOB NOT NULL, etag INTEGER NOT NULL, "              \
    "sum INTEGER NOT NULL, value BLOB NOT NULL, PRIMARY KEY(tab, key))"
#define SCHEMA_ETAGS                                                                               \
    "CREATE TABLE etags(id INTEGER PRIMARY KEY, etag INTEGER NOT NULL, sum INTEGER NOT NULL)"

/* How a file identifies itself. */
typedef struct identity {
    int64_t application, version, tables;
} identity;

static teff_err refuse_file(char *text, teff_err err, const char *path, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

static teff_err refuse_file(char *text, teff_err err, const char *path, const char *fmt, ...)
{
    va_list args;
    int n = snprintf(text, TEFF_TEXT_MAX, "sqlite:%.300s: ", path);
    va_start(args, fmt);
    vsnprintf(text + n, TEFF_TEXT_MAX - (size_t)n, fmt, args);
    va_end(args);
    return err;
}

static teff_err refuse_code(char *text, const char *path, int rc)
{
    if (teffi_sqlite_is(rc, SQLITE_NOTADB))
        return refuse_file(text, TEFF_E_MALFORMED, path, "not an SQLite database");
    if (teffi_sqlite_is(rc, SQLITE_CORRUPT))
        return refuse_file(text, TEFF_E_MALFORMED, path, "damaged: %s", sqlite3_errstr(rc));
    if (teffi_sqlite_is(rc, SQLITE_BUSY))
        return refuse_file(text, TEFF_E_IO, path, "locked by another process for too long");
    if (teffi_sqlite_is(rc, SQLITE_READONLY) || teffi_sqlite_is(rc, SQLITE_CANTOPEN))
        return refuse_file(text, TEFF_E_IO, path, "it or its directory is not writable");
    return refuse_file(text, teffi_sqlite_err(rc), path, "%s (SQLite code %d)", sqlite3_errstr(rc),
                       rc);
}

/* *number: the first column of the first row. out: SQLITE_CORRUPT: there is none, or no integer. */
static int query_number(sqlite3 *db, const char *question, int64_t *number)
{
    sqlite3_stmt *sql; /* NULL on an error */
    int rc = sqlite3_prepare_v2(db, question, -1, &sql, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(sql);
    if (rc == SQLITE_ROW && sqlite3_column_type(sql, 0) == SQLITE_INTEGER) {
        *number = sqlite3_column_int64(sql, 0);
        rc = SQLITE_OK;
    } else if (rc == SQLITE_ROW || rc == SQLITE_DONE) {
        rc = SQLITE_CORRUPT;
    }
    sqlite3_finalize(sql);
    return rc;
}

/* *same: the first column of the first row is the expected text. */
static int query_is_text(sqlite3 *db, const char *question, const char *expected, bool *same)
{
    sqlite3_stmt *sql;
    *same = false;
    int rc = sqlite3_prepare_v2(db, question, -1, &sql, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(sql);
    if (rc == SQLITE_ROW) {
        const unsigned char *answer = sqlite3_column_text(sql, 0);
        *same = answer && strcmp((const char *)answer, expected) == 0;
        rc = SQLITE_OK;
    }
    sqlite3_finalize(sql);
    return rc;
}

/* SQLite's write-ahead log needs memory shared by all processes that open the file. */
static bool is_on_network(const char *path)
{
    static const uint32_t cifs = 0xff534d42u, smb2 = 0xfe534d42u, ceph = 0x00c36400u;
    struct statfs fs;
    if (statfs(path, &fs) != 0)
        return false;
    uint32_t type = (uint32_t)fs.f_type;
    return type == NFS_SUPER_MAGIC || type == SMB_SUPER_MAGIC || type == cifs || type == smb2 ||
           type == ceph;
}

/* Use stat only: opening and closing the file here would drop the locks that SQLite holds on it for
 * another store of this process. */
static teff_err check_file_path(const char *path, char *text)
{
    struct stat st;
    if (path[0] == '\0')
        return refuse_file(text, TEFF_E_INVALID, path, "a file name is expected");
    if (strlen(path) > PATH_MAX_BYTES)
        return refuse_file(text, TEFF_E_INVALID, path, "file name of over %d bytes",
                           PATH_MAX_BYTES);
    if (stat(path, &st) != 0)
        return errno == ENOENT ? TEFF_OK
                               : refuse_file(text, TEFF_E_IO, path, "%s", strerror(errno));
    if (S_ISDIR(st.st_mode))
        return refuse_file(text, TEFF_E_IO, path, "is a directory");
    if (!S_ISREG(st.st_mode))
        return refuse_file(text, TEFF_E_IO, path, "not a regular file");
    if (st.st_size > 0 && st.st_size < HEADER_BYTES)
        return refuse_file(text, TEFF_E_MALFORMED, path, "not an SQLite database");
    return TEFF_OK;
}

/* A relative path gets "./", so that ":memory:" and "file:" are plain names. */
static teff_err open_database(sqlite3 **db, const char *path, char *text)
{
    char name[PATH_MAX_BYTES + 8];
    snprintf(name, sizeof name, "%s%s", path[0] == '/' ? "" : "./", path);
    int flags =
        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE;
    int rc = sqlite3_open_v2(name, db, flags, NULL);
    if (rc == SQLITE_NOMEM || !*db)
        return refuse_file(text, TEFF_E_NOMEM, path, "out of memory");
    if (rc != SQLITE_OK) {
        int error = sqlite3_system_errno(*db);
        return refuse_file(text, TEFF_E_IO, path, "cannot be opened: %s",
                           error ? strerror(error) : sqlite3_errstr(rc));
    }
    if (sqlite3_db_readonly(*db, "main") == 1)
        return refuse_file(text, TEFF_E_IO, path, "not writable");
    if (is_on_network(name))
        return refuse_file(text, TEFF_E_REFUSED, path,
                           "on a network file system: one host's disk only");
    sqlite3_extended_result_codes(*db, 1);
    sqlite3_busy_timeout(*db, TEFFI_SQLITE_BUSY_MS);
    sqlite3_db_config(*db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(*db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    return TEFF_OK;
}

/* Inside a transaction. */
static int read_identity(sqlite3 *db, identity *id)
{
    int rc = query_number(db, "PRAGMA application_id", &id->application);
    if (rc == SQLITE_OK)
        rc = query_number(db, "PRAGMA user_version", &id->version);
    if (rc == SQLITE_OK)
        rc = query_number(db, "SELECT count(*) FROM sqlite_schema", &id->tables);
    return rc;
}

/* As read_identity(), in a transaction of its own: another process may be creating the tables. */
static int read_identity_at_once(sqlite3 *db, identity *id)
{
    int rc = sqlite3_exec(db, "BEGIN", NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        rc = read_identity(db, id);
    if (!sqlite3_get_autocommit(db))
        sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    return rc;
}

static bool is_new_file(const identity *id)
{
    return id->application == 0 && id->version == 0 && id->tables == 0;
}

/* Several processes may open a new file at once: the first one to lock it creates the tables. */
static int create_tables(sqlite3 *db)
{
    identity id;
    char sql[1000];
    int rc = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    if (rc != SQLITE_OK)
        return rc;
    rc = read_identity(db, &id);
    if (rc == SQLITE_OK && is_new_file(&id)) {
        snprintf(sql, sizeof sql,
                 "PRAGMA application_id = %d; PRAGMA user_version = %d; " SCHEMA_ROWS
                 "; " SCHEMA_ETAGS "; INSERT INTO etags(id, etag, sum) VALUES(1, 0, %lld)",
                 APPLICATION_ID, SCHEMA_VERSION, (long long)teffi_sqlite_etag_sum(0));
        rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
    }
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    if (!sqlite3_get_autocommit(db))
        sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    return rc;
}

static int set_pragmas(sqlite3 *db, bool *good)
{
    int rc = query_is_text(db, "PRAGMA journal_mode = WAL", "wal", good);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(db,
                          "PRAGMA synchronous = FULL; PRAGMA cell_size_check = ON;"
                          "PRAGMA journal_size_limit = 67108864",
                          NULL, NULL, NULL);
    return rc;
}

/* The schema must be exactly our two statements: no triggers, no views, no other columns. */
static int check_schema_is_ours(sqlite3 *db, bool *good)
{
    int64_t foreign = 0, ours = 0;
    int rc = query_number(db,
                          "SELECT count(*) FROM sqlite_schema WHERE sql IN ('" SCHEMA_ROWS
                          "', '" SCHEMA_ETAGS "')",
                          &ours);
    if (rc == SQLITE_OK)
        rc = query_number(db,
                          "SELECT count(*) FROM sqlite_schema WHERE sql IS NOT NULL "
                          "AND name NOT LIKE 'sqlite_stat%'",
                          &foreign);
    *good = ours == 2 && foreign == 2;
    return rc;
}

/* A flipped bit in the index would hide a row; checksums of rows cannot detect that. */
static int check_integrity(sqlite3 *db, bool *good)
{
    int64_t pages = 0, page_bytes = 0;
    int rc = query_number(db, "PRAGMA page_count", &pages);
    if (rc == SQLITE_OK)
        rc = query_number(db, "PRAGMA page_size", &page_bytes);
    *good = true;
    if (rc != SQLITE_OK || pages * page_bytes > CHECK_BYTES_MAX)
        return rc;
    return query_is_text(db, "PRAGMA integrity_check(1)", "ok", good);
}

static teff_err check_identity(const identity *id, const char *path, char *text)
{
    if (id->application != APPLICATION_ID)
        return refuse_file(text, TEFF_E_REFUSED, path,
                           "another application's database (application id 0x%llx), left untouched",
                           (unsigned long long)id->application);
    if (id->version != SCHEMA_VERSION)
        return refuse_file(text, TEFF_E_REFUSED, path, "schema version %lld, this program knows %d",
                           (long long)id->version, SCHEMA_VERSION);
    return TEFF_OK;
}

/* out: *rc: SQLITE_OK if the result is final, otherwise SQLite's code; on BUSY the caller
 *      retries. */
static teff_err adopt_database(sqlite3 *db, const char *path, char *text, int *rc)
{
    identity id;
    bool good = true;
    *rc = read_identity_at_once(db, &id);
    if (*rc == SQLITE_OK && is_new_file(&id)) {
        *rc = create_tables(db);
        if (*rc == SQLITE_OK)
            *rc = read_identity_at_once(db, &id);
    }
    if (*rc != SQLITE_OK)
        return refuse_code(text, path, *rc);
    teff_err err = check_identity(&id, path, text);
    if (err != TEFF_OK)
        return err;
    if ((*rc = set_pragmas(db, &good)) == SQLITE_OK && !good)
        return refuse_file(text, TEFF_E_IO, path, "no write-ahead log is possible here");
    if (*rc == SQLITE_OK && (*rc = check_schema_is_ours(db, &good)) == SQLITE_OK && !good)
        return refuse_file(text, TEFF_E_REFUSED, path, "its tables are not those of a store");
    if (*rc == SQLITE_OK && (*rc = check_integrity(db, &good)) == SQLITE_OK && !good)
        return refuse_file(text, TEFF_E_MALFORMED, path, "damaged: its integrity check fails");
    return *rc == SQLITE_OK ? TEFF_OK : refuse_code(text, path, *rc);
}

static teff_err adopt_with_retries(sqlite3 *db, const char *path, char *text)
{
    int rc = SQLITE_OK;
    teff_err err = TEFF_OK;
    for (int i = 0; i < TEFFI_SQLITE_BUSY_TRIES; i++) {
        err = adopt_database(db, path, text, &rc);
        if (!teffi_sqlite_is(rc, SQLITE_BUSY))
            break;
        sqlite3_sleep(TEFFI_SQLITE_BUSY_MS); /* the change to WAL does not wait by itself */
    }
    return err;
}

teff_err teffi_sqlite_file_open(teffi_sqlite_file *file, const char *path, char *text)
{
    memset(file, 0, sizeof *file);
    teff_err err = check_file_path(path, text);
    if (err == TEFF_OK)
        err = open_database(&file->db, path, text);
    if (err == TEFF_OK)
        err = adopt_with_retries(file->db, path, text);
    int rc = err == TEFF_OK ? teffi_sqlite_prepare(file) : SQLITE_OK;
    if (rc != SQLITE_OK)
        err = refuse_code(text, path, rc);
    if (err == TEFF_OK)
        text[0] = '\0';
    else
        teffi_sqlite_file_close(file);
    return err;
}

void teffi_sqlite_file_close(teffi_sqlite_file *file)
{
    for (int i = 0; i < TEFFI_SQL_COUNT; i++)
        sqlite3_finalize(file->sql[i]);
    sqlite3_close(file->db);
    memset(file, 0, sizeof *file);
}
