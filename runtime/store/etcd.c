/* etcd.c - engine `etcd`: rows in an etcd cluster, each group of writes as one of its transactions.
 * Way:     store/store -> op_queue -> [etcd] -> etcd_rows, etcd_http -> a member of the cluster
 * States:  submitted -> queue -> group -> requests: writes, then reads -> responses: done()
 *          No response: reads are sent once more; writes that may have run end as UNKNOWN.
 * Threads: submit, close: any. All else, also done() of accepted operations: the session's thread.
 *          The cluster's own tables have their own session, so that they do not wait behind states.
 * Source:  etcd's manual, "API guarantees" */
#include "store/op_queue.h"

#include <ctype.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "os/platform.h"
#include "os/thread.h"
#include "store/etcd_http.h"
#include "store/etcd_rows.h"

enum {
    ETCD_FORMAT = 1,   /* version of the keys and rows in etcd; raise it if you change them */
    HOSTS_MAX = 9,     /* in an address; etcd recommends at most seven members */
    HOST_MAX = 256,    /* bytes of one */
    SILENCE_MS = 5000, /* without a byte for so long, a request is lost; half a lease */
    PREPARE_SILENCE_MS = 2000, /* the same for control requests, see send_control_request() */
    RETRY_MIN_MS = 10,         /* back-off between two attempts to connect; doubles each time */
    RETRY_MAX_MS = 1000,       /* a tenth of the usual lease of 10 s */
    FENCE_S = 24 * 60 * 60,    /* TTL of a fence key; no network delays a request for a day */
    FENCE_MAX = TEFFI_ETCD_NAME_MAX + 48,
    PAGE_ROWS = 32 /* rows of a scan's first page; doubles while pages have few bytes */
};

/* Each write request has the condition that the key `fence` does not exist. If the outcome of
 * a write request is unknown, the session creates that key before it sends another operation and,
 * if a member can be reached, before it reports UNKNOWN. Then it chooses a new key. Reason: the
 * request may still be in the network, or in a member without a leader. If it ran later, one read
 * after UNKNOWN would show one outcome, and the next read another. With the key, it writes
 * nothing. */
typedef struct session {
    teffi_op_queue queue;
    struct engine *engine;
    teffi_thread thread;
    bool started;
    teffi_parker opened; /* teffi_etcd_open() waits until open_err and why are set */
    /* owner: the thread */
    teff_err open_err;       /* of the last attempt to connect */
    char why[TEFF_TEXT_MAX]; /* why there is no connection, or why the last request failed */
    teffi_etcd_http http;
    size_t host; /* the member that gets the requests: index in engine.hosts */
    bool ready;  /* find_ready_member() succeeded, and the member was not given up since */
    char fence[FENCE_MAX]; /* a key; write requests write nothing if it exists */
    bool in_doubt;         /* a write request may still run, unless `fence` exists */
    uint32_t retry_ms;     /* back-off; 0: the last attempt to connect succeeded */
    uint64_t retry_ns;     /* time of the next attempt, on the clock of teffi_now() */
    teffi_etcd_text request, control, room;
    json_t *response; /* to the last request, if DONE */
    teff_err refusal; /* the error of the last request, if REFUSED */
    teffi_store_op *group[TEFFI_OP_QUEUE_GROUP_MAX], *ordered[TEFFI_OP_QUEUE_GROUP_MAX];
} session;

typedef struct engine {
    teffi_store base;
    teffi_platform platform;
    char hosts[HOSTS_MAX][HOST_MAX]; /* "http://HOST:PORT"; with a CA "https://.." */
    size_t n_hosts;
    char prefix[TEFFI_ETCD_NAME_MAX + 2];
    teffi_login login;
    uint64_t cluster;    /* its id; 0: not set. The first session sets it, then the second starts */
    session sessions[2]; /* [true]: the cluster's own tables */
} engine;

