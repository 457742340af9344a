/* test_keys.c - a process whose thread-local keys have run out: the runtime does without, and
 * leaves alone what others keep in theirs. */
#include "test.h"
#include <limits.h>
#include <pthread.h>
#include "base/thread_index.h"
#include "memory/pool.h"
#include "fiber/fiber.h"

enum { OBJECTS = 1000, BYTES = 64 };

static pthread_key_t keys[PTHREAD_KEYS_MAX];
static unsigned n_keys;

static void use_pool(void)
{
    static void *object[OBJECTS];
    for (int i = 0; i < OBJECTS; i++)
        assert_non_null(object[i] = teffi_pool_get(BYTES));
    for (int i = 0; i < OBJECTS; i++)
        teffi_pool_put(object[i], BYTES);
}

static void keep(void)
{
    for (unsigned i = 0; i < n_keys; i++)
        assert_int_equal(pthread_setspecific(keys[i], &keys[i]), 0);
}

static unsigned lost(void)
{
    unsigned n = 0;
    for (unsigned i = 0; i < n_keys; i++)
        n += pthread_getspecific(keys[i]) != &keys[i];
    return n;
}

typedef struct losses {
    unsigned pool, index, fiber;
} losses;

static void *use_all(void *arg)
{
    teffi_fiber_pool *pool = teffi_fiber_pool_new(0, 0);
    losses *l = arg;
    keep();
    use_pool();
    l->pool = lost();
    keep();
    assert_int_equal(teffi_thread_index(), TEFFI_THREAD_INDEXES);
    l->index = lost();
    keep();
    assert_true(teffi_fiber_thread_enter_pool(pool));
    teffi_fiber_thread_leave_pool();
    l->fiber = lost();
    teffi_fiber_pool_free(pool);
    return NULL;
}

static void test_no_key_is_left(void **state)
{
    pthread_t thread;
    losses l = {0};
    while (n_keys < PTHREAD_KEYS_MAX && !pthread_key_create(&keys[n_keys], NULL))
        n_keys++;
    assert_int_equal(pthread_create(&thread, NULL, use_all, &l), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(l.pool, 0);
    assert_int_equal(l.index, 0);
    assert_int_equal(l.fiber, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_key_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
