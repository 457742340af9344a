/* script_stream.c - see script_stream.h. */
#include "script_stream.h"

#include <string.h>
#include "base/bug.h"
#include "base/queue.h"

teff_err __wrap_teffi_socket_transport_new(const teffi_platform *platform,
                                           teffi_transport **transport, char *text);

script_transport *script_next;

static void append_bytes(script_queue *q, const uint8_t *bytes, size_t n)
{
    size_t room = sizeof q->bytes - q->len;
    n = n < room ? n : room;
    memcpy(q->bytes + q->len, bytes, n);
    q->len += n;
}

static size_t take_bytes(script_queue *q, void *to, size_t n)
{
    n = n < q->len ? n : q->len;
    memcpy(to, q->bytes, n);
    q->len -= n;
    memmove(q->bytes, q->bytes + n, q->len);
    return n;
}

/* ---- a stream's operations ---- */

static bool begin_receive(teffi_stream *stream, void *to, size_t n)
{
    script_stream *s = (script_stream *)stream;
    teffi_bug_if(s->to || n == 0);
    if (s->closed)
        return false;
    s->to = to;
    s->to_len = n;
    return true;
}

static bool begin_write(teffi_stream *stream, const struct iovec *pieces, unsigned n)
{
    script_stream *s = (script_stream *)stream;
    teffi_bug_if(s->n_pieces || s->called || n == 0 || n > TEFFI_STREAM_PIECES);
    if (s->closed)
        return false;
    memcpy(s->pieces, pieces, n * sizeof *pieces);
    s->n_pieces = n;
    return true;
}

static size_t receive_without_waiting(teffi_stream *stream, void *to, size_t n)
{
    script_stream *s = (script_stream *)stream;
    return s->closed ? 0 : take_bytes(&s->sent, to, n);
}

/* Copies up to max bytes of the pieces, each of which is read in any case. */
static size_t copy_pieces(script_stream *s, const struct iovec *pieces, unsigned n, size_t max)
{
    size_t copied = 0;
    for (unsigned i = 0; i < n && copied < max; i++) {
        size_t len = pieces[i].iov_len < max - copied ? pieces[i].iov_len : max - copied;
        append_bytes(&s->written, pieces[i].iov_base, len);
        copied += len;
    }
    return copied;
}

static size_t write_without_waiting(teffi_stream *stream, const struct iovec *pieces, unsigned n)
{
    script_stream *s = (script_stream *)stream;
    return s->closed ? 0 : copy_pieces(s, pieces, n, SIZE_MAX);
}

static void call_when_polled(teffi_stream *stream)
{
    script_stream *s = (script_stream *)stream;
    teffi_bug_if(s->n_pieces || s->called);
    s->called = true;
}

static void write_address(teffi_stream *stream, char *text, size_t n)
{
    (void)stream;
    strncpy(text, "script:1", n);
}

static void close_stream(teffi_stream *stream)
{
    ((script_stream *)stream)->closed = true;
}

/* Each operation must have been reported, or its callback would come too late. */
static void free_stream(teffi_stream *stream)
{
    script_stream *s = (script_stream *)stream;
    teffi_bug_if(!s->used || s->to || s->n_pieces || s->called);
    s->used = false;
}

static const teffi_stream_ops stream_ops = {
    .receive = begin_receive,
    .write = begin_write,
    .receive_now = receive_without_waiting,
    .write_now = write_without_waiting,
    .call_written = call_when_polled,
    .remote = write_address,
    .close = close_stream,
    .free = free_stream,
};

static script_stream *make_stream(script_transport *t, bool dialled)
{
    for (int i = 0; i < SCRIPT_STREAMS; i++) {
        script_stream *s = &t->streams[i];
        if (s->used)
            continue;
        memset(&s->base, 0, sizeof s->base);
        s->base.ops = &stream_ops;
        s->base.tries = t->tries;
        s->used = true;
        s->dialled = dialled;
        s->closed = s->called = s->knows_nonce = s->refused = s->said_bye = false;
        s->view = 0;
        s->to = NULL;
        s->n_pieces = 0;
        s->sent.len = s->written.len = 0;
        return s;
    }
    return NULL;
}

/* ---- the transport's operations ---- */

static teffi_stream_dial *make_dial(teffi_transport *transport, const char *address,
                                    teffi_stream_done *done, void *arg)
{
    script_transport *t = (script_transport *)transport;
    (void)address;
    for (int i = 0; i < SCRIPT_DIALS; i++)
        if (!t->dials[i].used) {
            t->dials[i] = (script_dial){.transport = t, .used = true, .done = done, .arg = arg};
            return (teffi_stream_dial *)&t->dials[i];
        }
    return NULL; /* as without memory */
}

static void start_dial(teffi_stream_dial *dial)
{
    ((script_dial *)dial)->started = true;
}

static void cancel_dial(teffi_stream_dial *dial)
{
    ((script_dial *)dial)->cancelled = true;
}

static void free_dial(teffi_stream_dial *dial)
{
    script_dial *d = (script_dial *)dial;
    teffi_bug_if(!d->used || d->started);
    d->used = false;
}

static teff_err start_listener(teffi_transport *transport, teffi_door door, const char *address,
                               int *port, const char **why)
{
    (void)transport;
    (void)door;
    (void)address;
    (void)why;
    *port = 1;
    return TEFF_OK;
}

