/* conformance.h - what every engine of the store must do, in one suite.
 * Way:     test_conformance -> [conformance] -> store/store
 * A new engine adds one conf_engine to test_conformance.c. */
#pragma once

#include "ask.h"
#include "setup.h"

enum { CONF_ADDRESS_MAX = 512 };

typedef struct conf_engine {
    const char *name;
    void (*fresh)(char *address); /* writes the address of an empty store, CONF_ADDRESS_MAX bytes */
    bool shared;  /* rows outlive a close, and handles and processes of one address share them */
    bool reopens; /* close and open again before each operation of the suite's own thread */
    /* limits lower than the contract's: bytes of a value, rows of a batch; 0: the contract's */
    size_t value_max, batch_max;
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

/* conf_child - the part of main() for child processes of conf_run_processes.
 * out: their exit code, or -1: this is the test itself. */
int conf_child(int argc, char **argv);
