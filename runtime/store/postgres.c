/* postgres.c - engine `postgres`: rows in a PostgreSQL database, over libpq.
 * Way:     store/store -> op_queue -> [postgres] -> libpq -> the server
 * States:  submitted -> queue -> group -> sent in one round trip, as one transaction -> done()
 *          The connection breaks: see end_old_backend() and drop_connection_and_fail_ops().
 * Threads: submit, close: any. All else, also done() of accepted operations: the session's thread.
 *          The cluster's own tables have their own session, so that they do not wait behind states.
 * Source:  PostgreSQL's manual, libpq, "Pipeline Mode" */
#include "store/op_queue.h"

#include <libpq-fe.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "store/postgres_reply.h"
#include "store/postgres_schema.h"

enum {
    SILENCE_MS = 15 * 1000, /* no byte arrived, and none could be sent, for so long: broken */
    PAUSE_MIN_MS = 50,      /* back-off between two attempts to connect; doubles each time */
    PAUSE_MAX_MS = 1000,
    TRIES = 8, /* attempts of an operation that fails because of another transaction */
    MS_NS = 1000000
};

/* Numbers of types in the server's catalog; statements[] also has those of their arrays. */
enum { OID_BYTEA = 17, OID_INT8 = 20, OID_INT4 = 23, OID_TEXT = 25 };

typedef struct session {
    teffi_op_queue queue;
    struct engine *engine;
    teffi_thread thread;
    teffi_parker pause; /* the thread waits here between attempts to connect; woken by close */
    /* owner: the thread */
    PGconn *conn;         /* NULL: there is no connection */
    char backend[64];     /* process id and start time of the server process; "": none */
    bool broken;          /* backend belongs to a broken connection, and may still run */
    uint64_t pause_ms;    /* back-off before the next attempt to connect */
    teffi_queue in_doubt; /* writes that may have been, or may be, committed by backend */
    teffi_store_op *group[TEFFI_OP_QUEUE_GROUP_MAX];
    PGresult *results[TEFFI_OP_QUEUE_GROUP_MAX]; /* of the group's operations */
} session;

typedef struct engine {
    teffi_store base;
    char *target;
    session sessions[2]; /* [true]: the cluster's own tables */
    bool started[2];     /* the session's thread must be joined */
} engine;

/* ---- SQL ---- */

/* A damaged row's value is NULL. A row without a checksum was written with schema 1 or 2. */
#define GOOD_VALUE                                                                                 \
    "CASE WHEN sum IS NULL OR sum = teff.checksum(tab, key, etag, value) THEN value END"

static const struct {
    const char *name, *sql;
    int n;
    Oid types[5];
} statements[] = {
    {"read",
     "SELECT etag, " GOOD_VALUE " FROM teff.rows WHERE tab = $1 AND key = $2",
     2,
     {OID_TEXT, OID_BYTEA}},
    {"scan",
     "SELECT etag, " GOOD_VALUE ", key FROM teff.rows WHERE tab = $1 AND key >= $2 "
     "ORDER BY key LIMIT $3",
     3,
     {OID_TEXT, OID_BYTEA, OID_INT8}},
    {"scan_to",
     "SELECT etag, " GOOD_VALUE ", key FROM teff.rows WHERE tab = $1 AND key >= $2 AND key < $4 "
     "ORDER BY key LIMIT $3",
     4,
     {OID_TEXT, OID_BYTEA, OID_INT8, OID_BYTEA}},
    {"write", "SELECT teff.write($1, $2, $3, $4, $5)", 5, {1009, 1001, 1001, 1016, 1007}},
};

/* ---- parameters, in the server's binary form ---- */

typedef struct parameters {
    const char *values[5];
    int lengths[5];
    uint8_t *memory; /* holds the arrays and numbers; count_parameter_bytes() bytes */
    size_t used;
} parameters;

static const int binary[] = {1, 1, 1, 1, 1};

