/* reactor.h - one epoll set, and operations that wait until their socket is ready. Events are
 * edges: a socket is reported once when bytes or room come. So an operation must use up all of them
 * before it may wait for the next edge.
 * Way:     socket.c -> [begin] ... epoll -> whoever polls -> [run] -> attempt, ended
 * Threads: begin, edge, bury: any. attempt, ended: the thread that polls.
 * Model:   tests/model/side.pml */
#pragma once

#include <stdatomic.h>
#include <stdint.h>
#include "os/poller.h"

/* One direction of a socket, or another thing to wait for: at most one operation waits for it. */
typedef struct reactor_side {
    /* Try the operation. out: false: not ready, so it waits for the next edge. */
    bool (*attempt)(struct reactor_side *side);
    /* The operation has ended. It may begin the next one, or free the side. */
    void (*ended)(struct reactor_side *side);
    struct reactor_side *next; /* in teffi_reactor.due */
    _Atomic uint32_t word;
} reactor_side;

/* Bits of a side's word. QUEUED: it is in `due`, or tried now. A side with READY and WAITS is
 * QUEUED by the step that makes it so. */
enum { SIDE_READY = 1, SIDE_WAITS = 2, SIDE_QUEUED = 4 };

/* A socket in the epoll set. */
typedef struct reactor_source {
    int fd;
    _Atomic bool hung_up;   /* the peer has ended it, or it failed: no other edge may come */
    reactor_side *in, *out; /* NULL: edges of this direction are ignored */
    void (*free)(struct reactor_source *source);
    struct reactor_source *next_dead;
} reactor_source;

enum { REACTOR_EVENTS = 64 }; /* of one wait */

typedef struct teffi_reactor {
    teffi_poller poller; /* first */
    int epoll, wakes;    /* wakes: an eventfd */
    bool in_ms;          /* Linux before 5.11 and valgrind 3.19 wait for whole ms only */
    _Atomic bool asleep; /* the thread that polls is in epoll, or on its way there */
    reactor_side *_Atomic due;
    reactor_source *_Atomic dead;
    /* the poller's */
    struct epoll_event *events; /* kept by wait, for run */
    int n_events;
} teffi_reactor;

/* teffi_reactor_new - out: NULL: no memory, or no descriptor.
 * teffi_reactor_free - in: no source is in the set any more; buried ones are freed. */
teffi_reactor *teffi_reactor_new(void);
void teffi_reactor_free(teffi_reactor *reactor);

/* teffi_reactor_add - add a socket to the epoll set.
 * in:   reads: report bytes as well as room. again: it is in the set: apply `reads`, and report
 *       what is there now as new edges. out: false: no memory in the kernel. */
bool teffi_reactor_add(teffi_reactor *reactor, reactor_source *source, bool reads, bool again);

/* teffi_reactor_bury - have a source closed and freed once no thread can still hold an event of it.
 * in: no operation waits for its sides. */
void teffi_reactor_bury(teffi_reactor *reactor, reactor_source *source);

/* teffi_reactor_begin_wait - begin an operation: attempt is called when side may be ready.
 * teffi_reactor_edge - report that side may be ready now. */
void teffi_reactor_begin_wait(teffi_reactor *reactor, reactor_side *side);
void teffi_reactor_edge(teffi_reactor *reactor, reactor_side *side);

/* teffi_reactor_used - clear READY, before a system call that uses up what an edge has reported.
 * teffi_reactor_more - set READY again, after a system call that may have left something. runs: in
 * attempt, or while no operation waits for the side. */
static inline void teffi_reactor_used(reactor_side *side)
{
    /* acq_rel: before the system call */
    atomic_fetch_and_explicit(&side->word, ~(uint32_t)SIDE_READY, memory_order_acq_rel);
}

static inline void teffi_reactor_more(reactor_side *side)
{
    atomic_fetch_or_explicit(&side->word, SIDE_READY, memory_order_relaxed);
}
