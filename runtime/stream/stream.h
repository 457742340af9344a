/* stream.h - byte streams between nodes, and the transport that dials and accepts them. There are
 * two: nng (TCP, Unix sockets, and TLS), and the reactor (TCP and Unix sockets that idle workers
 * wait on).
 * Way:     link -> [stream] -> nng, reactor -> sockets
 * Threads: functions: any thread, but a stream has at most one receive and one write at a time.
 *          Callbacks: a thread of nng, or the thread that polls the reactor; perhaps before the
 *          function that began the operation returns, but never inside it. A callback must not
 *          block, nor free the stream, dial or transport that it is called for. */
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
    TEFFI_STREAM_CLOSED,         /* this side closed it; nng: or wrote after the peer closed it */
    TEFFI_STREAM_NO_CERTIFICATE, /* TLS: in general, the peer showed no certificate */
    TEFFI_STREAM_NO_TLS,         /* the TLS handshake failed for another reason */
    TEFFI_STREAM_FAILED          /* another reason */
} teffi_stream_end;

typedef struct teffi_stream teffi_stream;

typedef struct teffi_stream_result {
    teffi_stream_end end;
    const char *text;     /* if not OK: the reason; a constant string */
    size_t bytes;         /* OK: received or written, at least 1; 0 after call_written */
    teffi_stream *stream; /* OK, of a dial or an accept: the new stream; the callback owns it */
} teffi_stream_result;

/* Called once at the end of an operation; may begin the next one. in: result, only valid during
 * the call. */
typedef void teffi_stream_done(void *arg, const teffi_stream_result *result);

typedef struct teffi_stream_ops {
    /* Begin to receive 1 to n bytes; `received` is called at the end. in: to, memory that stays
     * valid until then. out: false: the stream is closed, and there will be no callback. */
    bool (*receive)(teffi_stream *stream, void *to, size_t n);
    /* Begin to write the bytes of n pieces, at most TEFFI_STREAM_PIECES; `written` is called at the
     * end, perhaps after a part of them. in: pieces, copied; their bytes stay valid until then.
     * out: as receive. */
    bool (*write)(teffi_stream *stream, const struct iovec *pieces, unsigned n);
    /* Receive or write what is possible at once, without a callback. in: stream->tries is true; no
     * operation of this direction is under way. out: number of bytes; 0: the operation would wait,
     * or has failed; receive or write then reports which. */
    size_t (*receive_now)(teffi_stream *stream, void *to, size_t n);
    size_t (*write_now)(teffi_stream *stream, const struct iovec *pieces, unsigned n);
    /* Have `written` called soon, also after close, with OK and 0 bytes. in: no write is under
     * way. */
    void (*call_written)(teffi_stream *stream);
    /* Write the peer's address to text, which has n bytes; "unix:" if the peer dialled a path;
     * "peer" if the address is not known. */
    void (*remote)(teffi_stream *stream, char *text, size_t n);
    /* End the operations under way: their callbacks report CLOSED, except those of call_written and
     * of operations that have ended before. May be called again. */
    void (*close)(teffi_stream *stream);
    /* Close and free. in: no operation is under way, and none is begun any more. The last callback
     * may still run, but must not use the stream any more. */
    void (*free)(teffi_stream *stream);
} teffi_stream_ops;

/* Set received, written and arg before the first operation. */
struct teffi_stream {
    const teffi_stream_ops *ops;
    teffi_stream_done *received, *written;
    void *arg;
    bool tries; /* immutable; true: receive_now and write_now may be called */
};

/* teffi_address_is_valid - address.c: is it "name:port", "1.2.3.4:port" or "[v6]:port", with a port
 * of 0..65535 and at most TEFFI_ADDRESS_MAX bytes, or "unix:/path"? A name has letters, digits,
 * '.', '-' and '_'; a v6 address has no zone ("%eth0"); a path has up to 107 bytes, none of them a
 * space, a comma or a control character. */
