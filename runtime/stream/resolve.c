/* resolve.c - finds the addresses of a host. getaddrinfo() may wait long for a server, so the name
 * of a dial is resolved on a thread of its own, which is detached: no other thread waits for its
 * end. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include "message/hello.h"
#include "os/thread.h"
#include "stream/socket.h"

struct socket_lookup {
    teffi_thread thread;
    teffi_reactor *reactor;
    char address[TEFFI_ADDRESS_MAX + 1];
    pthread_mutex_t lock; /* guards the rest */
    reactor_side *side;   /* NULL: teffi_lookup_free_when_over was called */
    bool over;
    socket_addresses found;
    const char *why;
};

static void add_address(socket_addresses *found, const void *to, socklen_t len)
{
    struct socket_address *at = &found->at[found->n++];
    memcpy(&at->to, to, len);
    at->len = len;
}

static void add_path(socket_addresses *found, const char *path)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    memcpy(to.sun_path, path, strlen(path));
    add_address(found, &to, sizeof to);
}

bool teffi_socket_resolve(const char *address, int flags, socket_addresses *found, const char **why)
{
    const struct addrinfo hints = {
        .ai_flags = flags | AI_NUMERICSERV, .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    const char *colon = strrchr(address, ':');
    bool v6 = address[0] == '[';
    char host[TEFFI_ADDRESS_MAX + 1];
    struct addrinfo *list = NULL;
    found->n = 0;
    if (teffi_address_path(address)) {
        add_path(found, teffi_address_path(address));
        return true;
    }
    /* a v6 address is copied without its brackets */
    snprintf(host, sizeof host, "%.*s", (int)(colon - address) - 2 * v6, address + v6);
    int failed = getaddrinfo(host, colon + 1, &hints, &list);
    if (failed) {
        *why = gai_strerror(failed);
        return false;
    }
    for (struct addrinfo *to = list; to && found->n < SOCKET_ADDRESSES; to = to->ai_next)
        add_address(found, to->ai_addr, to->ai_addrlen);
    freeaddrinfo(list);
    return true;
}

static void free_socket_lookup(socket_lookup *lookup)
{
    pthread_mutex_destroy(&lookup->lock);
    free(lookup);
}

/* The function of the lookup's thread. Resolves the address, and afterwards reports an edge to the
 * side; or frees the lookup if teffi_lookup_free_when_over() was called in the meantime. */
static void run_lookup(void *arg)
{
    socket_lookup *lookup = arg;
    const char *why = NULL;
    socket_addresses found;
    (void)teffi_socket_resolve(lookup->address, 0, &found, &why);
    pthread_mutex_lock(&lookup->lock);
    lookup->found = found;
    lookup->why = why;
    lookup->over = true;
    bool wanted = lookup->side;
    if (wanted)
        teffi_reactor_report_edge(lookup->reactor, lookup->side);
    pthread_mutex_unlock(&lookup->lock);
    if (!wanted)
        free_socket_lookup(lookup);
}

socket_lookup *teffi_lookup_start(teffi_reactor *reactor, reactor_side *side, const char *address)
{
    socket_lookup *lookup = calloc(1, sizeof *lookup);
    if (!lookup)
        return NULL;
    lookup->reactor = reactor;
    lookup->side = side;
    snprintf(lookup->address, sizeof lookup->address, "%s", address);
    pthread_mutex_init(&lookup->lock, NULL);
    pthread_mutex_lock(&lookup->lock); /* so that the thread cannot end before it is detached */
    teff_err err = teffi_thread_start(&lookup->thread, "teff-resolve", run_lookup, lookup);
    if (!err)
        (void)pthread_detach(lookup->thread.id);
    pthread_mutex_unlock(&lookup->lock);
    if (!err)
        return lookup;
    free_socket_lookup(lookup);
    return NULL;
}

bool teffi_lookup_get_result(socket_lookup *lookup, socket_addresses *found, const char **why)
{
    pthread_mutex_lock(&lookup->lock);
    bool over = lookup->over;
    *found = lookup->found;
    *why = lookup->why;
    pthread_mutex_unlock(&lookup->lock);
    return over;
}

void teffi_lookup_free_when_over(socket_lookup *lookup)
{
    if (!lookup)
        return;
    pthread_mutex_lock(&lookup->lock);
    lookup->side = NULL; /* if the lookup is not over, run_lookup() frees it */
    bool over = lookup->over;
    pthread_mutex_unlock(&lookup->lock);
    if (over)
        free_socket_lookup(lookup);
}