typedef enum outcome {
    DONE,     /* session.response is valid */
    REFUSED,  /* an error; this cluster has not done the request: session.why, .refusal */
    UNSENT,   /* the request was not done */
    IN_DOUBT, /* the request may have been done, or may be done later */
    TOO_LONG  /* the response is too long, or memory is out; the request may have been done */
} outcome;

/* ---- one request ---- */

/* Is this error about a login token that is no longer valid? etcd forgets tokens when it restarts,
 * and refuses them after a change of users. */
static bool is_token_rejected(const session *s, const char *message)
{
    return s->engine->login.user[0] && (strstr(message, "invalid auth token") ||
                                        strstr(message, "auth: revision in header is old"));
}

/* Converts etcd's error to an error that store.h allows. in: code: a status code of gRPC. out:
 * TEFF_E_UNKNOWN if the request may have been done, or may be done later. */
static teff_err map_etcd_error(json_int_t code, const char *message)
{
    enum { INVALID = 3, NOT_FOUND = 5, DENIED = 7, EXHAUSTED, PRECONDITION, OUT_OF_RANGE = 11 };
    enum { UNIMPLEMENTED = 12, UNAUTHENTICATED = 16 };
    if (strstr(message, "too large") || strstr(message, "too many operations"))
        return TEFF_E_TOO_LARGE;
    switch (code) {
    case INVALID:
    case NOT_FOUND:
    case DENIED:
    case EXHAUSTED: /* no space, or too many waiting requests */
    case PRECONDITION:
    case OUT_OF_RANGE: /* a revision that was compacted */
    case UNIMPLEMENTED:
    case UNAUTHENTICATED:
        return TEFF_E_IO;
    default: /* mostly UNAVAILABLE, "request timed out": etcd may commit the request later */
        return TEFF_E_UNKNOWN;
    }
}

/* Sets s->refusal and s->why from a response that reports an error, or is not from etcd.
 * out: UNSENT: etcd rejected the login token; the session's copy of it is deleted.
 *      REFUSED: etcd has not done the request.
 *      IN_DOUBT: the request may have been done. */
static outcome classify_error_response(session *s)
{
    const char *message = json_string_value(json_object_get(s->response, "message"));
    json_int_t code = json_integer_value(json_object_get(s->response, "code"));
    s->refusal = message ? map_etcd_error(code, message) : TEFF_E_UNKNOWN;
    (void)teffi_fail(s->why, s->refusal, "etcd: %s: %.300s (status %ld)", s->engine->hosts[s->host],
                     message ? message : "no JSON", s->http.status);
    if (message && is_token_rejected(s, message)) {
        /* if memory is out, the old token stays until the next login replaces it */
        (void)!teffi_etcd_http_set_token(&s->http, NULL);
        return UNSENT; /* the caller's next attempt calls find_ready_member(), which logs in */
    }
    return s->refusal == TEFF_E_UNKNOWN ? IN_DOUBT : REFUSED;
}

/* Refuses a response of another cluster. The request may have run there, but changed no rows of
 * this store. The first response determines the cluster. Each later one is checked, because
 * libcurl reconnects by itself, and a new cluster may run on the same ports. The store's address
 * may also list members of two clusters. */
static outcome check_cluster_id(session *s)
{
    uint64_t id = teffi_etcd_get_number(json_object_get(s->response, "header"), "cluster_id");
    if (s->engine->cluster == 0)
        s->engine->cluster = id;
    if (id != 0 && s->engine->cluster == id)
        return DONE;
    if (id == 0) {
        (void)teffi_fail(s->why, TEFF_E_UNKNOWN, "etcd: %s: not a response of etcd",
                         s->engine->hosts[s->host]);
        return IN_DOUBT;
    }
    s->ready = false;
    s->refusal = teffi_fail(s->why, TEFF_E_IO, "etcd: %s: a member of another cluster",
                            s->engine->hosts[s->host]);
    return REFUSED;
}

/* Sends a request to the session's member, once, and waits for the response. out: DONE: the
 * response is in s->response. */
