/* test_stop.c - silos and clients started and stopped many times in one process: no leak, no hang.
 * TEFF_STOP_TIMES sets how often; 50 without it. */
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "lab.h"

static int times(void)
{
    const char *given = getenv("TEFF_STOP_TIMES");
    return given ? atoi(given) : 50;
}

static int entries_of(const char *path)
{
    int n = 0;
    DIR *dir = opendir(path);
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static long resident_kib(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%*d %ld", &pages), 1);
    fclose(f);
    return pages * 4;
}

static void start_call_stop(lab_record *record, const char *store)
{
    teff_silo_options opt = {.size = sizeof opt, .silent = 1, .store = store, .workers = 2};
    teff_client_options client_opt = {.size = sizeof client_opt};
    char text[TEFF_TEXT_MAX] = "", key[40];
    teff_client *client;
    lab_number *out;
    teff_silo *silo = lab_silo(record, &opt);
    if (teff_silo_start(silo, text))
        fail_msg("start: %s", text);
    client_opt.gateways[0] = teff_silo_address(silo);
    if (teff_client_connect(&client_opt, &client, text))
        fail_msg("connect: %s", text);
    teff_ctx *ctx = teff_client_new_ctx(client), *own = teff_silo_new_ctx(silo);
    for (int i = 0; i < 10; i++) {
        snprintf(key, sizeof key, "k-%d", i);
        lab_ok(ctx, lab_account_add(ctx, key, lab_number(.n = 1), &out));
        lab_ok(own, lab_account_add(own, key, lab_number(.n = 1), &out));
    }
    teff_ctx_free(ctx);
    teff_ctx_free(own);
    teff_client_free(client);
    assert_int_equal(teff_silo_stop(silo, 0), TEFF_OK);
    teff_silo_free(silo);
}

/* Threads and files are back when a silo is gone; memory may grow at first only. */
static void many_times(const char *store)
{
    static lab_record record;
    int n = times();
    for (int i = 0; i < 10; i++)
        start_call_stop(&record, store);
    int files = entries_of("/proc/self/fd"), threads = entries_of("/proc/self/task");
    long memory = resident_kib();
    for (int i = 0; i < n; i++)
        start_call_stop(&record, store);
    lab_until(entries_of("/proc/self/fd") <= files);
    lab_until(entries_of("/proc/self/task") <= threads);
    long grown = resident_kib() - memory;
    printf("%d times: %ld KiB more, %d files, %d threads\n", n, grown, files, threads);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(grown < 16 * 1024);
#endif
}

static void in_memory(void **state)
{
    many_times("memory");
}

/* A cluster that is alone each time: its table must not grow for ever either. */
static void around_a_file(void **state)
{
    char store[512];
    lab_fresh_store(store);
    many_times(store);
    lab_drop_store(store);
}

/* ---- a thread waits while its silo stops ---- */

enum { WAITS = 8, STOP_SECONDS_MAX = 20 }; /* a look-up would be tried for 25 */

typedef struct waiter {
    pthread_t thread;
    teff_ctx *ctx;
    _Atomic bool waits;
    teff_err err;
} waiter;

static void *wait_for_calls(void *arg)
{
    waiter *w = arg;
    teff_call calls[WAITS];
    size_t n = 0;
    char key[40];
    while (n < WAITS && !w->err) {
        snprintf(key, sizeof key, "w-%zu", n);
        w->err = lab_turns_write_async(w->ctx, key, lab_step(.hold = true), NULL, &calls[n]);
        n += !w->err;
    }
    w->waits = true;
    if (!w->err)
        w->err = teff_await_all(w->ctx, calls, n);
    return NULL;
}

static void while_a_thread_waits(void **state)
{
    static lab_record record;
    for (int i = 0; i < times(); i++) {
        teff_silo_options opt = {.size = sizeof opt, .silent = 1, .workers = 1};
        waiter w = {0};
        teff_silo *silo = lab_silo(&record, &opt);
        assert_int_equal(teff_silo_start(silo, NULL), TEFF_OK);
        w.ctx = teff_silo_new_ctx(silo);
        assert_int_equal(pthread_create(&w.thread, NULL, wait_for_calls, &w), 0);
        if (i % 2)
            lab_until(w.waits);
        time_t began = time(NULL);
        (void)teff_silo_stop(silo, 1);
        assert_true(time(NULL) - began < STOP_SECONDS_MAX);
        pthread_join(w.thread, NULL);
        assert_int_not_equal(w.err, TEFF_OK);
        teff_ctx_free(w.ctx);
        teff_silo_free(silo);
    }
}

static void without_a_call(void **state)
{
    static lab_record record;
    teff_silo_options opt = {.size = sizeof opt, .silent = 1, .workers = 1};
    for (int i = 0; i < times(); i++) {
        teff_silo *silo = lab_silo(&record, &opt);
        assert_int_equal(teff_silo_start(silo, NULL), TEFF_OK);
        teff_silo_free(silo); /* stops it */
    }
}

/* Several at once: nothing is global. */
static void side_by_side(void **state)
{
    for (int i = 0; i < times() / 10; i++) {
        lab *a = lab_open(2), *b = lab_open(1), *c = lab_open_seeded(2);
        lab_close(b);
        lab_close(a);
        lab_close(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_memory),
        cmocka_unit_test(around_a_file),
        cmocka_unit_test(while_a_thread_waits),
        cmocka_unit_test(without_a_call),
        cmocka_unit_test(side_by_side),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
