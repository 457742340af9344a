/* test_killed.c - a silo's process is killed: it is declared dead and its grains come back
 * elsewhere. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "lab.h"

enum { KEYS = 60 };

static lab_record *childs; /* the child's record, which this process sees too */

/* The child's whole life: a silo on the store, one byte when it serves. */
static void serve(const char *store, int ready)
{
    teff_silo_options opt = {.size = sizeof opt, .silent = 1, .store = store, .workers = 2};
    teff_silo *silo = lab_silo(childs, &opt);
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
    childs = mmap(NULL, sizeof *childs, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(childs != MAP_FAILED);
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

/* The silo that runs a client's call is killed: its gateway tells the client, long before the
 * call's deadline. */
static void a_client_is_told_by_its_gateway(void **state)
{
    char store[512], key[40];
    teff_call calls[KEYS];
    lab_number *out;
    int status, unknown = 0;
    lab_fresh_store(store);
    pid_t pid = start_child(store);
    lab *l = calloc(1, sizeof *l);
    assert_non_null(l);
    memcpy(l->store, store, sizeof store);
    lab_add(l);
    lab_until(teff_silo_members(l->silos[0]) == 2);
    teff_client *client = lab_client(l, (const int[]){0, -1});
    teff_ctx *ctx = teff_client_new_ctx(client);
    for (int i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "told-%d", i);
        lab_ok(ctx, lab_turns_write_async(ctx, key, lab_step(.hold = true), NULL, &calls[i]));
    }
    lab_until(childs->held + l->record.held == KEYS);
    int there = childs->held;
    assert_true(there > 0 && there < KEYS);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    l->record.gate = true;
    for (int i = 0; i < KEYS; i++) {
        teff_err err = lab_turns_write_await(ctx, calls[i], &out);
        unknown += err == TEFF_E_UNREACHABLE;
        assert_true(!err || err == TEFF_E_UNREACHABLE);
    }
    assert_int_equal(unknown, there);
    assert_int_equal(atomic_load(&l->silos[0]->node.home.calls.relays), 0);
    teff_ctx_free(ctx);
    teff_client_free(client);
    lab_close(l);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest third[] = {cmocka_unit_test(a_client_is_told_by_its_gateway)};
    const struct CMUnitTest first[] = {cmocka_unit_test(its_grains_come_back)};
    const struct CMUnitTest second[] = {cmocka_unit_test(a_dead_cluster_starts_again)};
    /* fork comes before threads: one case a process. */
    if (argc == 2 && strcmp(argv[1], "again") == 0)
        return cmocka_run_group_tests(second, NULL, NULL);
    if (argc == 2 && strcmp(argv[1], "gateway") == 0)
        return cmocka_run_group_tests(third, NULL, NULL);
    return cmocka_run_group_tests(first, NULL, NULL);
}