/* Appends a number in big-endian order, which the protocol requires. */
static void append_big_endian(parameters *p, uint64_t number, size_t bytes)
{
    for (size_t i = bytes; i-- > 0;)
        p->memory[p->used++] = (uint8_t)(number >> 8 * i);
}

/* Appends one element of an array: its length, then its bytes. */
static void append_element(parameters *p, teffi_bytes bytes)
{
    append_big_endian(p, bytes.len, 4);
    if (bytes.len)
        memcpy(p->memory + p->used, bytes.data, bytes.len);
    p->used += bytes.len;
}

/* Empty bytes get an address that is not NULL, since libpq takes NULL as SQL's NULL. */
static void set_parameter(parameters *p, int at, teffi_bytes bytes)
{
    p->values[at] = bytes.len ? bytes.data : "";
    p->lengths[at] = (int)bytes.len;
}

typedef enum column { TABLES, KEYS, VALUES, ETAGS, MARKS } column;

/* Appends a cell, which is one column of a row, as an element of an array. */
static void append_cell(parameters *p, const teffi_row *row, column which)
{
    bool writes = !row->remove && !row->check;
    uint32_t marks = (row->any ? 1u : 0) | (row->remove ? 2u : 0) | (row->check ? 4u : 0);
    if (which == TABLES)
        append_element(p, (teffi_bytes){row->table, strlen(row->table)});
    else if (which == KEYS)
        append_element(p, row->key);
    else if (which == VALUES)
        append_element(p, writes ? row->value : (teffi_bytes){0});
    else {
        append_big_endian(p, which == ETAGS ? 8 : 4, 4);
        append_big_endian(p, which == ETAGS ? row->etag : marks, which == ETAGS ? 8 : 4);
    }
}

/* Sets the parameter of a column to an array of its cells in all rows. The array contains: number
 * of dimensions, flag for NULLs, type, length, first index, elements. */
static void set_column_parameter(parameters *p, const teffi_store_op *op, column which)
{
    static const Oid types[] = {OID_TEXT, OID_BYTEA, OID_BYTEA, OID_INT8, OID_INT4};
    size_t begin = p->used;
    const uint64_t head[] = {1, 0, types[which], op->n_rows, 1};
    for (size_t i = 0; i < sizeof head / sizeof head[0]; i++)
        append_big_endian(p, head[i], 4);
    for (size_t i = 0; i < op->n_rows; i++)
        append_cell(p, &op->rows[i], which);
    set_parameter(p, (int)which, (teffi_bytes){p->memory + begin, p->used - begin});
}

/* out: bytes needed in parameters.memory: five array heads, a scan's limit, five cells per row. */
static size_t count_parameter_bytes(const teffi_store_op *op)
{
    size_t n = 5 * 20 + 8 + teffi_store_op_sum_value_bytes(op);
    for (size_t i = 0; i < op->n_rows; i++)
        n += strlen(op->rows[i].table) + op->rows[i].key.len + 3 * 4 + 12 + 8;
    return n;
}

/* Sets the parameters of an operation. out: the name of the statement to run. */
static const char *set_parameters(parameters *p, const teffi_store_op *op)
{
    const teffi_row *row = &op->rows[0];
    if (!teffi_store_op_is_read(op)) {
        for (column which = TABLES; which <= MARKS; which++)
            set_column_parameter(p, op, which);
        return "write";
    }
    set_parameter(p, 0, (teffi_bytes){row->table, strlen(row->table)});
    set_parameter(p, 1, row->key);
    if (op->kind == TEFFI_STORE_READ)
        return "read";
    append_big_endian(p, op->limit, 8);
    set_parameter(p, 2, (teffi_bytes){p->memory, 8});
    set_parameter(p, 3, op->to);
    return op->to.len ? "scan_to" : "scan";
}

static int count_parameters(const char *statement)
{
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++)
        if (strcmp(statements[i].name, statement) == 0)
            return statements[i].n;
    return 0;
}

