/* conformance.h - what every engine of the store must do, in one suite.
 * Way:     test_conformance, test_NAME_conformance -> [conformance] -> store/store
 * A new engine adds one conf_engine: to test_conformance.c, or in a test of its own. */
#pragma once

#include "ask.h"
#include "setup.h"

enum { CONF_ADDRESS_MAX = 512 };

/* What can go wrong between a store and its rows. */
typedef enum conf_fault {
    CONF_CONFLICT,       /* another client writes the row while a write is on its way */
    CONF_UNKNOWN_BEFORE, /* the outcome of a write is lost, and it has not run */
    CONF_UNKNOWN_AFTER,  /* the same, and it has run */
    CONF_SLOW,           /* results come late */
    CONF_SILENT,         /* results do not come */
    CONF_LOST,           /* no connection, and none can be made */
    CONF_RESTARTED,      /* the server is killed, and starts again */
    CONF_FULL,           /* there is no room for another row */
    CONF_REPLICA,        /* after a fail-over the server is a read-only replica */
    CONF_DAMAGED,        /* other bytes are in the value of row `a` of table `words` */
    CONF_FAULTS
} conf_fault;

/* How an engine meets the faults. All functions run on the test's main thread. */
typedef struct conf_faults {
    const char *lacks[CONF_FAULTS]; /* why a fault cannot be, or where it is tested; NULL: here */
    /* UNKNOWN is reported when the server can be reached again, not when the connection is lost */
    bool doubt_waits;
    bool serves_on; /* others serve while a server is dead */
    /* a write that expects the etag of a damaged row gets this error; TEFF_OK: it replaces the row,
     * because the engine compares only etags */
    teff_err damaged_err;
    /* out: via: the address of the same rows, but what it does meets the faults. NULL: any does */
    void (*open)(const char *address, char *via);
    void (*begin)(conf_fault f, const char *address);
    void (*await)(conf_fault f); /* until an operation, or a connection, has met the fault */
    void (*end)(conf_fault f, const char *address);
    void (*late)(void); /* what was lost with CONF_UNKNOWN_BEFORE reaches the server; may be NULL */
    void (*close)(void);
} conf_faults;

typedef struct conf_engine {
    const char *name;
    void (*fresh)(char *address); /* writes the address of an empty store, CONF_ADDRESS_MAX bytes */
    bool shared;  /* rows outlive a close, and handles and processes of one address share them */
    bool reopens; /* close and open again before each operation of the suite's own thread */
    /* limits lower than the contract's: bytes of a value, rows of a batch; 0: the contract's */
    size_t value_max, batch_max;
    const conf_faults *faults; /* not used if reopens is set */
} conf_engine;

/* One test's store. */
typedef struct conf_env {
    const conf_engine *engine;
    char address[CONF_ADDRESS_MAX];
    teffi_store *store;
    teff_arena arena;
} conf_env;

int conf_setup(void **state); /* *state: the conf_engine; after: a conf_env with an open store */
int conf_teardown(void **state);

/* conf_store - the store to ask next: engines with reopens set get a new handle. */
teffi_store *conf_store(conf_env *env);

/* conf_run - the suite for one engine. out: the number of failed tests. */
int conf_run(const conf_engine *engine);
int conf_run_model(const conf_engine *engine);     /* part of it: random operations, checked */
int conf_run_threads(const conf_engine *engine);   /* part of it: threads, close */
int conf_run_processes(const conf_engine *engine); /* part of it: handles, processes, kill */
int conf_run_faults(const conf_engine *engine);    /* part of it: faults, each of the table */

/* conf_child - the part of main() for child processes of conf_run_processes.
 * out: their exit code, or -1: this is the test itself. */
int conf_child(int argc, char **argv);
