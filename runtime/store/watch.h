/* watch.h - who wants to hear of which table; shared by the engines.
 * Way:     engine, after a commit -> [watch] -> hints
 * Threads: any; hints run under the list's lock, so that none runs once its watch was ended. */
#ifndef TEFFI_STORE_WATCH_H
#define TEFFI_STORE_WATCH_H

#include <pthread.h>
#include "store/store.h"

enum { TEFFI_WATCHERS_MAX = 256 };

typedef struct teffi_watcher teffi_watcher;

typedef struct teffi_watch {
    pthread_mutex_t lock; /* a leaf: nothing is locked under it but by the hints themselves */
    teffi_watcher *list;  /* guarded by lock */
    size_t count;         /* guarded by lock */
} teffi_watch;

void teffi_watch_init(teffi_watch *watch);
void teffi_watch_fini(teffi_watch *watch);

/* teffi_watch_set - add, change or (hint NULL) end the watch of (table, arg); as ops->watch. */
TEFF_MUST_USE teff_err teffi_watch_set(teffi_watch *watch, const char *table,
                                       teffi_store_hint *hint, void *arg);

/* teffi_watch_tell - run the hints of a table. in: table NULL: all of them, each with its table. */
void teffi_watch_tell(teffi_watch *watch, const char *table, teffi_bytes key);

/* teffi_watch_rows - run the hints of each row of a batch. */
void teffi_watch_rows(teffi_watch *watch, const teffi_row *rows, size_t n_rows);

/* teffi_watch_any - does anybody watch? */
bool teffi_watch_any(teffi_watch *watch);

#endif
