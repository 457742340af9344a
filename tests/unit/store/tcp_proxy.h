/* tcp_proxy.h - stands between a store and its server: holds their bytes, cuts their connection.
 * Way:     store/postgres, store/redis, store/etcd -> [tcp_proxy] -> the server
 * Threads: one of its own; the functions are for the test's main one, proxy_set also for others. */
#pragma once

#include <stddef.h>

enum {
    PROXY_PASS = 0,
    PROXY_HOLD_REQUESTS = 1, /* what the store sends is kept */
    PROXY_HOLD_REPLIES = 2,  /* what the server sends is kept */
    PROXY_STALL = 4,         /* what the store sends is not even read */
    PROXY_REFUSE = 8         /* new connections are closed at once */
};

/* proxy_open - out: its port. in: that of the server, or the path of the server's Unix socket. */
unsigned proxy_open(unsigned server_port);
unsigned proxy_open_path(const char *server_path);
void proxy_close(void);

/* proxy_set - in: PROXY_ bits. What was kept is passed on when its bit is cleared. */
void proxy_set(unsigned mode);

/* proxy_await_held - wait until bytes of the store or of the server are kept.
 * proxy_await_end - wait until what is kept of a connection's requests ends with this text.
 * proxy_await_stalled - wait until the store has sent bytes that are not read.
 * proxy_await_links - wait until n connections have been accepted, refused ones included. */
void proxy_await_held(void);
void proxy_await_end(const char *end);
void proxy_await_stalled(void);
void proxy_await_links(unsigned n);
unsigned proxy_links(void);

/* proxy_cut - end all connections to the store; those to the server stay, and with them the
 * requests that are kept. New connections are as mode says. */
void proxy_cut(unsigned mode);

/* proxy_deliver - send what was kept to the server on connections that were cut, and wait until it
 * has answered or closed them. out: the number of bytes that it answered. */
size_t proxy_deliver(void);