static outcome send_to_member(session *s, const char *path, const teffi_etcd_text *request,
                              uint32_t silence_ms)
{
    const char *host = s->engine->hosts[s->host];
    json_decref(s->response);
    s->response = NULL;
    if (request->failed) {
        s->refusal = teffi_fail(s->why, TEFF_E_NOMEM, "etcd: no memory for a request");
        return REFUSED;
    }
    teffi_etcd_sent sent = teffi_etcd_post(&s->http, host, path, request, silence_ms);
    if (sent == TEFFI_ETCD_RESPONDED) {
        s->response = json_loadb(s->http.response.data, s->http.response.len, 0, NULL);
        return s->http.status == 200 && json_is_object(s->response) ? check_cluster_id(s)
                                                                    : classify_error_response(s);
    }
    (void)teffi_fail(s->why, TEFF_E_IO, "etcd: %s: connection lost: %.200s", host, s->http.why);
    return sent == TEFFI_ETCD_TOO_LONG ? TOO_LONG : sent == TEFFI_ETCD_UNSENT ? UNSENT : IN_DOUBT;
}

/* Sends a request that is not an operation, for example a login; does not change s->request.
 * in: json: the request; NULL: it is in s->control. */
static outcome send_control_request(session *s, const char *path, const char *json)
{
    if (json) {
        s->control.len = 0;
        s->control.failed = false;
        teffi_etcd_text_add_string(&s->control, json);
    }
    return send_to_member(s, path, &s->control, PREPARE_SILENCE_MS);
}

/* ---- the connection ---- */

/* out: s->control: the login request. The caller clears it, since it contains the password. */
static void make_login_request(session *s, const teffi_secret *password)
{
    json_t *request = json_pack("{s:s, s:s%}", "name", s->engine->login.user, "password",
                                password->bytes, password->len);
    char *json = request ? json_dumps(request, 0) : NULL;
    s->control.len = 0;
    s->control.failed = !json;
    if (json) {
        teffi_etcd_text_add_string(&s->control, json);
        explicit_bzero(json, strlen(json));
    }
    free(json);
    if (request) /* jansson's copy of the password */
        explicit_bzero((char *)json_string_value(json_object_get(request, "password")),
                       password->len);
    json_decref(request);
}

/* Logs in if there is a password file. The member returns a token for all later requests. */
static teff_err log_in_to_etcd(session *s)
{
    teffi_secret *password;
    teff_err err = teffi_login_read_password(&s->engine->login, &password, s->why);
    if (err || !password)
        return err;
    make_login_request(s, password);
    teffi_secret_free(password);
    if (s->control.failed)
        return teffi_fail(s->why, TEFF_E_INVALID, "etcd: the password is not UTF-8, or no memory");
    outcome o = send_control_request(s, "/v3/auth/authenticate", NULL);
    explicit_bzero(s->control.data, s->control.len);
    const char *token = json_string_value(json_object_get(s->response, "token"));
    if (o != DONE)
        return o == REFUSED ? TEFF_E_REFUSED : TEFF_E_IO;
    if (!token)
        return teffi_fail(s->why, TEFF_E_IO, "etcd: no token in the response to a login");
    err = teffi_etcd_http_set_token(&s->http, token);
    return err == TEFF_E_TOO_LARGE
               ? teffi_fail(s->why, TEFF_E_IO, "etcd: the login token is too long")
               : err;
}

/* Checks that the member is an etcd of 3.4 or later, in a cluster that has a leader. */
static teff_err check_member(session *s)
{
    const char *host = s->engine->hosts[s->host];
    if (send_control_request(s, "/v3/maintenance/status", "{}") != DONE)
        return s->http.status == 404 ? teffi_fail(s->why, TEFF_E_REFUSED,
                                                  "etcd: %s: not an etcd of 3.4 or later", host)
                                     : TEFF_E_IO;
    if (teffi_etcd_get_number(s->response, "leader") == 0)
        return teffi_fail(s->why, TEFF_E_IO, "etcd: %s: the cluster has no leader", host);
    return TEFF_OK;
}