/* Adds an operation to libpq's send buffer. out: false: no memory, or the connection broke. */
static bool add_op_to_send_buffer(PGconn *conn, const teffi_store_op *op)
{
    parameters p = {.memory = malloc(count_parameter_bytes(op))};
    if (!p.memory)
        return false;
    const char *statement = set_parameters(&p, op);
    int sent = PQsendQueryPrepared(conn, statement, count_parameters(statement), p.values,
                                   p.lengths, binary, 1);
    free(p.memory);
    return sent;
}

/* ---- the connection ---- */

/* If the previous connection broke, its server process may still run writes in doubt. Ends that
 * process and waits until it is gone. out: false: it still runs, or a query failed, see text. */
static bool end_old_backend(session *s, PGconn *conn, char *text)
{
    static const char sql[] =
        "SELECT count(pg_terminate_backend(pid)), pg_sleep(0.01) FROM pg_stat_activity "
        "WHERE pid || ' ' || extract(epoch FROM backend_start) = $1";
    int left = 1;
    for (int tries = 0; s->broken && left > 0; tries++) {
        if (tries == TRIES * 100) {
            (void)teffi_fail(text, TEFF_E_IO, "postgres: the server does not end session %s",
                             s->backend);
            return false;
        }
        left = teffi_postgres_query_number(conn, sql, s->backend, 0, text);
    }
    s->broken = s->broken && left < 0;
    return !s->broken;
}

/* Stores the id and start time of conn's server process in s->backend, for end_old_backend(). out:
 * false: an error, with text. */
static bool record_backend(session *s, PGconn *conn, char *text)
{
    PGresult *result =
        teffi_postgres_run_sql(conn,
                               "SELECT pid || ' ' || extract(epoch FROM backend_start) FROM "
                               "pg_stat_activity WHERE pid = pg_backend_pid()",
                               NULL, text);
    const char *value = result && PQntuples(result) == 1 ? PQgetvalue(result, 0, 0) : "";
    size_t len = strlen(value);
    bool valid = len > 0 && len < sizeof s->backend;
    if (valid)
        memcpy(s->backend, value, len + 1);
    else if (result)
        (void)teffi_fail(text, TEFF_E_IO, "postgres: the server does not show its own session");
    PQclear(result);
    return valid;
}

/* Refuses a server whose fsync is off, and sets synchronous_commit to on if it is off, because an
 * acknowledged commit must be on disk. */
static teff_err ensure_durability(PGconn *conn, char *text)
{
    static const char sql[] =
        "SELECT count(*) FROM pg_settings WHERE name = 'fsync' AND setting = 'off'";
    int off = teffi_postgres_query_number(conn, sql, NULL, 0, text);
    if (off > 0)
        return teffi_fail(text, TEFF_E_REFUSED,
                          "postgres: fsync is off in this server, expected on");
    if (off < 0 ||
        !teffi_postgres_run_command(conn,
                                    "SELECT set_config('synchronous_commit', 'on', false) WHERE "
                                    "current_setting('synchronous_commit') = 'off'",
                                    text))
        return TEFF_E_IO;
    return TEFF_OK;
}

static bool prepare_statements(PGconn *conn, char *text)
{
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++) {
        PGresult *result = PQprepare(conn, statements[i].name, statements[i].sql, statements[i].n,
                                     statements[i].types);
        bool prepared = PQresultStatus(result) == PGRES_COMMAND_OK;
        PQclear(result);
        if (!prepared) {
            teffi_postgres_format_error(text, PQerrorMessage(conn));
            return false;
        }
    }
    return true;
}

/* Ignores a notice of the server. Without this function, libpq would print it to stderr. */
static void drop_notice(void *arg, const PGresult *result)
{
    (void)arg;
    (void)result;
}

