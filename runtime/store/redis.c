/* redis.c - engine `redis`: each operation is one run of a Lua script in a Redis server.
 * Way:     store/store -> op_queue -> [redis] -> hiredis -> a server with its append-only file on
 * States:  submitted -> queue -> group -> sent as one pipeline -> reply: done()
 *          The connection is lost: a write that was sent ends as UNKNOWN, the rest as IO.
 *          A reply shows that the server is a replica: both sessions connect and check it again.
 * Threads: submit, close: any. All else, also done() of accepted operations: the session's thread.
 *          The cluster's own tables have their own session, so that they do not wait behind states.
 * Source:  Redis' manual: pipelining, EVALSHA */
#include "store/op_queue.h"

#include <ctype.h>
#include <errno.h>
#include <hiredis/hiredis.h>
#include <hiredis/sds.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include "base/error.h"
#include "base/log.h"
#include "os/platform.h"
#include "os/thread.h"
#include "store/login.h"
#include "store/redis_reply.h"

enum {
    REDIS_FORMAT = 1, /* version of the names and rows in Redis; raise it if you change them */
    SCAN_BYTES_MAX = 256 * 1024 * 1024, /* keys and values of a scan; its reply is in memory */
    CONNECT_S = 1,       /* to connect, then for each reply before the first operation */
    REPLY_S = 5,         /* without a byte for so long, the connection is lost; half a lease */
    RETRY_MIN_MS = 10,   /* back-off between two attempts to connect; doubles each time */
    RETRY_MAX_MS = 1000, /* a tenth of the usual lease of 10 s */
    NAME_MAX_LEN = 64,   /* of NAME in the store's address */
    HEAD_ARGS = 5,       /* EVALSHA, hash, number of keys, kind, prefix */
    ROW_ARGS = 6,        /* arguments of a row in a write; a read or scan has fewer in all */
    ARGS_MAX = HEAD_ARGS + ROW_ARGS * TEFFI_STORE_BATCH_MAX,
    NUMBER_MAX = 24,     /* bytes of a number's text */
    ID_MAX = 41,         /* bytes of a script's hash, and of a server's run_id */
    INFO_MAX = 16 * 1024 /* bytes of the reply to INFO, then cut; the needed lines come earlier */
};

/* Names in Redis, all after the prefix: row:TABLE:KEY is a hash, the row. keys:TABLE is a sorted
 * set of the table's keys; all scores are 0, so it is in memcmp order. etag is the last etag
 * assigned. format is a hash, whose field `version` is REDIS_FORMAT.
 *
 * If a script fails, Redis does not undo its writes. So the script does all that can fail before
 * its first write; for example, it tests that no name has another type. If the server refuses
 * writes, the first write fails. */
