/* silo_child.h - a silo program that saves numbers, as a child of the test, and what it must not
 * lose.
 * Way:     crash.c -> [silo_child] -> crash_silo.c
 * Threads: the test's main one. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "test.h"

enum {
    CHILD_KEYS = 4,
    CHILD_TELLERS = 2 * CHILD_KEYS, /* of two silos, a and b */
    CHILD_LINE_MAX = 512,
    CHILD_TEXT_MAX = 600,
    /* A silo must serve this long after its start, also where a killed one has served before. It
     * need not wait for that one's lease, which is longer. */
    CHILD_LEASE_MS = 60000,
    CHILD_JOIN_MAX_MS = 40000,
    /* The same with transfers. A lock that a killed silo has left must end soon, not only at the
     * deadline of the call that took it, which is 30 s. */
    CHILD_TRANSFERS_MAX_MS = 20000
};

/* Numbers of one silo program's keys, over all its starts. */
typedef struct silo_numbers {
    char name;                  /* of the keys: a, for a0 to a3 */
    int64_t acked[CHILD_KEYS];  /* the last one that was acknowledged */
    int64_t tried[CHILD_KEYS];  /* the last one that may have been saved */
    unsigned seen[CHILD_KEYS];  /* how many lines said that it was read, since the start */
    unsigned saves[CHILD_KEYS]; /* acknowledged since the start */
} silo_numbers;

typedef struct silo_child {
    silo_numbers numbers;
    const char *program, *log; /* the file to which its standard error is appended */
    bool transfers;            /* it makes transfers, and audits the accounts */
    bool reminders;            /* it registers reminders */
    unsigned lease_ms;
    unsigned timeout_ms; /* of its calls; 0: the default */
    pid_t pid;
    int out;
    bool ready, ended;
    long requests;                  /* that a phase has made, as it said */
    unsigned ticked[CHILD_KEYS];    /* lines since the start */
    unsigned audits;                /* since the start */
    int64_t audited[CHILD_TELLERS]; /* the tellers' numbers in the last audit */
    /* Calls with keys, over all starts: made again when their number had been read; when their
     * outcome was unknown. */
    unsigned long again, repeats;
    char line[CHILD_LINE_MAX];
    size_t len;
    char last_failure[CHILD_LINE_MAX];
} silo_child;

/* child_start - with --store, --listen and a transport. more: arguments, NULL-ended, or NULL. */
void child_start(silo_child *c, const char *store, const char *listen, const char *transport,
                 const char *const *more);

/* child_read - read and check lines of both for at most so long. in: other: may be NULL. */
void child_read(silo_child *c, silo_child *other, uint64_t max_us);

/* child_until_read - until each key has been read; every acknowledged number must be there.
 * child_until_saves - until each key was saved once more than at this call.
 * Both fail the test after CHILD_JOIN_MAX_MS, or with transfers CHILD_TRANSFERS_MAX_MS. */
void child_until_read(silo_child *c, silo_child *other);
void child_until_saves(silo_child *c, silo_child *other);

/* child_until_ticked - until the reminders of each key that were there at the start have ticked.
 * Fails as the others. */
void child_until_ticked(silo_child *c, silo_child *other);

/* child_until_audited - until an audit has succeeded that began after this call.
 * child_check_audited - does the last audit agree with what a dead silo has printed? in: the audit
 * began after the end of dead. */
void child_until_audited(silo_child *c, silo_child *other);
void child_check_audited(silo_child *c, const silo_child *dead);

/* child_end - send a signal, read the rest. out: its exit status, or -1: it was killed by SIGKILL.
 * Every other end fails the test. */
int child_end(silo_child *c, silo_child *other, int signal);

/* child_until_read_or_end - as child_until_read, but it may also end.
 * child_end_scarce - end it with SIGTERM, when a request for memory has failed in it. out: false:
 * it ended with an error, which it may. A crash fails the test. */
void child_until_read_or_end(silo_child *c, silo_child *other);
bool child_end_scarce(silo_child *c, silo_child *other);

/* child_abandon - kill it without a check, if it runs: the test has failed. */
void child_abandon(silo_child *c);

uint64_t child_now_us(void);