/* Sets s->fence to a new random key. Clears s->in_doubt, because no request has used this key. */
static void choose_fence_key(session *s)
{
    const teffi_platform *p = &s->engine->platform;
    snprintf(s->fence, sizeof s->fence, "%s-lost/%016" PRIx64 "%016" PRIx64, s->engine->prefix,
             p->random(p->arg), p->random(p->arg));
    s->in_doubt = false;
}

/* Creates the key s->fence in etcd, with a lease that removes it after FENCE_S. After success, sets
 * s->fence to a new key. After an error, the next call creates the same key with a new lease. */
static teff_err create_fence_key(session *s)
{
    char grant[64];
    snprintf(grant, sizeof grant, "{\"TTL\":\"%d\"}", FENCE_S);
    if (send_control_request(s, "/v3/lease/grant", grant) != DONE)
        return TEFF_E_IO;
    teffi_etcd_make_put_request(&s->control, s->fence, teffi_etcd_get_number(s->response, "ID"));
    if (send_control_request(s, "/v3/kv/put", NULL) != DONE)
        return TEFF_E_IO;
    choose_fence_key(s);
    return TEFF_OK;
}

/* Refuses a store whose keys and rows in etcd are of a newer version, which the key PREFIX -format
 * has as digits. A store without that key has the first version; then this creates the key. If
 * another session does so at the same time, this reads again. If etcd refuses the request, for
 * example because its space is used up or the user may not read the key, the operations will report
 * that. */
static teff_err check_etcd_format(session *s)
{
    char key[TEFFI_ETCD_NAME_MAX + 16], digits[12], text[TEFF_TEXT_MAX];
    teffi_bytes version;
    snprintf(key, sizeof key, "%s-format", s->engine->prefix);
    snprintf(digits, sizeof digits, "%d", ETCD_FORMAT);
    for (int tries = 0; tries < 2; tries++) {
        teffi_etcd_make_get_request(&s->control, key);
        outcome o = send_control_request(s, "/v3/kv/range", NULL);
        if (o == DONE && teffi_etcd_decode_value(s->response, &s->control, &version)) {
            teff_err err = teffi_store_check_format(version, ETCD_FORMAT, text);
            return err ? teffi_fail(s->why, err, "etcd: %s", text) : TEFF_OK;
        }
        teffi_etcd_make_create_request(&s->control, key, digits);
        if (o == DONE)
            o = send_control_request(s, "/v3/kv/txn", NULL);
        if (o != DONE)
            return o == REFUSED ? TEFF_OK : TEFF_E_IO;
    }
    return TEFF_OK;
}

/* Tries all members, from s->host on, until a member is ready, and sets s->host to it. A member is
 * ready if it passes check_member(), the session is logged in, the store's format is known, and the
 * fence key was created if a write is in doubt. out: if none is ready, the last member's error. */
static teff_err find_ready_member(session *s)
{
    teff_err err = TEFF_E_IO;
    for (size_t i = 0; i < s->engine->n_hosts; i++) {
        err = check_member(s);
        if (!err)
            err = log_in_to_etcd(s);
        if (!err)
            err = check_etcd_format(s);
        if (!err && s->in_doubt)
            err = create_fence_key(s);
        if (!err)
            break;
        s->host = (s->host + 1) % s->engine->n_hosts;
    }
    return err;
}

/* Calls find_ready_member(), and sets s->ready. After a failure, sets the time of the next attempt.
 * The delay doubles from RETRY_MIN_MS to RETRY_MAX_MS; up to a half of it, chosen at random, is
 * subtracted, so that silos do not all connect at the same time. out: s->ready. */
static bool find_ready_member_or_back_off(session *s)
{
    s->open_err = find_ready_member(s);
    s->ready = s->open_err == TEFF_OK;
    uint32_t doubled = s->retry_ms ? 2 * s->retry_ms : RETRY_MIN_MS;
    s->retry_ms = s->ready ? 0 : doubled < RETRY_MAX_MS ? doubled : RETRY_MAX_MS;
    uint64_t chance = s->engine->platform.random(s->engine->platform.arg) % (s->retry_ms / 2 + 1);
    s->retry_ns = teffi_now(&s->engine->platform) + (s->retry_ms - chance) * 1000000u;
    return s->ready;
}

