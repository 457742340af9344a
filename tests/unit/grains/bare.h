/* bare.h - the grains of one node on an executor and a network of the test: nothing runs by itself,
 * and the clock stands. Include it in one source of a program.
 * Threads: one. */
#pragma once

#include <stdio.h>
#include <string.h>
#include "activation/activation.h"
#include "activation/type.h"
#include "activation/waits.h"
#include "call/task.h"
#include "cluster/membership.h"
#include "directory/location_cache.h"
#include "directory/partition.h"
#include "directory/server.h"
#include "hosting/life.h"
#include "lab.h"
#include "node/deliver.h"
#include "request/route.h"
#include "used.h"

enum { BARE_COARSE_MS = 1000000000 };

static const teffi_node_id bare_self = {5, 1}, bare_peer = {77, 1}, bare_other = {78, 1};
static const uint64_t bare_now_ns = 5000000000u;

static teffi_node node;
static teffi_grains grains;
static teff_grain_type *type; /* lab.Turns */
static const lab_turns_methods no_methods;

/* ---- the network ---- */

static struct { /* the last message that was sent */
    unsigned n;
    teff_err refuse;      /* send fails with it, for requests */
    teff_err refuse_next; /* the next request alone */
    teffi_node_id to;
    uint32_t kind;
    uint8_t hops;
    teff_err err;
    uint16_t flags;
    uint32_t slot, method_id;
    uint64_t deadline_ns;
    char text[TEFF_TEXT_MAX];
    size_t raw_len;
    uint8_t raw[4096];
    /* responds to requests; NULL: nobody does */
    const ProtobufCMessage *(*respond)(void);
    void (*watch)(teffi_node_id to, const teffi_msg *msg); /* sees each message; may be NULL */
} sent;

static void keep_body(teffi_msg *msg)
{
    if (msg->body)
        assert_true(teffi_node_pack_body(msg, msg->body));
    assert_true(msg->raw_len <= sizeof sent.raw);
    sent.raw_len = msg->raw_len;
    if (msg->raw_len)
        memcpy(sent.raw, msg->raw, msg->raw_len);
}

/* out: NULL: to be freed. */
static teffi_msg *bare_respond(teffi_msg *msg)
{
    if (!sent.respond || msg->item.kind != TEFFI_MSG_REQUEST)
        return msg;
    teffi_msg *response = teffi_node_make_response(&node, msg);
    assert_non_null(response);
    assert_true(teffi_node_pack_body(response, sent.respond()));
    teffi_msg_free(msg);
    teffi_node_deliver(&node, response);
    return NULL;
}

static teff_err bare_send(teffi_net *net, teffi_node_id to, teffi_msg *msg)
{
    teff_err next = sent.refuse_next;
    if (msg->item.kind != TEFFI_MSG_RESPONSE && (sent.refuse || next)) {
        sent.refuse_next = TEFF_OK;
        return sent.refuse ? sent.refuse : next;
    }
    if (sent.watch)
        sent.watch(to, msg);
    sent.n++;
    sent.to = to;
    sent.kind = msg->item.kind;
    sent.hops = msg->hops;
    sent.err = (teff_err)msg->err;
    sent.flags = msg->flags;
    sent.slot = msg->to.slot;
    sent.method_id = msg->method_id;
    sent.deadline_ns = msg->deadline_ns;
    snprintf(sent.text, sizeof sent.text, "%s", msg->text ? msg->text : "none");
    keep_body(msg);
    teffi_msg_free(bare_respond(msg));
    return TEFF_OK;
}

/* ---- the node ---- */

static uint64_t bare_clock(void *arg)
{
    return bare_now_ns;
}

static uint64_t bare_busydom(void *arg)
{
    return 0x9e3779b97f4a7c15u;
}

static teffi_group *bare_busy; /* the last group that had something to do */

static void bare_ready(teffi_exec *exec, teffi_group *group)
{
    bare_busy = group;
}

static teffi_timer *bare_timer; /* that was set last, for bare_due_ns */
static uint64_t bare_due_ns;

static void bare_timer_set(teffi_exec *exec, teffi_timer *timer, uint64_t due_ns)
{
    bare_timer = timer;
    bare_due_ns = due_ns;
}

static bool bare_timer_cancel(teffi_exec *exec, teffi_timer *timer)
{
    return true;
}

static const teffi_exec_ops bare_exec_ops = {
    .ready = bare_ready, .timer_set = bare_timer_set, .timer_cancel = bare_timer_cancel};