static const char script[] =
    "local kind, prefix = ARGV[1], ARGV[2]\n"
    "local function row_at(t, key) return prefix .. 'row:' .. t .. ':' .. key end\n"
    "local function keys_of(t) return prefix .. 'keys:' .. t end\n"
    /* ARGV[3]: a version. Returns the store's version. A store without one gets it, unless the
     * server refuses writes, for example for lack of memory: then a later connection sets it. */
    "if kind == 'format' then\n"
    "    local version = redis.call('HGET', prefix .. 'format', 'version')\n"
    "    if not version then redis.pcall('HSET', prefix .. 'format', 'version', ARGV[3]) end\n"
    "    return version or ARGV[3]\n"
    "end\n"
    /* ARGV[3 ..]: table, key. Returns etag, sum, value. */
    "if kind == 'read' then\n"
    "    return redis.call('HMGET', row_at(ARGV[3], ARGV[4]), 'etag', 'sum', 'value')\n"
    "end\n"
    /* ARGV[3 ..]: table, from, to, limit, limit of bytes. Returns key, etag, sum, value; ... */
    "if kind == 'scan' then\n"
    "    local found, bytes = {}, 0\n"
    "    local stop = ARGV[5] == '' and '+' or '(' .. ARGV[5]\n"
    "    for _, key in ipairs(redis.call('ZRANGEBYLEX', keys_of(ARGV[3]), '[' .. ARGV[4], stop,\n"
    "                                    'LIMIT', 0, ARGV[6])) do\n"
    "        local row = redis.pcall('HMGET', row_at(ARGV[3], key), 'etag', 'sum', 'value')\n"
    "        bytes = bytes + #key + #(row[3] or '')\n"
    "        if bytes > tonumber(ARGV[7]) then\n"
    "            return redis.error_reply('TOOBIG the rows have over ' .. ARGV[7] .. ' bytes')\n"
    "        end\n"
    "        found[#found + 1] = key\n"
    "        for field = 1, 3 do found[#found + 1] = row[field] or false end\n"
    "    end\n"
    "    return found\n"
    "end\n"
    /* ARGV[3 ..]: table, key, put|remove|check, expected etag or any, sum, value; ...
     * Returns the last etag assigned, or 0 without a put. With n puts, the first one gets the etag
     * last - n + 1, the next one last - n + 2, and so on. */
    "local function changes_keys(at)\n" /* not for an update: the set has the key already */
    "    local how, expected = ARGV[at + 2], ARGV[at + 3]\n"
    "    return how == 'remove' or how == 'put' and (expected == 'any' or expected == '0')\n"
    "end\n"
    "local puts, highest = 0, 0\n"
    "for at = 3, #ARGV, 6 do\n"
    "    local row, expected = row_at(ARGV[at], ARGV[at + 1]), ARGV[at + 3]\n"
    "    if changes_keys(at) then redis.call('ZCARD', keys_of(ARGV[at])) end\n"
    "    if expected ~= 'any' then\n"
    "        local etag = redis.pcall('HGET', row, 'etag')\n"
    "        if not etag and redis.call('EXISTS', row) == 0 then etag = '0'\n"
    "        elseif type(etag) ~= 'string' or not etag:find('^[1-9]%d*$') then return 'damaged'\n"
    "        end\n"
    "        if etag ~= expected then return 'conflict' end\n"
    "        highest = math.max(highest, tonumber(etag))\n"
    "    end\n"
    "    if ARGV[at + 2] == 'put' then puts = puts + 1 end\n"
    "end\n"
    "local last = puts > 0 and redis.call('INCRBY', prefix .. 'etag', puts) or 0\n"
    "local etag = last - puts\n"
    "if puts > 0 and etag < highest then return 'damaged' end\n"
    "for at = 3, #ARGV, 6 do\n"
    "    local key, how, row = ARGV[at + 1], ARGV[at + 2], row_at(ARGV[at], ARGV[at + 1])\n"
    "    if how == 'put' then\n"
    "        etag = etag + 1\n"
    "        if ARGV[at + 3] == 'any' then redis.call('DEL', row) end\n"
    "        redis.call('HSET', row, 'etag', string.format('%.0f', etag), 'sum', ARGV[at + 4],\n"
    "                   'value', ARGV[at + 5])\n"
    "        if changes_keys(at) then redis.call('ZADD', keys_of(ARGV[at]), 0, key) end\n"
    "    elseif how == 'remove' then\n"
    "        redis.call('DEL', row)\n"
    "        redis.call('ZREM', keys_of(ARGV[at]), key)\n"
    "    end\n"
    "end\n"
    "return string.format('%.0f', last)\n";

typedef struct session {
    teffi_op_queue queue;
    struct engine *engine;
    teffi_thread thread;
    bool started;
    teffi_parker opened; /* teffi_redis_open() waits until open_err and why are set */
    /* owner: the thread */
    teff_err open_err;          /* of the last attempt to connect */
    char why[TEFF_TEXT_MAX];    /* why there is no connection, or why the last one was lost */
    redisContext *redis;        /* NULL: not connected */
    char run_id[ID_MAX];        /* the server's, at the last connection */
    char client_id[NUMBER_MAX]; /* of the last connection, which may still run commands; "": none */
    char hash[ID_MAX];          /* of the script */
    bool script_lost;           /* the server has forgotten the script */
    uint32_t refusals;          /* engine.refusals before the server was checked */
    uint32_t retry_ms;          /* back-off; 0: the last attempt to connect succeeded */
    uint64_t retry_ns;          /* time of the next attempt, on the clock of teffi_now() */
    teffi_store_op *group[TEFFI_OP_QUEUE_GROUP_MAX];
    size_t end[TEFFI_OP_QUEUE_GROUP_MAX]; /* where each op's command ends: bytes in the pipeline */
    const char *arg[ARGS_MAX];
    size_t arg_len[ARGS_MAX];
    int n_args;
    char number[ARGS_MAX][NUMBER_MAX]; /* texts of the arguments that are numbers */
} session;