/* Looks for a member if there is none and the back-off has ended. out: false: there is no ready
 * member, and s->why says why. */
static bool ensure_member_ready(session *s)
{
    return s->ready ||
           (teffi_now(&s->engine->platform) >= s->retry_ns && find_ready_member_or_back_off(s));
}

/* Switches to the next member that is ready; if there is none, s->ready is false. Does not wait for
 * the back-off. in: write_in_doubt: a write request may still run. Then find_ready_member() also
 * creates the fence key: if the request runs after that, it writes nothing. */
static void switch_to_next_member(session *s, bool write_in_doubt)
{
    s->in_doubt = s->in_doubt || write_in_doubt;
    s->host = (s->host + 1) % s->engine->n_hosts;
    (void)find_ready_member_or_back_off(s);
}

/* ---- writes ---- */

static void fail_etcd_ops(session *s, teffi_store_op **ops, size_t n, teff_err err, const char *why)
{
    for (size_t i = 0; i < n; i++) {
        teffi_store_op_set_error(ops[i], err, "%s", why);
        teffi_op_queue_finish_op(&s->queue, ops[i]);
    }
}

/* Sends the writes. If they are UNSENT, sends them once more, to the next ready member.
 * out: *ended: how many operations have a result, and were moved to the front of ops; at least
 *      one if DONE, otherwise 0. */
static outcome send_writes(session *s, teffi_store_op **ops, size_t n, size_t *ended)
{
    outcome o = UNSENT;
    *ended = 0;
    for (int tries = 0; o == UNSENT && tries < 2 && ensure_member_ready(s); tries++) {
        teffi_etcd_make_write_request(&s->request, s->engine->prefix, s->fence, ops, n);
        o = send_to_member(s, "/v3/kv/txn", &s->request, SILENCE_MS);
        *ended = o == DONE ? teffi_etcd_set_write_results(s->response, ops, n) : 0;
        if (o == DONE && *ended == 0) {
            (void)teffi_fail(s->why, TEFF_E_UNKNOWN, "etcd: unexpected response to a write");
            o = IN_DOUBT;
        }
        if (o == UNSENT)
            switch_to_next_member(s, false);
    }
    return o;
}

/* Fences the writes, then fails them with TEFF_E_UNKNOWN, since they may have run. To fence them,
 * the session switches to the next ready member, and creates the fence key in etcd. A write that
 * runs after that writes nothing. If no member is ready, the session creates the key later, before
 * it sends another operation. */
static void fence_and_fail_writes_as_unknown(session *s, teffi_store_op **ops, size_t n)
{
    char why[TEFF_TEXT_MAX];
    memcpy(why, s->why, sizeof why);
    switch_to_next_member(s, true);
    fail_etcd_ops(s, ops, n, TEFF_E_UNKNOWN, why);
}

/* Runs writes that fit into one request, and ends them. If etags do not match, the operations with
 * a wrong etag end with CONFLICT, and the others are sent again. If the request is refused, each
 * write is sent alone. Changes the order of ops. */
static void run_etcd_writes(session *s, teffi_store_op **ops, size_t n)
{
    outcome o = DONE;
    for (size_t ended = 0; o == DONE && n > 0; ops += ended, n -= ended) {
        o = send_writes(s, ops, n, &ended);
        for (size_t i = 0; i < ended; i++)
            teffi_op_queue_finish_op(&s->queue, ops[i]);
    }
    if (o == IN_DOUBT || o == TOO_LONG)
        fence_and_fail_writes_as_unknown(s, ops, n);
    else if (o == REFUSED && n > 1)
        for (size_t i = 0; i < n; i++) /* one of them may have caused the error */
            run_etcd_writes(s, &ops[i], 1);
    else if (o != DONE)
        fail_etcd_ops(s, ops, n, o == REFUSED ? s->refusal : TEFF_E_IO, s->why);
}

/* ---- reads ---- */

