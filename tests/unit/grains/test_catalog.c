/* test_catalog.c - activations found without a lock: two of one hash, and among many that come and
 * go. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "base/hash.h"
#include "ident.h"
#include "lab.h"

static lab *l;

static int setup(void **state)
{
    (void)state;
    l = lab_open(1);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    lab_close(l);
    return 0;
}

/* ---- twins ---- */

/* What teffi_hash64 holds after its first eight bytes. */
static uint64_t half_way(uint64_t first)
{
    uint64_t h = 0xcbf29ce484222325u ^ teffi_mix64((uint64_t)lab_ids_info.id + 16);
    return teffi_mix64(h ^ first) * 0x100000001b3u;
}

static teff_uuid uuid_of(uint64_t first, uint64_t second)
{
    teff_uuid uuid;
    memcpy(uuid.bytes, &first, 8);
    memcpy(uuid.bytes + 8, &second, 8);
    return uuid;
}

static void assert_is(teff_uuid key)
{
    char text[40];
    lab_text *out;
    for (int i = 0; i < 16; i++)
        snprintf(text + 2 * i, 3, "%02x", key.bytes[i]);
    lab_ok(l->ctx[0], lab_ids_who(l->ctx[0], key, &out));
    assert_string_equal(out->text, text);
}

static void two_grains_of_one_hash_live_side_by_side(void **state)
{
    teff_uuid a = uuid_of(1, 2), b = uuid_of(77, 2 ^ half_way(1) ^ half_way(77));
    (void)state;
    assert_int_equal(teffi_ident_of(lab_ids_info.id, a.bytes, 16).hash,
                     teffi_ident_of(lab_ids_info.id, b.bytes, 16).hash);
    assert_memory_not_equal(a.bytes, b.bytes, 16);
    for (int i = 0; i < 10; i++) {
        assert_is(a);
        assert_is(b);
    }
}

/* ---- among many ---- */

enum { CALLERS = 3, KEYS = 400, CALLS = 4000 };

typedef struct caller {
    pthread_t thread;
    teff_ctx *ctx;
    unsigned no;
    teff_err err;
} caller;

/* Grains end and come back under other grains' memory while all of them are called. */
static void *add_here_and_there(void *arg)
{
    caller *c = arg;
    char key[20];
    lab_number *out;
    for (unsigned i = 0; i < CALLS && !c->err; i++) {
        snprintf(key, sizeof key, "key-%u", (i * 17 + c->no * 5) % KEYS);
        c->err = lab_account_add(c->ctx, key, lab_number(.n = 1), &out);
        if (!c->err && i % 3 == 0)
            c->err = lab_account_quit(c->ctx, key);
        if (i % 50 == 0)
            teff_ctx_reset(c->ctx);
    }
    return NULL;
}

static void every_call_reaches_its_grain_while_others_end(void **state)
{
    caller callers[CALLERS] = {0};
    char key[20];
    lab_number *out;
    int64_t sum = 0;
    (void)state;
    for (unsigned i = 0; i < CALLERS; i++) {
        callers[i].ctx = teff_silo_ctx(l->silos[0]);
        callers[i].no = i;
        assert_int_equal(pthread_create(&callers[i].thread, NULL, add_here_and_there, &callers[i]),
                         0);
    }
    for (unsigned i = 0; i < CALLERS; i++) {
        pthread_join(callers[i].thread, NULL);
        lab_ok(callers[i].ctx, callers[i].err);
        teff_ctx_free(callers[i].ctx);
    }
    for (unsigned i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "key-%u", i);
        lab_ok(l->ctx[0], lab_account_add(l->ctx[0], key, lab_number(.n = 0), &out));
        sum += out->n;
    }
    assert_int_equal(sum, CALLERS * CALLS);
}

int main(void)
{
#define CATALOG(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CATALOG(two_grains_of_one_hash_live_side_by_side),
        CATALOG(every_call_reaches_its_grain_while_others_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