typedef struct engine {
    teffi_store base;
    teffi_platform platform;
    char host[256];
    int port;
    char prefix[NAME_MAX_LEN + 2];
    teffi_login login;
    /* atomic, relaxed: how many replies have shown that the server is a replica or loads its data.
     * Both sessions compare it, because a session that only reads gets no such reply */
    _Atomic uint32_t refusals;
    session sessions[2]; /* [true]: the cluster's own tables */
} engine;

/* ---- the connection ---- */

/* Runs one command and waits for its reply. out: true: reply_text is the reply, cut to max - 1
 * bytes; a number is written as decimal digits. false: the command failed, and text says why. */
static bool run_redis_command(redisContext *c, char *reply_text, size_t max, char *text,
                              const char *format, ...)
{
    va_list args;
    va_start(args, format);
    redisReply *reply = redisvCommand(c, format, args);
    va_end(args);
    bool is_text =
        reply && (reply->type == REDIS_REPLY_STRING || reply->type == REDIS_REPLY_STATUS);
    bool good = is_text || (reply && reply->type == REDIS_REPLY_INTEGER);
    if (!good)
        (void)teffi_fail(text, TEFF_E_IO, "%s",
                         !reply       ? c->errstr
                         : reply->str ? reply->str
                                      : "unexpected reply");
    else if (is_text)
        snprintf(reply_text, max, "%s", reply->str);
    else
        snprintf(reply_text, max, "%lld", reply->integer);
    freeReplyObject(reply);
    return good;
}

/* Refuses a server that takes no writes or may lose rows. in: info: the reply to INFO. out: IO: the
 * server is not ready yet. */
static teff_err check_redis_server(const char *info, char *text)
{
    if (strstr(info, "\nloading:1\r"))
        return teffi_fail(text, TEFF_E_IO, "the server loads its data");
    if (!strstr(info, "\nrole:master\r"))
        return teffi_fail(text, TEFF_E_REFUSED, "the server is a replica: it does not take writes");
    if (!strstr(info, "\naof_enabled:1\r"))
        return teffi_fail(text, TEFF_E_REFUSED,
                          "appendonly is off, so the server would lose rows "
                          "when it ends: set `appendonly yes`");
    if (strstr(info, "\nmaxmemory_policy:allkeys") && !strstr(info, "\nmaxmemory:0\r"))
        return teffi_fail(text, TEFF_E_REFUSED,
                          "the server drops rows when its memory is full: "
                          "set `maxmemory-policy noeviction`");
    return TEFF_OK;
}

/* Makes the server close the session's previous connection, if that was a connection to the same
 * server process (the same run_id). Reason: the server or the network may still hold commands of
 * that connection. If the server still ran them, a write that was already reported as UNKNOWN could
 * take effect between two reads. out: false: the command failed, and text says why. */
static bool kill_previous_connection(session *s, redisContext *c, const char *info, char *text)
{
    char run_id[ID_MAX] = "", killed[NUMBER_MAX];
    const char *line = strstr(info, "\nrun_id:");
    if (line)
        snprintf(run_id, sizeof run_id, "%s", line + strlen("\nrun_id:"));
    if (s->client_id[0] && strcmp(s->run_id, run_id) == 0 &&
        !run_redis_command(c, killed, sizeof killed, text, "CLIENT KILL ID %s", s->client_id))
        return false;
    s->client_id[0] = '\0';
    memcpy(s->run_id, run_id, ID_MAX);
    return true;
}

