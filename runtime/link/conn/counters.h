/* counters.h - a link's counters, and its log lines, each kind at most once a second.
 * Way:     every part of the link -> [counters] -> the log
 * Threads: any. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>
#include "os/platform.h"

typedef enum link_counter {
    LINK_ACCEPTED,
    LINK_REFUSED_CLUSTER,
    LINK_REFUSED_VERSION,
    LINK_REFUSED_IDENTITY,
    LINK_REFUSED_PEER,
    LINK_GARBAGE,
    LINK_OVERSIZE,
    LINK_MALFORMED,
    LINK_HELLO_TIMEOUTS,
    LINK_SILENT,
    LINK_FRAMES_IN,  /* messages; control frames are not counted */
    LINK_FRAMES_OUT, /* the same */
    LINK_BYTES_IN,
    LINK_BYTES_OUT,
    LINK_WRITES,
    LINK_DIALS,
    LINK_DIAL_FAILURES,
    LINK_REFUSED_SYSTEM, /* a client's messages to anything but grains, except cancels */
    LINK_CROWDED,        /* closed in the handshake: too many pending, too many up, or no memory */
    LINK_REFUSED_SECRET, /* a proof was missing or wrong, found by this side or the dialler */
    LINK_REFUSED_TLS,    /* accepted connections whose TLS handshake failed */
    LINK_FRAMES_WAITED,  /* clients' large frames whose reading waited for memory */
    LINK_COUNTERS
} link_counter;

typedef struct link_counters {
    const teffi_platform *platform; /* immutable after init */
    _Atomic uint64_t counts[LINK_COUNTERS];
    _Atomic uint64_t logged_s[LINK_COUNTERS];
} link_counters;

/* teffi_counters_add - count n, without a log line. */
void teffi_counters_add(link_counters *counters, link_counter which, uint64_t n);

/* teffi_counters_add_one_and_log - add 1, and log the line; at most one line a second of each
 * counter. */
void teffi_counters_add_one_and_log(link_counters *counters, link_counter which, const char *fmt,
                                    ...) __attribute__((format(printf, 3, 4)));
