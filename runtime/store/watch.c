/* watch.c - a list of watchers and their hints. */
#include "store/watch.h"

#include <stdlib.h>
#include <string.h>

struct teffi_watcher {
    teffi_watcher *next;
    teffi_store_hint *hint;
    void *arg;
    char table[TEFFI_STORE_TABLE_MAX + 1];
};

void teffi_watch_init(teffi_watch *watch)
{
    memset(watch, 0, sizeof *watch);
    pthread_mutex_init(&watch->lock, NULL);
}

void teffi_watch_fini(teffi_watch *watch)
{
    teffi_watcher *w = watch->list;
    while (w) {
        teffi_watcher *next = w->next;
        free(w);
        w = next;
    }
    pthread_mutex_destroy(&watch->lock);
}

static teffi_watcher **find(teffi_watch *watch, const char *table, const void *arg)
{
    teffi_watcher **at = &watch->list;
    while (*at && ((*at)->arg != arg || strcmp((*at)->table, table) != 0))
        at = &(*at)->next;
    return at;
}

static teff_err add(teffi_watch *watch, const char *table, teffi_store_hint *hint, void *arg)
{
    if (watch->count == TEFFI_WATCHERS_MAX)
        return TEFF_E_OVERLOADED;
    teffi_watcher *w = calloc(1, sizeof *w);
    if (!w)
        return TEFF_E_NOMEM;
    w->hint = hint;
    w->arg = arg;
    memcpy(w->table, table, strlen(table) + 1);
    w->next = watch->list;
    watch->list = w;
    watch->count++;
    return TEFF_OK;
}

teff_err teffi_watch_set(teffi_watch *watch, const char *table, teffi_store_hint *hint, void *arg)
{
    teff_err err = TEFF_OK;
    pthread_mutex_lock(&watch->lock);
    teffi_watcher **at = find(watch, table, arg);
    teffi_watcher *w = *at;
    if (w && hint) {
        w->hint = hint;
    } else if (w) {
        *at = w->next;
        watch->count--;
        free(w);
    } else if (hint) {
        err = add(watch, table, hint, arg);
    }
    pthread_mutex_unlock(&watch->lock);
    return err;
}

void teffi_watch_tell(teffi_watch *watch, const char *table, teffi_bytes key)
{
    pthread_mutex_lock(&watch->lock);
    for (teffi_watcher *w = watch->list; w; w = w->next)
        if (!table || strcmp(w->table, table) == 0)
            w->hint(w->arg, w->table, key);
    pthread_mutex_unlock(&watch->lock);
}

void teffi_watch_rows(teffi_watch *watch, const teffi_row *rows, size_t n_rows)
{
    if (!teffi_watch_any(watch))
        return;
    for (size_t i = 0; i < n_rows; i++)
        teffi_watch_tell(watch, rows[i].table, rows[i].key);
}

bool teffi_watch_any(teffi_watch *watch)
{
    pthread_mutex_lock(&watch->lock);
    bool any = watch->list != NULL;
    pthread_mutex_unlock(&watch->lock);
    return any;
}