static teff_err log_in_to_redis(const session *s, redisContext *c, char *text)
{
    const teffi_login *login = &s->engine->login;
    teffi_secret *password;
    char reply[NUMBER_MAX];
    teff_err err = teffi_login_read_password(login, &password, text);
    if (err || !password)
        return err;
    /* requirepass sets the password of the user `default` */
    const char *user = login->user[0] ? login->user : "default";
    bool logged_in = run_redis_command(c, reply, sizeof reply, text, "AUTH %s %b", user,
                                       password->bytes, password->len);
    teffi_secret_free(password);
    return logged_in ? TEFF_OK : c->err ? TEFF_E_IO : TEFF_E_REFUSED;
}

/* Warns unless appendfsync is `always`. A server with another value is not refused: it loses rows
 * only if its machine fails, and README says so. */
static void warn_of_late_fsync(const session *s, redisContext *c)
{
    redisReply *reply = redisCommand(c, "CONFIG GET appendfsync");
    bool known = reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
                 reply->element[1]->type == REDIS_REPLY_STRING;
    const char *value = known ? reply->element[1]->str : "not known, as CONFIG GET failed";
    if (strcmp(value, "always") != 0)
        teffi_logf(&s->engine->platform.log, TEFF_LOG_WARN,
                   "redis: %.100s:%d: appendfsync is %s: if the server's machine fails, saved "
                   "states may be lost, unless it is `always`",
                   s->engine->host, s->engine->port, value);
    freeReplyObject(reply);
}

/* Refuses a store whose names and rows in Redis are of a newer version. A store without a version
 * has the first one. in: s->hash: the script is loaded. */
static teff_err check_redis_format(const session *s, redisContext *c, char *text)
{
    char version[NAME_MAX_LEN];
    if (!run_redis_command(c, version, sizeof version, text, "EVALSHA %s 0 format %s %d", s->hash,
                           s->engine->prefix, REDIS_FORMAT))
        return TEFF_E_IO;
    return teffi_store_check_format((teffi_bytes){version, strlen(version)}, REDIS_FORMAT, text);
}

/* Does all that must come before the first operation on a connection: logs in, checks the server,
 * makes the server close the previous connection, loads the script, and checks the format. Only the
 * session for states warns of appendfsync, once for each start of the server (run_id). */
static teff_err prepare_connection(session *s, redisContext *c, char *text)
{
    char info[INFO_MAX], last_run_id[ID_MAX];
    redisSetTimeout(c, (struct timeval){.tv_sec = CONNECT_S});
    s->refusals = atomic_load_explicit(&s->engine->refusals, memory_order_relaxed);
    teff_err err = log_in_to_redis(s, c, text);
    if (err)
        return err;
    if (!run_redis_command(c, info, sizeof info, text, "INFO"))
        return TEFF_E_IO;
    err = check_redis_server(info, text);
    if (err)
        return err;
    memcpy(last_run_id, s->run_id, ID_MAX);
    if (!kill_previous_connection(s, c, info, text) ||
        !run_redis_command(c, s->hash, sizeof s->hash, text, "SCRIPT LOAD %s", script) ||
        !run_redis_command(c, s->client_id, sizeof s->client_id, text, "CLIENT ID"))
        return TEFF_E_IO;
    err = check_redis_format(s, c, text);
    if (err)
        return err;
    if (s == &s->engine->sessions[false] && strcmp(last_run_id, s->run_id) != 0)
        warn_of_late_fsync(s, c);
    s->script_lost = false;
    redisSetTimeout(c, (struct timeval){.tv_sec = REPLY_S});
    return TEFF_OK;
}

static teff_err connect_redis(session *s)
{
    char text[TEFF_TEXT_MAX];
    redisContext *c = redisConnectWithTimeout(s->engine->host, s->engine->port,
                                              (struct timeval){.tv_sec = CONNECT_S});
    teff_err err = !c       ? teffi_fail(text, TEFF_E_NOMEM, "out of memory")
                   : c->err ? teffi_fail(text, TEFF_E_IO, "%s", c->errstr)
                            : prepare_connection(s, c, text);
    if (err) {
        redisFree(c);
        return teffi_fail(s->why, err, "redis: %.100s:%d: %.300s", s->engine->host, s->engine->port,
                          text);
    }
    s->redis = c;
    return TEFF_OK;
}

static void disconnect_redis(session *s)
{
    redisFree(s->redis);
    s->redis = NULL;
}

