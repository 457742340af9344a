/* tcp_proxy.c - stands between a store and its server. */
#include "tcp_proxy.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "os/thread.h"

enum { LINKS = 64, HELD_MAX = 64 * 1024, SMALL_BUFFER = 16 * 1024 };

/* One direction's bytes that wait. */
typedef struct held {
    char bytes[HELD_MAX];
    size_t len;
} held;

typedef struct proxied {
    int store, server; /* descriptors, -1: closed */
    held requests, replies;
} proxied;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* over everything below */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_t thread;
static proxied links[LINKS];
static unsigned n_links, accepted, mode;
static struct sockaddr_storage upstream;
static socklen_t upstream_len;
static int listener, bell;
static bool stopped;

static int connect_upstream(void)
{
    int fd = socket(upstream.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&upstream, upstream_len) == 0)
        return fd;
    close(fd);
    return -1;
}

static void close_end(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* out: an unused link or, if there is none, one that has been cut. */
static proxied *find_free_link(void)
{
    proxied *l = links;
    if (n_links < LINKS)
        return &links[n_links++];
    while (l->store >= 0)
        if (++l == links + LINKS)
            abort();
    close_end(&l->server);
    l->requests.len = l->replies.len = 0;
    return l;
}

static void accept_store(void)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        abort();
    proxied *l = find_free_link();
    accepted++;
    l->store = fd;
    l->server = mode & PROXY_REFUSE ? -1 : connect_upstream();
    if (l->server < 0)
        close_end(&l->store);
}

static void pass_held(held *h, int to)
{
    for (size_t at = 0; at < h->len && to >= 0;) {
        ssize_t n = send(to, h->bytes + at, h->len - at, MSG_NOSIGNAL);
        if (n <= 0)
            break;
        at += (size_t)n;
    }
    h->len = 0;
}

/* Reads what is there; an end of one side ends the other. */
static void read_end(int *from, int *to, held *h)
{
    ssize_t n = recv(*from, h->bytes + h->len, HELD_MAX - h->len, MSG_DONTWAIT);
    if (n > 0) {
        h->len += (size_t)n;
    } else {
        close_end(from);
        close_end(to);
    }
}

static void serve_link(proxied *l, short store_events, short server_events)
{
    if (store_events && l->store >= 0 && !(mode & PROXY_STALL))
        read_end(&l->store, &l->server, &l->requests);
    if (server_events && l->server >= 0)
        read_end(&l->server, &l->store, &l->replies);
    if (!(mode & PROXY_HOLD_REQUESTS) && l->store >= 0)
        pass_held(&l->requests, l->server);
    if (!(mode & PROXY_HOLD_REPLIES))
        pass_held(&l->replies, l->store);
}

static void wait_for_events(struct pollfd *polls, unsigned n)
{
    polls[0] = (struct pollfd){.fd = listener, .events = POLLIN};
    polls[1] = (struct pollfd){.fd = bell, .events = POLLIN};
    for (unsigned i = 0; i < n; i++) {
        bool full = links[i].requests.len == HELD_MAX || links[i].replies.len == HELD_MAX;
        int store = mode & PROXY_STALL || full ? -1 : links[i].store;
        polls[2 + 2 * i] = (struct pollfd){.fd = store, .events = POLLIN};
        /* of a link that was cut: proxy_deliver() reads */
        int server = links[i].store < 0 || full ? -1 : links[i].server;
        polls[3 + 2 * i] = (struct pollfd){.fd = server, .events = POLLIN};
    }
    pthread_mutex_unlock(&lock);
    (void)poll(polls, 2 + 2 * n, -1);
    pthread_mutex_lock(&lock);
}

