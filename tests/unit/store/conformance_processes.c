/* conformance_processes.c - the suite's sharing: two handles, several processes, one killed.
 * Children are this test's own program started anew (a forked copy of a threaded process may not
 * start threads under the sanitizers). */
#include "conformance.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILDREN = 3, INCREMENTS = 60, WRITERS = 4, ACKS = 200 };

/* Start this program as `what ADDRESS`. out: its pid, and where its standard output is read. */
static pid_t spawn(const char *what, const char *address, int *output)
{
    int ends[2];
    if (pipe(ends) != 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        execl("/proc/self/exe", "test", what, address, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    *output = ends[0];
    return pid;
}

static void two_handles(void **state)
{
    conf_env *env = *state;
    teffi_store *other;
    uint64_t etag = 0, seen;
    teffi_bytes value;
    assert_int_equal(teffi_store_open(env->address, &other, NULL), TEFF_OK);
    assert_int_equal(ask_put(env->store, "words", ask_str("a"), ask_str("1"), &etag), TEFF_OK);
    assert_int_equal(ask_get(other, &env->arena, "words", ask_str("a"), &value, &seen), TEFF_OK);
    assert_int_equal(seen, etag);
    assert_int_equal(ask_put(other, "words", ask_str("a"), ask_str("2"), &seen), TEFF_OK);
    assert_int_equal(ask_put(env->store, "words", ask_str("a"), ask_str("3"), &etag),
                     TEFF_E_CONFLICT);
    teffi_store_close(other);
}

static int child_increment(const char *address)
{
    char text[TEFF_TEXT_MAX];
    teffi_store *store;
    if (teffi_store_open(address, &store, text) != TEFF_OK) {
        fprintf(stderr, "%s\n", text);
        return 2;
    }
    teff_err err = ask_increment(store, "shared", INCREMENTS);
    teffi_store_close(store);
    return err == TEFF_OK ? 0 : 3;
}

/* The children also race to make the file: nobody has opened the address before. */
static void increments_from_processes(void **state)
{
    conf_env *env = *state;
    pid_t pids[CHILDREN];
    int outputs[CHILDREN];
    teffi_store_close(env->store);
    env->store = NULL;
    env->engine->fresh(env->address);
    for (size_t i = 0; i < CHILDREN; i++)
        pids[i] = spawn("--increment", env->address, &outputs[i]);
    for (size_t i = 0; i < CHILDREN; i++) {
        int status = -1;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        close(outputs[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(teffi_store_open(env->address, &env->store, NULL), TEFF_OK);
    assert_int_equal(ask_number(env->store, "shared"), CHILDREN * INCREMENTS);
}

typedef struct writer {
    pthread_t thread;
    teffi_store *store;
    unsigned number;
} writer;

/* Write a rising number and say so once it was acknowledged: "w n" and a newline, in one piece. */
static void *write_and_tell(void *arg)
{
    writer *w = arg;
    char key[2] = {(char)('a' + w->number), '\0'}, line[32];
    uint64_t etag = 0;
    for (uint64_t n = 1;; n++) {
        if (ask_put(w->store, "acks", ask_str(key), (teffi_bytes){&n, sizeof n}, &etag) != TEFF_OK)
            return NULL;
        int len = snprintf(line, sizeof line, "%u %llu\n", w->number, (unsigned long long)n);
        if (write(STDOUT_FILENO, line, (size_t)len) != len)
            return NULL;
    }
}

static int child_write(const char *address)
{
    writer writers[WRITERS];
    teffi_store *store;
    if (teffi_store_open(address, &store, NULL) != TEFF_OK)
        return 2;
    for (unsigned i = 0; i < WRITERS; i++) {
        writers[i] = (writer){.store = store, .number = i};
        if (pthread_create(&writers[i].thread, NULL, write_and_tell, &writers[i]) != 0)
            return 3;
    }
    for (unsigned i = 0; i < WRITERS; i++)
        pthread_join(writers[i].thread, NULL);
    return 4; /* it should have been killed */
}

/* Read acks, kill the child in the middle, read the acks it got out before it died. */
static unsigned collect_acks(pid_t pid, int output, uint64_t last[WRITERS])
{
    FILE *lines = fdopen(output, "r");
    unsigned number, count = 0;
    unsigned long long n;
    assert_non_null(lines);
    while (fscanf(lines, "%u %llu", &number, &n) == 2 && number < WRITERS) {
        last[number] = n;
        if (++count == ACKS)
            kill(pid, SIGKILL);
    }
    fclose(lines);
    return count;
}

static void kill_loses_nothing(void **state)
{
    conf_env *env = *state;
    uint64_t last[WRITERS] = {0};
    int output, status = 0;
    pid_t pid = spawn("--write", env->address, &output);
    unsigned count = collect_acks(pid, output, last);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_true(count >= ACKS);
    for (unsigned i = 0; i < WRITERS; i++) {
        char key[2] = {(char)('a' + i), '\0'};
        teffi_bytes value;
        uint64_t etag, n = 0;
        assert_int_equal(ask_get(env->store, &env->arena, "acks", ask_str(key), &value, &etag), 0);
        if (value.len == sizeof n)
            memcpy(&n, value.data, sizeof n);
        assert_true(n == last[i] || n == last[i] + 1);
    }
}

int conf_child(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--increment") == 0)
        return child_increment(argv[2]);
    if (argc == 3 && strcmp(argv[1], "--write") == 0)
        return child_write(argv[2]);
    return -1;
}

int conf_run_processes(const conf_engine *engine)
{
#define CASE(f)                                                                                    \
    cmocka_unit_test_prestate_setup_teardown(f, conf_setup, conf_teardown, (void *)engine)
    const struct CMUnitTest tests[] = {
        CASE(two_handles),
        CASE(increments_from_processes),
        CASE(kill_loses_nothing),
    };
#undef CASE
    return cmocka_run_group_tests_name(engine->name, tests, NULL, NULL);
}
