/* test_faults.c - a seed's store, its server and its client, when a request for memory fails or the
 * seed does not respond: each operation ends once, with an error that says so. A silo that is made
 * or closed without memory. */
#include "../faults.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "../grains/bare.h"
#include "cluster.pb-c.h"
#include "silo/silo.h"
#include "store/store.h"

enum { ETAG = 7, FENCE = 9, TIMEOUT_MS = 4000 };

static const char key[] = "some key", value[] = "the value of one row";

/* ---- the server ---- */

/* A write also checks the fence of the silo whose store it is. */
static void check_fence(const teffi_store_op *op)
{
    static const char fence[] = "test\0m00000005";
    const teffi_row *row = &op->rows[1];
    assert_int_equal(op->n_rows, op->kind == TEFFI_STORE_BATCH ? 2 : 1);
    if (op->kind != TEFFI_STORE_BATCH)
        return;
    assert_string_equal(row->table, "fence");
    assert_int_equal(row->key.len, sizeof fence - 1);
    assert_memory_equal(row->key.data, fence, sizeof fence - 1);
    assert_true(row->check && !row->any && !row->remove);
    assert_int_equal(row->etag, FENCE);
}

/* Every key has the value, but what is written. */
static void submit(teffi_store *store, teffi_store_op *op)
{
    static teffi_row row;
    if (op->kind == TEFFI_STORE_SCAN) {
        row = (teffi_row){.table = "words", .key = {key, sizeof key}};
        op->rows = &row;
        op->n_found = 1;
    }
    assert_memory_equal(op->rows[0].key.data, key, sizeof key);
    check_fence(op);
    if (op->kind != TEFFI_STORE_BATCH)
        op->rows[0].value = (teffi_bytes){value, sizeof value};
    op->rows[0].etag = ETAG;
    op->done(op);
}

static const teffi_store_ops store_ops = {.submit = submit};
static teffi_store store = {.ops = &store_ops};
static teffi_store_kind kind;
static teffi_borrowers borrowers = {.lock = PTHREAD_MUTEX_INITIALIZER};

static teffi_msg *request(void)
{
    Teff__Cluster__StoreAsk ask = TEFF__CLUSTER__STORE_ASK__INIT;
    Teff__Cluster__StoreRow row = TEFF__CLUSTER__STORE_ROW__INIT, *list[] = {&row};
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_REQUEST);
    if (!msg)
        return NULL;
    msg->src = bare_peer;
    msg->to = (teffi_pid){.node = bare_self, .slot = TEFFI_SLOT_STORE};
    row.table = (char *)(uintptr_t) "words";
    row.key = (ProtobufCBinaryData){sizeof key, (uint8_t *)(uintptr_t)key};
    ask.kind = (uint32_t)kind;
    ask.limit = 5;
    ask.rows = list;
    ask.n_rows = 1;
    if (teffi_node_pack_body(msg, &ask.base))
        return msg;
    teffi_msg_free(msg);
    return NULL;
}

static void check_row(const Teff__Cluster__StoreRow *row)
{
    size_t len = kind == TEFFI_STORE_WRITE ? 0 : sizeof value;
    assert_string_equal(row->table, "words");
    assert_int_equal(row->key.len, sizeof key);
    assert_memory_equal(row->key.data, key, sizeof key);
    assert_int_equal(row->value.len, len);
    assert_memory_equal(len ? row->value.data : (const void *)value, value, len);
    assert_int_equal(row->etag, ETAG);
}

static teff_err read_response(void)
{
    Teff__Cluster__StoreResponse *r =
        teff__cluster__store_response__unpack(NULL, sent.raw_len, sent.raw);
    assert_non_null(r);
    teff_err err = (teff_err)r->err;
    assert_int_equal(r->n_rows, err ? 0 : 1);
    if (!err)
        check_row(r->rows[0]);
    teff__cluster__store_response__free_unpacked(r, NULL);
    return err;
}

