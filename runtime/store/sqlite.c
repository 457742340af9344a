/* sqlite.c - engine `sqlite`: one thread, one connection, writes committed in groups.
 * Way:     store/store -> [sqlite] -> sqlite_rows -> SQLite (write-ahead log, synchronous = FULL)
 * States:  submitted -> queue -> read: done() | write: waiting -> group -> committed -> done()
 *          A read runs after the waiting writes of the same row.
 * Threads: submit, close: any. Everything else, also done() of accepted operations: the engine's
 *          thread. Reads continue while another process holds the file's write lock. */
#include "store/engine.h"

#include <pthread.h>
#include <stdlib.h>
#include "base/error.h"
#include "base/hash.h"
#include "os/thread.h"
#include "store/sqlite_file.h"

enum {
    QUEUE_MAX = 64 * 1024,              /* operations submitted and not done */
    QUEUE_BYTES_MAX = 64 * 1024 * 1024, /* bytes of values of the writes among them */
    GROUP_MAX = 1024, /* operations of a transaction; a read waits up to some ms for one */
    GROUP_BYTES_MAX = 16 * 1024 * 1024, /* bytes of values of a transaction; one op always fits */
    ROW_COUNTS = 1024                   /* counters of rows in waiting writes, by the key's hash */
};

typedef struct engine {
    teffi_store base;
    pthread_mutex_t lock; /* a leaf */
    pthread_cond_t wake;
    /* guarded by lock */
    teffi_queue queue[2]; /* [true]: on the cluster's own tables; no limit, runs first */
    size_t submitted, submitted_bytes; /* operations not counted as done, bytes of their values */
    bool closed;
    /* immutable after init */
    teffi_thread thread;
    /* owner: the engine's thread */
    teffi_sqlite_file file;
    /* writes: writes that wait for a transaction, and reads that must run after them. reads: reads
     * to run now. Index [true]: operations on the cluster's own tables, which run first. All
     * operations on a row have one index, so they stay in order (except fences, see store.c). */
    teffi_queue writes[2];
    teffi_queue reads[2];
    uint32_t waiting[ROW_COUNTS];     /* number of rows in waiting writes, by the key's hash */
    size_t done, done_bytes;          /* not yet subtracted from submitted, submitted_bytes */
    int busy_tries;                   /* failed attempts (BUSY) of the first group in writes */
    bool unknown;                     /* the last COMMIT failed with an unknown outcome */
    size_t alone;                     /* how many of the next transactions have one write each */
    uint64_t etag;                    /* the last one assigned before the transaction */
    teffi_store_op *group[GROUP_MAX]; /* of the transaction */
} engine;

static teffi_store_op *op_of_node(teffi_qnode *node)
{
    return node ? teffi_container(node, teffi_store_op, node) : NULL;
}

static bool has_ops(const teffi_queue queues[2])
{
    return queues[false].head || queues[true].head;
}

/* ---- rows with waiting writes ---- */

/* out: the counter of the row's waiting writes. Rows with the same hash share it, so it may be too
 * high, but never too low. */
static uint32_t *get_waiting_count(engine *e, const teffi_row *row)
{
    return &e->waiting[teffi_hash64(row->key.data, row->key.len, 0) % ROW_COUNTS];
}

static void append_write(engine *e, teffi_store_op *op)
{
    teffi_queue_push(&e->writes[op->system], &op->node);
    for (size_t i = 0; i < op->n_rows; i++)
        ++*get_waiting_count(e, &op->rows[i]);
}

/* Removes the first operation of a queue in e->writes. It must be a write that has ended. */
static void dequeue_ended_write(engine *e, bool system)
{
    const teffi_store_op *op = op_of_node(teffi_queue_pop(&e->writes[system]));
    for (size_t i = 0; i < op->n_rows; i++)
        --*get_waiting_count(e, &op->rows[i]);
}

/* Is the queue too full for a new operation? The limit of bytes does not apply while
 * e->submitted_bytes is 0, so no write is too large for an idle queue. sqlite_submit() does not
 * call this function for operations on the cluster's own tables, because they have no limit.
 * in: bytes: the size of all values that the new operation writes. runs: with e->lock held. */
