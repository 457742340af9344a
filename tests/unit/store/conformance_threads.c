/* conformance_threads.c - the suite's threads: many at once, groups, hints, close.
 * Threads collect what they saw; only the main thread asserts. */
#include "conformance.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { THREADS = 8, INCREMENTS = 50, FLIGHT = 64 };

typedef struct worker {
    pthread_t thread;
    teffi_store *store;
    teff_err err;
} worker;

static void *increment(void *arg)
{
    worker *w = arg;
    w->err = ask_increment(w->store, "shared", INCREMENTS);
    return NULL;
}

/* in: handles: each worker has a handle of its own, if the engine's handles share rows. */
static void run_workers(conf_env *env, void *(*fn)(void *arg), bool handles)
{
    worker workers[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        bool own = handles && env->engine->shared;
        workers[i] = (worker){.store = own ? ask_open(env->address) : env->store};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, fn, &workers[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        if (workers[i].store != env->store)
            teffi_store_close(workers[i].store);
        assert_int_equal(workers[i].err, TEFF_OK);
    }
}

static void increments_from_many_threads(void **state)
{
    conf_env *env = *state;
    run_workers(env, increment, false);
    assert_int_equal(ask_number(env->store, "shared"), THREADS * INCREMENTS);
}

static _Atomic uint64_t last_etag; /* of the row; written by the worker that has created it */
static atomic_bool etag_fell;

static void note_etag(uint64_t etag)
{
    if (etag <= atomic_exchange(&last_etag, etag))
        etag_fell = true;
}

/* Until a worker removes the row that it has created, no other worker writes the row. */
static void *create_and_remove(void *arg)
{
    worker *w = arg;
    for (int i = 0; i < INCREMENTS && !w->err; i++) {
        uint64_t etag = 0;
        w->err = ask_put(w->store, "words", ask_str("row"), ask_str("x"), &etag);
        if (w->err == TEFF_E_CONFLICT) {
            w->err = TEFF_OK;
            continue;
        }
        note_etag(etag);
        if (!w->err)
            w->err = ask_put(w->store, "words", ask_str("row"), ask_str("y"), &etag);
        note_etag(etag);
        if (!w->err)
            w->err = ask_remove(w->store, "words", ask_str("row"), &etag);
    }
    return NULL;
}

static void etags_rise_over_removals(void **state)
{
    last_etag = 0;
    etag_fell = false;
    run_workers(*state, create_and_remove, true);
    assert_int_not_equal(last_etag, 0);
    assert_false(etag_fell);
}

/* A flight of writes that are all submitted before any is waited for. */
typedef struct flight {
    ask_op op[FLIGHT];
    teffi_row rows[FLIGHT][2];
    char keys[FLIGHT][8];
} flight;

static void fly(teffi_store *store, flight *f)
{
    for (size_t i = 0; i < FLIGHT; i++)
        ask_start(store, &f->op[i]);
    for (size_t i = 0; i < FLIGHT; i++)
        ask_wait(&f->op[i]);
}

static teffi_row word(const char *key, uint64_t etag)
{
    return (teffi_row){
        .table = "words", .key = ask_str(key), .value = ask_str("new"), .etag = etag};
}

/* Writes and reads of the same rows, submitted by the done() of one operation: an engine with
 * a thread finds all of them when it looks next. */
enum { PAIRS = 40 };

typedef struct pairs {
    teffi_store_op first;
    teffi_store *store;
    teffi_row nothing;
    ask_op write[PAIRS], read[PAIRS];
    teffi_row written[PAIRS], seen[PAIRS];
    char keys[PAIRS][8];
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool submitted; /* guarded by lock */
} pairs;

static void submit_pairs(teffi_store_op *op)
{
    pairs *p = (pairs *)op;
    for (size_t i = 0; i < PAIRS; i++) {
        ask_start(p->store, &p->write[i]);
        if (i > 0)
            ask_start(p->store, &p->read[i - 1]);
    }
    ask_start(p->store, &p->read[PAIRS - 1]);
    pthread_mutex_lock(&p->lock);
    p->submitted = true;
    pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->lock);
}

