/* lone_silo.h - a real silo on one thread: its executor runs groups in the order in which they
 * became READY, its clock moves only when the target moves it, and its network keeps what it sends.
 * Way:     fuzz_silo -> [lone_silo] -> grains/silo
 * Threads: one. While the silo's code waits, groups run and timers fire. */
#pragma once

#include "message/notice.h"
#include "silo/silo.h"

enum { LONE_ASKED_MAX = 32, LONE_FRAME_MAX = 64 * 1024 };

typedef struct lone_asked { /* a request that the silo has sent to another node */
    teffi_node_id to;
    teffi_origin call;
    uint32_t slot, method_id;
} lone_asked;

typedef struct lone_silo {
    teff_silo *silo;
    teff_ctx *ctx;                    /* this thread's */
    lone_asked asked[LONE_ASKED_MAX]; /* a ring with the newest ones */
    unsigned n_asked;                 /* how many there were */
    /* Called for each response that the silo sends. */
    void (*responded)(teffi_node_id to, const teffi_msg *response);
    teffi_notice_head heard; /* of the last notification to a client */
} lone_silo;

/* lone_silo_open - start a silo with a store in memory. in: type, which the silo then owns. */
void lone_silo_open(lone_silo *lone, teff_grain_type *type);
void lone_silo_close(lone_silo *lone);

/* lone_silo_run - run groups until none is READY. lone_silo_pass_time - the same, while time passes
 * and timers fire. */
void lone_silo_run(void);
void lone_silo_pass_time(uint32_t ms);

/* lone_silo_receive - the silo receives a message from a peer, as the frame codec decodes it; one
 * that does not encode or decode is dropped. in: msg, owned. */
void lone_silo_receive(lone_silo *lone, const teffi_hello *from, teffi_msg *msg);