static void *run_proxy(void *arg)
{
    struct pollfd polls[2 + 2 * LINKS];
    uint64_t count;
    pthread_mutex_lock(&lock);
    while (!stopped) {
        unsigned n = n_links;
        wait_for_events(polls, n);
        if (polls[1].revents)
            (void)!read(bell, &count, sizeof count);
        for (unsigned i = 0; i < n; i++)
            if (links[i].store >= 0)
                serve_link(&links[i], polls[2 + 2 * i].revents, polls[3 + 2 * i].revents);
        if (polls[0].revents)
            accept_store();
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return arg;
}

static void ring_bell(void)
{
    uint64_t one = 1;
    if (write(bell, &one, sizeof one) != sizeof one)
        abort();
}

static unsigned open_proxy(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int small = SMALL_BUFFER; /* so that a store that is stalled cannot send much */
    n_links = accepted = mode = 0;
    stopped = false;
    memset(links, 0, sizeof links);
    bell = eventfd(0, EFD_CLOEXEC);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof small) != 0 ||
        bind(listener, (struct sockaddr *)&at, sizeof at) != 0 || listen(listener, LINKS) != 0 ||
        getsockname(listener, (struct sockaddr *)&at, &len) != 0 ||
        pthread_create(&thread, NULL, run_proxy, NULL) != 0)
        abort();
    return ntohs(at.sin_port);
}

unsigned proxy_open(unsigned server_port)
{
    const struct sockaddr_in at = {.sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                   .sin_port = htons((uint16_t)server_port)};
    upstream_len = sizeof at;
    memcpy(&upstream, &at, sizeof at);
    return open_proxy();
}

unsigned proxy_open_path(const char *server_path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof at.sun_path, "%s", server_path);
    upstream_len = sizeof at;
    memcpy(&upstream, &at, sizeof at);
    return open_proxy();
}

void proxy_close(void)
{
    pthread_mutex_lock(&lock);
    stopped = true;
    pthread_mutex_unlock(&lock);
    ring_bell();
    pthread_join(thread, NULL);
    for (unsigned i = 0; i < n_links; i++) {
        close_end(&links[i].store);
        close_end(&links[i].server);
    }
    close(listener);
    close(bell);
}

void proxy_set(unsigned to)
{
    pthread_mutex_lock(&lock);
    mode = to;
    pthread_mutex_unlock(&lock);
    ring_bell();
}

void proxy_await_held(void)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    while (!found) {
        for (unsigned i = 0; i < n_links; i++)
            found = found || links[i].requests.len || links[i].replies.len;
        if (!found)
            pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
}

void proxy_await_end(const char *end)
{
    size_t len = strlen(end);
    bool found = false;
    pthread_mutex_lock(&lock);
    while (!found) {
        for (unsigned i = 0; i < n_links; i++) {
            const held *h = &links[i].requests;
            found |= h->len >= len && memcmp(h->bytes + h->len - len, end, len) == 0;
        }
        if (!found)
            pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
}

void proxy_await_stalled(void)
{
    for (int waiting = 0; waiting == 0; teffi_thread_yield()) {
        pthread_mutex_lock(&lock);
        for (unsigned i = 0; i < n_links && waiting == 0; i++)
            if (links[i].store >= 0 && ioctl(links[i].store, FIONREAD, &waiting) != 0)
                abort();
        pthread_mutex_unlock(&lock);
    }
}

unsigned proxy_links(void)
{
    pthread_mutex_lock(&lock);
    unsigned n = accepted;
    pthread_mutex_unlock(&lock);
    return n;
}

void proxy_await_links(unsigned n)
{
    pthread_mutex_lock(&lock);
    while (accepted < n)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

void proxy_cut(unsigned to)
{
    pthread_mutex_lock(&lock);
    mode = to;
    for (unsigned i = 0; i < n_links; i++)
        close_end(&links[i].store);
    pthread_mutex_unlock(&lock);
    ring_bell();
}

size_t proxy_deliver(void)
{
    char answer[4096];
    size_t answered = 0;
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < n_links; i++) {
        if (links[i].store >= 0 || links[i].server < 0 || !links[i].requests.len)
            continue;
        pass_held(&links[i].requests, links[i].server);
        ssize_t n = recv(links[i].server, answer, sizeof answer, 0);
        answered += n > 0 ? (size_t)n : 0;
        close_end(&links[i].server);
    }
    pthread_mutex_unlock(&lock);
    return answered;
}
