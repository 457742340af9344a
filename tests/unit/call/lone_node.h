/* lone_node.h - a node on the real executor, without peers, store and grains: what calls, cancels
 * and tasks need. It is open from lone_node_open to lone_node_close. */
#pragma once

#include "../sched/hand_clock.h" /* until */
#include "call/call.h"
#include "node/node.h"
#include "sched/exec.h"

static inline teff_err no_peer(teffi_net *net, teffi_node_id to, teffi_msg *msg)
{
    return TEFF_E_UNREACHABLE;
}

static inline void keep_net(teffi_net *net)
{
}

static inline teffi_node *lone_node_open(void)
{
    static const teffi_net_ops ops = {.send = no_peer, .free = keep_net};
    static teffi_net net = {&ops};
    static teffi_platform platform;
    static teffi_node node;
    teffi_platform_init_real(&platform, TEFF_LOG_WARN);
    platform.exec_new = teffi_exec_real_new;
    assert_int_equal(teffi_node_init(&node, &platform, TEFFI_ROLE_SILO, "test", 2, NULL), TEFF_OK);
    node.home.net = &net;
    return &node;
}

/* After all contexts have been freed. */
static inline void lone_node_close(teffi_node *node)
{
    teffi_node_stop(node);
    teffi_node_free_exec_and_tasks(node);
    teffi_node_fini(node);
}

static inline bool is_pending(const teffi_call *call)
{
    return teffi_call_is_pending(call->home, call->slot, call->generation);
}