static void fill_pairs(pairs *p, teff_arena *arena)
{
    p->nothing = (teffi_row){.table = "words", .key = ask_str("nothing")};
    p->first = (teffi_store_op){.kind = TEFFI_STORE_READ,
                                .rows = &p->nothing,
                                .n_rows = 1,
                                .arena = arena,
                                .done = submit_pairs};
    for (size_t i = 0; i < PAIRS; i++) {
        snprintf(p->keys[i], sizeof p->keys[i], "p%zu", i);
        p->written[i] = word(p->keys[i], 0);
        p->seen[i] = (teffi_row){.table = "words", .key = ask_str(p->keys[i])};
        p->write[i].op = (teffi_store_op){
            .kind = TEFFI_STORE_WRITE, .rows = &p->written[i], .n_rows = 1, .arena = arena};
        p->read[i].op = (teffi_store_op){
            .kind = TEFFI_STORE_READ, .rows = &p->seen[i], .n_rows = 1, .arena = arena};
    }
}

static void a_read_sees_the_writes_before_it(void **state)
{
    static pairs p;
    conf_env *env = *state;
    p = (pairs){.store = env->store};
    pthread_mutex_init(&p.lock, NULL);
    pthread_cond_init(&p.wake, NULL);
    fill_pairs(&p, &env->arena);
    teffi_store_submit(env->store, &p.first);
    pthread_mutex_lock(&p.lock);
    while (!p.submitted)
        pthread_cond_wait(&p.wake, &p.lock);
    pthread_mutex_unlock(&p.lock);
    for (size_t i = 0; i < PAIRS; i++) {
        assert_int_equal(ask_wait(&p.write[i]), TEFF_OK);
        assert_int_equal(ask_wait(&p.read[i]), TEFF_OK);
        assert_int_equal(p.seen[i].etag, p.written[i].etag);
    }
    pthread_cond_destroy(&p.wake);
    pthread_mutex_destroy(&p.lock);
}

/* Each third op has a stale etag in its second row: it must fail alone, with its first row. */
static void conflicts_fail_alone(void **state)
{
    static flight f;
    conf_env *env = *state;
    for (unsigned i = 0; i < FLIGHT; i++) {
        snprintf(f.keys[i], sizeof f.keys[i], "a%02u", i);
        f.rows[i][0] = word(f.keys[i], 0);
        f.rows[i][1] = word(f.keys[i], i % 3 == 0 ? 99 : 0);
        f.rows[i][1].table = "other";
        f.op[i].op = (teffi_store_op){.kind = TEFFI_STORE_BATCH, .rows = f.rows[i], .n_rows = 2};
    }
    fly(env->store, &f);
    for (unsigned i = 0; i < FLIGHT; i++) {
        teffi_bytes value;
        uint64_t etag = 0;
        bool lost = i % 3 == 0;
        assert_int_equal(f.op[i].op.err, lost ? TEFF_E_CONFLICT : TEFF_OK);
        for (unsigned k = 0; k < 2; k++) {
            assert_int_equal(ask_get(env->store, &env->arena, f.rows[i][k].table, f.rows[i][k].key,
                                     &value, &etag),
                             TEFF_OK);
            assert_int_equal(etag, lost ? 0 : f.rows[i][k].etag);
        }
    }
}

