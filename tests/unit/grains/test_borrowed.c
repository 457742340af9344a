/* test_borrowed.c - a request that leaves the silo is packed from where the caller has it; one that
 * could not be sent owns what it holds before the caller goes on. */
#include <stdio.h>
#include <string.h>
#include "directory/shard.h"
#include "request/route.h"
#include "directory/location_cache.h"
#include "lab.h"
#include "link/link.h"

static void what_is_owned_is_the_same(void **state)
{
    const char *keys[] = {"one", "two", "three"};
    char key[] = "a key";
    lab_path path = *lab_path(.n_keys = 3, .keys = keys, .timeout_ms = 77);
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_REQUEST);
    assert_non_null(msg);
    assert_true(teffi_msg_copy_borrowed(msg)); /* it borrows nothing */
    assert_null(msg->raw);
    msg->borrows = true;
    msg->body = &path.base;
    msg->key = (const uint8_t *)key;
    msg->key_len = sizeof key - 1;
    size_t len = teffi_msg_packed_len(msg);
    assert_true(teffi_msg_copy_borrowed(msg));
    assert_false(msg->borrows);
    assert_null(msg->body);
    assert_int_equal(teffi_msg_packed_len(msg), len);
    memset(key, 'x', sizeof key);
    memset(&path, 0, sizeof path);
    keys[1] = NULL;
    assert_int_equal(msg->key_len, 5);
    assert_string_equal((const char *)msg->key, "a key");
    assert_int_equal(teffi_msg_unpack(msg, lab_path_ops.desc), TEFF_OK);
    const lab_path *got = (const lab_path *)msg->body;
    assert_int_equal(got->n_keys, 3);
    assert_string_equal(got->keys[1], "two");
    assert_int_equal(got->timeout_ms, 77);
    teffi_msg_free(msg);
}

enum { LEAVES = 4, AWAY_LEAST = 2 };

static teffi_ident leaf(teffi_node *node, char key[48], const char *prefix, int i)
{
    int len = snprintf(key, 48, "%s-%d", prefix, i);
    return teffi_ident_of(&node->grains->secret, lab_account_info.id, (const uint8_t *)key,
                          (uint32_t)len);
}

static bool kept_by(teffi_node *node, const teffi_ident *ident)
{
    const teffi_view *view = teffi_view_ref_current(node);
    teffi_node_id owner = teffi_view_owner(view, teffi_partition_of_hash(ident->hash));
    teffi_view_unref(view);
    return teffi_node_equals(owner, node->id);
}

/* Leaves whose places silo 0 knows itself. out: so many live on silo 1. */
static int fits(lab *l, const char *prefix)
{
    char key[48];
    int away = 0;
    lab_number *out;
    for (int i = 0; i < LEAVES; i++) {
        teffi_ident ident = leaf(&l->silos[0]->node, key, prefix, i);
        if (!kept_by(&l->silos[0]->node, &ident))
            return 0;
    }
    for (int i = 0; i < LEAVES; i++) {
        teffi_ident ident = leaf(&l->silos[1]->node, key, prefix, i);
        lab_ok(l->ctx[0], lab_account_add(l->ctx[0], key, lab_number(), &out));
        away += teffi_shard_has_activation(l->silos[1]->node.grains, &ident, NULL);
    }
    return away;
}

/* A grain that lives on the silo. */
static void find_relay(lab *l, int silo, char key[32])
{
    teffi_grains *grains = l->silos[silo]->node.grains;
    lab_number *out;
    teffi_ident ident;
    int n = 0;
    do {
        int len = snprintf(key, 32, "fan %d", n++);
        ident =
            teffi_ident_of(&grains->secret, lab_relay_info.id, (const uint8_t *)key, (uint32_t)len);
        lab_ok(l->ctx[0], lab_relay_go(l->ctx[0], key, lab_path(), &out));
    } while (!teffi_shard_has_activation(grains, &ident, NULL));
}

