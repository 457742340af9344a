/* decoy.c - see decoy.h. It ends the connections that a silo ends during the handshake, because the
 * attackers wait for that. After a handshake it reads, and ignores what it reads. */
#include "decoy.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include "child.h"
#include "raw_peer.h"

enum { FDS_MAX = 65536, EVENTS_MAX = 128 };

static teffi_greeting own;
static bool roles[TEFFI_ROLE_CLIENT + 1]; /* are accepted */
static bool greeted[FDS_MAX];             /* by file descriptor: the hello was answered */
static int epoll;

static void watch_fd(int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (fd >= FDS_MAX || epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0)
        abort();
    greeted[fd] = false;
}

static void accept_all(int listener)
{
    int fd;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0)
        watch_fd(fd);
}

/* out: false: these bytes are no hello that a silo would accept. */
static bool answer_hello(int fd, const uint8_t *bytes, size_t n)
{
    uint8_t answer[TEFFI_FRAME_HEAD + TEFFI_HELLO_MAX], payload[TEFFI_HELLO_MAX];
    char text[TEFF_TEXT_MAX];
    teffi_greeting peer;
    uint32_t len;
    if (n < TEFFI_FRAME_HEAD || bytes[TEFFI_FRAME_PREFIX] != TEFFI_FRAME_HELLO)
        return false;
    memcpy(&len, bytes, sizeof len);
    if (len != n - TEFFI_FRAME_PREFIX ||
        teffi_hello_unpack(bytes + TEFFI_FRAME_HEAD, n - TEFFI_FRAME_HEAD, &peer) ||
        teffi_hello_check(&own.hello, &peer.hello, text) || !roles[peer.hello.role])
        return false;
    memcpy(own.echo, peer.nonce, sizeof own.echo);
    size_t payload_len = teffi_hello_pack(&own, payload);
    teffi_frame_encode_control(TEFFI_FRAME_HELLO, payload, payload_len, answer);
    return send(fd, answer, TEFFI_FRAME_HEAD + payload_len, MSG_NOSIGNAL) > 0;
}

/* out: false: the connection must end. */
static bool read_conn(int fd)
{
    static uint8_t bytes[65536];
    ssize_t n = recv(fd, bytes, sizeof bytes, 0);
    if (n <= 0)
        return false;
    if (greeted[fd]) /* no second hello: a silo ends the connection, and an attacker waits for it */
        return n <= TEFFI_FRAME_PREFIX || bytes[TEFFI_FRAME_PREFIX] != TEFFI_FRAME_HELLO;
    greeted[fd] = true;
    return answer_hello(fd, bytes, (size_t)n);
}

static void *serve_conns(void *arg)
{
    int listener = *(int *)arg;
    struct epoll_event events[EVENTS_MAX];
    for (;;) {
        int n = epoll_wait(epoll, events, EVENTS_MAX, -1);
        for (int i = 0; i < n; i++)
            if (events[i].data.fd == listener)
                accept_all(listener);
            else if (!read_conn(events[i].data.fd))
                close(events[i].data.fd);
    }
    return NULL;
}

int decoy_run(bool accepts_silos, bool accepts_clients)
{
    static int listener;
    char address[32];
    pthread_t thread;
    own = raw_greeting(1, 1, 0);
    roles[TEFFI_ROLE_SILO] = accepts_silos;
    roles[TEFFI_ROLE_CLIENT] = accepts_clients;
    raw_peer *peer = raw_listen(address);
    listener = dup(peer->fd);
    raw_close(peer);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    if (fcntl(listener, F_SETFL, O_NONBLOCK) != 0 || listen(listener, 1024) != 0)
        return 1;
    watch_fd(listener);
    if (pthread_create(&thread, NULL, serve_conns, &listener) != 0)
        return 1;
    bench_child_ready(address);
    return 0;
}
