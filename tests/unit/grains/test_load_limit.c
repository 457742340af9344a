/* test_load_limit.c - how many states are read from the store at once: the others wait in order,
 * and the limit follows the store's times. Reads of states are held by the test.
 * Way:     turns -> state -> load_limit -> [__wrap_teffi_store_submit] -> store */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "activation/grains.h"
#include "activation/load_limit.h"
#include "lab.h"
#include "silo/silo.h"

enum { MS = 1000 * 1000, GRAINS = 300, LIMIT = 10 };

/* ---- the limit ---- */

static teffi_load_limit l;

static int begin(void **state)
{
    memset(&l, 0, sizeof l);
    teffi_load_limit_init(&l);
    return 0;
}

/* As many loads as the limit allows at once, each of ns. in: full: at least one more waits. */
static uint32_t load_window(uint64_t ns, bool full)
{
    l.was_full = full;
    for (uint32_t i = l.limit; i > 0; i--) {
        teffi_load_limit_enter(&l, NULL);
        teffi_load_limit_leave(&l, ns);
    }
    return l.limit;
}

static void it_grows_while_loads_are_quick_and_others_wait(void **state)
{
    uint32_t before = l.limit;
    assert_int_equal(load_window(MS, false), before);
    for (; before < TEFFI_LOADS_MAX; before = l.limit)
        assert_true(load_window(MS, true) > before);
    assert_int_equal(load_window(MS, true), TEFFI_LOADS_MAX);
    assert_int_equal(l.running, 0);
}

static void it_shrinks_while_loads_are_slow(void **state)
{
    uint32_t before = load_window(MS, false);
    assert_int_equal(load_window(11 * MS, true), before + before / 8); /* not slow yet */
    before = l.limit;
    for (int i = 0; l.limit > TEFFI_LOADS_MIN && i < 100; i++, before = l.limit)
        assert_true(load_window(100 * MS, true) < before);
    assert_int_equal(load_window(100 * MS, true), TEFFI_LOADS_MIN);
    while (l.limit < TEFFI_LOADS_START)
        (void)load_window(MS, true);
}

/* As one that is far away. */
static void a_store_that_is_always_slow_is_not_held_back(void **state)
{
    for (uint32_t before = l.limit; before < TEFFI_LOADS_MAX; before = l.limit)
        assert_true(load_window(80 * MS, true) > before);
}

/* When a store has become slower for good, its new times are the best ones in the end. */
static void the_best_time_is_forgotten(void **state)
{
    (void)load_window(MS, false);
    for (int i = 0; i < 1000 && l.best_ns < 79 * MS; i++)
        (void)load_window(80 * MS, true);
    assert_in_range(l.best_ns, 79 * MS, 80 * MS);
    uint32_t before = l.limit;
    assert_true(load_window(80 * MS, true) > before);
}

/* ---- activations ---- */

static _Atomic unsigned reads, places, held;
static _Atomic bool hold;
static teffi_store_op *_Atomic ops[GRAINS];
static teffi_store *_Atomic store;

void __real_teffi_store_submit(teffi_store *to, teffi_store_op *op);
void __wrap_teffi_store_submit(teffi_store *to, teffi_store_op *op);

void __wrap_teffi_store_submit(teffi_store *to, teffi_store_op *op)
{
    if (op->kind == TEFFI_STORE_READ && !strcmp(op->rows[0].table, "state")) {
        reads++;
        if (hold) {
            store = to;
            ops[places++] = op;
            held++;
            return;
        }
    }
    __real_teffi_store_submit(to, op);
}

static uint32_t count_waiting(teffi_load_limit *limit)
{
    pthread_mutex_lock(&limit->lock);
    uint32_t n = limit->n_waiting;
    pthread_mutex_unlock(&limit->lock);
    return n;
}

static uint32_t count_running(teffi_load_limit *limit)
{
    pthread_mutex_lock(&limit->lock);
    uint32_t n = limit->running;
    pthread_mutex_unlock(&limit->lock);
    return n;
}

/* No more than the limit at once, in order, and each gets its turn. */
static void activations_wait_for_each_other(void **state)
{
    lab *one = lab_open(1);
    teffi_load_limit *limit = one->silos[0]->node.grains->load_limit;
    teff_call calls[GRAINS];
    char key[24];
    limit->limit = LIMIT;
    hold = true;
    for (int i = 0; i < GRAINS; i++) {
        snprintf(key, sizeof key, "grain %d", i);
        lab_ok(one->ctx[0],
               lab_account_add_async(one->ctx[0], key, lab_number(.n = i), NULL, &calls[i]));
    }
    lab_until(count_waiting(limit) == GRAINS - LIMIT);
    lab_until(held == LIMIT);
    __real_teffi_store_submit(store, ops[0]);
    lab_until(held == LIMIT + 1);
    assert_int_equal(count_waiting(limit), GRAINS - LIMIT - 1);
    hold = false;
    for (unsigned i = 1; i <= LIMIT; i++)
        __real_teffi_store_submit(store, ops[i]);
    for (int i = 0; i < GRAINS; i++) {
        lab_number *out;
        lab_ok(one->ctx[0], lab_account_add_await(one->ctx[0], calls[i], &out));
        assert_int_equal(out->n, i);
    }
    assert_int_equal(reads, GRAINS);
    assert_int_equal(count_running(limit), 0);
    assert_int_equal(count_waiting(limit), 0);
    lab_close(one);
}

/* The next allocation of a turn fails, and the turn ends. */
static _Atomic bool no_memory;

void *__real_teff_alloc(teff_ctx *ctx, size_t n);
void *__wrap_teff_alloc(teff_ctx *ctx, size_t n);

void *__wrap_teff_alloc(teff_ctx *ctx, size_t n)
{
    if (!ctx->owner || !atomic_exchange(&no_memory, false))
        return __real_teff_alloc(ctx, n);
    (void)teff_fail(ctx, TEFF_E_NOMEM, "as the test says");
    teffi_ctx_exit_turn(ctx, TEFF_E_NOMEM);
}

static void a_load_without_memory_holds_no_place(void **state)
{
    lab *one = lab_open(1);
    lab_number *out;
    no_memory = true;
    lab_fails(one->ctx[0], lab_account_add(one->ctx[0], "a", lab_number(.n = 1), &out),
              TEFF_E_NOMEM);
    assert_int_equal(count_running(one->silos[0]->node.grains->load_limit), 0);
    lab_ok(one->ctx[0], lab_account_add(one->ctx[0], "a", lab_number(.n = 1), &out));
    lab_close(one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(it_grows_while_loads_are_quick_and_others_wait, begin),
        cmocka_unit_test_setup(it_shrinks_while_loads_are_slow, begin),
        cmocka_unit_test_setup(a_store_that_is_always_slow_is_not_held_back, begin),
        cmocka_unit_test_setup(the_best_time_is_forgotten, begin),
        cmocka_unit_test(activations_wait_for_each_other),
        cmocka_unit_test(a_load_without_memory_holds_no_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