static teff_err serve(void)
{
    unsigned n = sent.n;
    uint64_t dropped = node.dropped;
    teffi_msg *msg = request();
    if (!msg)
        return TEFF_E_NOMEM;
    node.targets[TEFFI_SLOT_STORE].handle(&node, msg);
    assert_int_equal(sent.n - n + node.dropped - dropped, 1);
    return sent.n == n ? TEFF_E_NOMEM : sent.err ? sent.err : read_response();
}

static void a_request_is_served_or_refused(void **state)
{
    static const teffi_store_kind kinds[] = {TEFFI_STORE_READ, TEFFI_STORE_WRITE, TEFFI_STORE_SCAN};
    const teffi_node_id members[] = {bare_self, bare_peer};
    bare_view(1, members, 2);
    teffi_remote_store_set_handler(&node, &borrowers);
    node.store = &store;
    node.home.lease.fence = FENCE;
    for (unsigned i = 0; i < 3; i++) {
        kind = kinds[i];
        assert_true(fault_sweep(serve, true) >= 3);
    }
}

/* Until it has joined, it has no fence. */
static void a_silo_that_joins_serves_no_rows_of_users(void **state)
{
    const teffi_node_id members[] = {bare_self, bare_peer};
    bare_view(1, members, 2);
    teffi_remote_store_set_handler(&node, &borrowers);
    node.store = &store;
    kind = TEFFI_STORE_READ;
    assert_int_equal(serve(), TEFF_E_UNAVAILABLE);
    assert_string_equal(sent.text, "this silo has not joined yet");
}

static void a_request_that_is_none_is_refused(void **state)
{
    teffi_remote_store_set_handler(&node, &borrowers);
    teffi_msg *msg = bare_message(TEFFI_MSG_REQUEST);
    msg->raw = (const uint8_t *)"\xff";
    msg->raw_len = 1;
    node.targets[TEFFI_SLOT_STORE].handle(&node, msg);
    bare_responded(1, TEFF_E_MALFORMED, "store: the request does not decode, or memory is out");
}

/* ---- the client ---- */

static teffi_store *remote;
static teffi_seed seed = {.address = "h:1", .closed = true}; /* it does not return */
static unsigned done;

static int open_remote(void **state)
{
    int failed = bare_open(state);
    node.seed = teffi_node_to_word(bare_peer);
    remote = teffi_remote_store_new(&node, &seed);
    node.store = remote;
    done = 0;
    return failed || !remote;
}

static int close_remote(void **state)
{
    teffi_store_close(remote);
    return bare_close(state);
}

static void count_done(teffi_store_op *op)
{
    done++;
}

/* With memory once it has begun: a turn does not go on without. */
static teff_err ask_seed(teffi_store_op *op)
{
    op->done = count_done;
    unsigned before = done;
    bare_busy = NULL;
    remote->ops->submit(remote, op);
    long left = atomic_exchange(&faults_left, 0);
    while (bare_busy && teffi_tasks_count_running(&node.home))
        (void)teffi_group_run(bare_busy, 10, 0);
    atomic_store(&faults_left, left);
    assert_int_equal(done, before + 1);
    teffi_tasks_free_all(&node.home);
    return op->err;
}

static teff_err make_remote(void)
{
    teffi_store *made = teffi_remote_store_new(&node, &seed);
    teffi_store_close(made);
    return made ? TEFF_OK : TEFF_E_NOMEM;
}

static void a_client_is_made_or_not(void **state)
{
    assert_int_equal(fault_sweep(make_remote, true), 1);
}

static teffi_store_op on_row(teffi_store_kind of_kind, teffi_row *row)
{
    *row = (teffi_row){.table = "words", .key = {key, sizeof key}, .any = true};
    return (teffi_store_op){.kind = of_kind, .rows = row, .n_rows = 1};
}

/* The seed is not there, so that each operation fails in time. */
static teff_err begin_to_ask(void)
{
    teffi_row row;
    teffi_store_op op = on_row(TEFFI_STORE_READ, &row);
    teff_err err = ask_seed(&op);
    assert_true(err == TEFF_E_NOMEM || err == TEFF_E_IO);
    assert_true(strstr(op.text, err == TEFF_E_IO ? "the seed's store: " : "out of memory"));
    return err == TEFF_E_IO ? TEFF_OK : err;
}

