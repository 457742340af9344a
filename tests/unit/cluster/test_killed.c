/* test_killed.c - a silo's process is killed: it is declared dead and its grains come back
 * elsewhere. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "lab.h"

enum { KEYS = 60 };

/* The child's whole life: a silo on the store, one byte when it serves. */
static void serve(const char *store, int ready)
{
    static lab_record record;
    teff_silo_options opt = {.silent = 1, .store = store, .workers = 2};
    teff_silo *silo = lab_silo(&record, &opt);
    char text[TEFF_TEXT_MAX] = "";
    if (teff_silo_start(silo, text) || write(ready, "r", 1) != 1)
        _exit(1);
    for (;;)
        pause();
}

static pid_t start_child(const char *store)
{
    int ready[2];
    char byte = 0;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        serve(store, ready[1]);
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

/* The child is made before this process has threads. */
static void its_grains_come_back(void **state)
{
    char key[40], store[512];
    lab_number *out;
    int status, moved = 0;
    (void)state;
    lab_fresh_store(store);
    pid_t pid = start_child(store);
    lab *l = calloc(1, sizeof *l);
    assert_non_null(l);
    memcpy(l->store, store, sizeof store);
    lab_add(l);
    teff_ctx *ctx = l->ctx[0];
    lab_until(teff_silo_members(l->silos[0]) == 2);
    for (int i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "kill-%d", i);
        lab_ok(ctx, lab_account_add(ctx, key, lab_number(.n = 1), &out));
    }
    moved = KEYS - l->record.activated;
    assert_true(moved > 0);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    lab_until(teff_silo_members(l->silos[0]) == 1);
    for (int i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "kill-%d", i);
        lab_ok(ctx, lab_account_add(ctx, key, lab_number(.n = 1), &out));
        assert_int_equal(out->n, 2);
    }
    assert_int_equal(l->record.activated, KEYS);
    lab_close(l);
}

/* Everybody was killed: the next one does not wait for the dead. */
static void a_dead_cluster_starts_again(void **state)
{
    char store[512];
    lab_number *out;
    int status;
    (void)state;
    lab_fresh_store(store);
    pid_t pid = start_child(store);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    lab *l = calloc(1, sizeof *l);
    assert_non_null(l);
    memcpy(l->store, store, sizeof store);
    lab_add(l);
    lab_until(teff_silo_members(l->silos[0]) == 1);
    for (int i = 0; i < KEYS; i++) {
        char key[40];
        snprintf(key, sizeof key, "again-%d", i);
        lab_ok(l->ctx[0], lab_account_add(l->ctx[0], key, lab_number(.n = 1), &out));
    }
    lab_close(l);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest first[] = {cmocka_unit_test(its_grains_come_back)};
    const struct CMUnitTest second[] = {cmocka_unit_test(a_dead_cluster_starts_again)};
    /* fork comes before threads: one case a process. */
    if (argc == 2 && strcmp(argv[1], "again") == 0)
        return cmocka_run_group_tests(second, NULL, NULL);
    return cmocka_run_group_tests(first, NULL, NULL);
}