static teff_err set_up_connection(session *s, PGconn *conn, char *text)
{
    if (PQstatus(conn) != CONNECTION_OK) {
        teffi_postgres_format_error(text, PQerrorMessage(conn));
        return TEFF_E_IO;
    }
    (void)PQsetNoticeReceiver(conn, drop_notice, NULL);
    teff_err err = ensure_durability(conn, text);
    if (!err && !end_old_backend(s, conn, text))
        err = TEFF_E_IO;
    if (!err)
        err = teffi_postgres_ensure_schema(conn, text);
    if (!err && (!prepare_statements(conn, text) || !record_backend(s, conn, text)))
        err = TEFF_E_IO;
    if (!err && (!PQenterPipelineMode(conn) || PQsetnonblocking(conn, 1) != 0))
        err = teffi_fail(text, TEFF_E_IO, "postgres: this libpq has no pipelines");
    return err;
}

/* Connects (blocking). Options in target override `values`, because "dbname" is the last key. */
static teff_err connect_session(session *s, char *text)
{
    static const char *const keys[] = {"connect_timeout",
                                       "tcp_user_timeout",
                                       "keepalives_idle",
                                       "target_session_attrs",
                                       "fallback_application_name",
                                       "dbname",
                                       NULL};
    const char *const values[] = {"5",    "15000",           "10", "read-write",
                                  "teff", s->engine->target, NULL};
    PGconn *conn = PQconnectdbParams(keys, values, 1);
    teff_err err = conn ? set_up_connection(s, conn, text)
                        : teffi_fail(text, TEFF_E_NOMEM, "postgres: out of memory");
    if (err)
        PQfinish(conn);
    else
        s->conn = conn;
    return err;
}

/* ---- a group ---- */

typedef enum outcome {
    COMMITTED,
    REFUSED,  /* the server returned an error: nothing is written */
    UNSENT,   /* the connection broke before all was sent: nothing is written */
    IN_DOUBT, /* the connection broke later, or results are missing: all is written, or will be, or
               * nothing */
} outcome;

static void drop_connection(session *s)
{
    PQfinish(s->conn);
    s->conn = NULL;
    s->broken = true;
}

/* Adds ops to libpq's send buffer, then a sync message, which commits them. out: false: error. */
static bool add_group_to_send_buffer(session *s, teffi_store_op **ops, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!add_op_to_send_buffer(s->conn, ops[i]))
            return false;
    return PQpipelineSync(s->conn);
}

/* Adds to s->results all errors and all results with rows that have arrived; no statement has
 * results of another kind. in, out: *n: the number of results there; *refused: was any result an
 * error? out: true: all results of the group have arrived. */
static bool take_results(session *s, size_t *n, bool *refused)
{
    while (!PQisBusy(s->conn)) {
        PGresult *result = PQgetResult(s->conn);
        ExecStatusType status = PQresultStatus(result);
        if (!result && PQstatus(s->conn) == CONNECTION_BAD)
            return false;
        if (!result)
            continue; /* libpq returns NULL after the results of each operation */
        if (status == PGRES_PIPELINE_SYNC) {
            PQclear(result);
            return true;
        }
        bool is_error = status == PGRES_FATAL_ERROR || status == PGRES_PIPELINE_ABORTED;
        *refused = *refused || is_error;
        if (*n < TEFFI_OP_QUEUE_GROUP_MAX && (is_error || status == PGRES_TUPLES_OK))
            s->results[(*n)++] = result;
        else
            PQclear(result);
    }
    return false;
}

/* Waits until the connection can receive or send, then tries both. *sent becomes true if all bytes
 * were sent, or may have been. out: false: the connection broke, or was silent for SILENCE_MS. */
static bool wait_then_receive_and_send(session *s, bool *sent)
{
    struct pollfd fd = {.fd = PQsocket(s->conn), .events = POLLIN | (*sent ? 0 : POLLOUT)};
    if (poll(&fd, 1, SILENCE_MS) == 0)
        return false;
    bool received = PQconsumeInput(s->conn); /* may send all bytes, and fail after that */
    int left = received ? PQflush(s->conn) : 0;
    *sent = *sent || left == 0;
    return received && left >= 0;
}