static void an_operation_that_cannot_begin_ends(void **state)
{
    sent.refuse = TEFF_E_UNREACHABLE;
    assert_true(fault_sweep(begin_to_ask, true) >= 1);
}

/* What may have been done is unknown. */
static void a_seed_that_is_not_there_fails_all_but_says_what_is_unknown(void **state)
{
    static const struct {
        teffi_store_kind kind;
        teff_err refuse, err;
        const char *text;
    } ends[] = {
        {TEFFI_STORE_READ, TEFF_E_UNREACHABLE, TEFF_E_IO, "the seed's store: "},
        {TEFFI_STORE_SCAN, TEFF_E_UNREACHABLE, TEFF_E_IO, "the seed's store: "},
        {TEFFI_STORE_WRITE, TEFF_E_TIMEOUT, TEFF_E_UNKNOWN, "the seed's store: "},
        {TEFFI_STORE_BATCH, TEFF_E_TIMEOUT, TEFF_E_UNKNOWN, "the seed's store: "},
        {TEFFI_STORE_WRITE, TEFF_E_UNREACHABLE, TEFF_E_IO, "the seed's store: "}, /* not sent */
        {TEFFI_STORE_WRITE, TEFF_E_OVERLOADED, TEFF_E_IO, "the seed's store: "},
        {TEFFI_STORE_WRITE, TEFF_E_TOO_LARGE, TEFF_E_TOO_LARGE, "rows of over "},
    };
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        teffi_row row;
        teffi_store_op op = on_row(ends[i].kind, &row);
        sent.refuse = ends[i].refuse;
        if (ask_seed(&op) != ends[i].err || strstr(op.text, ends[i].text) != op.text)
            fail_msg("row %zu: %s %s", i, teff_err_name(op.err), op.text);
    }
}

static Teff__Cluster__StoreResponse response;

static const ProtobufCMessage *respond(void)
{
    return &response.base;
}

/* ms until the request's deadline, with values of so many bytes each. */
static uint64_t time_left_ms(teffi_store_kind of_kind, size_t n_rows, size_t len)
{
    static const uint8_t bytes[1024];
    teffi_row list[2];
    teffi_store_op op = on_row(of_kind, &list[0]);
    list[0].value = (teffi_bytes){bytes, len};
    list[1] = list[0];
    op.n_rows = n_rows;
    (void)ask_seed(&op);
    return (sent.deadline_ns - bare_now_ns) / 1000000;
}

static void large_writes_get_more_time(void **state)
{
    enum { LARGE = 1024, LARGE_MS = 2 };
    teff__cluster__store_response__init(&response);
    sent.respond = respond;
    assert_int_equal(time_left_ms(TEFFI_STORE_WRITE, 1, 0), TIMEOUT_MS);
    assert_int_equal(time_left_ms(TEFFI_STORE_WRITE, 1, LARGE), TIMEOUT_MS + LARGE_MS);
    assert_int_equal(time_left_ms(TEFFI_STORE_BATCH, 2, LARGE), TIMEOUT_MS + 2 * LARGE_MS);
    assert_int_equal(time_left_ms(TEFFI_STORE_READ, 1, LARGE), TIMEOUT_MS);
}

/* The caller of a scan has room for as many rows as it asked for. */
static void a_response_with_more_rows_than_the_limit_is_refused(void **state)
{
    static Teff__Cluster__StoreRow found = TEFF__CLUSTER__STORE_ROW__INIT;
    Teff__Cluster__StoreRow *rows[] = {&found, &found};
    teffi_row row;
    teff_arena arena;
    teffi_arena_init(&arena, NULL, 0, 0);
    teff__cluster__store_response__init(&response);
    response.rows = rows;
    response.n_rows = 2;
    sent.respond = respond;
    for (size_t limit = 1; limit <= 2; limit++) {
        teffi_store_op op = on_row(TEFFI_STORE_SCAN, &row);
        op.limit = limit;
        op.arena = &arena;
        assert_int_equal(ask_seed(&op), limit == 1 ? TEFF_E_MALFORMED : TEFF_OK);
        assert_int_equal(op.n_found, limit == 1 ? 0 : 2);
    }
    teffi_arena_fini(&arena);
}

