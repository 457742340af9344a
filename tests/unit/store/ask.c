/* ask.c - a store asked synchronously. */
#include "ask.h"

#include <string.h>
#include "test.h"

teffi_store *ask_open(const char *address)
{
    char text[TEFF_TEXT_MAX];
    teffi_store *store;
    if (teffi_store_open(address, &store, text) != TEFF_OK)
        fail_msg("%s: %s", address, text);
    return store;
}

void ask_expect_refused(const char *address, teff_err err, const char *why)
{
    char text[TEFF_TEXT_MAX] = "opened";
    teffi_store *store;
    if (teffi_store_open(address, &store, text) != err)
        fail_msg("%s: %s", address, text);
    assert_null(store);
    if (!strstr(text, why))
        fail_msg("'%s' lacks '%s'", text, why);
}

static void wake_asker(teffi_store_op *op)
{
    ask_op *a = (ask_op *)op;
    pthread_mutex_lock(&a->lock);
    a->done = true;
    pthread_cond_signal(&a->wake);
    pthread_mutex_unlock(&a->lock);
}

void ask_start(teffi_store *store, ask_op *a)
{
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->wake, NULL);
    a->done = false;
    a->op.done = wake_asker;
    teffi_store_submit(store, &a->op);
}

teff_err ask_wait(ask_op *a)
{
    pthread_mutex_lock(&a->lock);
    while (!a->done)
        pthread_cond_wait(&a->wake, &a->lock);
    pthread_mutex_unlock(&a->lock);
    pthread_cond_destroy(&a->wake);
    pthread_mutex_destroy(&a->lock);
    return a->op.err;
}

teff_err ask(teffi_store *store, teffi_store_op *op)
{
    ask_op a = {.op = *op};
    ask_start(store, &a);
    ask_wait(&a);
    *op = a.op;
    return op->err;
}

teffi_bytes ask_str(const char *text)
{
    return (teffi_bytes){text, strlen(text)};
}

teff_err ask_put(teffi_store *store, const char *table, teffi_bytes key, teffi_bytes value,
                 uint64_t *etag)
{
    teffi_row row = {.table = table, .key = key, .value = value, .etag = *etag};
    teffi_store_op op = {.kind = TEFFI_STORE_WRITE, .rows = &row, .n_rows = 1};
    teff_err err = ask(store, &op);
    *etag = row.etag;
    return err;
}

teff_err ask_remove(teffi_store *store, const char *table, teffi_bytes key, uint64_t *etag)
{
    teffi_row row = {.table = table, .key = key, .etag = *etag, .remove = true};
    teffi_store_op op = {.kind = TEFFI_STORE_WRITE, .rows = &row, .n_rows = 1};
    teff_err err = ask(store, &op);
    *etag = row.etag;
    return err;
}

teff_err ask_get(teffi_store *store, teff_arena *arena, const char *table, teffi_bytes key,
                 teffi_bytes *value, uint64_t *etag)
{
    teffi_row row = {.table = table, .key = key};
    teffi_store_op op = {.kind = TEFFI_STORE_READ, .rows = &row, .n_rows = 1, .arena = arena};
    teff_err err = ask(store, &op);
    *value = row.value;
    *etag = row.etag;
    return err;
}

static teff_err increment_once(teffi_store *store, const char *key)
{
    teff_arena arena;
    teffi_bytes value;
    uint64_t etag, number = 0;
    teffi_arena_init(&arena, NULL, 0, 0);
    teff_err err = ask_get(store, &arena, "numbers", ask_str(key), &value, &etag);
    if (err == TEFF_OK && value.len == sizeof number)
        memcpy(&number, value.data, sizeof number);
    teffi_arena_fini(&arena);
    number++;
    if (err == TEFF_OK)
        err = ask_put(store, "numbers", ask_str(key), (teffi_bytes){&number, sizeof number}, &etag);
    return err;
}

teff_err ask_increment(teffi_store *store, const char *key, unsigned n)
{
    teff_err err = TEFF_OK;
    while (n > 0 && (err == TEFF_OK || err == TEFF_E_CONFLICT)) {
        err = increment_once(store, key);
        n -= err == TEFF_OK;
    }
    return err;
}

uint64_t ask_number(teffi_store *store, const char *key)
{
    teff_arena arena;
    teffi_bytes value;
    uint64_t etag, number = UINT64_MAX;
    teffi_arena_init(&arena, NULL, 0, 0);
    if (ask_get(store, &arena, "numbers", ask_str(key), &value, &etag) == TEFF_OK &&
        value.len == sizeof number)
        memcpy(&number, value.data, sizeof number);
    teffi_arena_fini(&arena);
    return number;
}
