/* stream_lab.h - what the tests of streams share: a transport with a thread that polls it, streams
 * whose results are recorded, waiting for them with a deadline.
 * Way: tests/unit/stream/test_*.c -> [stream_lab] -> transport ops, stream ops */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include "test.h"
#include "stream/stream.h"

/* The results of one kind of operation. */
typedef struct lab_op {
    _Atomic unsigned calls;
    teffi_stream_result last;
} lab_op;

typedef struct lab_end {
    teffi_stream *stream;
    lab_op in, out;
} lab_end;

typedef struct lab {
    teffi_platform platform;
    teffi_transport *transport;
    char address[64]; /* of its listener */
    int port;         /* 0: a Unix socket */
    lab_op accepted;
    pthread_t poller;
    _Atomic bool polls; /* the thread runs */
    _Atomic unsigned rounds;
} lab;

/* lab_setup, lab_teardown - of cmocka; *state: the name of a transport, with " unix" behind it for
 * Unix sockets; then a lab that listens on 127.0.0.1, or on a path. */
int lab_setup(void **state);
int lab_teardown(void **state);

/* LAB_BOTH - a test of cmocka for each transport. */
#define LAB_ON(name, function)                                                                     \
    {                                                                                              \
#function "-" name, function, lab_setup, lab_teardown, (void *)(uintptr_t)name             \
    }
#define LAB_BOTH(function) LAB_ON("nng", function), LAB_ON("reactor", function)
#define LAB_ALL(function)                                                                          \
    LAB_BOTH(function), LAB_ON("nng unix", function), LAB_ON("reactor unix", function)

bool lab_is_reactor(const lab *lab);

/* lab_path - a new address of the form unix:/path. */
void lab_path(char *address, size_t n);

/* lab_start - a transport without a listener; lab_stop: its thread has ended, and it is free. */
void lab_start(lab *lab, bool reactor);
void lab_stop(lab *lab);
/* lab_halt - no thread polls from here on. */
void lab_halt(lab *lab);

/* lab_done - a teffi_stream_done; arg: a lab_op. */
void lab_done(void *arg, const teffi_stream_result *result);

/* lab_await - until op was called n times in all. out: its last result. */
teffi_stream_result lab_await(lab_op *op, unsigned n);

/* lab_settle - the thread that polls has looked twice from here on. */
void lab_settle(lab *lab);

/* lab_pair - dial the lab's listener, and accept. lab_end_free: close and free. */
void lab_pair(lab *lab, lab_end *dialled, lab_end *accepted);
void lab_adopt(lab_end *end, teffi_stream *stream);
void lab_pair_free(lab_end *a, lab_end *b);

/* lab_dial - dial and wait. */
teffi_stream_result lab_dial(lab *lab, const char *address);

/* lab_receive, lab_write - begin and wait for the end; CLOSED when it did not begin. */
teffi_stream_result lab_receive(lab_end *end, void *to, size_t n);
teffi_stream_result lab_write(lab_end *end, const struct iovec *pieces, unsigned n);
/* lab_send - all of it; lab_fill - by write_now until there is no room. out: bytes. */
void lab_send(lab_end *end, const void *bytes, size_t n);
size_t lab_fill(lab_end *end);
/* lab_drain - receive n bytes. */
void lab_drain(lab_end *end, size_t n);

/* lab_descriptors - open now. lab_descriptors_fall_to - wait, since a thread of nng closes some
 * later. out: false: not within a minute. */
unsigned lab_descriptors(void);
bool lab_descriptors_fall_to(unsigned n);
