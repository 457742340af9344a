/* sqlite_file.c - the file of engine `sqlite`: application id "teff", user_version = the schema's
 * version, two tables (SCHEMA_ROWS, SCHEMA_ETAGS).
 * States:  check the path -> open -> identify -> (new: create tables) -> check the schema ->
 *          prepare */
#include "store/sqlite_file.h"

#include <errno.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

enum {
    APPLICATION_ID = 0x74656666, /* "teff" */
    SCHEMA_VERSION = 1,
    HEADER_BYTES = 100, /* no database is shorter; SQLite itself takes 1 byte as an empty file */
    PATH_MAX_BYTES = 4000
};

/* Column sum is a checksum: in table rows, of the row's other columns; in etags, of the etag. See
 * sqlite_rows.c. */
#define SCHEMA_ROWS                                                                                \
    "CREATE TABLE rows(tab TEXT NOT NULL, key BLOB NOT NULL, etag INTEGER NOT NULL, "              \
    "sum INTEGER NOT NULL, value BLOB NOT NULL, PRIMARY KEY(tab, key))"
#define SCHEMA_ETAGS                                                                               \
    "CREATE TABLE etags(id INTEGER PRIMARY KEY, etag INTEGER NOT NULL, sum INTEGER NOT NULL)"

/* The numbers that identify a file; ID_TABLES counts its tables, indexes, views and triggers. */
enum { ID_APPLICATION, ID_VERSION, ID_TABLES, ID_COUNT };

/* Checks of the file: the last query of each returns one number, 0 if the file is wrong. The first
 * check also sets the connection's options. */
static const struct {
    const char *sql;
    teff_err err;
    const char *wrong;
} checks[] = {
    {"PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cell_size_check = ON;"
     "PRAGMA journal_size_limit = 67108864;"
     "SELECT journal_mode = 'wal' FROM pragma_journal_mode",
     TEFF_E_IO, "no write-ahead log is possible here"},
    /* The schema is exactly our two statements: no triggers, no views, no other columns. */
    {"SELECT count(*) = 2 AND sum(sql IN ('" SCHEMA_ROWS "', '" SCHEMA_ETAGS "')) = 2 "
     "FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_stat%'",
     TEFF_E_REFUSED, "its tables are not those of a store"},
    /* The file is not damaged: a flipped bit in the index would hide a row, which the checksums of
     * rows cannot detect. Files over 16 MiB are not checked, since that would take too long. */
    {"SELECT CASE WHEN page_count * page_size > 16777216 THEN 1 "
     "ELSE (SELECT integrity_check = 'ok' FROM pragma_integrity_check(1)) END "
     "FROM pragma_page_count, pragma_page_size",
     TEFF_E_MALFORMED, "damaged: its integrity check fails"},
};

