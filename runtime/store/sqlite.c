/* sqlite.c - engine `sqlite`: one thread, one connection, writes committed in groups.
 * Way:     store/store -> [sqlite] -> sqlite_rows -> SQLite (write-ahead log, synchronous = FULL)
 * States:  submitted -> queue -> reads: answered | writes: waiting -> group -> committed -> done()
 * Threads: submit from any; everything below "own thread" happens on the engine's thread, done()
 *          and hints too. While another process holds the file's write lock, reads go on. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "store/sqlite.h"
#include "store/watch.h"

enum {
    QUEUE_MAX = 64 * 1024, /* operations submitted and not done */
    GROUP_MAX = 1024, /* operations in one transaction: some milliseconds, which a read waits */
    GROUP_BYTES_MAX = 16 * 1024 * 1024, /* values in one transaction; one op always fits */
    POLL_MS = 100                       /* how late a hint about another process's commit may be */
};

typedef struct op_list {
    teffi_store_op *head, *tail;
} op_list;

/* One write in a transaction. */
typedef struct member {
    teffi_store_op *op;
    uint64_t etag; /* the last etag given before this op's rows */
} member;

typedef struct engine {
    teffi_store base;
    teffi_watch watch;
    pthread_mutex_t lock; /* a leaf */
    pthread_cond_t wake;
    /* guarded by lock */
    op_list queue;
    size_t submitted; /* and not done */
    bool closed;
    bool joined;
    bool look_around; /* who watches has changed */
    /* immutable after init */
    pthread_t thread;
    /* own thread */
    teffi_sqlite_file file;
    op_list writes; /* waiting for a transaction */
    size_t done;    /* since submitted was last corrected */
    int busy_tries; /* of the first in writes */
    bool unknown;   /* the last COMMIT failed in a way that leaves its outcome open */
    int64_t version;
    struct timespec poll_at;
    member group[GROUP_MAX];
} engine;

static void push(op_list *list, teffi_store_op *op)
{
    op->next = NULL;
    if (list->tail)
        list->tail->next = op;
    else
        list->head = op;
    list->tail = op;
}

static teffi_store_op *pop(op_list *list)
{
    teffi_store_op *op = list->head;
    if (op) {
        list->head = op->next;
        if (!list->head)
            list->tail = NULL;
        op->next = NULL;
    }
    return op;
}

static void sqlite_submit(teffi_store *store, teffi_store_op *op)
{
    engine *e = (engine *)store;
    pthread_mutex_lock(&e->lock);
    bool closed = e->closed, full = e->submitted == QUEUE_MAX;
    if (!closed && !full) {
        bool first = !e->queue.head;
        push(&e->queue, op);
        e->submitted++;
        if (first)
            pthread_cond_signal(&e->wake);
        pthread_mutex_unlock(&e->lock);
        return;
    }
    pthread_mutex_unlock(&e->lock);
    if (closed)
        teffi_store_fail(op, TEFF_E_CLOSED, "sqlite: the store is closed");
    else
        teffi_store_fail(op, TEFF_E_OVERLOADED, "sqlite: %d operations wait", QUEUE_MAX);
    op->done(op);
}

static void fail(teffi_store_op *op, int rc)
{
    if (teffi_sqlite_is(rc, SQLITE_BUSY))
        teffi_store_fail(op, TEFF_E_IO, "sqlite: locked by another process for too long");
    else
        teffi_store_fail(op, teffi_sqlite_err(rc), "sqlite: %s (SQLite code %d)",
                         sqlite3_errstr(rc), rc);
}

static void finish(engine *e, teffi_store_op *op)
{
    e->done++;
    op->done(op);
}

/* Only the recovery of the log after another process's crash makes a read wait. */
static void answer(engine *e, teffi_store_op *op)
{
    int rc = SQLITE_BUSY;
    for (int i = 0; teffi_sqlite_is(rc, SQLITE_BUSY) && i < TEFFI_SQLITE_BUSY_TRIES; i++)
        rc = op->kind == TEFFI_STORE_READ ? teffi_sqlite_read(&e->file, op)
                                          : teffi_sqlite_scan(&e->file, op);
    if (rc != SQLITE_OK)
        fail(op, rc);
    finish(e, op);
}

/* In WAL mode the commit frame is the last thing written and the sync comes after it: when a write
 * failed for want of room, no commit frame is in the log. After any other failure it may be, and a
 * crash now would bring it back to life. */
static int commit(engine *e)
{
    int rc = teffi_sqlite_run(&e->file, TEFFI_SQL_COMMIT);
    e->unknown = rc != SQLITE_OK && !teffi_sqlite_is(rc, SQLITE_FULL) &&
                 !teffi_sqlite_is(rc, SQLITE_BUSY) && !teffi_sqlite_is(rc, SQLITE_READONLY);
    return rc;
}

