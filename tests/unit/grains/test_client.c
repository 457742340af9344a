/* test_client.c - what a silo asks the owner of a grain's partition, how long, and what it makes of
 * the response. */
#include "bare.h"
#include "call/ctx.h"
#include "directory/client.h"

enum { ASK_MS = 5000 }; /* one request's time */

static const uint64_t ms = 1000000;
static const teffi_pid holder = {{78, 1}, 20, 3};

static teff_ctx *ctx;
static teffi_ident ident;

static int setup(void **state)
{
    if (bare_open(state))
        return 1;
    bare_view(1, (teffi_node_id[]){bare_other}, 1); /* which owns all partitions */
    ident = bare_ident();
    ctx = teffi_ctx_new(&node.home);
    return !ctx;
}

static int teardown(void **state)
{
    teff_ctx_free(ctx);
    return bare_close(state);
}

/* ---- responses ---- */

static Teff__Cluster__DirectoryResponse response;
static teffi_packed_pid packed;

static const ProtobufCMessage *respond(void)
{
    return &response.base;
}

static void will_respond(int result, const teffi_pid *pid)
{
    teff__cluster__directory_response__init(&response);
    response.result = (Teff__Cluster__DirectoryResponse__Result)result;
    response.view = 1;
    if (pid)
        teffi_pid_pack(&packed, *pid);
    response.pid = pid ? &packed.pid : NULL;
    sent.respond = respond;
}

static teff_err look_up(uint64_t until_ns, teffi_pid *found)
{
    _Atomic uint64_t until = until_ns;
    return teffi_directory_lookup(ctx, &ident, &until, found);
}

static void the_holder_is_the_one_that_the_owner_names(void **state)
{
    teffi_pid found;
    will_respond(0, &holder);
    lab_ok(ctx, look_up(UINT64_MAX, &found));
    assert_true(teffi_pid_equals(found, holder));
    assert_true(teffi_node_equals(sent.to, bare_other));
    assert_int_equal(sent.slot, TEFFI_SLOT_DIRECTORY);
    assert_int_equal(sent.method_id, TEFFI_METHOD_LOOKUP);
    will_respond(1, &holder); /* absent */
    assert_int_equal(look_up(UINT64_MAX, &found), TEFF_E_NOT_FOUND);
}

/* Of a silo that has other versions of these messages, or none of our business. */
static void a_response_that_names_nobody_is_nobody(void **state)
{
    teffi_pid found;
    will_respond(0, NULL);
    assert_int_equal(look_up(UINT64_MAX, &found), TEFF_E_NOT_FOUND);
    will_respond(0, &holder);
    packed.pid.node = NULL;
    assert_int_equal(look_up(UINT64_MAX, &found), TEFF_E_NOT_FOUND);
    will_respond(0, &(teffi_pid){.node = holder.node, .slot = 0});
    assert_int_equal(look_up(UINT64_MAX, &found), TEFF_E_NOT_FOUND);
    will_respond(0, &(teffi_pid){.slot = holder.slot});
    assert_int_equal(look_up(UINT64_MAX, &found), TEFF_E_NOT_FOUND);
}

/* ---- time ---- */

static uint64_t asked_for_ms(uint64_t left_ns)
{
    teffi_pid found;
    will_respond(0, &holder);
    lab_ok(ctx, look_up(left_ns == UINT64_MAX ? left_ns : bare_now_ns + left_ns, &found));
    return (sent.deadline_ns - bare_now_ns) / ms;
}

static void the_owner_is_asked_for_what_is_left_and_not_too_long(void **state)
{
    assert_int_equal(asked_for_ms(UINT64_MAX), ASK_MS);
    assert_int_equal(asked_for_ms(2 * ASK_MS * ms), ASK_MS);
    assert_int_equal(asked_for_ms(700 * ms), 701);
    assert_int_equal(asked_for_ms(0), 1);
}

static void a_look_up_whose_time_is_over_ends(void **state)
{
    teffi_pid found;
    sent.refuse = TEFF_E_UNREACHABLE;
    assert_int_equal(look_up(bare_now_ns, &found), TEFF_E_TIMEOUT);
}

/* ---- no owner ---- */

static void a_silo_that_may_not_wait_gives_up(void **state)
{
    teffi_pid found;
    sent.refuse = TEFF_E_UNREACHABLE;
    (void)teffi_lease_end(&node.home.lease);
    lab_fails(ctx, look_up(UINT64_MAX, &found), TEFF_E_UNAVAILABLE);
    assert_string_equal(teff_error(ctx), "the directory's owner for this grain cannot be reached");
    teffi_lease_release(&node.home.lease);
    grains.closed = true;
    lab_fails(ctx, look_up(UINT64_MAX, &found), TEFF_E_UNAVAILABLE);
    assert_string_equal(teff_error(ctx), "the silo is closing");
}

