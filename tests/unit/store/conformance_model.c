/* conformance_model.c - the suite's long walk: random operations against a plain array.
 * The seed is printed when it fails; TEFF_SEED replays it. */
#include "conformance.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/hash.h"

enum { KEYS = 40, STEPS = 3000, REOPEN_EVERY = 100, BATCH = 4 };

/* What the store must hold: row k is (tables[k % 2], keys[k]). */
typedef struct model {
    conf_env *env;
    uint64_t seed, draws;
    uint64_t etag[KEYS];  /* 0: not there */
    uint64_t last[KEYS];  /* the highest ever seen */
    uint64_t value[KEYS]; /* the row's value, eight bytes */
    char key[KEYS][8];
} model;

static const char *const tables[] = {"even", "odd"};

static unsigned draw(model *m, unsigned n)
{
    return (unsigned)(teffi_mix64(m->seed + ++m->draws * 0x9e3779b97f4a7c15u) % n);
}

static bool check_get(model *m, unsigned k)
{
    teff_arena arena;
    teffi_bytes value;
    uint64_t etag, number = 0;
    teffi_arena_init(&arena, NULL, 0, 0);
    bool good = ask_get(m->env->store, &arena, tables[k % 2], ask_str(m->key[k]), &value, &etag) ==
                    TEFF_OK &&
                etag == m->etag[k];
    if (good && etag) {
        good = value.len == sizeof number;
        memcpy(&number, value.data, good ? sizeof number : 0);
    }
    teffi_arena_fini(&arena);
    return good && (!etag || number == m->value[k]);
}

/* A batch over different rows; now and then with a wrong etag. */
static bool check_batch(model *m)
{
    teffi_row rows[BATCH] = {{0}};
    uint64_t values[BATCH];
    unsigned first = draw(m, KEYS), n = 1 + draw(m, BATCH), wrong = draw(m, 12);
    for (unsigned i = 0; i < n; i++) {
        unsigned k = (first + i * 7) % KEYS;
        values[i] = m->draws;
        rows[i] = (teffi_row){.table = tables[k % 2],
                              .key = ask_str(m->key[k]),
                              .value = {&values[i], sizeof values[i]},
                              .etag = m->etag[k],
                              .remove = draw(m, 3) == 0,
                              .any = draw(m, 8) == 0};
        rows[i].check = !rows[i].remove && !rows[i].any && draw(m, 4) == 0;
    }
    bool conflict = wrong < n && !rows[wrong].any;
    if (wrong < n)
        rows[wrong].etag += 1 + draw(m, 2);
    teffi_store_op op = {.kind = TEFFI_STORE_BATCH, .rows = rows, .n_rows = n};
    if (ask(m->env->store, &op) != (conflict ? TEFF_E_CONFLICT : TEFF_OK))
        return false;
    for (unsigned i = 0; !conflict && i < n; i++) {
        unsigned k = (first + i * 7) % KEYS;
        if (rows[i].check && rows[i].etag != m->etag[k])
            return false;
        if (rows[i].check)
            continue;
        if (rows[i].remove ? rows[i].etag != 0 : rows[i].etag <= m->last[k])
            return false;
        m->etag[k] = rows[i].etag;
        m->value[k] = values[i];
        m->last[k] = rows[i].remove ? m->last[k] : rows[i].etag;
    }
    return true;
}

/* The rows of one table between two keys, as the model has them; keys are in the array's order. */
static bool check_scan(model *m)
{
    teff_arena arena;
    unsigned from = draw(m, KEYS), to = draw(m, KEYS), table = draw(m, 2), limit = 1 + draw(m, 20);
    teffi_row start = {.table = tables[table], .key = ask_str(m->key[from])};
    teffi_arena_init(&arena, NULL, 0, 0);
    teffi_store_op op = {.kind = TEFFI_STORE_SCAN,
                         .rows = &start,
                         .n_rows = 1,
                         .limit = limit,
                         .to = ask_str(m->key[to]),
                         .arena = &arena};
    bool good = ask(m->env->store, &op) == TEFF_OK;
    size_t n = 0;
    for (unsigned k = from; good && k < to && n < limit; k++) {
        if (k % 2 != table || !m->etag[k])
            continue;
        good = n < op.n_found && op.rows[n].etag == m->etag[k] &&
               strcmp(op.rows[n].key.data, m->key[k]) == 0;
        n++;
    }
    good = good && n == op.n_found;
    teffi_arena_fini(&arena);
    return good;
}

static bool step(model *m)
{
    switch (draw(m, 4)) {
    case 0:
        return check_get(m, draw(m, KEYS));
    case 1:
        return check_scan(m);
    default:
        return check_batch(m);
    }
}

static void long_walk(void **state)
{
    const char *seed = getenv("TEFF_SEED");
    model m = {.env = *state, .seed = seed ? strtoull(seed, NULL, 10) : 1};
    for (unsigned k = 0; k < KEYS; k++)
        snprintf(m.key[k], sizeof m.key[k], "k%03u", k);
    for (unsigned i = 1; i <= STEPS; i++) {
        if (i % REOPEN_EVERY == 0)
            conf_store(m.env);
        if (!step(&m))
            fail_msg("TEFF_SEED=%llu: step %u", (unsigned long long)m.seed, i);
    }
    for (unsigned k = 0; k < KEYS; k++)
        assert_true(check_get(&m, k));
}

int conf_run_model(const conf_engine *engine)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate_setup_teardown(long_walk, conf_setup, conf_teardown,
                                                 (void *)engine),
    };
    return cmocka_run_group_tests_name(engine->name, tests, NULL, NULL);
}
