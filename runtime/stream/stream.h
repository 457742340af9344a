/* stream.h - byte streams between nodes, and the transport that dials and accepts them. There are
 * two: nng (TCP, Unix sockets, and TLS), and the reactor (TCP and Unix sockets that idle workers
 * wait on).
 * Way:     link -> [stream] -> nng, reactor -> sockets
 * Threads: functions from any thread, but a stream has one receive and one write at a time. A
 *          callback runs on nng's threads, or on the thread that polls; never inside the function
 *          that began its operation. It must not block, and must not free what it is called for. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>
#include <teff/error.h>
#include "os/platform.h"
#include "os/poller.h"

enum { TEFFI_STREAM_PIECES = 8 }; /* of one write: nng 1.5.2 takes no more */

/* How an operation has ended. */
typedef enum teffi_stream_end {
    TEFFI_STREAM_OK,
    TEFFI_STREAM_CLOSED,         /* this side closed it */
    TEFFI_STREAM_NO_CERTIFICATE, /* TLS: the peer showed none */
    TEFFI_STREAM_NO_TLS,         /* the handshake of TLS failed for another reason */
    TEFFI_STREAM_FAILED          /* another reason */
} teffi_stream_end;

typedef struct teffi_stream teffi_stream;

typedef struct teffi_stream_result {
    teffi_stream_end end;
    const char *text;     /* why; constant */
    size_t bytes;         /* OK: received or written, at least 1 */
    teffi_stream *stream; /* OK: dialled or accepted; the callback's */
} teffi_stream_result;

typedef void teffi_stream_done(void *arg, const teffi_stream_result *result);

typedef struct teffi_stream_ops {
    /* Receive up to n bytes, n > 0, to memory that stays until done. out: false: the stream is
     * closed and there will be no callback. */
    bool (*receive)(teffi_stream *stream, void *to, size_t n);
    /* Write from pieces, at most TEFFI_STREAM_PIECES, whose bytes stay until done; some of them or
     * all are written. out: as receive. */
    bool (*write)(teffi_stream *stream, const struct iovec *pieces, unsigned n);
    /* The same without waiting and without a callback. out: how many bytes; 0: none,
     * because the operation would wait or has failed; then receive or write reports which. Only if
     * stream->tries. */
    size_t (*receive_now)(teffi_stream *stream, void *to, size_t n);
    size_t (*write_now)(teffi_stream *stream, const struct iovec *pieces, unsigned n);
    /* Have written called soon, with OK and 0 bytes. in: no write is under way. */
    void (*call_written)(teffi_stream *stream);
    /* The peer's address; one that dialled a path has "unix:". */
    void (*remote)(teffi_stream *stream, char *text, size_t n);
    /* End the operations under way: their callbacks report CLOSED. Once or more. */
    void (*close)(teffi_stream *stream);
    /* Close and free. in: the callback of each operation was called, and may still run without
     * using the stream; none is begun any more. */
    void (*free)(teffi_stream *stream);
} teffi_stream_ops;

/* Set received, written and arg before the first operation. */
struct teffi_stream {
    const teffi_stream_ops *ops;
    teffi_stream_done *received, *written;
    void *arg;
    bool tries; /* immutable: receive_now and write_now may be called */
};

/* teffi_address_ok - address.c: is it "name:port", "1.2.3.4:port" or "[v6]:port", with a port of
 * 0..65535, or "unix:/path"? A name has letters, digits, '.', '-' and '_'; a v6 address has no zone
 * ("%eth0"); a path has up to 107 bytes, none of them a space, a comma or a control character. */
bool teffi_address_ok(const char *address);
#define TEFFI_ADDRESS_EXPECTED "host:port, [v6]:port or unix:/path"

/* teffi_address_path - in: any text. out: the path behind "unix:"; NULL: it has no "unix:". */
const char *teffi_address_path(const char *address);

/* teffi_path_is_free - socket_path.c: may a listener have this path? out: true: no file is there,
 * or only the socket file of a listener that has ended, which the caller replaces. */
bool teffi_path_is_free(const char *path);

typedef struct teffi_stream_dial teffi_stream_dial;
typedef struct teffi_transport teffi_transport;

/* The listeners of a transport. With TLS, each accepts certificates of its own authority. */
typedef enum teffi_door {
    TEFFI_DOOR_SILOS,   /* clients connect here, too, if there is no gateway */
    TEFFI_DOOR_GATEWAY, /* clients only */
    TEFFI_DOORS
} teffi_door;

typedef struct teffi_transport_ops {
    /* Prepare a dial, which will call done(arg) once after dial_start, also if the address is not
     * valid. out: NULL: no memory. */
    teffi_stream_dial *(*dial_new)(teffi_transport *transport, const char *address,
                                   teffi_stream_done *done, void *arg);
    void (*dial_start)(teffi_stream_dial *dial);
    /* End a dial that was started: done reports CLOSED, unless the dial has ended already or its
     * address is not valid. Once or more. */
    void (*dial_cancel)(teffi_stream_dial *dial);
    /* Free a dial that was not started, or whose done was called; done may still be running. */
    void (*dial_free)(teffi_stream_dial *dial);
    /* Bind; the system queues connections until accept. Once for each door. A socket file on which
     * nobody listens is replaced. out: port; of a path 0. errs: TEFF_E_INVALID (the address),
     * TEFF_E_IO, with *why. */
    teff_err (*listen)(teffi_transport *transport, teffi_door door, const char *address, int *port,
                       const char **why);
    /* Accept one connection: accepted(door_arg[door]) is called once. CLOSED: after
     * close_listeners; FAILED: no descriptor or no memory. in: after listen; the previous accept of
     * this door was reported. */
    void (*accept)(teffi_transport *transport, teffi_door door);
    void (*close_listeners)(teffi_transport *transport);
    /* After it has returned, accepted is not called any more. */
    void (*stop_listeners)(teffi_transport *transport);
    /* in: dials and streams were freed. */
    void (*free)(teffi_transport *transport);
} teffi_transport_ops;

/* Set accepted and door_arg before accept. */
struct teffi_transport {
    const teffi_transport_ops *ops;
    teffi_stream_done *accepted;
    void *door_arg[TEFFI_DOORS];
    bool tls;             /* immutable */
    teffi_poller *poller; /* immutable; NULL: the transport has threads of its own */
};

/* The PEM files of TLS; all NULL: no TLS. */
typedef struct teffi_tls_files {
    const char *certificate;      /* this side's, with its key; shown at every connection */
    const char *authority;        /* of the peers that are dialled, and at TEFFI_DOOR_SILOS */
    const char *client_authority; /* of the peers at TEFFI_DOOR_GATEWAY; NULL: no gateway */
} teffi_tls_files;

/* teffi_transport_nng - in: files, borrowed during the call.
 * errs: TEFF_E_INVALID (the files), TEFF_E_NOMEM, with text. */
TEFF_MUST_USE teff_err teffi_transport_nng(const teffi_tls_files *files,
                                           teffi_transport **transport, char *text);

/* teffi_transport_reactor - no TLS; callbacks run where teffi_transport.poller is polled.
 * errs: TEFF_E_IO (no descriptor or no memory), with text. */
TEFF_MUST_USE teff_err teffi_transport_reactor(teffi_transport **transport, char *text);
