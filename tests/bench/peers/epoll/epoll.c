/* epoll.c - what can this machine move between two processes? No actors, no callers: frames only.
 * usage: peer-epoll ROW WORKERS N        prints RESULT ops=... seconds=...
 * One thread a process, whatever WORKERS says, waits in epoll for one nonblocking connection. Both
 * sides take what one read has brought, change the numbers where they lie, and write it back at
 * once, also a part of a frame: the server a request as its response, the client a response as
 * the next request.
 * A frame: 4 bytes, how many follow; 8 bytes, a number; text or bytes. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "../../child.h"

enum { HEAD = 12, READ = 256 << 10, BUFFER = 16 << 20 };

typedef struct row {
    const char *name;
    uint64_t in_flight;
    uint32_t bytes;
} row;

static const row rows[] = {
    {"remote-1", 1, 5},           {"remote-64", 64, 5},          {"remote-1024", 1024, 5},
    {"remote-64KiB", 4, 1 << 16}, {"remote-1MiB", 4, (1 << 20)},
};

/* A connection: buffer[begin..ready) is to be written, buffer[ready..filled) a part of a head. */
typedef struct conn {
    int fd, epoll;
    size_t begin, ready, filled;
    size_t body;      /* bytes of the frame that was begun, still to come */
    bool keeps;       /* that frame */
    bool blocked;     /* the peer reads no faster */
    uint64_t left;    /* client: responses that become requests again */
    uint64_t waiting; /* client: responses that are still to come */
    bool serves;
    char *buffer;
} conn;

static void must(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "peer-epoll: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void watch(int epoll, int op, int fd, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.fd = fd};
    must(epoll_ctl(epoll, op, fd, &event) == 0, "epoll_ctl");
}

static conn open_conn(int fd, bool serves)
{
    conn c = {.fd = fd, .epoll = epoll_create1(EPOLL_CLOEXEC), .serves = serves};
    int yes = 1;
    must(fd >= 0 && c.epoll >= 0, "a connection");
    must(fcntl(fd, F_SETFL, O_NONBLOCK) == 0, "nonblocking");
    must(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes) == 0, "TCP_NODELAY");
    must((c.buffer = malloc(BUFFER)) != NULL, "memory");
    watch(c.epoll, EPOLL_CTL_ADD, fd, EPOLLIN);
    return c;
}

/* ---- frames ---- */

/* in: response: its number is odd, since requests begin at 0 and each side adds one. */
static void add_one(char *frame, bool response)
{
    uint64_t number;
    memcpy(&number, frame + 4, sizeof number);
    must(number % 2 == response, "a wrong answer");
    number++;
    memcpy(frame + 4, &number, sizeof number);
}

static void add_request(conn *c, uint32_t bytes)
{
    uint32_t size = bytes + HEAD - 4;
    memcpy(c->buffer + c->ready, &size, sizeof size);
    memset(c->buffer + c->ready + 4, 0, HEAD - 4 + bytes);
    c->ready += HEAD + bytes;
    c->filled = c->ready;
}

/* out: how many bytes follow. */
static uint32_t take_head(conn *c, char *frame)
{
    uint32_t size;
    memcpy(&size, frame, sizeof size);
    c->keeps = c->serves || c->left > 0;
    c->left -= !c->serves && c->keeps;
    add_one(frame, !c->serves);
    return size + (uint32_t)sizeof size - HEAD;
}

/* A client drops the frames that it needs no more: they are the last. */
static void take_frames(conn *c)
{
    size_t at = c->ready;
    while (c->filled - at >= (c->body ? 1 : HEAD)) {
        if (!c->body) {
            c->body = take_head(c, c->buffer + at);
            at += HEAD;
        }
        size_t n = c->body < c->filled - at ? c->body : c->filled - at;
        c->body -= n;
        at += n;
        c->waiting -= !c->serves && !c->body;
        if (c->keeps)
            c->ready = at;
    }
    memmove(c->buffer + c->ready, c->buffer + at, c->filled - at);
    c->filled -= at - c->ready;
}

/* ---- the connection ---- */

/* All frames that may be under way take less than half of the buffer. */
static void make_room(conn *c)
{
    if (c->begin < c->filled && c->filled < BUFFER / 2)
        return;
    memmove(c->buffer, c->buffer + c->begin, c->filled - c->begin);
    c->ready -= c->begin;
    c->filled -= c->begin;
    c->begin = 0;
}

/* out: false: the peer has gone. */
static bool read_some(conn *c)
{
    make_room(c);
    ssize_t n = read(c->fd, c->buffer + c->filled, READ);
    if (n > 0)
        c->filled += (size_t)n;
    return n > 0 || (n < 0 && errno == EAGAIN);
}

static void write_ready(conn *c)
{
    while (c->begin < c->ready) {
        ssize_t n = write(c->fd, c->buffer + c->begin, c->ready - c->begin);
        if (n < 0 && errno == EAGAIN)
            break;
        must(n > 0, "write");
        c->begin += (size_t)n;
    }
    if (c->blocked == (c->begin < c->ready))
        return;
    c->blocked = !c->blocked;
    watch(c->epoll, EPOLL_CTL_MOD, c->fd, c->blocked ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

/* Waits once. out: false: the peer, or the server's standard input, has ended. */
static bool step(conn *c)
{
    struct epoll_event events[2];
    int n = epoll_wait(c->epoll, events, 2, -1);
    for (int i = 0; i < n; i++)
        if (events[i].data.fd == 0 || (events[i].events & ~(uint32_t)EPOLLOUT && !read_some(c)))
            return false;
    take_frames(c);
    write_ready(c);
    return true;
}

/* ---- the two processes ---- */

static int serve(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    must(bind(listener, (struct sockaddr *)&address, size) == 0, "bind");
    must(listen(listener, 1) == 0, "listen");
    must(getsockname(listener, (struct sockaddr *)&address, &size) == 0, "the port");
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    conn c = open_conn(accept(listener, NULL, NULL), true);
    watch(c.epoll, EPOLL_CTL_ADD, 0, EPOLLIN);
    while (step(&c))
        continue;
    return 0;
}

static conn dial(const char *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)atoi(port)),
                                  .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(connect(fd, (struct sockaddr *)&address, sizeof address) == 0, "connect");
    return open_conn(fd, false);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* n calls, of which so many as the row says are under way. out: seconds. */
static double run(conn *c, const row *r, uint64_t n)
{
    double begin = now_s();
    c->waiting = n;
    c->left = n - r->in_flight;
    make_room(c);
    for (uint64_t i = 0; i < r->in_flight; i++)
        add_request(c, r->bytes);
    write_ready(c);
    while (c->waiting > 0)
        must(step(c), "the server");
    return now_s() - begin;
}

static int call(const row *r, uint64_t n)
{
    static const char *const args[] = {"serve", NULL};
    bench_child server;
    must(bench_child_start(&server, args), "the second process");
    conn c = dial(server.said);
    if (n < r->in_flight)
        n = r->in_flight;
    (void)run(&c, r, n); /* warm */
    printf("RESULT ops=%llu seconds=%.9f\n", (unsigned long long)n, run(&c, r, n));
    bench_child_stop(&server);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "serve") == 0)
        return serve();
    for (size_t i = 0; argc == 4 && i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(argv[1], rows[i].name) == 0)
            return call(&rows[i], strtoull(argv[3], NULL, 10));
    fprintf(stderr, "usage: peer-epoll ROW WORKERS N\n");
    return 2;
}
