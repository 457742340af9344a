/* silo_child.c - see silo_child.h. */
#include "silo_child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { STEP_US = 20000, LOG_SHOWN = 4000, ARGS_MAX = 24 };

uint64_t child_now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

static void run_program(const silo_child *c, const char *const *args, const int *ends)
{
    int log = open(c->log, O_WRONLY | O_APPEND | O_CREAT, 0600);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(ends[1], STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    execv(c->program, (char *const *)(uintptr_t)args);
    _exit(99);
}

void child_start(silo_child *c, const char *store, const char *listen, const char *transport,
                 const char *const *more)
{
    char lease[12], timeout[12], name[2] = {c->numbers.name, '\0'};
    int ends[2];
    snprintf(lease, sizeof lease, "%u", c->lease_ms);
    snprintf(timeout, sizeof timeout, "%u", c->timeout_ms);
    const char *args[ARGS_MAX] = {c->program,  "--quiet", "--name",      name,       "--lease-ms",
                                  lease,       "--store", store,         "--listen", listen,
                                  "--workers", "2",       "--transport", transport};
    int n = 14;
    if (c->transfers)
        args[n++] = "--transfers";
    if (c->reminders)
        args[n++] = "--reminders";
    if (c->timeout_ms) {
        args[n++] = "--call-timeout";
        args[n++] = timeout;
    }
    while (more && *more)
        args[n++] = *more++;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    c->ready = c->ended = false;
    c->requests = 0;
    c->audits = 0;
    c->len = 0;
    memset(c->ticked, 0, sizeof c->ticked);
    memset(c->numbers.seen, 0, sizeof c->numbers.seen);
    memset(c->numbers.saves, 0, sizeof c->numbers.saves);
    c->pid = fork();
    if (c->pid == 0)
        run_program(c, args, ends);
    assert_true(c->pid > 0);
    close(ends[1]);
    c->out = ends[0];
}

/* ---- what it prints ---- */

/* The log goes to standard error, as cmocka cuts messages. */
static void fail_with_log(const silo_child *c, const char *why)
{
    char text[LOG_SHOWN + 1];
    FILE *log = fopen(c->log, "r");
    if (log && fseek(log, -LOG_SHOWN, SEEK_END) != 0)
        rewind(log);
    size_t n = log ? fread(text, 1, LOG_SHOWN, log) : 0;
    text[n] = '\0';
    if (log)
        fclose(log);
    fprintf(stderr, "the end of the silos' log:\n%s\n", text);
    fail_msg("silo %c: %s; its last failure: %s", c->numbers.name, why, c->last_failure);
}

static void take_has(silo_child *c, unsigned key, int64_t n)
{
    silo_numbers *k = &c->numbers;
    char why[CHILD_TEXT_MAX];
    snprintf(why, sizeof why, "key %u has %lld; acknowledged %lld, tried %lld", key, (long long)n,
             (long long)k->acked[key], (long long)k->tried[key]);
    if (n < k->acked[key] || n > k->tried[key])
        fail_with_log(c, why);
    k->seen[key]++;
    k->tried[key] = n + 1;
}

static void take_acked(silo_child *c, unsigned key, int64_t n)
{
    if (n != c->numbers.tried[key])
        fail_with_log(c, "a number was acknowledged out of order");
    c->numbers.acked[key] = n;
    c->numbers.tried[key] = n + 1;
    c->numbers.saves[key]++;
}

/* The call of the number that was read has counted: it gets its answer, and counts no more. */
static void take_again(silo_child *c, unsigned key, int64_t n)
{
    if (n != c->numbers.tried[key] - 1)
        fail_with_log(c, "a call that was made again got another answer");
    c->numbers.acked[key] = n;
    c->again++;
}

static void take_audited(silo_child *c)
{
    const char *at = strchr(c->line, ' ') + 1;
    for (unsigned i = 0; i < CHILD_TELLERS; i++) {
        int len = 0;
        long long n;
        at += strcspn(at, " ");
        if (sscanf(at, "%lld%n", &n, &len) != 1)
            fail_with_log(c, c->line);
        c->audited[i] = n;
        at += len;
    }
    c->audits++;
}

static void take_line(silo_child *c)
{
    char what[16], name;
    unsigned key;
    long long n;
    if (strncmp(c->line, "ready ", 6) == 0) {
        c->ready = true;
        return;
    }
    if (sscanf(c->line, "%15s %c%u %lld", what, &name, &key, &n) != 4 || key >= CHILD_KEYS ||
        name != c->numbers.name || strstr(c->line, "damaged"))
        fail_with_log(c, c->line);
    if (strcmp(what, "has") == 0)
        take_has(c, key, n);
    else if (strcmp(what, "acked") == 0)
        take_acked(c, key, n);
    else if (strcmp(what, "again") == 0)
        take_again(c, key, n);
    else if (strcmp(what, "audited") == 0)
        take_audited(c);
    else if (strcmp(what, "ticked") == 0)
        c->ticked[key]++;
    else if (strcmp(what, "requests") == 0)
        c->requests = n;
    else
        memcpy(c->last_failure, c->line, sizeof c->line);
    c->repeats += strcmp(what, "repeats") == 0;
}

static void take_bytes(silo_child *c)
{
    char bytes[4096];
    ssize_t n = read(c->out, bytes, sizeof bytes);
    c->ended = n <= 0;
    for (ssize_t i = 0; i < n; i++) {
        if (bytes[i] != '\n') {
            assert_true(c->len < sizeof c->line - 1);
            c->line[c->len++] = bytes[i];
            continue;
        }
        c->line[c->len] = '\0';
        take_line(c);
        c->len = 0;
    }
}

void child_read(silo_child *c, silo_child *other, uint64_t max_us)
{
    silo_child *all[] = {c, other};
    uint64_t until = child_now_us() + max_us;
    for (uint64_t now; !c->ended && (now = child_now_us()) < until;) {
        struct pollfd p[2] = {{.fd = c->out, .events = POLLIN},
                              {.fd = other ? other->out : -1, .events = POLLIN}};
        uint64_t left = until - now;
        struct timespec t = {(time_t)(left / 1000000u), (long)(left % 1000000u * 1000u)};
        if (ppoll(p, 2, &t, NULL) <= 0)
            continue;
        for (int i = 0; i < 2; i++)
            if (p[i].revents)
                take_bytes(all[i]);
        if (other && other->ended)
            fail_with_log(other, "it has ended by itself");
    }
}

/* ---- waits ---- */

static uint64_t find_wait_end_us(const silo_child *c)
{
    unsigned max_ms = c->transfers ? CHILD_TRANSFERS_MAX_MS : CHILD_JOIN_MAX_MS;
    return child_now_us() + max_ms * 1000ull;
}

/* Has each key counted so far? */
static bool each_reached(const unsigned *counts, const unsigned *wanted)
{
    for (unsigned i = 0; i < CHILD_KEYS; i++)
        if (counts[i] < wanted[i])
            return false;
    return true;
}

static void read_until(silo_child *c, silo_child *other, const unsigned *counts,
                       const unsigned *wanted, const char *why)
{
    uint64_t limit = find_wait_end_us(c);
    while (!each_reached(counts, wanted) || !c->ready) {
        if (child_now_us() > limit || c->ended)
            fail_with_log(c, c->ended ? "it has ended by itself" : why);
        child_read(c, other, STEP_US);
    }
}

static const unsigned once[CHILD_KEYS] = {1, 1, 1, 1};

void child_until_read(silo_child *c, silo_child *other)
{
    read_until(c, other, c->numbers.seen, once, "it does not serve in time");
}

void child_until_ticked(silo_child *c, silo_child *other)
{
    read_until(c, other, c->ticked, once, "its reminders do not tick in time");
}

void child_until_saves(silo_child *c, silo_child *other)
{
    unsigned wanted[CHILD_KEYS];
    for (unsigned i = 0; i < CHILD_KEYS; i++)
        wanted[i] = c->numbers.saves[i] + 1;
    read_until(c, other, c->numbers.saves, wanted, "it does not save in time");
}

/* The next audit may have begun before this call; the one after that has not. */
void child_until_audited(silo_child *c, silo_child *other)
{
    uint64_t limit = find_wait_end_us(c);
    for (unsigned wanted = c->audits + 2; c->audits < wanted;) {
        if (child_now_us() > limit || c->ended)
            fail_with_log(c, c->ended ? "it has ended by itself" : "no audit succeeds in time");
        child_read(c, other, STEP_US);
    }
}

void child_check_audited(silo_child *c, const silo_child *dead)
{
    const silo_numbers *k = &dead->numbers;
    char why[CHILD_TEXT_MAX];
    for (unsigned i = 0; i < CHILD_KEYS; i++) {
        int64_t n = c->audited[(unsigned)(k->name - 'a') * CHILD_KEYS + i];
        snprintf(why, sizeof why, "teller %c%u has %lld; acknowledged %lld, tried %lld", k->name, i,
                 (long long)n, (long long)k->acked[i], (long long)k->tried[i]);
        if (n < k->acked[i] || n > k->tried[i])
            fail_with_log(c, why);
    }
}

/* After its end only the pipe is left, which may still hold acknowledgements. out: its status. */
static int read_to_end(silo_child *c, silo_child *other)
{
    uint64_t limit = find_wait_end_us(c);
    int status = 0;
    while (!c->ended) {
        if (child_now_us() > limit)
            fail_with_log(c, "it does not end");
        child_read(c, other, STEP_US);
    }
    close(c->out);
    assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
    c->pid = 0;
    return status;
}

int child_end(silo_child *c, silo_child *other, int signal)
{
    kill(c->pid, signal);
    int status = read_to_end(c, other);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && signal == SIGKILL)
        return -1;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_with_log(c, WIFEXITED(status) ? "it ended with an error" : "it crashed");
    return 0;
}

/* ---- memory that is not there ---- */

void child_until_read_or_end(silo_child *c, silo_child *other)
{
    uint64_t limit = find_wait_end_us(c);
    while (!c->ended && !each_reached(c->numbers.seen, once)) {
        if (child_now_us() > limit)
            fail_with_log(c, "it neither serves nor ends");
        child_read(c, other, STEP_US);
    }
}

bool child_end_scarce(silo_child *c, silo_child *other)
{
    enum { STATUS_MAX = 2 }; /* of a program that could not start */
    kill(c->pid, SIGTERM);
    int status = read_to_end(c, other);
    if (!WIFEXITED(status) || WEXITSTATUS(status) > STATUS_MAX)
        fail_with_log(c, "it crashed when a request for memory had failed");
    return WEXITSTATUS(status) == 0;
}

void child_abandon(silo_child *c)
{
    if (!c->pid)
        return;
    kill(c->pid, SIGKILL);
    close(c->out);
    waitpid(c->pid, NULL, 0);
    c->pid = 0;
}