/* Sets text to "sqlite:", the path and the formatted message. out: err. */
static teff_err set_file_error(char *text, teff_err err, const char *path, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

static teff_err set_file_error(char *text, teff_err err, const char *path, const char *fmt, ...)
{
    va_list args;
    int n = snprintf(text, TEFF_TEXT_MAX, "sqlite:%.300s: ", path);
    va_start(args, fmt);
    vsnprintf(text + n, TEFF_TEXT_MAX - (size_t)n, fmt, args);
    va_end(args);
    return err;
}

teff_err teffi_sqlite_convert_error(int rc, char text[TEFFI_SQLITE_TEXT])
{
    static const struct {
        int code;
        teff_err err;
        const char *text; /* NULL: SQLite's own text is used */
    } known[] = {
        {SQLITE_NOMEM, TEFF_E_NOMEM, NULL},
        {SQLITE_TOOBIG, TEFF_E_TOO_LARGE, NULL},
        {SQLITE_CORRUPT, TEFF_E_MALFORMED, "damaged"},
        {SQLITE_NOTADB, TEFF_E_MALFORMED, "not an SQLite database"},
        {SQLITE_BUSY, TEFF_E_IO, "locked by another process for too long"},
        {SQLITE_READONLY, TEFF_E_IO, "it or its directory is not writable"},
        {SQLITE_CANTOPEN, TEFF_E_IO, "it or its directory is not writable"},
    };
    size_t i = 0, n = sizeof known / sizeof *known;
    while (i < n && !teffi_sqlite_has_primary_code(rc, known[i].code))
        i++;
    snprintf(text, TEFFI_SQLITE_TEXT, "%s (SQLite code %d)",
             i < n && known[i].text ? known[i].text : sqlite3_errstr(rc), rc);
    return i < n ? known[i].err : TEFF_E_IO;
}

/* Sets text to "sqlite:", the path and the meaning of rc. in: rc: SQLite's code of an error.
 * out: our error for this code. */
static teff_err set_file_error_from_code(char *text, const char *path, int rc)
{
    char why[TEFFI_SQLITE_TEXT];
    teff_err err = teffi_sqlite_convert_error(rc, why);
    return set_file_error(text, err, path, "%s", why);
}

/* sqlite3_exec's callback for one row: converts its columns to numbers. SQL's NULL becomes 0. */
static int parse_number_columns(void *to, int n, char **values, char **names)
{
    (void)names;
    for (int i = 0; i < n; i++)
        ((int64_t *)to)[i] = values[i] ? strtoll(values[i], NULL, 10) : 0;
    return 0;
}

/* Runs SQL whose rows are numbers. in: numbers: room for the columns of the widest row. out:
 * SQLite's code; numbers: the columns of the last row. */
static int query_numbers(sqlite3 *db, const char *sql, int64_t *numbers)
{
    return sqlite3_exec(db, sql, parse_number_columns, numbers, NULL);
}

/* Is the file on a network file system? SQLite's write-ahead log does not work there, because all
 * processes that open the file must share memory. out: false: no, or unknown. */
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

/* Refuses a path that cannot name the file of a store. Calls only stat(), because opening and
 * closing the file here would drop the locks that SQLite holds on it for another store of this
 * process. */
static teff_err check_file_path(const char *path, char *text)
{
    struct stat st;
    if (path[0] == '\0')
        return set_file_error(text, TEFF_E_INVALID, path, "a file name is expected");
    if (strlen(path) > PATH_MAX_BYTES)
        return set_file_error(text, TEFF_E_INVALID, path, "file name of over %d bytes",
                              PATH_MAX_BYTES);
    if (stat(path, &st) != 0)
        return errno == ENOENT ? TEFF_OK
                               : set_file_error(text, TEFF_E_IO, path, "%s", strerror(errno));
    if (S_ISDIR(st.st_mode))
        return set_file_error(text, TEFF_E_IO, path, "is a directory");
    if (!S_ISREG(st.st_mode))
        return set_file_error(text, TEFF_E_IO, path, "not a regular file");
    if (st.st_size > 0 && st.st_size < HEADER_BYTES)
        return set_file_error(text, TEFF_E_MALFORMED, path, "not an SQLite database");
    return TEFF_OK;
}

/* Opens or creates the file and sets the connection's options; the caller closes *db, also on an
 * error. A relative path is prefixed with "./", because SQLite would not take ":memory:" or a name
 * that begins with "file:" as the name of a file. */
static teff_err open_database(sqlite3 **db, const char *path, char *text)
{
    char name[PATH_MAX_BYTES + 8];
    snprintf(name, sizeof name, "%s%s", path[0] == '/' ? "" : "./", path);
    int flags =
        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE;
    int rc = sqlite3_open_v2(name, db, flags, NULL);
    if (rc == SQLITE_NOMEM || !*db)
        return set_file_error(text, TEFF_E_NOMEM, path, "out of memory");
    if (rc != SQLITE_OK) {
        int error = sqlite3_system_errno(*db);
        return set_file_error(text, TEFF_E_IO, path, "cannot be opened: %s",
                              error ? strerror(error) : sqlite3_errstr(rc));
    }
    if (sqlite3_db_readonly(*db, "main") == 1)
        return set_file_error(text, TEFF_E_IO, path, "not writable");
    if (is_on_network(name))
        return set_file_error(text, TEFF_E_REFUSED, path,
                              "on a network file system: one host's disk only");
    sqlite3_extended_result_codes(*db, 1);
    sqlite3_busy_timeout(*db, TEFFI_SQLITE_BUSY_MS);
    sqlite3_db_config(*db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(*db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    return TEFF_OK;
}

/* Reads the numbers that identify the file. One statement reads all, because another process may
 * create the tables at the same time. out: SQLite's code. */
static int read_identity(sqlite3 *db, int64_t id[ID_COUNT])
{
    return query_numbers(db,
                         "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema)"
                         " FROM pragma_application_id, pragma_user_version",
                         id);
}

static bool is_new_file(const int64_t id[ID_COUNT])
{
    return id[ID_APPLICATION] == 0 && id[ID_VERSION] == 0 && id[ID_TABLES] == 0;
}

/* Creates the tables of a new file, unless another process has just created them: of several
 * processes, the one that locks the file first creates them. out: SQLite's code. */
static int create_tables(sqlite3 *db)
{
    int64_t id[ID_COUNT];
    char sql[1000];
    int rc = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    if (rc != SQLITE_OK)
        return rc;
    rc = read_identity(db, id);
    if (rc == SQLITE_OK && is_new_file(id)) {
        snprintf(sql, sizeof sql,
                 "PRAGMA application_id = %d; PRAGMA user_version = %d; " SCHEMA_ROWS
                 "; " SCHEMA_ETAGS "; INSERT INTO etags(id, etag, sum) VALUES(1, 0, %lld)",
                 APPLICATION_ID, SCHEMA_VERSION, (long long)teffi_sqlite_etag_checksum(0));
        rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
    }
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    if (!sqlite3_get_autocommit(db)) /* the transaction is still open */
        sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    return rc;
}

static teff_err check_identity(const int64_t id[ID_COUNT], const char *path, char *text)
{
    if (id[ID_APPLICATION] != APPLICATION_ID)
        return set_file_error(
            text, TEFF_E_REFUSED, path,
            "another application's database (application id 0x%llx), left untouched",
            (unsigned long long)id[ID_APPLICATION]);
    if (id[ID_VERSION] != SCHEMA_VERSION)
        return set_file_error(text, TEFF_E_REFUSED, path,
                              "schema version %lld, this program knows %d",
                              (long long)id[ID_VERSION], SCHEMA_VERSION);
    return TEFF_OK;
}

/* Sets up the database, and checks that it is a store: creates the tables if the file is new,
 * checks the file's identity, and runs the queries in `checks`. The first of these queries also
 * sets WAL mode and the connection's other options. out: *rc: SQLITE_OK if no statement failed;
 * otherwise SQLite's code. If it is BUSY, the caller tries again. */
static teff_err set_up_and_check_database(sqlite3 *db, const char *path, char *text, int *rc)
{
    int64_t id[ID_COUNT];
    *rc = read_identity(db, id);
    if (*rc == SQLITE_OK && is_new_file(id)) {
        *rc = create_tables(db);
        if (*rc == SQLITE_OK)
            *rc = read_identity(db, id);
    }
    teff_err err = *rc == SQLITE_OK ? check_identity(id, path, text) : TEFF_OK;
    for (size_t i = 0; *rc == SQLITE_OK && err == TEFF_OK && i < sizeof checks / sizeof *checks;
         i++) {
        int64_t good = 0;
        *rc = query_numbers(db, checks[i].sql, &good);
        if (*rc == SQLITE_OK && !good)
            err = set_file_error(text, checks[i].err, path, "%s", checks[i].wrong);
    }
    return *rc == SQLITE_OK ? err : set_file_error_from_code(text, path, *rc);
}

/* Repeats set_up_and_check_database() while another process has locked the file, at most
 * TEFFI_SQLITE_BUSY_TRIES times. */
static teff_err set_up_and_check_with_retries(sqlite3 *db, const char *path, char *text)
{
    int rc = SQLITE_OK;
    teff_err err = TEFF_OK;
    for (int i = 0; i < TEFFI_SQLITE_BUSY_TRIES; i++) {
        err = set_up_and_check_database(db, path, text, &rc);
        if (!teffi_sqlite_has_primary_code(rc, SQLITE_BUSY))
            break;
        sqlite3_sleep(TEFFI_SQLITE_BUSY_MS); /* setting WAL mode ignores the busy timeout */
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
        err = set_up_and_check_with_retries(file->db, path, text);
    int rc = err == TEFF_OK ? teffi_sqlite_prepare(file) : SQLITE_OK;
    if (rc != SQLITE_OK)
        err = set_file_error_from_code(text, path, rc);
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
}
