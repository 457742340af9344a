/* test_dlclose.c - a program opens libteff.so late, uses it in a thread and closes it; then the
 * thread ends, and with it what the library keeps for each thread.
 * usage: test_dlclose LIBRARY */
#include "test.h"
#include <dlfcn.h>
#include <pthread.h>
#include <teff/generated.h>
#include <teff/silo.h>

static const teff_method method = {.name = "nobody.Nobody.Do", .id = 1};
static const teff_type_info type = {.name = "nobody.Nobody",
                                    .id = 1,
                                    .key_kind = TEFF_KEY_INT64,
                                    .methods = &method,
                                    .n_methods = 1};

static const char *path;
static void *library;
static pthread_barrier_t used, closed;

#define IN_LIBRARY(name) ((__typeof__(&(name)))(uintptr_t)symbol(#name))

static void *symbol(const char *name)
{
    void *at = dlsym(library, name);
    assert_non_null(at);
    return at;
}

/* The call gives the thread memory of the library's, which goes when the thread ends. */
static void *use(void *arg)
{
    teff_silo *silo;
    teff_key key = {.kind = TEFF_KEY_INT64, .number = 1};
    teff_silo_options opt = {.size = sizeof opt, .silent = 1, .workers = 1};
    assert_int_equal(IN_LIBRARY(teff_silo_new)(&opt, &silo, NULL), TEFF_OK);
    assert_int_equal(IN_LIBRARY(teff_silo_start)(silo, NULL), TEFF_OK);
    teff_ctx *ctx = IN_LIBRARY(teff_silo_new_ctx)(silo);
    assert_int_equal(IN_LIBRARY(teff_ask)(ctx, &type, &key, &method, NULL, NULL), TEFF_E_NOT_FOUND);
    IN_LIBRARY(teff_ctx_free)(ctx);
    IN_LIBRARY(teff_silo_free)(silo);
    pthread_barrier_wait(&used);
    pthread_barrier_wait(&closed);
    return arg;
}

static void test_a_thread_ends_after_dlclose(void **state)
{
    pthread_t thread;
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        fail_msg("%s", dlerror());
    assert_int_equal(pthread_barrier_init(&used, NULL, 2), 0);
    assert_int_equal(pthread_barrier_init(&closed, NULL, 2), 0);
    assert_int_equal(pthread_create(&thread, NULL, use, NULL), 0);
    pthread_barrier_wait(&used);
    assert_int_equal(dlclose(library), 0);
    pthread_barrier_wait(&closed);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    path = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_thread_ends_after_dlclose),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