/* Sends the operations and waits for their results. out: *n: the number of results. */
static outcome send_group_and_wait(session *s, teffi_store_op **ops, size_t n_ops, size_t *n)
{
    bool refused = false, sent = false;
    *n = 0;
    if (!add_group_to_send_buffer(s, ops, n_ops))
        return UNSENT;
    int left = PQflush(s->conn);
    sent = left == 0;
    while (left >= 0 && !take_results(s, n, &refused))
        if (PQstatus(s->conn) == CONNECTION_BAD || !wait_then_receive_and_send(s, &sent))
            left = -1;
    if (left < 0)
        return sent ? IN_DOUBT : UNSENT;
    return refused ? REFUSED : *n == n_ops ? COMMITTED : IN_DOUBT;
}

static void clear_results(session *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        PQclear(s->results[i]);
}

static void fail_op(session *s, teffi_store_op *op, teff_err err, const char *text)
{
    teffi_store_op_set_error(op, err, "%s", text);
    teffi_op_queue_finish_op(&s->queue, op);
}

static bool is_write_in_doubt(outcome o, const teffi_store_op *op)
{
    return o == IN_DOUBT && !teffi_store_op_is_read(op);
}

/* Drops the connection. Moves writes in doubt to s->in_doubt; fails the others with TEFF_E_IO. */
static void drop_connection_and_fail_ops(session *s, teffi_store_op **ops, size_t n, outcome o)
{
    char text[TEFF_TEXT_MAX];
    const char *why = PQerrorMessage(s->conn);
    teffi_postgres_format_error(text, why[0] ? why : "no valid response in time");
    drop_connection(s);
    for (size_t i = 0; i < n; i++)
        if (is_write_in_doubt(o, ops[i]))
            teffi_queue_push(&s->in_doubt, &ops[i]->node);
        else
            fail_op(s, ops[i], TEFF_E_IO, text);
}

/* out: SQLSTATE of the first error, valid until clear_results(); XX000: none. text: its message.
 * *detail: its detail, also valid until then; NULL: none. */
static const char *find_error(session *s, size_t n, char *text, const char **detail)
{
    *detail = NULL;
    for (size_t i = 0; i < n; i++) {
        const char *state = PQresultErrorField(s->results[i], PG_DIAG_SQLSTATE);
        if (!state)
            continue;
        teffi_postgres_format_error(text,
                                    PQresultErrorField(s->results[i], PG_DIAG_MESSAGE_PRIMARY));
        *detail = PQresultErrorField(s->results[i], PG_DIAG_MESSAGE_DETAIL);
        return state;
    }
    teffi_postgres_format_error(text, "the server sent no result");
    return "XX000";
}

/* Did another transaction cause this error: serialization failure, deadlock or lock timeout? */
static bool is_temporary_error(const char *state)
{
    return strcmp(state, "40001") == 0 || strcmp(state, "40P01") == 0 ||
           strcmp(state, "55P03") == 0;
}

/* The error for a SQLSTATE: damaged are a row (see teff.write), a page or an index. */
static teff_err map_sql_state(const char *state)
{
    bool is_damage = strcmp(state, "XX001") == 0 || strcmp(state, "XX002") == 0;
    return is_damage                      ? TEFF_E_MALFORMED
           : strncmp(state, "54", 2) == 0 ? TEFF_E_TOO_LARGE
                                          : TEFF_E_IO;
}

/* Fails op. in: state: the SQLSTATE. detail: if teff.write found a damaged row: its number in op,
 * from 1 on; otherwise any text or NULL. If the server cannot read op's only row, for example a
 * value that is stored outside of the row, the error is the server's text, and names the row. */
static void fail_refused_op(session *s, teffi_store_op *op, const char *state, const char *text,
                            const char *detail)
{
    bool is_row = strcmp(state, "XX001") == 0;
    size_t row = is_row && detail ? strtoul(detail, NULL, 10) : 0;
    if (row > 0 && row <= op->n_rows) {
        teffi_store_set_damaged_row_error(op, "postgres", &op->rows[row - 1]);
        teffi_op_queue_finish_op(&s->queue, op);
    } else if (is_row && op->n_rows == 1 && op->kind != TEFFI_STORE_SCAN) {
        teffi_store_set_damaged_row_error(op, text, &op->rows[0]);
        teffi_op_queue_finish_op(&s->queue, op);
    } else {
        fail_op(s, op, map_sql_state(state), text);
    }
}