static bool is_queue_full(const engine *e, size_t bytes)
{
    return e->submitted >= QUEUE_MAX ||
           (e->submitted_bytes && bytes && e->submitted_bytes + bytes > QUEUE_BYTES_MAX);
}

static void sqlite_submit(teffi_store *store, teffi_store_op *op)
{
    engine *e = (engine *)store;
    size_t bytes = teffi_store_op_sum_value_bytes(op);
    pthread_mutex_lock(&e->lock);
    bool closed = e->closed, full = !op->system && is_queue_full(e, bytes);
    if (!closed && !full) {
        bool first = !has_ops(e->queue);
        teffi_queue_push(&e->queue[op->system], &op->node);
        e->submitted++;
        e->submitted_bytes += bytes;
        if (first)
            pthread_cond_signal(&e->wake);
        pthread_mutex_unlock(&e->lock);
        return;
    }
    pthread_mutex_unlock(&e->lock);
    if (closed)
        teffi_store_op_set_error(op, TEFF_E_CLOSED, "sqlite: the store is closed");
    else
        teffi_store_op_set_error(op, TEFF_E_OVERLOADED, "sqlite: %d operations, or %d bytes, wait",
                                 QUEUE_MAX, QUEUE_BYTES_MAX);
    op->done(op);
}

static void set_op_error_from_code(teffi_store_op *op, int rc)
{
    char why[TEFFI_SQLITE_TEXT];
    teff_err err = teffi_sqlite_convert_error(rc, why);
    teffi_store_op_set_error(op, err, "sqlite: %s", why);
}

/* Counts the operation as done, and calls op->done(). The counts are subtracted from e->submitted
 * and e->submitted_bytes later, in wait_and_distribute_ops(), which takes the lock anyway. */
static void finish_op(engine *e, teffi_store_op *op)
{
    e->done++;
    e->done_bytes += teffi_store_op_sum_value_bytes(op);
    op->done(op);
}

/* Runs a read or scan, and finishes it. If SQLite returns BUSY, runs it again, up to
 * TEFFI_SQLITE_BUSY_TRIES times in all. SQLite returns BUSY to a read only while a process recovers
 * the log after a crash. */
static void run_read(engine *e, teffi_store_op *op)
{
    int rc = SQLITE_BUSY;
    for (int i = 0; teffi_sqlite_has_primary_code(rc, SQLITE_BUSY) && i < TEFFI_SQLITE_BUSY_TRIES;
         i++)
        rc = op->kind == TEFFI_STORE_READ ? teffi_sqlite_read(&e->file, op)
                                          : teffi_sqlite_scan(&e->file, op);
    if (rc != SQLITE_OK)
        set_op_error_from_code(op, rc);
    finish_op(e, op);
}

/* Commits, and sets e->unknown if the commit failed and its outcome is unknown. In WAL mode SQLite
 * writes the commit frame last, and then syncs the log. After FULL, BUSY or READONLY the log has no
 * commit frame. After any other error the log may have one. If it has one, recovery after a crash
 * applies the transaction. */
static int commit_group(engine *e)
{
    int rc = teffi_sqlite_run(&e->file, TEFFI_SQL_COMMIT);
    e->unknown = rc != SQLITE_OK && !teffi_sqlite_has_primary_code(rc, SQLITE_FULL) &&
                 !teffi_sqlite_has_primary_code(rc, SQLITE_BUSY) &&
                 !teffi_sqlite_has_primary_code(rc, SQLITE_READONLY);
    return rc;
}

/* Writes the first n operations of e->group. in: the caller has begun a transaction, and ends it.
 * out: SQLITE_OK or SQLite's code. */
static int write_ops(engine *e, size_t n)
{
    int rc = teffi_sqlite_read_last_etag(&e->file, &e->etag);
    uint64_t etag = e->etag;
    e->file.checked = NULL;
    for (size_t i = 0; rc == SQLITE_OK && i < n; i++) {
        teffi_store_op *op = e->group[i];
        op->err = TEFF_OK;
        op->text[0] = '\0';
        rc = teffi_sqlite_write(&e->file, op, &etag);
    }
    if (rc == SQLITE_OK && etag != e->etag)
        rc = teffi_sqlite_write_last_etag(&e->file, etag);
    return rc;
}

