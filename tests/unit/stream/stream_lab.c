/* stream_lab.c - a transport that is polled, and streams whose results are recorded. */
#include "stream_lab.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "os/thread.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

/* ---- polling ---- */

static void *poll_transport(void *arg)
{
    lab *l = arg;
    teffi_poller *poller = l->transport->poller;
    while (l->polls) {
        if (!teffi_poller_claim(poller))
            continue;
        poller->wait(poller, UINT64_MAX);
        (void)poller->run(poller);
        teffi_poller_release(poller);
        pthread_mutex_lock(&lock);
        l->rounds++;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

void lab_start(lab *l, bool reactor)
{
    static const teffi_tls_files none;
    char text[512];
    memset(l, 0, sizeof *l);
    teffi_platform_init_real(&l->platform, TEFF_LOG_INFO);
    teff_err err = reactor ? teffi_socket_transport_new(&l->platform, &l->transport, text)
                           : teffi_nng_transport_new(&none, &l->transport, text);
    assert_int_equal(err, TEFF_OK);
    l->transport->accepted = lab_done;
    l->transport->door_arg[TEFFI_DOOR_SILOS] = &l->accepted;
    l->polls = reactor;
    if (reactor)
        assert_int_equal(pthread_create(&l->poller, NULL, poll_transport, l), 0);
}

void lab_halt(lab *l)
{
    if (!l->polls)
        return;
    l->polls = false;
    l->transport->poller->wake(l->transport->poller);
    pthread_join(l->poller, NULL);
}

void lab_stop(lab *l)
{
    lab_halt(l);
    l->transport->ops->free(l->transport);
}

bool lab_is_reactor(const lab *l)
{
    return l->transport->poller;
}

void lab_path(char *address, size_t n)
{
    static unsigned count;
    snprintf(address, n, "unix:" P_tmpdir "/teff-lab-%d-%u", (int)getpid(), count++);
}

int lab_setup(void **state)
{
    const char *name = *state, *why;
    bool is_unix = strstr(name, "unix");
    lab *l = malloc(sizeof *l);
    lab_start(l, strncmp(name, "reactor", 7) == 0);
    *state = l;
    snprintf(l->address, sizeof l->address, "127.0.0.1:0");
    if (is_unix)
        lab_path(l->address, sizeof l->address);
    if (l->transport->ops->listen(l->transport, TEFFI_DOOR_SILOS, l->address, &l->port, &why))
        return -1;
    if (!is_unix)
        snprintf(l->address, sizeof l->address, "127.0.0.1:%d", l->port);
    return 0;
}

int lab_teardown(void **state)
{
    lab *l = *state;
    l->transport->ops->stop_listeners(l->transport);
    lab_stop(l);
    free(l);
    return 0;
}

/* ---- results ---- */

void lab_done(void *arg, const teffi_stream_result *result)
{
    lab_op *op = arg;
    pthread_mutex_lock(&lock);
    op->last = *result;
    op->calls++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

/* out: false: not within a minute. */
static bool await_count(const _Atomic unsigned *count, unsigned n)
{
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 60;
    pthread_mutex_lock(&lock);
    while (*count < n && pthread_cond_timedwait(&changed, &lock, &limit) == 0)
        ;
    bool reached = *count >= n;
    pthread_mutex_unlock(&lock);
    return reached;
}

teffi_stream_result lab_await(lab_op *op, unsigned n)
{
    if (!await_count(&op->calls, n))
        fail_msg("no callback came: %u of %u", op->calls, n);
    return op->last;
}

void lab_settle(lab *l)
{
    for (unsigned i = 0; i < 2 && lab_is_reactor(l); i++) {
        unsigned rounds = l->rounds;
        l->transport->poller->wake(l->transport->poller);
        assert_true(await_count(&l->rounds, rounds + 1));
    }
}

/* ---- streams ---- */

static void on_received(void *arg, const teffi_stream_result *result)
{
    lab_done(&((lab_end *)arg)->in, result);
}

static void on_written(void *arg, const teffi_stream_result *result)
{
    lab_done(&((lab_end *)arg)->out, result);
}

void lab_adopt(lab_end *end, teffi_stream *stream)
{
    memset(end, 0, sizeof *end);
    end->stream = stream;
    stream->received = on_received;
    stream->written = on_written;
    stream->arg = end;
}

teffi_stream_result lab_dial(lab *l, const char *address)
{
    lab_op op = {0};
    const teffi_transport_ops *ops = l->transport->ops;
    teffi_stream_dial *dial = ops->dial_new(l->transport, address, lab_done, &op);
    assert_non_null(dial);
    ops->dial_start(dial);
    teffi_stream_result result = lab_await(&op, 1);
    ops->dial_free(dial);
    assert_int_equal(op.calls, 1);
    return result;
}

void lab_pair(lab *l, lab_end *dialled, lab_end *accepted)
{
    unsigned before = l->accepted.calls;
    l->transport->ops->accept(l->transport, TEFFI_DOOR_SILOS);
    teffi_stream_result result = lab_dial(l, l->address);
    assert_int_equal(result.end, TEFFI_STREAM_OK);
    lab_adopt(dialled, result.stream);
    result = lab_await(&l->accepted, before + 1);
    assert_int_equal(result.end, TEFFI_STREAM_OK);
    lab_adopt(accepted, result.stream);
}

void lab_pair_free(lab_end *a, lab_end *b)
{
    a->stream->ops->close(a->stream);
    b->stream->ops->close(b->stream);
    a->stream->ops->free(a->stream);
    b->stream->ops->free(b->stream);
}

static const teffi_stream_result not_begun = {.end = TEFFI_STREAM_CLOSED, .text = "not begun"};

teffi_stream_result lab_receive(lab_end *end, void *to, size_t n)
{
    unsigned calls = end->in.calls;
    bool begun = end->stream->ops->receive(end->stream, to, n);
    return begun ? lab_await(&end->in, calls + 1) : not_begun;
}

teffi_stream_result lab_write(lab_end *end, const struct iovec *pieces, unsigned n)
{
    unsigned calls = end->out.calls;
    bool begun = end->stream->ops->write(end->stream, pieces, n);
    return begun ? lab_await(&end->out, calls + 1) : not_begun;
}

void lab_send(lab_end *end, const void *bytes, size_t n)
{
    for (size_t at = 0; at < n;) {
        struct iovec piece = {(char *)(uintptr_t)bytes + at, n - at};
        teffi_stream_result result = lab_write(end, &piece, 1);
        assert_int_equal(result.end, TEFFI_STREAM_OK);
        assert_in_range(result.bytes, 1, n - at);
        at += result.bytes;
    }
}

static char junk[1 << 18];

size_t lab_fill(lab_end *end)
{
    struct iovec piece = {junk, sizeof junk};
    size_t all = 0;
    for (size_t n; (n = end->stream->ops->write_now(end->stream, &piece, 1));)
        all += n;
    return all;
}

void lab_drain(lab_end *end, size_t n)
{
    while (n) {
        teffi_stream_result result = lab_receive(end, junk, n < sizeof junk ? n : sizeof junk);
        assert_int_equal(result.end, TEFFI_STREAM_OK);
        n -= result.bytes;
    }
}

unsigned lab_descriptors(void)
{
    unsigned n = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

bool lab_descriptors_fall_to(unsigned n)
{
    time_t limit = time(NULL) + 60;
    while (lab_descriptors() > n && time(NULL) < limit)
        teffi_thread_yield();
    return lab_descriptors() <= n;
}
