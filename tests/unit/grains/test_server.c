/* test_server.c - what a silo's directory responds to other silos: who holds a grain, which
 * activations are here, and that it cannot say. */
#include "bare.h"
#include "directory/client.h"

static const teffi_pid first = {{77, 1}, 20, 1}, second = {{78, 1}, 21, 1};

enum { HELD, ABSENT, REFRESH };

/* ---- requests ---- */

static teffi_msg *ask_message(uint32_t method, const ProtobufCMessage *body)
{
    teffi_msg *msg = bare_message(TEFFI_MSG_REQUEST);
    msg->to = (teffi_pid){.node = bare_self, .slot = TEFFI_SLOT_DIRECTORY};
    msg->method_id = method;
    assert_true(teffi_node_pack_body(msg, body));
    return msg;
}

static teffi_msg *about_grain(uint32_t method, uint64_t view, teffi_pid pid)
{
    Teff__Cluster__DirectoryAsk ask = TEFF__CLUSTER__DIRECTORY_ASK__INIT;
    teffi_packed_pid packed;
    teffi_pid_pack(&packed, pid);
    ask.view = view;
    ask.type = lab_turns_info.id;
    ask.key = (ProtobufCBinaryData){1, (uint8_t *)(uintptr_t) "a"};
    ask.pid = &packed.pid;
    return ask_message(method, &ask.base);
}

static void response_is(int result, uint64_t view, teffi_pid holder)
{
    Teff__Cluster__DirectoryResponse *r =
        teff__cluster__directory_response__unpack(NULL, sent.raw_len, sent.raw);
    assert_non_null(r);
    assert_int_equal(r->result, result);
    assert_int_equal(r->view, view);
    assert_true(teffi_pid_equals(teffi_pid_unpack(r->pid), holder));
    teff__cluster__directory_response__free_unpacked(r, NULL);
}

static void holder_after(uint32_t method, teffi_pid pid, int result, teffi_pid holder)
{
    unsigned n = sent.n;
    teffi_directory_handle_request(&node, about_grain(method, 1, pid));
    bare_responded(n + 1, TEFF_OK, "none");
    response_is(result, 1, holder);
}

static void serve_all(uint64_t version)
{
    uint8_t all[TEFFI_PARTITION_SET_BYTES];
    memset(all, 0xff, sizeof all);
    bare_view(version, (teffi_node_id[]){bare_self}, 1);
    teffi_partitions_start_serving(&grains, all, version);
}

/* As above, in a view that has the holders, too; this silo owns the grain's partition. */
static void serve_among_others(void)
{
    teffi_ident ident = bare_ident();
    serve_all(1);
    bare_view(1, (teffi_node_id[]){bare_self, first.node, second.node}, 3);
    teffi_shard_of(&grains, ident.hash)->phase = TEFFI_SERVING;
}

/* ---- who holds a grain ---- */

static void the_first_to_register_holds_the_grain_until_it_unregisters(void **state)
{
    const teffi_pid nobody = {0};
    serve_among_others();
    holder_after(TEFFI_METHOD_LOOKUP, nobody, ABSENT, nobody);
    holder_after(TEFFI_METHOD_REGISTER, first, HELD, first);
    holder_after(TEFFI_METHOD_REGISTER, second, HELD, first);
    holder_after(TEFFI_METHOD_UNREGISTER, second, HELD, first);
    holder_after(TEFFI_METHOD_LOOKUP, nobody, HELD, first);
    holder_after(TEFFI_METHOD_UNREGISTER, first, ABSENT, nobody);
    holder_after(TEFFI_METHOD_REGISTER, second, HELD, second);
}

static void the_holder_of_a_silo_that_left_is_forgotten(void **state)
{
    serve_among_others();
    holder_after(TEFFI_METHOD_REGISTER, first, HELD, first);
    bare_view(1, (teffi_node_id[]){bare_self}, 1);
    holder_after(TEFFI_METHOD_LOOKUP, (teffi_pid){0}, ABSENT, (teffi_pid){0});
}

static void another_silos_partition_is_not_spoken_for(void **state)
{
    bare_view(1, (teffi_node_id[]){bare_other}, 1);
    holder_after(TEFFI_METHOD_LOOKUP, (teffi_pid){0}, REFRESH, (teffi_pid){0});
}

/* ---- a request that waits ---- */

static void run_directory(void)
{
    (void)teffi_group_run(&node.targets[TEFFI_SLOT_DIRECTORY].group, 10, 0);
}