/* Sends s->request, which only reads, so it needs no fence. If it is UNSENT or IN_DOUBT, sends it
 * once more, to the next ready member. */
static outcome send_read_request(session *s, const char *path)
{
    outcome o = UNSENT;
    for (int tries = 0; (o == UNSENT || o == IN_DOUBT) && tries < 2 && ensure_member_ready(s);
         tries++) {
        o = send_to_member(s, path, &s->request, SILENCE_MS);
        if (o == UNSENT || o == IN_DOUBT)
            switch_to_next_member(s, false);
    }
    return o;
}

/* Runs reads in one request, and ends them. If the request is refused or its response is too long,
 * each read is sent alone. */
static void run_etcd_reads(session *s, teffi_store_op **ops, size_t n)
{
    teffi_etcd_make_read_request(&s->request, s->engine->prefix, ops, n);
    outcome o = send_read_request(s, "/v3/kv/txn");
    bool alone = (o == TOO_LONG || o == REFUSED) && n > 1;
    if (o == DONE && !teffi_etcd_set_read_results(s->response, ops, n, &s->room)) {
        fail_etcd_ops(s, ops, n, TEFF_E_MALFORMED, "etcd: unexpected response to a read");
    } else if (o == DONE) {
        for (size_t i = 0; i < n; i++)
            teffi_op_queue_finish_op(&s->queue, ops[i]);
    } else if (alone) {
        for (size_t i = 0; i < n; i++)
            run_etcd_reads(s, &ops[i], 1);
    } else {
        fail_etcd_ops(s, ops, n, o == REFUSED ? s->refusal : TEFF_E_IO, s->why);
    }
}

/* out: the table and the first key of a scan's next page. The first key is the last key found, with
 * a zero byte appended: no other key is between these two. The first key is stored in `room`. Its
 * buffer is large enough: it has held etcd's key of the last row, which is longer. op's result does
 * not change, since it was copied out of `room`. */
static teffi_row get_next_page_start(const teffi_store_op *op, const teffi_row *from,
                                     teffi_etcd_text *room)
{
    const teffi_bytes *last = &op->rows[op->n_found - 1].key;
    room->len = 0;
    room->failed = false;
    teffi_etcd_text_add(room, last->data, last->len);
    teffi_etcd_text_add(room, "", 1);
    return (teffi_row){.table = from->table, .key = {room->data, room->len}};
}

/* Reads pages until the scan has all its rows, and ends op. All pages are read at the revision of
 * the first one. The first page is small, because the server holds a whole page in memory. The page
 * size doubles after a short response, and is halved after a response that is too long. */
static void run_scan(session *s, teffi_store_op *op)
{
    teffi_row *from = op->rows, next = *from;
    uint64_t revision = 0;
    size_t page = PAGE_ROWS;
    outcome o = DONE;
    for (bool more = true; more && op->n_found < op->limit;) {
        size_t left = op->limit - op->n_found;
        page = page < left ? page : left;
        teffi_etcd_make_scan_request(&s->request, s->engine->prefix, op, &next, page, revision);
        o = send_read_request(s, "/v3/kv/range");
        if (o == TOO_LONG && page > 1) {
            page /= 2;
            continue;
        }
        if (o != DONE ||
            !teffi_etcd_append_scan_page(s->response, s->engine->prefix, op, from, &s->room, &more))
            break;
        page = s->http.response.len < TEFFI_ETCD_RESPONSE_MAX / 4 ? 2 * page : page;
        revision = teffi_etcd_get_number(json_object_get(s->response, "header"), "revision");
        next = more ? get_next_page_start(op, from, &s->room) : next;
    }
    if (o != DONE) {
        op->rows = from;
        op->n_found = 0;
        fail_etcd_ops(s, &op, 1, o == REFUSED ? s->refusal : TEFF_E_IO, s->why);
    } else {
        teffi_op_queue_finish_op(&s->queue, op);
    }
}

/* ---- the thread ---- */

