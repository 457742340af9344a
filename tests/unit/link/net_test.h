/* net_test.h - what the link's tests share: a platform, an owner that records events, waiting on
 * conditions with a deadline.
 * Way:     tests/unit/link/test_*.c -> [net_test] -> net ops */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include "test.h"
#include "os/platform.h"
#include "link/net.h"

/* What one node's owner saw; all under lock. */
typedef struct test_node {
    teffi_net *net;
    struct teffi_exec *exec; /* NULL unless test_options.workers */
    teffi_platform platform;
    teffi_node_id id;
    char address[TEFFI_ADDRESS_MAX + 1], gateway[TEFFI_ADDRESS_MAX + 1];
    pthread_mutex_t lock;
    pthread_cond_t changed;
    _Atomic unsigned sent;                   /* requests */
    _Atomic unsigned unsent, checked_unsent; /* the second: whole, and owned */
    _Atomic unsigned messages, ups, downs, downs_clean, dones, asked, gone, done_after_ups;
    unsigned disorder;  /* messages whose call.slot did not follow the one before */
    uint32_t last_slot; /* of the newest message */
    bool checks;        /* bodies are to be test_message's */
    unsigned wrong;     /* that were not */
    teff_err done_err;
    char done_text[512];
    teffi_hello done_peer, last_peer;
    unsigned views;             /* view events */
    uint64_t view;              /* of the newest */
    teffi_node_id view_of;      /* the same */
    teffi_msg *last;            /* the newest message, kept */
    bool hold;                  /* message events wait while set */
    bool echo;                  /* requests are answered with their body */
    const char *refuse;         /* hello events say no, with this text */
    const char *refuse_dialled; /* dialled events do */
    void (*look)(struct test_node *node, const teffi_msg *msg); /* at each message, lock held */
    void (*lost)(struct test_node *node);                       /* at each down event, lock held */
    char log[16384];                                            /* lines, the first that fit */
} test_node;

enum { TEST_SHUTDOWN_MS = 60000 };

/* Zeroed: nobody is silent, no handshake late within a minute. */
typedef struct test_options {
    uint32_t role, heartbeat_ms, queue_max_bytes, hello_timeout_ms, frame_max_bytes, clients_max;
    uint32_t silo, incarnation;
    teffi_transport_kind transport; /* 0: test_transport */
    unsigned workers;               /* of an executor of its own */
    const char *cluster, *listen, *cert, *ca;
    const char *gateway, *client_ca;    /* NULL: none */
    const char *secret, *client_secret; /* files */
    teffi_budget *budget;
} test_options;

/* test_transport - nng, or the reactor if TEFF_TEST_REACTOR is set. */
teffi_transport_kind test_transport(void);

/* test_node_start - a link that listens (silos) on a port of its own, by default on 127.0.0.1. */
test_node *test_node_start(test_options opt);
void test_node_stop(test_node *node);

/* test_flush - what threads have sent and the node keeps for coalescing is written. */
void test_flush(test_node *node);

/* test_wait - until cond holds; the expression may use the node's fields.
 * A wait fails the test after a minute. */
#define test_wait(node, cond)                                                                      \
    do {                                                                                           \
        uint64_t limit_ = test_deadline();                                                         \
        pthread_mutex_lock(&(node)->lock);                                                         \
        while (!(cond) && test_pause(node, limit_))                                                \
            ;                                                                                      \
        bool met_ = (cond);                                                                        \
        pthread_mutex_unlock(&(node)->lock);                                                       \
        if (!met_)                                                                                 \
            fail_msg("waited in vain for: %s", #cond);                                             \
    } while (0)

/* test_clock_hold - from here on the clock of all links moves by test_clock_move only, until
 * test_clock_release. Their tickers look at it each quarter of a heartbeat. */
void test_clock_hold(void);
void test_clock_move(uint32_t ms);
void test_clock_release(void);

uint64_t test_now(void);

/* test_last_peer - of the newest event. */
teffi_hello test_last_peer(test_node *node);
uint64_t test_deadline(void);
/* test_pause - wait for a change, at most 10 ms. out: false past the deadline. */
bool test_pause(test_node *node, uint64_t limit_ns);

/* In the order of link_counter. */
typedef struct test_counts {
    uint64_t accepted, refused_cluster, refused_version, refused_identity, refused_peer, garbage,
        oversize, malformed, hello_timeouts, silent, frames_in, frames_out, bytes_in, bytes_out,
        writes, dials, dial_failures, refused_system, crowded, refused_secret, refused_tls,
        frames_waited;
} test_counts;

test_counts test_counters(const teffi_net *net);

/* test_logged - did the node's link log a line with both in it? Inside test_wait. */
bool test_logged(test_node *node, const char *what, const char *and_what);

/* How a dial to an address has ended. test_note_dialled: the done function of net's dial; arg: a
 * test_dialled. */
typedef struct test_dialled {
    teff_err err;
    char text[TEFF_TEXT_MAX];
    _Atomic bool done;
} test_dialled;
void test_note_dialled(void *arg, teff_err err, const teffi_hello *peer, const char *text);

/* test_message - a request or one-way with n bytes of body; slot numbers it. */
teffi_msg *test_message(uint32_t kind, uint32_t slot, size_t n);

/* test_know - a knows b by peer_add. */
void test_know(test_node *a, test_node *b);

/* test_send - until taken; retries while the queue is full or the peer unreachable. */
void test_send(test_node *from, test_node *to, uint32_t slot, size_t n);
/* test_sent - as test_send, on any thread: no assertion may leave others than cmocka's. out: false:
 * it failed. */
bool test_sent(test_node *from, test_node *to, uint32_t slot, size_t n);

/* test_exchange - a sends n requests to b, which knows a and responds; all arrive, in order. */
void test_exchange(test_node *a, test_node *b, unsigned n);

/* test_shutdown - a thread of its own for a node's goodbye. out: NULL, or the node when it failed.
 */
void *test_shutdown(void *node);

unsigned test_fds(void);
unsigned test_threads(void);