static void a_request_of_a_later_view_waits_for_that(void **state)
{
    serve_all(1);
    teffi_directory_handle_request(&node, about_grain(TEFFI_METHOD_LOOKUP, 2, (teffi_pid){0}));
    assert_int_equal(sent.n, 0);
    assert_int_equal(grains.shards->parked.count, 1);
    assert_true(grains.shards->catching_up);
    bare_view(2, (teffi_node_id[]){bare_self}, 1);
    run_directory();
    bare_responded(1, TEFF_OK, "none");
    response_is(ABSENT, 2, (teffi_pid){0});
    assert_int_equal(grains.shards->parked.count, 0);
}

static unsigned reads;

static void on_submit(teffi_store *store, teffi_store_op *op)
{
    reads++; /* and never responds */
}

/* By itself, without waiting for the next heartbeat; once for all requests. */
static void the_silo_looks_for_the_later_view(void **state)
{
    static const teffi_store_ops ops = {.submit = on_submit};
    static teffi_store store = {.ops = &ops};
    node.store = &store;
    reads = 0;
    serve_all(1);
    for (int i = 0; i < 3; i++)
        teffi_directory_handle_request(&node, about_grain(TEFFI_METHOD_LOOKUP, 2, (teffi_pid){0}));
    assert_int_equal(reads, 0);
    (void)teffi_group_run(bare_busy, 10, 0);
    assert_int_equal(reads, 1);
    assert_false(grains.shards->catching_up);
}

static void a_request_waits_for_a_partition_that_is_recovered(void **state)
{
    uint8_t all[TEFFI_PARTITION_SET_BYTES];
    memset(all, 0xff, sizeof all);
    bare_view(1, (teffi_node_id[]){bare_self}, 1);
    teffi_directory_handle_request(&node, about_grain(TEFFI_METHOD_LOOKUP, 1, (teffi_pid){0}));
    assert_int_equal(sent.n, 0);
    teffi_partitions_start_serving(&grains, all, 1);
    run_directory();
    bare_responded(1, TEFF_OK, "none");
}

/* ---- what cannot be handled ---- */

static void other_requests_are_refused(void **state)
{
    static const uint8_t junk[] = {0xff};
    teffi_directory_handle_request(&node, about_grain(99, 0, (teffi_pid){0}));
    bare_responded(1, TEFF_E_NOT_FOUND, "directory: no such request");
    teffi_directory_handle_request(&node, about_grain(0, 0, (teffi_pid){0}));
    bare_responded(2, TEFF_E_NOT_FOUND, "directory: no such request");
    teffi_msg *msg = about_grain(TEFFI_METHOD_LOOKUP, 0, (teffi_pid){0});
    msg->raw = junk;
    msg->raw_len = sizeof junk;
    teffi_directory_handle_request(&node, msg);
    bare_responded(3, TEFF_E_MALFORMED, "directory: the request is malformed, or names no grain");
}

static void is_incomplete(teffi_msg *msg)
{
    unsigned n = sent.n;
    teffi_directory_handle_request(&node, msg);
    bare_responded(n + 1, TEFF_E_MALFORMED,
                   "directory: the request is malformed, or names no grain");
}

/* Slot 0 is no activation's, and no key is empty. */
static void what_names_no_activation_or_grain_is_refused(void **state)
{
    Teff__Cluster__DirectoryAsk ask = TEFF__CLUSTER__DIRECTORY_ASK__INIT;
    Teff__Cluster__Moved moved = TEFF__CLUSTER__MOVED__INIT;
    serve_among_others();
    is_incomplete(about_grain(TEFFI_METHOD_REGISTER, 1, (teffi_pid){.node = first.node}));
    is_incomplete(about_grain(TEFFI_METHOD_REGISTER, 1, (teffi_pid){.slot = first.slot}));
    is_incomplete(ask_message(TEFFI_METHOD_LOOKUP, &ask.base));
    is_incomplete(ask_message(TEFFI_METHOD_MOVED, &moved.base));
    ask.key = (ProtobufCBinaryData){1, (uint8_t *)(uintptr_t) "a"};
    is_incomplete(ask_message(TEFFI_METHOD_REGISTER, &ask.base));
    holder_after(TEFFI_METHOD_LOOKUP, (teffi_pid){0}, ABSENT, (teffi_pid){0});
}

/* ---- listing ---- */

enum { GRAINS = 20 };

/* Every third is not registered, as one that is being activated. */
static unsigned begin_grains(void)
{
    unsigned registered = 0;
    for (uint8_t i = 0; i < GRAINS; i++) {
        const uint8_t key[] = {'k', (uint8_t)('a' + i)};
        teffi_ident ident = teffi_ident_of(&grains.secret, lab_turns_info.id, key, sizeof key);
        teffi_activation *act;
        assert_int_equal(teffi_shard_create_activation(&grains, &ident, i % 3 != 0, NULL, &act),
                         TEFF_OK);
        registered += i % 3 != 0;
    }
    return registered;
}