/* Copies the group to s->ordered: first all writes, then all reads, both in order of submission.
 * This order needs fewer requests. It is correct, since a read must see earlier writes and may see
 * later ones. out: the number of writes. */
static size_t order_writes_before_reads(session *s, size_t n)
{
    size_t n_writes = 0, at = 0;
    for (size_t i = 0; i < n; i++)
        if (!teffi_store_op_is_read(s->group[i]))
            s->ordered[n_writes++] = s->group[i];
    at = n_writes;
    for (size_t i = 0; i < n; i++)
        if (teffi_store_op_is_read(s->group[i]))
            s->ordered[at++] = s->group[i];
    return n_writes;
}

/* in: s->group: n operations, of which only the last one may be a scan. */
static void run_etcd_group(session *s, size_t n)
{
    bool scans = n > 0 && s->group[n - 1]->kind == TEFFI_STORE_SCAN;
    size_t n_writes = order_writes_before_reads(s, n), at = 0;
    while (at < n_writes) {
        size_t together =
            teffi_etcd_count_fitting_writes(s->engine->prefix, s->ordered + at, n_writes - at);
        run_etcd_writes(s, s->ordered + at, together);
        at += together;
    }
    size_t n_reads = n - n_writes - scans;
    if (n_reads > 0)
        run_etcd_reads(s, s->ordered + n_writes, n_reads);
    if (scans)
        run_scan(s, s->ordered[n - 1]);
}

/* out: how long to wait for operations: if no member is ready, until the next attempt to connect;
 * otherwise without limit. */
static uint64_t get_wait_timeout_ns(const session *s)
{
    uint64_t now = teffi_now(&s->engine->platform);
    return s->ready ? UINT64_MAX : s->retry_ns > now ? s->retry_ns - now : 0;
}

static void run_etcd_session(void *arg)
{
    session *s = arg;
    choose_fence_key(s);
    bool open = find_ready_member_or_back_off(s);
    teffi_parker_wake(&s->opened);
    while (open) {
        size_t n = teffi_op_queue_take_ops(&s->queue, s->group, get_wait_timeout_ns(s));
        if (n == 0 && teffi_op_queue_is_closed(&s->queue))
            break;
        (void)ensure_member_ready(s); /* also if n is 0: a write in doubt needs a fence key soon */
        run_etcd_group(s, n);
    }
    json_decref(s->response);
    teffi_etcd_text_fini(&s->request);
    teffi_etcd_text_fini(&s->control);
    teffi_etcd_text_fini(&s->room);
    teffi_etcd_http_fini(&s->http);
}

/* ---- the store ---- */

static void etcd_submit(teffi_store *store, teffi_store_op *op)
{
    engine *e = (engine *)store;
    size_t bytes = teffi_store_op_is_read(op) ? 0 : teffi_etcd_op_bytes(e->prefix, op);
    if (op->n_rows > TEFFI_ETCD_ROWS_MAX)
        teffi_store_op_set_error(op, TEFF_E_TOO_LARGE,
                                 "etcd: %zu rows: at most %d, since a transaction of "
                                 "etcd has at most 128 operations (max-txn-ops)",
                                 op->n_rows, TEFFI_ETCD_ROWS_MAX);
    else if (bytes > TEFFI_ETCD_BYTES_MAX)
        teffi_store_op_set_error(op, TEFF_E_TOO_LARGE,
                                 "etcd: a request of %zu bytes: at most %d "
                                 "(max-request-bytes)",
                                 bytes, TEFFI_ETCD_BYTES_MAX);
    if (op->err == TEFF_OK)
        teffi_op_queue_submit(&e->sessions[op->system].queue, op);
    else
        op->done(op);
}

static void etcd_close(teffi_store *store)
{
    engine *e = (engine *)store;
    bool first[2];
    for (int i = 0; i < 2; i++)
        first[i] = teffi_op_queue_close(&e->sessions[i].queue);
    for (int i = 0; i < 2; i++)
        if (first[i] && e->sessions[i].started)
            teffi_thread_join(&e->sessions[i].thread);
}

