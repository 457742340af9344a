/* sqlite_shim.h - a file layer (VFS) of SQLite whose calls fail, or wait, when a test says so.
 * Way:     test_sqlite_faults, test_conformance -> [sqlite_shim] <- store/sqlite
 * Threads: the functions are for the test's main one. */
#pragma once

#include <stdbool.h>

typedef enum shim_fault {
    SHIM_NONE,
    SHIM_FAIL_WRITE, /* a write fails, and half of it is written */
    SHIM_FAIL_SYNC,
    SHIM_FAIL_FULL, /* a write fails, as the disk is full */
    SHIM_FAIL_READ,
    SHIM_HOLD_SYNC,  /* a sync waits until the next sqlite_shim_arm */
    SHIM_HOLD_WRITER /* the same, for a writer before it takes the log's lock */
} shim_fault;

/* sqlite_shim_install - all files that are opened from now on are the shim's. out: it worked. */
bool sqlite_shim_install(void);
void sqlite_shim_remove(void);

/* sqlite_shim_arm - let call number `from` of the fault's kind fail or wait, counted from 0.
 * in:   all: also all calls after it. SHIM_NONE: none. */
void sqlite_shim_arm(shim_fault f, int from, bool all);

int sqlite_shim_count_hits(void); /* calls that failed or waited; SHIM_NONE keeps the number */

void sqlite_shim_await_held(void); /* until a call waits */