/* Connects. After a failure, sets the time of the next attempt. The delay doubles from RETRY_MIN_MS
 * to RETRY_MAX_MS; up to a half of it, chosen at random, is subtracted, so that silos do not all
 * connect at the same time. out: false: not connected. */
static bool connect_or_back_off(session *s)
{
    s->open_err = connect_redis(s);
    uint32_t doubled = s->retry_ms ? 2 * s->retry_ms : RETRY_MIN_MS;
    s->retry_ms = !s->open_err ? 0 : doubled < RETRY_MAX_MS ? doubled : RETRY_MAX_MS;
    uint64_t chance = s->engine->platform.random(s->engine->platform.arg) % (s->retry_ms / 2 + 1);
    s->retry_ns = teffi_now(&s->engine->platform) + (s->retry_ms - chance) * 1000000u;
    return s->open_err == TEFF_OK;
}

/* Has a reply to any session shown, since this one checked the server, that it is not ready? */
static bool must_check_server_again(const session *s)
{
    return s->refusals != atomic_load_explicit(&s->engine->refusals, memory_order_relaxed);
}

/* Between two pipelines no reply is due, so a readable socket means that the connection has ended.
 */
static bool has_connection_ended(const session *s)
{
    char byte;
    return recv(s->redis->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN;
}

/* Drops a connection that the server has closed, or whose server must be checked again. If there is
 * no connection and the back-off has ended, connects. out: false: not connected, and s->why says
 * why. */
static bool ensure_redis_connected(session *s)
{
    if (s->redis && (must_check_server_again(s) || has_connection_ended(s)))
        disconnect_redis(s);
    return s->redis || (teffi_now(&s->engine->platform) >= s->retry_ns && connect_or_back_off(s));
}

/* Drops a lost connection and connects again at once. A new connection first makes the server kill
 * the old one. So if this succeeds, no command of the old connection runs after the caller has
 * reported TEFF_E_UNKNOWN. */
static void replace_lost_connection(session *s)
{
    bool late = s->redis->err == REDIS_ERR_IO && errno == EAGAIN;
    (void)teffi_fail(s->why, TEFF_E_IO, "redis: %.100s:%d: connection lost: %s", s->engine->host,
                     s->engine->port, late ? "no reply in time" : s->redis->errstr);
    disconnect_redis(s);
    (void)connect_or_back_off(s);
}

/* ---- commands ---- */

static void add_arg(session *s, const void *data, size_t len)
{
    s->arg[s->n_args] = len ? data : "";
    s->arg_len[s->n_args++] = len;
}

static void add_text_arg(session *s, const char *text)
{
    add_arg(s, text, strlen(text));
}

static void add_number_arg(session *s, uint64_t number)
{
    char *text = s->number[s->n_args];
    snprintf(text, NUMBER_MAX, "%" PRIu64, number);
    add_text_arg(s, text);
}

static void add_row_args(session *s, const teffi_row *row)
{
    bool put = teffi_redis_is_put(row);
    add_text_arg(s, row->table);
    add_arg(s, row->key.data, row->key.len);
    add_text_arg(s, row->check ? "check" : row->remove ? "remove" : "put");
    if (row->any)
        add_text_arg(s, "any");
    else
        add_number_arg(s, row->etag);
    add_number_arg(s, put ? teffi_store_hash_row(row->table, row->key, row->value, 0) : 0);
    add_arg(s, row->value.data, put ? row->value.len : 0);
}

/* Appends op's command to the connection's buffer. out: false: no memory. */
static bool append_command(session *s, const teffi_store_op *op)
{
    bool scans = op->kind == TEFFI_STORE_SCAN, writes = !teffi_store_op_is_read(op);
    const char *kind = writes ? "write" : scans ? "scan" : "read";
    const char *head[HEAD_ARGS] = {"EVALSHA", s->hash, "0", kind, s->engine->prefix};
    s->n_args = 0;
    for (int i = 0; i < HEAD_ARGS; i++)
        add_text_arg(s, head[i]);
    for (size_t i = 0; writes && i < op->n_rows; i++)
        add_row_args(s, &op->rows[i]);
    if (!writes) {
        add_text_arg(s, op->rows[0].table);
        add_arg(s, op->rows[0].key.data, op->rows[0].key.len);
    }
    if (scans) {
        size_t room = op->arena->budget_bytes - op->arena->used_bytes;
        add_arg(s, op->to.data, op->to.len);
        add_number_arg(s, op->limit);
        add_number_arg(s, room < SCAN_BYTES_MAX ? room : SCAN_BYTES_MAX);
    }
    return redisAppendCommandArgv(s->redis, s->n_args, s->arg, s->arg_len) == REDIS_OK;
}

/* Sends the commands of n ops. out: the number of ops whose whole command was written to the
 * socket. The server cannot run the others. */
static size_t send_pipeline(session *s, teffi_store_op **ops, size_t n)
{
    redisContext *c = s->redis;
    int done = 0;
    size_t sent = 0;
    for (size_t i = 0; i < n; i++)
        s->end[i] = append_command(s, ops[i]) ? sdslen(c->obuf) : SIZE_MAX;
    size_t total = sdslen(c->obuf);
    while (!done && redisBufferWrite(c, &done) == REDIS_OK)
        continue;
    while (sent < n && s->end[sent] <= total - sdslen(c->obuf))
        sent++;
    return sent;
}

/* ---- replies ---- */

/* Does this error show that the server is a replica, or loads its data? A server can become a
 * replica at any time, and keeps its connections then. */
static bool shows_unready_server(const char *error)
{
    return strstr(error, "READONLY") || strstr(error, "MASTERDOWN") || strstr(error, "LOADING");
}

/* Sets op's result. An error may show that the server has forgotten the script, which sets
 * s->script_lost, or that it is not ready, which is counted. */
static void set_result_and_note_error(session *s, teffi_store_op *op, const redisReply *reply)
{
    teffi_redis_set_result(op, reply);
    if (reply->type != REDIS_REPLY_ERROR)
        return;
    s->script_lost = s->script_lost || strstr(reply->str, "NOSCRIPT");
    if (shows_unready_server(reply->str))
        atomic_fetch_add_explicit(&s->engine->refusals, 1, memory_order_relaxed);
}

/* Reads the replies to the first n ops, and finishes these ops. out: the number of finished ops.
 * If it is less than n, the connection is lost. */
static size_t read_replies_and_finish_ops(session *s, teffi_store_op **ops, size_t n)
{
    void *reply;
    size_t i = 0;
    for (; i < n && redisGetReply(s->redis, &reply) == REDIS_OK; i++) {
        set_result_and_note_error(s, ops[i], reply);
        freeReplyObject(reply);
        teffi_op_queue_finish_op(&s->queue, ops[i]);
    }
    return i;
}

/* ---- the thread ---- */

/* Fails an op that has no reply, and finishes it. The error is UNKNOWN if the op is a write and was
 * sent, otherwise IO. */
static void fail_and_finish_op_without_reply(session *s, teffi_store_op *op, bool sent)
{
    teff_err err = sent && !teffi_store_op_is_read(op) ? TEFF_E_UNKNOWN : TEFF_E_IO;
    teffi_store_op_set_error(op, err, "%s", s->why);
    teffi_op_queue_finish_op(&s->queue, op);
}

/* Sends n operations, waits for their replies, and finishes all n operations. If n is 0, the only
 * effect is that of ensure_redis_connected(). */
static void run_pipeline(session *s, teffi_store_op **ops, size_t n)
{
    size_t sent = 0, n_replies = 0;
    if (ensure_redis_connected(s)) {
        sent = send_pipeline(s, ops, n);
        n_replies = read_replies_and_finish_ops(s, ops, sent);
        if (n_replies < n)
            replace_lost_connection(s);
    }
    for (size_t i = n_replies; i < n; i++)
        fail_and_finish_op_without_reply(s, ops[i], i < sent);
    if (s->redis && (s->script_lost || must_check_server_again(s)))
        disconnect_redis(s); /* the next connection checks the server and loads the script */
}

/* out: how long to wait for operations: if there is no connection, the time until the next attempt
 * to connect; otherwise UINT64_MAX, which means no limit. */
static uint64_t get_wait_ns(const session *s)
{
    uint64_t now = teffi_now(&s->engine->platform);
    return s->redis ? UINT64_MAX : s->retry_ns > now ? s->retry_ns - now : 0;
}

static void run_redis_session(void *arg)
{
    session *s = arg;
    bool open = connect_or_back_off(s);
    teffi_parker_wake(&s->opened);
    while (open) {
        size_t n = teffi_op_queue_take_ops(&s->queue, s->group, get_wait_ns(s));
        if (n == 0 && teffi_op_queue_is_closed(&s->queue))
            break;
        /* If no operation came, n is 0. In this case run_pipeline() only checks the connection, and
         * connects if the back-off has ended. */
        run_pipeline(s, s->group, n);
    }
    disconnect_redis(s);
}

/* ---- the store ---- */

static void redis_submit(teffi_store *store, teffi_store_op *op)
{
    engine *e = (engine *)store;
    teffi_op_queue_submit(&e->sessions[op->system].queue, op);
}

static void redis_close(teffi_store *store)
{
    engine *e = (engine *)store;
    bool first[2];
    for (int i = 0; i < 2; i++)
        first[i] = teffi_op_queue_close(&e->sessions[i].queue);
    for (int i = 0; i < 2; i++)
        if (first[i] && e->sessions[i].started)
            teffi_thread_join(&e->sessions[i].thread);
}

static void redis_free(teffi_store *store)
{
    engine *e = (engine *)store;
    for (int i = 0; i < 2; i++)
        teffi_op_queue_fini(&e->sessions[i].queue);
    free(e);
}

/* Sets e->host, e->port and e->prefix. in: rest: HOST:PORT or HOST:PORT/NAME, perhaps followed by a
 * question mark and options. out: false: the address is not valid. */
static bool parse_redis_address(engine *e, const char *rest)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    const char *stop = rest + strcspn(rest, "/?"), *name = *stop == '/' ? stop + 1 : "teff";
    const char *colon = memrchr(rest, ':', (size_t)(stop - rest));
    size_t len = colon ? (size_t)(colon - rest) : 0, n = strspn(name, letters);
    if (len == 0 || len >= sizeof e->host || !isdigit((unsigned char)colon[1]) || n == 0 ||
        n > NAME_MAX_LEN || (name[n] && name[n] != '?'))
        return false;
    char *end;
    unsigned long port = strtoul(colon + 1, &end, 10);
    memcpy(e->host, rest, len);
    snprintf(e->prefix, sizeof e->prefix, "%.*s:", (int)n, name);
    e->port = port <= 65535 ? (int)port : 0;
    return end == stop && e->port > 0;
}

