/* reactor.h - one epoll set, and operations that wait until their socket is ready. epoll is
 * edge-triggered: it reports a socket once when it becomes readable or writable. So an operation
 * must read or write all that is possible before it waits for the next edge.
 * Way:     socket.c -> [begin_wait] ... epoll -> the thread that polls -> [run] -> attempt, ended
 * Threads: teffi_reactor functions except new and free: any. attempt, ended: the thread that polls.
 * Model:   tests/model/side.pml */
#pragma once

#include <stdatomic.h>
#include <stdint.h>
#include "os/platform.h"
#include "os/poller.h"
#include "stream/spin.h"

/* One direction of a socket, or another thing to wait for: at most one operation waits for it. */
typedef struct reactor_side {
    /* Try the operation. out: true: it has ended; false: it must wait for the next edge. */
    bool (*attempt)(struct reactor_side *side);
    /* The operation has ended. It may begin the next one, or free the side. */
    void (*ended)(struct reactor_side *side);
    struct reactor_side *next; /* in teffi_reactor.due */
    _Atomic uint32_t word;     /* SIDE_* */
} reactor_side;

/* Bits of a side's word. READY: an edge was reported, or a system call may have left something.
 * WAITS: an operation has begun and has not ended. QUEUED: the side is in `due`, or is tried now.
 * The atomic operation that makes a side READY and WAITS also sets QUEUED. */
enum { SIDE_READY = 1, SIDE_WAITS = 2, SIDE_QUEUED = 4 };

/* A socket in the epoll set. */
typedef struct reactor_source {
    int fd;
    _Atomic bool hung_up;   /* the peer has closed, or the socket failed: perhaps no edge follows */
    reactor_side *in, *out; /* NULL: edges of this direction are ignored */
    void (*free)(struct reactor_source *source);
    struct reactor_source *next_dead;
} reactor_source;

enum { REACTOR_EVENTS = 64 }; /* per wait, at most */

typedef struct teffi_reactor {
    teffi_poller poller;            /* first */
    int epoll, wakes;               /* wakes: an eventfd */
    bool in_ms;                     /* Linux before 5.11 and valgrind 3.19 wait for whole ms only */
    const teffi_platform *platform; /* its clock */
    _Atomic size_t received;        /* bytes, since the last wait */
    _Atomic bool asleep;            /* the thread that polls is in epoll, or on its way there */
    reactor_side *_Atomic due;      /* list of sides to try, newest first */
    reactor_source *_Atomic dead;   /* list of sources to close and free */
    /* used only by the thread that polls */
    struct epoll_event *events; /* kept by wait, for run */
    int n_events;
    teffi_spin spin;
} teffi_reactor;

/* teffi_reactor_new - out: NULL: no memory, or no descriptor.
 * teffi_reactor_free - also frees the sources given to teffi_reactor_free_source_later(). in: no
 *       other source is in the set; no thread polls any more. */
teffi_reactor *teffi_reactor_new(const teffi_platform *platform);
void teffi_reactor_free(teffi_reactor *reactor);

/* teffi_reactor_watch - add a socket to the epoll set.
 * in:   reads: report readable as well as writable. again: the socket is in the set already: change
 *       `reads`, and report its present state as new edges.
 * out:  false: see errno. */
bool teffi_reactor_watch(teffi_reactor *reactor, reactor_source *source, bool reads, bool again);

/* teffi_reactor_free_source_later - have a source closed and freed later, when no kept event
 * points to it any more. in: no operation waits for its sides, and none is begun any more. */
void teffi_reactor_free_source_later(teffi_reactor *reactor, reactor_source *source);

/* teffi_reactor_begin_wait - begin an operation: attempt is called when side may be ready. in: no
 *       operation waits for side.
 * teffi_reactor_report_edge - report that side may be ready now. */
void teffi_reactor_begin_wait(teffi_reactor *reactor, reactor_side *side);
void teffi_reactor_report_edge(teffi_reactor *reactor, reactor_side *side);

/* teffi_side_clear_ready - clear READY. Called before a system call, because the call may leave the
 *       socket not ready. An edge that is reported during the system call sets READY again.
 * teffi_side_set_ready - set READY. Called after a system call if the socket may still be ready.
 * runs: on the thread that calls attempt, or while no operation waits for the side. */
static inline void teffi_side_clear_ready(reactor_side *side)
{
    /* the acquire half pairs with set_side_bit(), so that the system call finds what the edge
     * reported */
    atomic_fetch_and_explicit(&side->word, ~(uint32_t)SIDE_READY, memory_order_acq_rel);
}

static inline void teffi_side_set_ready(reactor_side *side)
{
    atomic_fetch_or_explicit(&side->word, SIDE_READY, memory_order_relaxed);
}