/* Runs the n writes of the group as one transaction. All etags of an op are checked before its
 * first row is written, so a conflict fails only that op. out: SQLITE_OK: each op->err is set.
 * Any other code: no row was written or, if e->unknown is true, perhaps all rows. */
static int run_transaction(engine *e, size_t n)
{
    e->unknown = false;
    int rc = teffi_sqlite_run(&e->file, TEFFI_SQL_BEGIN);
    if (rc != SQLITE_OK)
        return rc;
    rc = write_ops(e, n);
    if (rc == SQLITE_OK)
        rc = commit_group(e);
    if (!sqlite3_get_autocommit(e->file.db)) /* the transaction is still open */
        teffi_sqlite_run(&e->file, TEFFI_SQL_ROLLBACK);
    return rc;
}

/* Sets the new etags in the rows of a committed write. A removed row gets 0. Each row with a new
 * value gets ++e->etag: the same etag that teffi_sqlite_write() has stored for it. */
static void set_new_etags(engine *e, teffi_store_op *op)
{
    for (size_t i = 0; i < op->n_rows; i++)
        if (!op->rows[i].check)
            op->rows[i].etag = op->rows[i].remove ? 0 : ++e->etag;
}

/* Finishes the n writes of a transaction that ended with rc. If its outcome is unknown, a conflict
 * is reported as UNKNOWN, too, because an earlier write of the group may have caused it. */
static void finish_group(engine *e, size_t n, int rc)
{
    for (size_t i = 0; i < n; i++) {
        teffi_store_op *op = e->group[i];
        dequeue_ended_write(e, op->system);
        if (e->unknown)
            teffi_store_op_set_error(op, TEFF_E_UNKNOWN, "sqlite: commit: %s (SQLite code %d)",
                                     sqlite3_errstr(rc), rc);
        else if (rc != SQLITE_OK)
            set_op_error_from_code(op, rc);
        else if (op->err == TEFF_OK)
            set_new_etags(e, op);
        finish_op(e, op);
    }
}

/* Puts into e->group the first writes that fit into one transaction. Chooses from each queue in
 * e->writes only the writes before the queue's first read. The writes stay in their queues until
 * the transaction has ended. out: the number of writes in e->group. */
static size_t pick_group(engine *e)
{
    size_t n = 0, bytes = 0, max = e->alone ? 1 : GROUP_MAX;
    for (int system = 1; system >= 0; system--)
        for (teffi_store_op *op = op_of_node(e->writes[system].head);
             op && n < max && !teffi_store_op_is_read(op); op = op_of_node(op->node.next)) {
            bytes += teffi_store_op_sum_value_bytes(op);
            if (n > 0 && bytes > GROUP_BYTES_MAX)
                return n;
            e->group[n++] = op;
        }
    return n;
}

/* Runs a group of n writes as one transaction. If SQLite returns BUSY, the writes stay queued, and
 * the next call tries again; after TEFFI_SQLITE_BUSY_TRIES attempts the writes fail. After any
 * other error the writes fail if n is 1 or the outcome is unknown. Otherwise they stay queued, and
 * each of the next n transactions has only one write. Reason: if one write is too large for the
 * disk, only that write should fail. */
static void write_group(engine *e)
{
    size_t n = pick_group(e);
    int rc = run_transaction(e, n);
    bool busy = teffi_sqlite_has_primary_code(rc, SQLITE_BUSY);
    if (busy && ++e->busy_tries < TEFFI_SQLITE_BUSY_TRIES)
        return;
    e->busy_tries = 0;
    if (rc != SQLITE_OK && !busy && !e->unknown && n > 1) {
        e->alone = n;
        return;
    }
    e->alone -= e->alone > 0;
    finish_group(e, n, rc);
}

/* Waits until an operation is submitted or the store is closed. Returns at once if earlier
 * operations are waiting, for example a write that got BUSY. runs: with e->lock held. */