static int write_members(engine *e, member *members, size_t n)
{
    uint64_t etag, before;
    int rc = teffi_sqlite_etag(&e->file, &etag);
    before = etag;
    for (size_t i = 0; rc == SQLITE_OK && i < n; i++) {
        teffi_store_op *op = members[i].op;
        op->err = TEFF_OK;
        op->text[0] = '\0';
        members[i].etag = etag;
        rc = teffi_sqlite_write(&e->file, op, &etag);
    }
    if (rc == SQLITE_OK && etag != before)
        rc = teffi_sqlite_etag_put(&e->file, etag);
    return rc;
}

/* One transaction over n writes. A conflict of one is found before its first row is written, so
 * that the others' rows stay. out: SQLITE_OK: each op->err tells; else nothing was written, or
 * (e->unknown) perhaps all of it. */
static int transact(engine *e, member *members, size_t n)
{
    e->unknown = false;
    int rc = teffi_sqlite_run(&e->file, TEFFI_SQL_BEGIN);
    if (rc != SQLITE_OK)
        return rc;
    rc = write_members(e, members, n);
    if (rc == SQLITE_OK)
        rc = commit(e);
    if (!sqlite3_get_autocommit(e->file.db))
        teffi_sqlite_run(&e->file, TEFFI_SQL_ROLLBACK);
    return rc;
}

static void give_etags(const member *m)
{
    uint64_t etag = m->etag;
    for (size_t i = 0; i < m->op->n_rows; i++)
        m->op->rows[i].etag = m->op->rows[i].remove ? 0 : ++etag;
}

/* The end of n writes whose transaction ended with rc. When the outcome is open, it is so for those
 * that met a conflict too: the row in their way may have been another member's. */
static void settle(engine *e, const member *members, size_t n, int rc)
{
    for (size_t i = 0; i < n; i++) {
        teffi_store_op *op = members[i].op;
        if (e->unknown)
            teffi_store_fail(op, TEFF_E_UNKNOWN, "sqlite: commit: %s (SQLite code %d)",
                             sqlite3_errstr(rc), rc);
        else if (rc != SQLITE_OK)
            fail(op, rc);
        else if (op->err == TEFF_OK)
            give_etags(&members[i]);
        if (op->err == TEFF_OK || op->err == TEFF_E_UNKNOWN)
            teffi_watch_rows(&e->watch, op->rows, op->n_rows);
        finish(e, op);
    }
}

static int transact_patiently(engine *e, member *one)
{
    int rc = SQLITE_BUSY;
    for (int i = 0; teffi_sqlite_is(rc, SQLITE_BUSY) && i < TEFFI_SQLITE_BUSY_TRIES; i++)
        rc = transact(e, one, 1);
    return rc;
}

static size_t value_bytes(const teffi_store_op *op)
{
    size_t n = 0;
    for (size_t i = 0; i < op->n_rows; i++)
        n += op->rows[i].remove ? 0 : op->rows[i].value.len;
    return n;
}

/* The first writes that fit into one transaction; they stay in the list until its end is known. */
static size_t pick_group(engine *e)
{
    size_t n = 0, bytes = 0;
    for (teffi_store_op *op = e->writes.head; op && n < GROUP_MAX; op = op->next) {
        bytes += value_bytes(op);
        if (n > 0 && bytes > GROUP_BYTES_MAX)
            break;
        e->group[n++] = (member){.op = op};
    }
    return n;
}

/* Commit one group. A group that cannot be written is tried again op by op, so that the one that
 * has no room does not take the others with it. */
static void write_group(engine *e)
{
    size_t n = pick_group(e);
    int rc = transact(e, e->group, n);
    bool busy = teffi_sqlite_is(rc, SQLITE_BUSY);
    if (busy && ++e->busy_tries < TEFFI_SQLITE_BUSY_TRIES)
        return;
    e->busy_tries = 0;
    for (size_t i = 0; i < n; i++)
        pop(&e->writes);
    if (rc == SQLITE_OK || busy || e->unknown || n == 1) {
        settle(e, e->group, n, rc);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        rc = transact_patiently(e, &e->group[i]);
        settle(e, &e->group[i], 1, rc);
    }
}

static void set_poll(engine *e)
{
    clock_gettime(CLOCK_MONOTONIC, &e->poll_at);
    e->poll_at.tv_nsec += POLL_MS * 1000000L;
    if (e->poll_at.tv_nsec >= 1000000000L) {
        e->poll_at.tv_nsec -= 1000000000L;
        e->poll_at.tv_sec++;
    }
}

