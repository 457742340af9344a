/* test_conformance.c - the suite, for each engine that needs no server. */
#include "conformance.h"
#include "scratch.h"
#include "sqlite_shim.h"

#include <sqlite3.h>
#include <string.h>

static void memory_fresh(char *address)
{
    strcpy(address, "memory");
}

#define IN_MEMORY "an operation on this process's memory ends within submit"
#define LOCAL "the file is in this machine, and no server is between"

static const conf_faults memory_faults = {.lacks = {
                                              [CONF_CONFLICT] = IN_MEMORY,
                                              [CONF_UNKNOWN_BEFORE] = IN_MEMORY,
                                              [CONF_UNKNOWN_AFTER] = IN_MEMORY,
                                              [CONF_SLOW] = IN_MEMORY,
                                              [CONF_SILENT] = IN_MEMORY,
                                              [CONF_LOST] = IN_MEMORY,
                                              [CONF_RESTARTED] = "its rows end with the process",
                                              [CONF_FULL] = IN_MEMORY,
                                              [CONF_REPLICA] = IN_MEMORY,
                                              [CONF_DAMAGED] = "its bytes are this process's own",
                                          }};

static void change_row_a(const char *path)
{
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(
        sqlite3_exec(db, "UPDATE rows SET value = x'626164' WHERE key = x'61'", NULL, NULL, NULL),
        SQLITE_OK);
    assert_int_equal(sqlite3_changes(db), 1);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* The first call after this is the one of the suite's store. A row that was not synced may have
 * been written in part. */
static void begin_sqlite_fault(conf_fault f, const char *address)
{
    static const shim_fault kinds[CONF_FAULTS] = {[CONF_CONFLICT] = SHIM_HOLD_WRITER,
                                                  [CONF_UNKNOWN_BEFORE] = SHIM_FAIL_WRITE,
                                                  [CONF_SLOW] = SHIM_HOLD_SYNC,
                                                  [CONF_FULL] = SHIM_FAIL_FULL};
    if (f == CONF_DAMAGED)
        change_row_a(address + strlen("sqlite:"));
    else
        sqlite_shim_arm(kinds[f], 0, f == CONF_FULL);
}

static void await_sqlite_fault(conf_fault f)
{
    if (f == CONF_CONFLICT || f == CONF_SLOW)
        sqlite_shim_await_held();
}

static void end_sqlite_fault(conf_fault f, const char *address)
{
    (void)address;
    if (f != CONF_UNKNOWN_BEFORE) /* which ends with the first write */
        sqlite_shim_arm(SHIM_NONE, 0, false);
}

static const conf_faults sqlite_faults = {
    .lacks =
        {
            [CONF_UNKNOWN_AFTER] =
                "SQLite takes back a commit whose sync fails; only a crash may keep it, see "
                "test_sqlite_faults",
            [CONF_SILENT] = "a call of the file system has no time limit",
            [CONF_LOST] = LOCAL,
            [CONF_RESTARTED] = "the suite kills the process, which is the server",
            [CONF_REPLICA] = LOCAL,
        },
    .damaged_err = TEFF_E_MALFORMED,
    .begin = begin_sqlite_fault,
    .await = await_sqlite_fault,
    .end = end_sqlite_fault,
};

int main(int argc, char **argv)
{
    static const conf_engine engines[] = {
        {.name = "memory", .fresh = memory_fresh, .faults = &memory_faults},
        {.name = "sqlite", .fresh = scratch_fresh, .shared = true, .faults = &sqlite_faults},
        {.name = "sqlite, reopened", .fresh = scratch_fresh, .shared = true, .reopens = true},
    };
    int failed = conf_child(argc, argv);
    if (failed >= 0)
        return failed;
    failed = scratch_open() == 0 && sqlite_shim_install() ? 0 : 1;
    for (size_t i = 0; i < sizeof engines / sizeof engines[0] && failed == 0; i++)
        failed += conf_run(&engines[i]);
    sqlite_shim_remove();
    scratch_close();
    return failed;
}