static void without_an_active_silo_nothing_is_found_or_left(void **state)
{
    teffi_pid found;
    bare_view(2, NULL, 0);
    node.membership->joined = true;
    lab_fails(ctx, look_up(UINT64_MAX, &found), TEFF_E_UNAVAILABLE);
    assert_string_equal(teff_error(ctx),
                        "the silo leaves and no other is active; the call did not run");
    lab_ok(ctx, teffi_directory_unregister(ctx, &ident, holder));
    assert_int_equal(sent.n, 0);
}

/* An owner with too much to do is not asked again and again, but for what it must know. */
static void too_much_to_do_is_passed_on(void **state)
{
    teffi_pid found;
    sent.refuse = TEFF_E_OVERLOADED;
    assert_int_equal(look_up(UINT64_MAX, &found), TEFF_E_OVERLOADED);
    (void)teffi_lease_end(&node.home.lease);
    assert_int_equal(teffi_directory_unregister(ctx, &ident, holder), TEFF_E_UNAVAILABLE);
}

/* ---- registering ---- */

static teffi_activation *begin_activation(void)
{
    teffi_activation *act;
    assert_int_equal(teffi_shard_create_activation(&grains, &ident, false, NULL, &act), TEFF_OK);
    return act;
}

static void an_activation_is_registered_if_the_owner_says_so(void **state)
{
    teffi_activation *act = begin_activation();
    teffi_pid own = teffi_activation_pid(act), found;
    will_respond(0, &holder);
    assert_int_equal(teffi_directory_register(ctx, act, &found), TEFF_E_EXISTS);
    assert_true(teffi_pid_equals(found, holder));
    assert_false(act->registered);
    will_respond(0, &own);
    lab_ok(ctx, teffi_directory_register(ctx, act, &found));
    assert_true(act->registered);
    assert_int_equal(sent.method_id, TEFFI_METHOD_REGISTER);
}

static void no_activation_is_made_where_none_may_be(void **state)
{
    teffi_activation *act;
    grains.accepting = false;
    assert_int_equal(teffi_shard_create_activation(&grains, &ident, false, NULL, &act),
                     TEFF_E_NOT_FOUND);
    grains.accepting = true;
    ident.type++;
    assert_int_equal(teffi_shard_create_activation(&grains, &ident, false, NULL, &act),
                     TEFF_E_NOT_FOUND);
}

/* ---- telling ---- */

static void silos_are_told_where_a_grain_is_not(void **state)
{
    const teffi_node_id client = {TEFFI_CLIENT_BIT | 5, 1};
    teffi_directory_send_moved_message(&grains, &ident, bare_self);
    teffi_directory_send_moved_message(&grains, &ident, client);
    assert_int_equal(sent.n, 0);
    teffi_directory_send_moved_message(&grains, &ident, bare_other);
    assert_int_equal(sent.n, 1);
    assert_int_equal(sent.kind, TEFFI_MSG_ONEWAY);
    assert_int_equal(sent.slot, TEFFI_SLOT_DIRECTORY);
    Teff__Cluster__Moved *moved = teff__cluster__moved__unpack(NULL, sent.raw_len, sent.raw);
    assert_non_null(moved);
    assert_int_equal(moved->type, lab_turns_info.id);
    assert_int_equal(moved->key.len, 1);
    assert_true(teffi_node_equals(teffi_pid_unpack(moved->pid).node, bare_self));
    teff__cluster__moved__free_unpacked(moved, NULL);
}

int main(void)
{
#define CLIENT(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CLIENT(the_holder_is_the_one_that_the_owner_names),
        CLIENT(a_response_that_names_nobody_is_nobody),
        CLIENT(the_owner_is_asked_for_what_is_left_and_not_too_long),
        CLIENT(a_look_up_whose_time_is_over_ends),
        CLIENT(a_silo_that_may_not_wait_gives_up),
        CLIENT(without_an_active_silo_nothing_is_found_or_left),
        CLIENT(too_much_to_do_is_passed_on),
        CLIENT(an_activation_is_registered_if_the_owner_says_so),
        CLIENT(no_activation_is_made_where_none_may_be),
        CLIENT(silos_are_told_where_a_grain_is_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