static teff_err start_redis_session(session *s, char *text)
{
    teff_err err = teffi_thread_start(&s->thread, "teff-redis", run_redis_session, s);
    if (err)
        return teffi_fail(text, err, "store: the engine's thread could not be started");
    s->started = true;
    while (!teffi_parker_wait(&s->opened, UINT64_MAX))
        continue;
    return s->open_err ? teffi_fail(text, s->open_err, "%s", s->why) : TEFF_OK;
}

teff_err teffi_redis_open(const char *address, teffi_store **store, char *text)
{
    static const teffi_store_ops ops = {
        .submit = redis_submit,
        .close = redis_close,
        .free = redis_free,
    };
    engine *e = calloc(1, sizeof *e);
    if (!e)
        return teffi_fail(text, TEFF_E_NOMEM, "store: out of memory");
    e->base.ops = &ops;
    teffi_platform_init_real(&e->platform, TEFF_LOG_WARN);
    for (int i = 0; i < 2; i++) {
        teffi_op_queue_init(&e->sessions[i].queue, "redis");
        e->sessions[i].engine = e;
    }
    teff_err err = teffi_login_parse(&e->login, strchrnul(address, '?'), false, text);
    if (!err && !parse_redis_address(e, address))
        err = teffi_fail(text, TEFF_E_INVALID,
                         "store 'redis:%.200s': redis:HOST:PORT or redis:HOST:PORT/NAME expected",
                         address);
    for (int i = 0; i < 2 && !err; i++)
        err = start_redis_session(&e->sessions[i], text);
    if (!err) {
        *store = &e->base;
        return TEFF_OK;
    }
    redis_close(&e->base);
    redis_free(&e->base);
    return err;
}