static void begin_accept(teffi_transport *transport, teffi_door door)
{
    script_transport *t = (script_transport *)transport;
    teffi_bug_if(t->accepting[door]);
    t->accepting[door] = !t->no_listener;
}

static void end_listener(teffi_transport *transport)
{
    script_transport *t = (script_transport *)transport;
    t->no_listener = true;
    memset(t->accepting, 0, sizeof t->accepting);
}

static void check_all_freed(teffi_transport *transport)
{
    script_transport *t = (script_transport *)transport;
    for (int i = 0; i < SCRIPT_STREAMS; i++)
        teffi_bug_if(t->streams[i].used);
    for (int i = 0; i < SCRIPT_DIALS; i++)
        teffi_bug_if(t->dials[i].used);
}

static const teffi_transport_ops transport_ops = {
    .dial_new = make_dial,
    .dial_start = start_dial,
    .dial_cancel = cancel_dial,
    .dial_free = free_dial,
    .listen = start_listener,
    .accept = begin_accept,
    .close_listeners = end_listener,
    .stop_listeners = end_listener,
    .free = check_all_freed,
};

/* ---- the poller: what ends because the link has closed it ---- */

static void end_receive(script_stream *s, teffi_stream_end end, size_t n)
{
    teffi_stream_result result = {.end = end, .text = "as the script says", .bytes = n};
    s->to = NULL;
    s->base.received(s->base.arg, &result);
}

static void end_write(script_stream *s, teffi_stream_end end, size_t n)
{
    teffi_stream_result result = {.end = end, .text = "as the script says", .bytes = n};
    s->n_pieces = 0;
    s->called = false;
    s->base.written(s->base.arg, &result);
}

/* out: false: nothing of it was due. */
static bool end_closed_stream(script_stream *s)
{
    if (s->used && s->called) {
        end_write(s, TEFFI_STREAM_OK, 0);
        return true;
    }
    if (!s->used || !s->closed || (!s->to && !s->n_pieces))
        return false;
    if (s->to)
        end_receive(s, TEFFI_STREAM_CLOSED, 0);
    else
        end_write(s, TEFFI_STREAM_CLOSED, 0);
    return true;
}

static bool end_cancelled_dial(script_dial *d)
{
    static const teffi_stream_result closed = {.end = TEFFI_STREAM_CLOSED, .text = "closed"};
    if (!d->used || !d->started || !d->cancelled)
        return false;
    d->started = false;
    d->done(d->arg, &closed);
    return true;
}

static void wait_for_nothing(teffi_poller *poller, uint64_t timeout_ns)
{
    (void)poller;
    (void)timeout_ns;
}

static bool report_ends(teffi_poller *poller)
{
    script_transport *t = teffi_container(poller, script_transport, poller);
    bool came = false;
    for (int i = 0; i < SCRIPT_STREAMS; i++)
        while (end_closed_stream(&t->streams[i]))
            came = true;
    for (int i = 0; i < SCRIPT_DIALS; i++)
        came |= end_cancelled_dial(&t->dials[i]);
    return came;
}

static void wake_nobody(teffi_poller *poller)
{
    (void)poller;
}

teff_err __wrap_teffi_socket_transport_new(const teffi_platform *platform,
                                           teffi_transport **transport, char *text)
{
    script_transport *t = script_next;
    (void)platform;
    (void)text;
    t->base = (teffi_transport){.ops = &transport_ops, .poller = &t->poller, .tls = t->tls};
    t->poller = (teffi_poller){.wait = wait_for_nothing, .run = report_ends, .wake = wake_nobody};
    *transport = &t->base;
    return TEFF_OK;
}

/* ---- the script ---- */

script_stream *script_accept(script_transport *t)
{
    teffi_door other = !t->door, door = t->accepting[other] ? other : t->door;
    script_stream *s = t->accepting[door] ? make_stream(t, false) : NULL;
    if (!s)
        return NULL;
    t->door = door;
    t->accepting[door] = false;
    t->base.accepted(t->base.door_arg[door], &(teffi_stream_result){.stream = &s->base});
    return s;
}

script_stream *script_dialled(script_transport *t, script_dial *dial, bool succeeds)
{
    teffi_stream_result result = {.end = TEFFI_STREAM_FAILED, .text = "nobody listens"};
    if (!dial->used || !dial->started || dial->cancelled)
        return NULL;
    script_stream *s = succeeds ? make_stream(t, true) : NULL;
    if (s)
        result = (teffi_stream_result){.stream = &s->base};
    dial->started = false;
    dial->done(dial->arg, &result);
    return s;
}

void script_send(script_stream *s, const uint8_t *bytes, size_t n)
{
    append_bytes(&s->sent, bytes, n);
}

void script_receive(script_stream *s, size_t n)
{
    if (!s->used || s->closed || !s->to)
        return;
    n = n < s->to_len ? n : s->to_len;
    n = take_bytes(&s->sent, s->to, n);
    if (n)
        end_receive(s, TEFFI_STREAM_OK, n);
}

void script_write(script_stream *s, size_t n)
{
    if (!s->used || s->closed || !s->n_pieces || !n)
        return;
    n = copy_pieces(s, s->pieces, s->n_pieces, n);
    end_write(s, TEFFI_STREAM_OK, n);
}

void script_break(script_stream *s)
{
    if (s->used && s->n_pieces)
        end_write(s, TEFFI_STREAM_FAILED, 0);
    if (s->used && s->to)
        end_receive(s, TEFFI_STREAM_FAILED, 0);
}