static void run_group(session *s, teffi_store_op **ops, size_t n);

/* Fails op, which the server refused, unless another try may succeed. out: true: run op again. */
static bool fail_op_unless_retryable(session *s, teffi_store_op *op, size_t n_results, int tries)
{
    char text[TEFF_TEXT_MAX];
    const char *detail, *state = find_error(s, n_results, text, &detail);
    bool again = is_temporary_error(state) && tries + 1 < TRIES;
    bool read_only = strcmp(state, "25006") == 0; /* the server has become a replica */
    if (!again)
        fail_refused_op(s, op, state, text, detail);
    clear_results(s, n_results);
    if (read_only)
        drop_connection(s);
    return again;
}

/* Finishes each op, or moves it to s->in_doubt. out: true: did neither, so run the group again. */
static bool finish_group_unless_retryable(session *s, teffi_store_op **ops, size_t n,
                                          size_t n_results, outcome o, int tries)
{
    if (o == REFUSED && n == 1)
        return fail_op_unless_retryable(s, ops[0], n_results, tries);
    for (size_t i = 0; o == COMMITTED && i < n; i++)
        teffi_postgres_set_result(ops[i], s->results[i]);
    clear_results(s, n_results);
    for (size_t i = 0; o == COMMITTED && i < n; i++)
        teffi_op_queue_finish_op(&s->queue, ops[i]);
    /* one operation failed, so the transaction wrote nothing: run each operation alone */
    for (size_t i = 0; o == REFUSED && i < n; i++)
        run_group(s, &ops[i], 1);
    if (o == UNSENT || o == IN_DOUBT)
        drop_connection_and_fail_ops(s, ops, n, o);
    return false;
}

/* Runs n operations as one transaction or, if the server refuses it, each operation alone. */
static void run_group(session *s, teffi_store_op **ops, size_t n)
{
    size_t n_results;
    outcome o;
    int tries = 0;
    if (!s->conn) {
        for (size_t i = 0; i < n; i++)
            fail_op(s, ops[i], TEFF_E_IO, "postgres: the connection broke");
        return;
    }
    do
        o = send_group_and_wait(s, ops, n, &n_results);
    while (finish_group_unless_retryable(s, ops, n, n_results, o, tries++));
}

/* ---- the thread ---- */

/* Fails the writes in doubt as UNKNOWN. Called when their server process has ended, or at close. */
static void fail_writes_in_doubt(session *s)
{
    teffi_qnode *node;
    while ((node = teffi_queue_pop(&s->in_doubt)))
        fail_op(s, teffi_container(node, teffi_store_op, node), TEFF_E_UNKNOWN,
                "postgres: the connection broke before the server had confirmed the commit");
}

/* Pauses (not at close), connects, then fails the writes in doubt. out: false: error, with text. */
static bool reconnect_session(session *s, char *text)
{
    if (!teffi_op_queue_is_closed(&s->queue))
        (void)teffi_parker_wait(&s->pause, s->pause_ms * MS_NS);
    bool connected = connect_session(s, text) == TEFF_OK;
    if (connected)
        fail_writes_in_doubt(s);
    uint64_t longer = s->pause_ms ? 2 * s->pause_ms : PAUSE_MIN_MS;
    s->pause_ms = connected ? 0 : longer < PAUSE_MAX_MS ? longer : PAUSE_MAX_MS;
    return connected;
}

/* Runs groups until the store is closed. While writes are in doubt, tries to reconnect and does not
 * wait for operations: reconnect_session() also fails these writes. At close, tries once more. */
