/* ask.h - a store asked synchronously, for tests: submit an operation, wait for its end, look.
 * Way:     tests -> [ask] -> store/store
 * Threads: any; one ask_op belongs to one thread. */
#pragma once

#include <pthread.h>
#include "store/store.h"

typedef struct ask_op {
    teffi_store_op op;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool done; /* guarded by lock */
} ask_op;

/* ask_open - open a store; the test fails if that fails.
 * ask_expect_refused - the test fails unless the store is refused with err and a text that contains
 * why. */
teffi_store *ask_open(const char *address);
void ask_expect_refused(const char *address, teff_err err, const char *why);

/* ask_start, ask_wait - submit a->op (all but done set by the caller); wait for its end. */
void ask_start(teffi_store *store, ask_op *a);
teff_err ask_wait(ask_op *a);

/* ask - both, for an operation of the caller's. out: op->err; op as the engine left it. */
teff_err ask(teffi_store *store, teffi_store_op *op);

teffi_bytes ask_str(const char *text);

/* One row, by name. *etag: the expected one in, the new one out (on TEFF_OK). */
teff_err ask_put(teffi_store *store, const char *table, teffi_bytes key, teffi_bytes value,
                 uint64_t *etag);
teff_err ask_remove(teffi_store *store, const char *table, teffi_bytes key, uint64_t *etag);
teff_err ask_get(teffi_store *store, teff_arena *arena, const char *table, teffi_bytes key,
                 teffi_bytes *value, uint64_t *etag);

/* ask_increment - add 1 to the number in a row, n times, by read and compare-and-swap.
 * out: TEFF_OK, or the first error that is not a conflict. */
teff_err ask_increment(teffi_store *store, const char *key, unsigned n);

/* ask_number - the number that ask_increment made; UINT64_MAX on an error. */
uint64_t ask_number(teffi_store *store, const char *key);