/* The goodbye is over, and with it all that could end a call. */
static bool is_forgotten(teffi_node *node, teffi_node_id peer)
{
    teffi_link *link = (teffi_link *)node->home.net;
    pthread_mutex_lock(&link->conns.lock);
    bool gone = teffi_peer_find(link, peer) == NULL;
    pthread_mutex_unlock(&link->conns.lock);
    return gone;
}

static int hints_to(teffi_node *node, teffi_node_id other, const char *prefix)
{
    char key[48];
    int n = 0;
    for (int i = 0; i < LEAVES; i++)
        n += teffi_node_equals(
            teffi_location_get(node->grains->location_cache, leaf(node, key, prefix, i).hash),
            other);
    return n;
}

/* The fan starts all its calls with one buffer for keys and one for requests. */
static void what_was_not_sent_is_sent_later(void **state)
{
    lab *l = lab_open(2);
    teff_ctx *ctx = l->ctx[0];
    teffi_node *node = &l->silos[0]->node, *other = &l->silos[1]->node;
    char fan[32], prefix[32];
    lab_number *out;
    int n = 0;
    find_relay(l, 0, fan);
    do
        snprintf(prefix, sizeof prefix, "leaf %d", n++);
    while (fits(l, prefix) < AWAY_LEAST);
    lab_plan *plan = lab_plan(.n = LEAVES, .prefix = prefix);
    for (int round = 1; round <= 20; round += 2) {
        lab_ok(ctx, lab_relay_fan(ctx, fan, plan, &out)); /* and it is known where they are */
        assert_int_equal(out->n, round * (LEAVES * (LEAVES - 1) / 2));
        assert_true(hints_to(node, other->id, prefix) >= AWAY_LEAST);
        node->home.net->ops->peer_remove(node->home.net, other->id, true);
        lab_until(is_forgotten(node, other->id));
        teff_call call;
        lab_ok(ctx, lab_relay_fan_async(ctx, fan, plan, NULL, &call));
        lab_until(teffi_lookups_are_pending(node->grains));
        assert_int_equal(node->home.net->ops->peer_add(node->home.net, other->id,
                                                       teff_silo_address(l->silos[1])),
                         TEFF_OK);
        lab_ok(ctx, lab_relay_fan_await(ctx, call, &out));
        assert_int_equal(out->n, (round + 1) * (LEAVES * (LEAVES - 1) / 2));
    }
    lab_close(l);
}

/* ---- what the net is given ---- */

static teffi_platform real;
static const teffi_net_ops *real_ops;
static teffi_net_ops counting_ops;
static _Atomic unsigned borrowed;

static teff_err count_borrowed(teffi_net *net, teffi_node_id to, teffi_msg *msg)
{
    borrowed += msg->borrows && msg->type_id == lab_relay_info.id;
    return real_ops->send(net, to, msg);
}

static teff_err counting_net(const teffi_platform *platform, const teffi_net_options *opt,
                             teffi_net **net, char *text)
{
    teff_err err = real.net_new(platform, opt, net, text);
    real_ops = (*net)->ops;
    counting_ops = *real_ops;
    counting_ops.send = count_borrowed;
    (*net)->ops = &counting_ops;
    return err;
}

static void count_on(teff_silo *silo)
{
    real = silo->platform;
    silo->platform.net_new = counting_net;
}

/* A turn calls it; the first call finds out where it is. */
static void a_request_to_a_cached_place_is_not_copied(void **state)
{
    lab *l = lab_open_more(2, count_on);
    char near[32], far[32];
    lab_number *out;
    find_relay(l, 0, near);
    find_relay(l, 1, far);
    const char *next[] = {far};
    lab_path *path = lab_path(.n_keys = 1, .keys = next);
    lab_ok(l->ctx[0], lab_relay_go(l->ctx[0], near, path, &out));
    for (unsigned i = 0; i < 3; i++) {
        unsigned before = borrowed;
        lab_ok(l->ctx[0], lab_relay_go(l->ctx[0], near, path, &out));
        assert_int_equal(borrowed, before + 1);
    }
    lab_close(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_owned_is_the_same),
        cmocka_unit_test(what_was_not_sent_is_sent_later),
        cmocka_unit_test(a_request_to_a_cached_place_is_not_copied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