static void run_session(void *arg)
{
    session *s = arg;
    char text[TEFF_TEXT_MAX];
    for (;;) {
        size_t n = teffi_op_queue_take_ops(&s->queue, s->group, s->in_doubt.head ? 0 : UINT64_MAX);
        bool last = n == 0 && teffi_op_queue_is_closed(&s->queue);
        if (last && (s->conn || !s->in_doubt.head || !reconnect_session(s, text)))
            break;
        if (s->conn || reconnect_session(s, text))
            run_group(s, s->group, n);
        else
            for (size_t i = 0; i < n; i++)
                fail_op(s, s->group[i], TEFF_E_IO, text);
    }
    fail_writes_in_doubt(s);
    PQfinish(s->conn);
    s->conn = NULL;
}

/* ---- the store ---- */

static void postgres_submit(teffi_store *store, teffi_store_op *op)
{
    engine *e = (engine *)store;
    teffi_op_queue_submit(&e->sessions[op->system].queue, op);
}

static void postgres_close(teffi_store *store)
{
    engine *e = (engine *)store;
    for (int i = 0; i < 2; i++)
        if (teffi_op_queue_close(&e->sessions[i].queue))
            teffi_parker_wake(&e->sessions[i].pause);
        else
            e->started[i] = false; /* an earlier close has joined the thread */
    for (int i = 0; i < 2; i++)
        if (e->started[i])
            teffi_thread_join(&e->sessions[i].thread);
}

static void postgres_free(teffi_store *store)
{
    engine *e = (engine *)store;
    for (int i = 0; i < 2; i++)
        teffi_op_queue_fini(&e->sessions[i].queue);
    free(e->target);
    free(e);
}

static teff_err start_session(engine *e, int i, char *text)
{
    teff_err err = connect_session(&e->sessions[i], text);
    if (err)
        return err;
    err = teffi_thread_start(&e->sessions[i].thread, "teff-postgres", run_session, &e->sessions[i]);
    e->started[i] = !err;
    return err ? teffi_fail(text, err, "store: the engine's thread could not be started") : TEFF_OK;
}

/* out: a copy of target, with "postgres:" before a URI; the caller frees it. NULL: no memory. */
static char *copy_target(const char *target)
{
    bool is_uri = strncmp(target, "//", 2) == 0;
    char *copy = malloc(strlen(target) + sizeof "postgres:");
    if (copy)
        sprintf(copy, "%s%s", is_uri ? "postgres:" : "", target);
    return copy;
}

/* Checks that target is a name (it has no "="), or options or a URI that libpq can parse. */
static teff_err check_target_form(const char *target, char *text)
{
    char *why = NULL;
    bool is_name = !strchr(target, '=') && strncmp(target, "postgres://", 11) != 0;
    PQconninfoOption *options = is_name ? NULL : PQconninfoParse(target, &why);
    bool valid = is_name ? target[0] : options != NULL;
    if (!valid)
        teffi_postgres_format_error(text,
                                    why ? why : "postgres:NAME or postgres://HOST/NAME expected");
    PQconninfoFree(options);
    PQfreemem(why);
    return valid ? TEFF_OK : TEFF_E_INVALID;
}

teff_err teffi_postgres_open(const char *target, teffi_store **store, char *text)
{
    static const teffi_store_ops ops = {
        .submit = postgres_submit,
        .close = postgres_close,
        .free = postgres_free,
    };
    engine *e = calloc(1, sizeof *e);
    if (!e)
        return teffi_fail(text, TEFF_E_NOMEM, "store: out of memory");
    e->base.ops = &ops;
    for (int i = 0; i < 2; i++) {
        teffi_op_queue_init(&e->sessions[i].queue, "postgres");
        e->sessions[i].engine = e;
    }
    e->target = copy_target(target);
    teff_err err = e->target ? check_target_form(e->target, text)
                             : teffi_fail(text, TEFF_E_NOMEM, "store: out of memory");
    for (int i = 0; i < 2 && !err; i++)
        err = start_session(e, i, text);
    if (!err) {
        *store = &e->base;
        return TEFF_OK;
    }
    for (int i = 0; i < 2; i++)
        if (!e->started[i])
            PQfinish(e->sessions[i].conn);
    postgres_close(&e->base);
    postgres_free(&e->base);
    return err;
}
