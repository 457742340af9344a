/* socket_dial.c - a dial: resolve the name, then connect to one address after the other.
 * Way:     start -> [attempt: resolve -> connect -> ... ] -> done
 * Threads: attempts run on the thread that polls; cancel on any thread. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/queue.h"
#include "message/hello.h"
#include "stream/socket.h"

struct teffi_stream_dial {
    teffi_reactor *reactor;
    reactor_side side; /* waits for the lookup, then for the socket */
    teffi_stream_done *done;
    void *arg;
    char address[TEFFI_ADDRESS_MAX + 1];
    _Atomic bool cancelled;
    /* while the dial runs, used only by attempts */
    bool resolved;         /* found is final; without an address, result is a failure */
    socket_lookup *lookup; /* NULL: none was needed so far */
    socket_addresses found;
    unsigned next;             /* index in found of the address to try next */
    socket_stream *connecting; /* NULL: none */
    teffi_stream_result result;
};

/* Sets dial->result to a failure; does not call dial->done(). out: always true, so that a caller
 * can return it. */
static bool set_dial_failure(teffi_stream_dial *dial, const char *why)
{
    dial->result = (teffi_stream_result){.end = TEFFI_STREAM_FAILED, .text = why};
    return true;
}

/* Finds the addresses of the host. If the host is a name, the first call starts a lookup, and later
 * calls ask for its result. out: false: the lookup is not over yet, and will report an edge. true:
 * dial->found is final; if it has no address, dial->result is a failure. */
static bool attempt_find_addresses(teffi_stream_dial *dial)
{
    const char *why = "out of memory";
    if (!dial->lookup && !teffi_socket_resolve(dial->address, AI_NUMERICHOST, &dial->found, &why)) {
        dial->lookup = teffi_lookup_start(dial->reactor, &dial->side, dial->address);
        if (!dial->lookup)
            return dial->resolved = set_dial_failure(dial, "out of memory");
    }
    if (dial->lookup && !teffi_lookup_get_result(dial->lookup, &dial->found, &why))
        return false;
    if (!dial->found.n)
        (void)set_dial_failure(dial, why);
    return dial->resolved = true;
}

/* Frees the stream that is connecting, if there is one, and sets the dial's result to the failure
 * e, an errno. If a later address is tried, its result replaces this failure. */
static void give_up_address(teffi_stream_dial *dial, int e)
{
    dial->result = teffi_socket_make_failure(e);
    if (dial->connecting)
        dial->connecting->stream.ops->free(&dial->connecting->stream);
    dial->connecting = NULL;
}

/* Begins to connect to the next address. If that fails, dial->connecting is NULL afterwards. */
static void begin_connect_to_next_address(teffi_stream_dial *dial)
{
    const struct socket_address *address = &dial->found.at[dial->next++];
    const struct sockaddr *to = (const struct sockaddr *)&address->to;
    int fd = teffi_socket_open(to->sa_family);
    dial->connecting = fd < 0 ? NULL : teffi_socket_stream_new(dial->reactor, fd, &dial->side);
    if (!dial->connecting) {
        int e = fd < 0 ? errno : ENOMEM;
        if (fd >= 0)
            close(fd);
        give_up_address(dial, e);
    } else if ((connect(fd, to, address->len) != 0 && errno != EINPROGRESS) ||
               !teffi_reactor_watch(dial->reactor, &dial->connecting->source, false, false)) {
        give_up_address(dial, errno);
    }
}

/* Finishes the connect if it has ended, and then sets dial->connecting to NULL. out: false: it has
 * not ended. true: dial->result is the connected stream, or the failure of this address. */
static bool try_finish_connect(teffi_stream_dial *dial)
{
    struct sockaddr_storage peer;
    socklen_t len = sizeof peer, error_len = sizeof(int);
    int fd = dial->connecting->source.fd, e = 0;
    (void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &error_len);
    if (!e && getpeername(fd, (struct sockaddr *)&peer, &len) != 0)
        return false;
    if (!e && !teffi_socket_stream_watch(dial->connecting))
        e = ENOMEM;
    if (e) {
        give_up_address(dial, e);
        return true;
    }
    dial->result = (teffi_stream_result){.stream = &dial->connecting->stream};
    dial->connecting = NULL;
    dial->next = dial->found.n; /* no other address is tried */
    return true;
}

/* Continues the dial as far as it can without waiting. out: false: wait for an edge. */
static bool attempt_dial(reactor_side *side)
{
    teffi_stream_dial *dial = teffi_container(side, teffi_stream_dial, side);
    if (atomic_load_explicit(&dial->cancelled, memory_order_seq_cst)) {
        give_up_address(dial, ECANCELED);
        dial->result.end = TEFFI_STREAM_CLOSED;
        return true;
    }
    if (!dial->resolved && !attempt_find_addresses(dial))
        return false;
    while (dial->connecting || dial->next < dial->found.n) {
        if (!dial->connecting)
            begin_connect_to_next_address(dial);
        if (dial->connecting && !try_finish_connect(dial))
            return false;
    }
    return true;
}

static void report_dial_result(reactor_side *side)
{
    teffi_stream_dial *dial = teffi_container(side, teffi_stream_dial, side);
    teffi_stream_result result = dial->result;
    dial->done(dial->arg, &result);
}

teffi_stream_dial *teffi_socket_dial_new(teffi_transport *transport, const char *address,
                                         teffi_stream_done *done, void *arg)
{
    teffi_stream_dial *dial = calloc(1, sizeof *dial);
    if (!dial)
        return NULL;
    dial->reactor = teffi_container(transport->poller, teffi_reactor, poller);
    dial->side = (reactor_side){.attempt = attempt_dial, .ended = report_dial_result};
    dial->done = done;
    dial->arg = arg;
    snprintf(dial->address, sizeof dial->address, "%s", address);
    /* An invalid address counts as resolved, without any address found, so the dial reports the
     * failure that is set here. For a valid address, a later result replaces this failure. */
    dial->resolved = !teffi_address_is_valid(address);
    (void)set_dial_failure(dial, "not an address of the form " TEFFI_ADDRESS_EXPECTED);
    return dial;
}

void teffi_socket_dial_start(teffi_stream_dial *dial)
{
    /* the edge makes the first attempt run at once */
    teffi_reactor_report_edge(dial->reactor, &dial->side);
    teffi_reactor_begin_wait(dial->reactor, &dial->side);
}

void teffi_socket_dial_cancel(teffi_stream_dial *dial)
{
    /* seq_cst: pairs with the load in attempt_dial(), which runs because of the edge below */
    atomic_store_explicit(&dial->cancelled, true, memory_order_seq_cst);
    teffi_reactor_report_edge(dial->reactor, &dial->side);
}

void teffi_socket_dial_free(teffi_stream_dial *dial)
{
    teffi_lookup_free_when_over(dial->lookup);
    free(dial);
}