static void wait_for_work(engine *e)
{
    while (!has_ops(e->queue) && !has_ops(e->reads) && !has_ops(e->writes) && !e->closed)
        pthread_cond_wait(&e->wake, &e->lock);
}

/* Appends each operation to e->writes or e->reads. A read of a row with waiting writes is appended
 * to e->writes, so that it runs after them. */
static void distribute_ops(engine *e, teffi_queue taken)
{
    for (teffi_store_op *op = op_of_node(teffi_queue_pop(&taken)); op;
         op = op_of_node(teffi_queue_pop(&taken)))
        if (!teffi_store_op_is_read(op))
            append_write(e, op);
        else if (op->kind == TEFFI_STORE_READ && *get_waiting_count(e, &op->rows[0]))
            teffi_queue_push(&e->writes[op->system], &op->node);
        else
            teffi_queue_push(&e->reads[op->system], &op->node);
}

/* Waits for operations, and moves them to e->writes and e->reads. out: false: the store is closed,
 * and all operations have ended. */
static bool wait_and_distribute_ops(engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->submitted -= e->done;
    e->submitted_bytes -= e->done_bytes;
    e->done = e->done_bytes = 0;
    wait_for_work(e);
    teffi_queue taken = e->queue[false], system = e->queue[true];
    e->queue[false] = e->queue[true] = (teffi_queue){0};
    bool closed = e->closed;
    pthread_mutex_unlock(&e->lock);
    distribute_ops(e, system);
    distribute_ops(e, taken);
    return !closed || has_ops(e->reads) || has_ops(e->writes);
}

/* Runs all reads of the cluster's own tables, and after them at most GROUP_MAX other reads. Reason
 * for this limit: the next write waits for these reads, and should not wait for longer than a
 * transaction takes. Finally runs the reads at the head of each queue in e->writes, because all
 * writes before them have ended. */
static void run_reads(engine *e)
{
    teffi_store_op *op;
    while ((op = op_of_node(teffi_queue_pop(&e->reads[true]))))
        run_read(e, op);
    for (size_t n = 0; n < GROUP_MAX && (op = op_of_node(teffi_queue_pop(&e->reads[false]))); n++)
        run_read(e, op);
    for (int system = 1; system >= 0; system--)
        while (e->writes[system].head && teffi_store_op_is_read(op_of_node(e->writes[system].head)))
            run_read(e, op_of_node(teffi_queue_pop(&e->writes[system])));
}

static void run_engine(void *arg)
{
    engine *e = arg;
    for (bool more = true; more;) {
        more = wait_and_distribute_ops(e);
        run_reads(e);
        if (has_ops(e->writes))
            write_group(e);
    }
    teffi_sqlite_file_close(&e->file);
}

static void sqlite_close(teffi_store *store)
{
    engine *e = (engine *)store;
    pthread_mutex_lock(&e->lock);
    bool join = !e->closed;
    e->closed = true;
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
    if (join)
        teffi_thread_join(&e->thread);
}

static void sqlite_free(teffi_store *store)
{
    engine *e = (engine *)store;
    pthread_cond_destroy(&e->wake);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

teff_err teffi_sqlite_open(const char *path, teffi_store **store, char *text)
{
    static const teffi_store_ops ops = {
        .submit = sqlite_submit,
        .close = sqlite_close,
        .free = sqlite_free,
    };
    engine *e = calloc(1, sizeof *e);
    if (!e)
        return teffi_fail(text, TEFF_E_NOMEM, "store: out of memory");
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->wake, NULL);
    e->base.ops = &ops;
    teff_err err = teffi_sqlite_file_open(&e->file, path, text);
    if (err == TEFF_OK) {
        err = teffi_thread_start(&e->thread, "teff-sqlite", run_engine, e);
        if (err == TEFF_OK) {
            *store = &e->base;
            return TEFF_OK;
        }
        (void)teffi_fail(text, err, "store: the engine's thread could not be started");
        teffi_sqlite_file_close(&e->file);
    }
    sqlite_free(&e->base);
    return err;
}