static bool poll_due(const engine *e)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec > e->poll_at.tv_sec ||
           (now.tv_sec == e->poll_at.tv_sec && now.tv_nsec >= e->poll_at.tv_nsec);
}

/* data_version changes when another connection, of this or another process, has committed. */
static void poll_others(engine *e)
{
    int64_t version = e->version;
    set_poll(e);
    if (teffi_sqlite_number(e->file.sql[TEFFI_SQL_VERSION], &version) != SQLITE_OK ||
        version == e->version)
        return;
    e->version = version;
    teffi_watch_tell(&e->watch, NULL, (teffi_bytes){0});
}

/* With the lock: until there is something to do. A write that waits for the file's lock is. */
static void wait_work(engine *e, bool watching)
{
    int rc = 0;
    while (!e->queue.head && !e->writes.head && !e->closed && !e->look_around && rc == 0)
        rc = watching ? pthread_cond_timedwait(&e->wake, &e->lock, &e->poll_at)
                      : pthread_cond_wait(&e->wake, &e->lock);
    e->look_around = false;
}

/* Take over what was submitted. out: false: closed, and nothing is left to do. */
static bool take(engine *e, bool watching, op_list *reads)
{
    pthread_mutex_lock(&e->lock);
    e->submitted -= e->done;
    e->done = 0;
    wait_work(e, watching);
    op_list taken = e->queue;
    e->queue = (op_list){0};
    bool closed = e->closed;
    pthread_mutex_unlock(&e->lock);
    for (teffi_store_op *op = pop(&taken); op; op = pop(&taken))
        push(op->kind == TEFFI_STORE_READ || op->kind == TEFFI_STORE_SCAN ? reads : &e->writes, op);
    return !closed || reads->head || e->writes.head;
}

static void *run(void *arg)
{
    engine *e = arg;
    op_list reads = {0};
    set_poll(e);
    for (bool more = true; more;) {
        bool watching = teffi_watch_any(&e->watch);
        more = take(e, watching, &reads);
        for (teffi_store_op *op = pop(&reads); op; op = pop(&reads))
            answer(e, op);
        if (e->writes.head)
            write_group(e);
        if (watching && poll_due(e))
            poll_others(e);
    }
    teffi_sqlite_file_close(&e->file);
    return NULL;
}

static teff_err sqlite_watch(teffi_store *store, const char *table, teffi_store_hint *hint,
                             void *arg)
{
    engine *e = (engine *)store;
    pthread_mutex_lock(&e->lock);
    bool closed = e->closed;
    pthread_mutex_unlock(&e->lock);
    if (closed && hint)
        return TEFF_E_CLOSED;
    teff_err err = teffi_watch_set(&e->watch, table, hint, arg);
    pthread_mutex_lock(&e->lock);
    e->look_around = true;
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
    return err;
}

static void sqlite_close(teffi_store *store)
{
    engine *e = (engine *)store;
    pthread_mutex_lock(&e->lock);
    bool join = !e->joined;
    e->closed = true;
    e->joined = true;
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
    if (join)
        pthread_join(e->thread, NULL);
}

static void sqlite_free(teffi_store *store)
{
    engine *e = (engine *)store;
    teffi_watch_fini(&e->watch);
    pthread_cond_destroy(&e->wake);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

static void init(engine *e)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&e->wake, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&e->lock, NULL);
    teffi_watch_init(&e->watch);
}

/* Signals are for the program's own threads. */
static int start(engine *e)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(&e->thread, NULL, run, e);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc == 0)
        pthread_setname_np(e->thread, "teff-sqlite");
    return rc;
}

teff_err teffi_sqlite_open(const char *path, teffi_store **store, char *text)
{
    static const teffi_store_ops ops = {
        .name = "sqlite",
        .submit = sqlite_submit,
        .watch = sqlite_watch,
        .close = sqlite_close,
        .free = sqlite_free,
    };
    engine *e = calloc(1, sizeof *e);
    if (!e) {
        snprintf(text, TEFF_TEXT_MAX, "store: out of memory");
        return TEFF_E_NOMEM;
    }
    init(e);
    e->base.ops = &ops;
    teff_err err = teffi_sqlite_file_open(&e->file, path, text);
    int rc = err == TEFF_OK ? start(e) : 0;
    if (rc != 0) {
        snprintf(text, TEFF_TEXT_MAX, "store: no thread: %s", strerror(rc));
        teffi_sqlite_file_close(&e->file);
        err = TEFF_E_IO;
    }
    if (err != TEFF_OK)
        sqlite_free(&e->base);
    else
        *store = &e->base;
    return err;
}