/* A write of a row in table whose response is lost. out: ms until the deadline of the read that
 * tells whether the write is over. */
static uint64_t time_left_of_read_after_write_ms(const char *table)
{
    teffi_row row;
    teffi_store_op op = on_row(TEFFI_STORE_WRITE, &row);
    row.table = table;
    row.any = false;
    op.system = strcmp(table, TEFFI_TABLE_ALIVE) == 0; /* as teffi_store_submit() sets it */
    sent.refuse_next = TEFF_E_TIMEOUT;
    sent.n = 0;
    assert_int_equal(ask_seed(&op), TEFF_E_UNKNOWN);
    assert_int_equal(sent.n, 1); /* the read */
    return (sent.deadline_ns - bare_now_ns) / 1000000;
}

static void the_read_after_a_lost_heartbeat_costs_no_short_lease(void **state)
{
    enum { LEASE_MS = 1000 };
    teff__cluster__store_response__init(&response);
    sent.respond = respond;
    node.home.lease.length_ms = LEASE_MS;
    assert_int_equal(time_left_of_read_after_write_ms(TEFFI_TABLE_ALIVE), LEASE_MS / 5 * 2);
    assert_int_equal(time_left_of_read_after_write_ms("words"), TIMEOUT_MS);
}

/* ---- a silo's options ---- */

/* An option that is lost would be another one: another cluster, no store, no TLS. */
static teff_err make_silo(void)
{
    static char name[41], file[5000] = "sqlite:"; /* more than the arena's first chunk holds */
    memset(name, 'c', sizeof name - 1);
    memset(file + 7, 's', sizeof file - 8);
    const teff_silo_options opt = {
        .size = sizeof opt, .cluster = name, .advertise = "127.0.0.1:5", .store = file};
    teff_silo *silo;
    teff_err err = teff_silo_new(&opt, &silo, NULL);
    assert_int_equal(err != TEFF_OK, silo == NULL);
    if (err)
        return err;
    assert_string_equal(silo->opt.cluster, name);
    assert_string_equal(silo->opt.advertise, "127.0.0.1:5");
    assert_string_equal(silo->opt.store, file);
    teff_silo_free(silo);
    return TEFF_OK;
}

static void a_silo_has_all_its_options_or_is_not_made(void **state)
{
    assert_int_equal(fault_sweep(make_silo, true), 3);
}

/* ---- a silo's end ---- */

static unsigned yields_to_end; /* the yield that ends the task; 0: none */

/* Instead of the C library's. */
int sched_yield(void)
{
    if (yields_to_end && --yields_to_end == 0)
        node.home.tasks.running = 0;
    return (int)syscall(SYS_sched_yield);
}

static void without_memory_a_close_still_waits_for_tasks(void **state)
{
    node.home.tasks.running = 1;
    yields_to_end = 3;
    atomic_store(&faults_left, 1); /* for the context */
    teffi_node_wait_for_tasks(&node);
    assert_int_equal(atomic_load(&faults_left), 0);
    assert_int_equal(teffi_tasks_count_running(&node.home), 0);
}

int main(void)
{
#define SERVER(f) cmocka_unit_test_setup_teardown(f, bare_open, bare_close)
#define CLIENT(f) cmocka_unit_test_setup_teardown(f, open_remote, close_remote)
    const struct CMUnitTest tests[] = {
        SERVER(a_request_is_served_or_refused),
        SERVER(a_silo_that_joins_serves_no_rows_of_users),
        SERVER(a_request_that_is_none_is_refused),
        CLIENT(a_client_is_made_or_not),
        CLIENT(an_operation_that_cannot_begin_ends),
        CLIENT(a_seed_that_is_not_there_fails_all_but_says_what_is_unknown),
        CLIENT(large_writes_get_more_time),
        CLIENT(a_response_with_more_rows_than_the_limit_is_refused),
        CLIENT(the_read_after_a_lost_heartbeat_costs_no_short_lease),
        cmocka_unit_test(a_silo_has_all_its_options_or_is_not_made),
        SERVER(without_memory_a_close_still_waits_for_tasks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