static void one_of_many_creates_wins(void **state)
{
    static flight f;
    conf_env *env = *state;
    unsigned won = 0;
    uint64_t etag = 0, winner = 0;
    teffi_bytes value;
    for (size_t i = 0; i < FLIGHT; i++) {
        f.rows[i][0] = word("one", 0);
        f.op[i].op = (teffi_store_op){.kind = TEFFI_STORE_WRITE, .rows = f.rows[i], .n_rows = 1};
    }
    fly(env->store, &f);
    for (size_t i = 0; i < FLIGHT; i++) {
        won += f.op[i].op.err == TEFF_OK;
        winner += f.rows[i][0].etag;
        assert_true(f.op[i].op.err == TEFF_OK || f.op[i].op.err == TEFF_E_CONFLICT);
    }
    assert_int_equal(won, 1);
    assert_int_equal(ask_get(env->store, &env->arena, "words", ask_str("one"), &value, &etag), 0);
    assert_int_equal(etag, winner);
}

static void put(teffi_store *store, const char *table, const char *key)
{
    teffi_row row = {.table = table, .key = ask_str(key), .any = true};
    teffi_store_op op = {.kind = TEFFI_STORE_WRITE, .rows = &row, .n_rows = 1};
    assert_int_equal(ask(store, &op), TEFF_OK);
}

static void closed_after_stop(void **state)
{
    conf_env *env = *state;
    teffi_bytes value;
    uint64_t etag = 0;
    put(env->store, "words", "a");
    env->store->ops->close(env->store);
    env->store->ops->close(env->store);
    assert_int_equal(ask_put(env->store, "words", ask_str("b"), ask_str("x"), &etag),
                     TEFF_E_CLOSED);
    assert_int_equal(ask_get(env->store, &env->arena, "words", ask_str("a"), &value, &etag),
                     TEFF_E_CLOSED);
}

/* Everything submitted before the stop is done when the stop returns. */
static void stop_completes(void **state)
{
    static flight f;
    conf_env *env = *state;
    for (unsigned i = 0; i < FLIGHT; i++) {
        snprintf(f.keys[i], sizeof f.keys[i], "s%02u", i);
        f.rows[i][0] = word(f.keys[i], 0);
        f.op[i].op = (teffi_store_op){.kind = TEFFI_STORE_WRITE, .rows = f.rows[i], .n_rows = 1};
        ask_start(env->store, &f.op[i]);
    }
    env->store->ops->close(env->store);
    for (size_t i = 0; i < FLIGHT; i++) {
        assert_true(f.op[i].done);
        assert_int_equal(ask_wait(&f.op[i]), TEFF_OK);
    }
}

static atomic_uint resubmits;

/* An operation whose done() submits the next one, until the store says that it is closed. */
static void again(teffi_store_op *op);
static teffi_store *again_store;

static void again(teffi_store_op *op)
{
    if (op->err == TEFF_E_CLOSED || atomic_fetch_add(&resubmits, 1) >= 1000)
        return;
    teffi_store_submit(again_store, op);
}

static void stop_under_load(void **state)
{
    conf_env *env = *state;
    teffi_row row = {.table = "words", .key = ask_str("a"), .value = ask_str("x"), .any = true};
    teffi_store_op op = {.kind = TEFFI_STORE_WRITE, .rows = &row, .n_rows = 1, .done = again};
    atomic_store(&resubmits, 0);
    again_store = env->store;
    teffi_store_submit(env->store, &op);
    env->store->ops->close(env->store);
    assert_true(op.err == TEFF_E_CLOSED || atomic_load(&resubmits) >= 1000);
}

int conf_run_threads(const conf_engine *engine)
{
#define CASE(f)                                                                                    \
    cmocka_unit_test_prestate_setup_teardown(f, conf_setup, conf_teardown, (void *)engine)
    const struct CMUnitTest tests[] = {
        CASE(increments_from_many_threads),
        CASE(etags_rise_over_removals),
        CASE(a_read_sees_the_writes_before_it),
        CASE(conflicts_fail_alone),
        CASE(one_of_many_creates_wins),
        CASE(closed_after_stop),
        CASE(stop_completes),
        CASE(stop_under_load),
    };
#undef CASE
    return cmocka_run_group_tests_name(engine->name, tests, NULL, NULL);
}