static Teff__Cluster__Recovered *listed(uint64_t view, size_t set_len)
{
    Teff__Cluster__Recover ask = TEFF__CLUSTER__RECOVER__INIT;
    uint8_t all[TEFFI_PARTITION_SET_BYTES + 1];
    memset(all, 0xff, sizeof all);
    ask.view = view;
    ask.partitions = (ProtobufCBinaryData){set_len, all};
    teffi_directory_handle_request(&node, ask_message(TEFFI_METHOD_RECOVER, &ask.base));
    Teff__Cluster__Recovered *r = teff__cluster__recovered__unpack(NULL, sent.raw_len, sent.raw);
    assert_non_null(r);
    return r;
}

static void what_is_registered_is_listed_in_one_response(void **state)
{
    unsigned registered = begin_grains();
    serve_all(1);
    Teff__Cluster__Recovered *r = listed(1, TEFFI_PARTITION_SET_BYTES);
    bare_responded(1, TEFF_OK, "none");
    assert_int_equal(r->n_entries, registered);
    assert_int_equal(r->cursor, 0);
    assert_int_equal(r->view, 1);
    for (size_t i = 0; i < r->n_entries; i++) {
        const Teff__Cluster__Recovered__Entry *e = r->entries[i];
        teffi_ident ident =
            teffi_ident_of(&grains.secret, e->type, e->key.data, (uint32_t)e->key.len);
        const teffi_pid pid = {bare_self, e->slot, e->generation};
        assert_true(teffi_shard_has_activation(&grains, &ident, &pid));
    }
    teff__cluster__recovered__free_unpacked(r, NULL);
}

static void nothing_is_listed_for_another_view(void **state)
{
    (void)begin_grains();
    serve_all(2);
    Teff__Cluster__Recovered *r = listed(1, TEFFI_PARTITION_SET_BYTES);
    assert_int_equal(r->view, 2);
    assert_int_equal(r->n_entries, 0);
    teff__cluster__recovered__free_unpacked(r, NULL);
}

static void a_set_of_another_size_is_refused(void **state)
{
    static const int more[] = {-1, 1};
    serve_all(1);
    for (unsigned i = 0; i < 2; i++) {
        Teff__Cluster__Recovered *r = listed(1, (size_t)(TEFFI_PARTITION_SET_BYTES + more[i]));
        bare_responded(i + 1, TEFF_E_INVALID, "directory: a set of 256 partitions expected");
        teff__cluster__recovered__free_unpacked(r, NULL);
    }
}

/* ---- moved ---- */

static void a_place_that_is_out_of_date_is_dropped(void **state)
{
    Teff__Cluster__Moved moved = TEFF__CLUSTER__MOVED__INIT;
    teffi_packed_pid packed;
    teffi_ident ident = bare_ident();
    bare_view(1, (teffi_node_id[]){bare_self, bare_other}, 2);
    teffi_location_put(grains.location_cache, ident.hash, bare_other);
    for (int i = 0; i < 2; i++) { /* it is there, says the peer; the other one: not any more */
        assert_true(
            teffi_node_equals(teffi_location_get(grains.location_cache, ident.hash), bare_other));
        teffi_pid_pack(&packed, (teffi_pid){.node = i ? bare_other : bare_peer});
        moved.type = lab_turns_info.id;
        moved.key = (ProtobufCBinaryData){1, (uint8_t *)(uintptr_t) "a"};
        moved.pid = &packed.pid;
        teffi_directory_handle_request(&node, ask_message(TEFFI_METHOD_MOVED, &moved.base));
    }
    assert_true(teffi_node_is_none(teffi_location_get(grains.location_cache, ident.hash)));
    assert_int_equal(sent.n, 0);
}

int main(void)
{
#define SERVER(f) cmocka_unit_test_setup_teardown(f, bare_open, bare_close)
    const struct CMUnitTest tests[] = {
        SERVER(the_first_to_register_holds_the_grain_until_it_unregisters),
        SERVER(the_holder_of_a_silo_that_left_is_forgotten),
        SERVER(another_silos_partition_is_not_spoken_for),
        SERVER(a_request_of_a_later_view_waits_for_that),
        SERVER(the_silo_looks_for_the_later_view),
        SERVER(a_request_waits_for_a_partition_that_is_recovered),
        SERVER(other_requests_are_refused),
        SERVER(what_names_no_activation_or_grain_is_refused),
        SERVER(what_is_registered_is_listed_in_one_response),
        SERVER(nothing_is_listed_for_another_view),
        SERVER(a_set_of_another_size_is_refused),
        SERVER(a_place_that_is_out_of_date_is_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