static void etcd_free(teffi_store *store)
{
    engine *e = (engine *)store;
    for (int i = 0; i < 2; i++)
        teffi_op_queue_fini(&e->sessions[i].queue);
    free(e);
}

/* in: host: HOST:PORT, len bytes. out: false: it is not valid, or there are too many hosts. */
static bool add_etcd_host(engine *e, const char *host, size_t len)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]";
    const char *colon = memrchr(host, ':', len);
    size_t name = colon ? (size_t)(colon - host) : 0;
    if (name == 0 || strspn(host, letters) < len || len + sizeof "https://" > HOST_MAX ||
        e->n_hosts == HOSTS_MAX || !isdigit((unsigned char)colon[1]))
        return false;
    char *end;
    unsigned long port = strtoul(colon + 1, &end, 10);
    snprintf(e->hosts[e->n_hosts++], HOST_MAX, "http%s://%.*s", e->login.ca_file[0] ? "s" : "",
             (int)len, host);
    return end == host + len && port > 0 && port <= 65535;
}

/* in: rest: //HOST:PORT[,HOST:PORT ..][/NAME], then a question mark or the end. out: false: it is
 * not valid. */
static bool parse_etcd_address(engine *e, const char *rest)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    if (strncmp(rest, "//", 2) != 0)
        return false;
    const char *host = rest + 2, *stop = host + strcspn(host, "/?");
    const char *name = *stop == '/' ? stop + 1 : "teff";
    size_t n = strspn(name, letters);
    if (n == 0 || n > TEFFI_ETCD_NAME_MAX || (name[n] && name[n] != '?'))
        return false;
    snprintf(e->prefix, sizeof e->prefix, "%.*s/", (int)n, name);
    for (;; host++) {
        size_t len = strcspn(host, ",/?");
        if (!add_etcd_host(e, host, len))
            return false;
        host += len;
        if (*host != ',')
            return true;
    }
}

static teff_err start_etcd_session(session *s, char *text)
{
    teff_err err = teffi_etcd_http_init(&s->http, &s->engine->platform, &s->engine->login);
    if (err)
        return teffi_fail(text, err, "store: out of memory");
    err = teffi_thread_start(&s->thread, "teff-etcd", run_etcd_session, s);
    if (err) {
        teffi_etcd_http_fini(&s->http);
        return teffi_fail(text, err, "store: the engine's thread could not be started");
    }
    s->started = true;
    while (!teffi_parker_wait(&s->opened, UINT64_MAX))
        continue;
    return s->open_err ? teffi_fail(text, s->open_err, "%s", s->why) : TEFF_OK;
}

teff_err teffi_etcd_open(const char *address, teffi_store **store, char *text)
{
    static const teffi_store_ops ops = {
        .submit = etcd_submit,
        .close = etcd_close,
        .free = etcd_free,
    };
    engine *e = calloc(1, sizeof *e);
    if (!e)
        return teffi_fail(text, TEFF_E_NOMEM, "store: out of memory");
    e->base.ops = &ops;
    teffi_platform_init_real(&e->platform, TEFF_LOG_WARN);
    for (int i = 0; i < 2; i++) {
        teffi_op_queue_init(&e->sessions[i].queue, "etcd");
        e->sessions[i].engine = e;
    }
    teff_err err = teffi_login_parse(&e->login, strchrnul(address, '?'), true, text);
    if (!err && e->login.password_file[0] && !e->login.user[0])
        err = teffi_fail(text, TEFF_E_INVALID,
                         "option password-file of the store: user expected, too");
    if (!err && !parse_etcd_address(e, address))
        err = teffi_fail(text, TEFF_E_INVALID,
                         "store 'etcd:%.200s': etcd://HOST:PORT[,HOST:PORT..][/NAME] expected",
                         address);
    for (int i = 0; i < 2 && !err; i++)
        err = start_etcd_session(&e->sessions[i], text);
    if (!err) {
        *store = &e->base;
        return TEFF_OK;
    }
    etcd_close(&e->base);
    etcd_free(&e->base);
    return err;
}