static teffi_platform bare_platform = {.mono_ns = bare_clock, .random = bare_busydom};
static teffi_exec bare_exec = {.ops = &bare_exec_ops, .platform = &bare_platform};

static teff_err bare_exec_new(const teffi_platform *on, unsigned workers,
                              const teff_sched_options *opt, teffi_exec **out)
{
    *out = &bare_exec;
    return TEFF_OK;
}

static teff_err bare_peer_err; /* what peer_add returns */

static teff_err bare_peer_add(teffi_net *net, teffi_node_id id, const char *address)
{
    return bare_peer_err;
}

static int bare_open(void **state)
{
    static const teffi_net_ops net_ops = {.send = bare_send, .peer_add = bare_peer_add};
    static teffi_net net = {&net_ops};
    static teffi_shards shards;
    static teffi_location_cache locations;
    static teffi_waits waits;
    bare_platform.exec_new = bare_exec_new;
    if (!bare_exec.fibers) /* stays: fibers of tasks that never ran are dropped with it */
        bare_exec.fibers = teffi_fiber_pool_new(0, 0);
    memset(&sent, 0, sizeof sent);
    bare_peer_err = TEFF_OK;
    memset(&grains, 0, sizeof grains);
    memset(&shards, 0, sizeof shards);
    memset(&locations, 0, sizeof locations);
    memset(&waits, 0, sizeof waits);
    type = teff_grain_type_new(&lab_turns_info, &no_methods, NULL);
    if (teffi_node_init(&node, &bare_platform, TEFFI_ROLE_SILO, "test", 1, NULL) ||
        !teffi_membership_new(&node, NULL, NULL, 0))
        return 1;
    node.id = bare_self;
    node.home.net = &net;
    node.grains = &grains;
    grains = (teffi_grains){.node = &node,
                            .group_ops = &teffi_activation_ops,
                            .types = &type,
                            .n_types = 1,
                            .shards = &shards,
                            .location_cache = &locations,
                            .waits = &waits,
                            .coarse_ms = BARE_COARSE_MS,
                            .accepting = true};
    teffi_node_set_target(&node, TEFFI_SLOT_DIRECTORY, teffi_directory_handle_request);
    teffi_waits_init(&waits, &node);
    return !teffi_shards_init(&shards, &grains);
}

static int bare_close(void **state)
{
    teffi_lookups_fini(&grains);
    teffi_partitions_fini(grains.shards);
    teffi_tasks_free_all(&node.home);
    teffi_shards_fini(grains.shards);
    teffi_waits_fini(grains.waits);
    bool all_freed = bytes_used(node.budget) == 0; /* messages */
    teffi_membership_free(node.membership);
    teff_grain_type_free(type);
    teffi_node_fini(&node);
    return !all_freed;
}

/* Adopts a view of these silos, which all host the type. */
static inline void bare_view(uint64_t version, const teffi_node_id *members, size_t n)
{
    static uint32_t hosted;
    teffi_member list[4] = {0};
    const teffi_view *old = node.view;
    hosted = lab_turns_info.id;
    for (size_t i = 0; i < n; i++)
        list[i] = (teffi_member){.node = members[i],
                                 .status = TEFFI_ACTIVE,
                                 .address = "h:1",
                                 .types = &hosted,
                                 .n_types = 1};
    node.view = teffi_view_new(version, list, n);
    assert_non_null(node.view);
    teffi_view_unref(old);
    teffi_locations_adopt_view(grains.location_cache, node.view, bare_self);
    (void)teffi_partitions_adopt_view(&grains, node.view);
}

/* ---- messages ---- */

/* From the peer to grain "a". */
static inline teffi_msg *bare_message(uint32_t kind)
{
    teffi_msg *msg = teffi_msg_new(kind);
    assert_non_null(msg);
    msg->src = bare_peer;
    msg->type_id = lab_turns_info.id;
    msg->method_id = lab_turns_info.methods[0].id;
    msg->key = (const uint8_t *)"a";
    msg->key_len = 1;
    return msg;
}

static inline teffi_ident bare_ident(void)
{
    return teffi_ident_of(&grains.secret, lab_turns_info.id, (const uint8_t *)"a", 1);
}

/* The n-th message was this response to the peer. */
static inline void bare_responded(unsigned n, teff_err err, const char *text)
{
    assert_int_equal(sent.n, n);
    assert_int_equal(sent.kind, TEFFI_MSG_RESPONSE);
    assert_true(teffi_node_equals(sent.to, bare_peer));
    assert_int_equal(sent.err, err);
    assert_string_equal(sent.text, text);
}