bool teffi_address_is_valid(const char *address);
#define TEFFI_ADDRESS_EXPECTED "host:port, [v6]:port or unix:/path"

/* teffi_address_path - in: any text. out: the path behind "unix:"; NULL: it has no "unix:". */
const char *teffi_address_path(const char *address);

/* teffi_path_is_free - socket_path.c: may a new listener take this path? in: path, of a valid
 * address. out: true: no file was found there, or the socket file of a listener that has ended; the
 * caller replaces that file. */
bool teffi_path_is_free(const char *path);

typedef struct teffi_stream_dial teffi_stream_dial;
typedef struct teffi_transport teffi_transport;

/* The listeners of a transport. With TLS, each has its own authority, which must have signed the
 * certificates of its peers. */
typedef enum teffi_door {
    TEFFI_DOOR_SILOS,   /* clients connect here, too, if there is no gateway */
    TEFFI_DOOR_GATEWAY, /* clients only */
    TEFFI_DOORS
} teffi_door;

typedef struct teffi_transport_ops {
    /* Prepare a dial. After dial_start, it calls done(arg) once, also if the address is not valid.
     * in: address, copied. out: NULL: no memory. */
    teffi_stream_dial *(*dial_new)(teffi_transport *transport, const char *address,
                                   teffi_stream_done *done, void *arg);
    void (*dial_start)(teffi_stream_dial *dial);
    /* End a dial that was started: done reports CLOSED, unless the dial has ended before; FAILED is
     * possible if the address is not valid. May be called again. */
    void (*dial_cancel)(teffi_stream_dial *dial);
    /* Free a dial that was not started, or whose done was called; done may still be running. */
    void (*dial_free)(teffi_stream_dial *dial);
    /* Bind the door to address and listen; the kernel queues connections until accept. Not again
     * after it has succeeded for the door. Blocks while a name is resolved. Replaces a socket file
     * whose listener has ended. out: *port; 0 for a path.
     * errs: TEFF_E_INVALID (the address), TEFF_E_IO, with *why. */
    teff_err (*listen)(teffi_transport *transport, teffi_door door, const char *address, int *port,
                       const char **why);
    /* Accept one connection: accepted(door_arg[door]) is called once. It reports CLOSED after
     * close_listeners, FAILED without a descriptor or memory. in: listen has succeeded, and the
     * previous accept of this door was reported, or is reported now, by this thread. */
    void (*accept)(teffi_transport *transport, teffi_door door);
    void (*close_listeners)(teffi_transport *transport);
    /* Close the listeners, and wait for a running `accepted`; it is not called any more. Not in a
     * callback, and not under a lock that `accepted` takes. */
    void (*stop_listeners)(teffi_transport *transport);
    /* in: all dials and streams were freed; no thread polls the poller any more. */
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
    const char *authority;        /* CA that signs dialled peers, and those at TEFFI_DOOR_SILOS */
    const char *client_authority; /* CA that signs peers at TEFFI_DOOR_GATEWAY; NULL: no gateway */
} teffi_tls_files;

/* teffi_nng_transport_new - in: files, borrowed during the call. out: *transport; NULL on an error.
 * errs: TEFF_E_INVALID (the files; nng could not prepare TLS), TEFF_E_NOMEM, with text. */
TEFF_MUST_USE teff_err teffi_nng_transport_new(const teffi_tls_files *files,
                                               teffi_transport **transport, char *text);

/* teffi_socket_transport_new - no TLS; callbacks run where teffi_transport.poller is polled.
 * in:   platform, whose clock is used; it outlives the transport.
 * out: *transport; NULL on an error. errs: TEFF_E_IO (no descriptor or no memory), with text. */
TEFF_MUST_USE teff_err teffi_socket_transport_new(const struct teffi_platform *platform,
                                                  teffi_transport **transport, char *text);
