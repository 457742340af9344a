/* reactor.c - waits for edges, and tries the operations that wait for them.
 *
 * No wake-up is lost, because both threads store, then load (all seq_cst): a thread pushes a side
 * to `due`, then loads `asleep`; the thread that polls stores `asleep`, then loads `due`. */
#include "stream/reactor.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include "base/bug.h"
#include "os/thread.h"

/* ---- sides ---- */

/* Pushes side to `due`. in: side, which this thread has made QUEUED. */
static void push_due_side(teffi_reactor *r, reactor_side *side)
{
    reactor_side *head = atomic_load_explicit(&r->due, memory_order_relaxed);
    do
        side->next = head;
    /* release: publishes side->next; pairs with take_due_sides(). seq_cst: orders this push before
     * the load of `asleep` in set_bit_and_queue() */
    while (!atomic_compare_exchange_weak_explicit(&r->due, &head, side, memory_order_seq_cst,
                                                  memory_order_relaxed));
}

/* Empties `due`. out: its sides, oldest first. */
static reactor_side *take_due_sides(teffi_reactor *r)
{
    /* acquire: pairs with push_due_side() */
    reactor_side *newest = atomic_exchange_explicit(&r->due, NULL, memory_order_acquire);
    reactor_side *oldest = NULL;
    for (reactor_side *older; newest; newest = older) {
        older = newest->next;
        newest->next = oldest;
        oldest = newest;
    }
    return oldest;
}

/* Sets bit. If this leaves both READY and WAITS set, the same atomic operation also sets QUEUED.
 * out:  true: this call has set QUEUED, so the caller must push the side. */
static bool set_side_bit(reactor_side *side, uint32_t bit)
{
    const uint32_t both = SIDE_READY | SIDE_WAITS;
    uint32_t word = atomic_load_explicit(&side->word, memory_order_relaxed), want;
    do
        want = ((word | bit) & both) == both ? word | bit | SIDE_QUEUED : word | bit;
    /* acq_rel: a thread writes the operation's fields before it sets WAITS here. attempt() must see
     * these fields, even if another thread sets READY and pushes the side */
    while (!atomic_compare_exchange_weak_explicit(&side->word, &word, want, memory_order_acq_rel,
                                                  memory_order_relaxed));
    return want & ~word & SIDE_QUEUED;
}

static void wake_poller(teffi_poller *poller)
{
    const teffi_reactor *r = (const teffi_reactor *)poller;
    uint64_t one = 1;
    /* the write fails only if 2^64 - 2 wake-ups are unread */
    (void)!write(r->wakes, &one, sizeof one);
}

/* Sets bit. If that makes the side QUEUED, pushes the side to `due`, and, if the thread that polls
 * is asleep, wakes that thread. */
static void set_bit_and_queue(teffi_reactor *r, reactor_side *side, uint32_t bit)
{
    if (!set_side_bit(side, bit))
        return;
    push_due_side(r, side);
    /* seq_cst: orders this load after the push; pairs with sleep_for_events() */
    if (atomic_load_explicit(&r->asleep, memory_order_seq_cst))
        wake_poller(&r->poller);
}

void teffi_reactor_begin_wait(teffi_reactor *r, reactor_side *side)
{
    set_bit_and_queue(r, side, SIDE_WAITS);
}

void teffi_reactor_report_edge(teffi_reactor *r, reactor_side *side)
{
    set_bit_and_queue(r, side, SIDE_READY);
}

/* Clears QUEUED, unless READY was set since the attempt began.
 * out:  true: READY was set, and the side stays QUEUED: try again. */
static bool keep_queued_if_ready(reactor_side *side)
{
    uint32_t word = SIDE_WAITS | SIDE_QUEUED;
    /* release: publishes what the attempt wrote; pairs with the next set_side_bit() */
    return !atomic_compare_exchange_strong_explicit(&side->word, &word, SIDE_WAITS,
                                                    memory_order_release, memory_order_relaxed);
}

/* Calls attempt() until the operation has ended or must wait for an edge. If the operation has
 * ended, calls ended(), which may free side. in: side, which is QUEUED. */
static void attempt_side_operation(reactor_side *side)
{
    bool ended;
    do {
        teffi_side_clear_ready(side);
        ended = side->attempt(side);
    } while (!ended && keep_queued_if_ready(side));
    if (!ended)
        return;
    /* Clears WAITS and QUEUED, keeps READY. release: pairs with the next set_side_bit() */
    atomic_fetch_and_explicit(&side->word, (uint32_t)SIDE_READY, memory_order_release);
    side->ended(side);
}

/* ---- sources ---- */

bool teffi_reactor_watch(teffi_reactor *r, reactor_source *source, bool reads, bool again)
{
    struct epoll_event event = {.events = EPOLLET | EPOLLOUT | (reads ? EPOLLIN | EPOLLRDHUP : 0),
                                .data.ptr = source};
    int op = again ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    return epoll_ctl(r->epoll, op, source->fd, &event) == 0;
}

void teffi_reactor_free_source_later(teffi_reactor *r, reactor_source *source)
{
    reactor_source *head = atomic_load_explicit(&r->dead, memory_order_relaxed);
    do
        source->next_dead = head;
    /* release: pairs with free_dead_sources() */
    while (!atomic_compare_exchange_weak_explicit(&r->dead, &head, source, memory_order_release,
                                                  memory_order_relaxed));
}

/* Closes and frees the sources in `dead`. in: no event in r->events is still to be handled. */
static void free_dead_sources(teffi_reactor *r)
{
    if (!atomic_load_explicit(&r->dead, memory_order_relaxed))
        return;
    /* acquire: pairs with teffi_reactor_free_source_later() */
    reactor_source *dead = atomic_exchange_explicit(&r->dead, NULL, memory_order_acquire);
    for (reactor_source *next; dead; dead = next) {
        next = dead->next_dead;
        /* close() alone does not remove the socket from the epoll set if a forked process still has
         * the socket open */
        (void)epoll_ctl(r->epoll, EPOLL_CTL_DEL, dead->fd, NULL);
        close(dead->fd);
        dead->free(dead);
    }
}

/* ---- the poller ---- */

/* Waits for events. in: timeout_ns; UINT64_MAX means no limit. out: number of events; -1: see
 * errno. */
static int call_epoll_wait(teffi_reactor *r, uint64_t timeout_ns)
{
    if (r->in_ms) {
        uint64_t ms = timeout_ns / 1000000 + (timeout_ns % 1000000 != 0);
        return epoll_wait(r->epoll, r->events, REACTOR_EVENTS, ms > INT_MAX ? -1 : (int)ms);
    }
    struct timespec ts = {(time_t)(timeout_ns / 1000000000u), (long)(timeout_ns % 1000000000u)};
    return epoll_pwait2(r->epoll, r->events, REACTOR_EVENTS, timeout_ns == UINT64_MAX ? NULL : &ts,
                        NULL);
}

static void keep_events(teffi_reactor *r, int n)
{
    teffi_bug_if(n < 0 && errno != EINTR);
    r->n_events = n;
}

enum { SPIN_LOOKS_MAX = 1000 }; /* ends a spin if the clock stands still, as a test's may */

/* Looks for events until some have come, a side is in `due`, or the time is over.
 * out:  false: the time is over. */
static bool spin_for_events(teffi_reactor *r, uint64_t until_ns)
{
    for (unsigned looks = 0; looks < SPIN_LOOKS_MAX && teffi_now(r->platform) < until_ns; looks++) {
        keep_events(r, call_epoll_wait(r, 0));
        /* relaxed: only for a shorter wait; sleep_for_events() does not miss the side */
        if (r->n_events || atomic_load_explicit(&r->due, memory_order_relaxed))
            return true;
        teffi_cpu_relax();
    }
    return false;
}

/* Waits for events in epoll. */
static void sleep_for_events(teffi_reactor *r, uint64_t timeout_ns)
{
    /* seq_cst: orders this store before the load of `due`; pairs with set_bit_and_queue() */
    atomic_store_explicit(&r->asleep, true, memory_order_seq_cst);
    if (atomic_load_explicit(&r->due, memory_order_seq_cst))
        timeout_ns = 0;
    keep_events(r, call_epoll_wait(r, timeout_ns));
    atomic_store_explicit(&r->asleep, false, memory_order_relaxed);
}

/* Spins if that has paid lately, and sleeps if there are no events then. in: timeout_ns, not 0. */
static void spin_or_sleep_for_events(teffi_reactor *r, uint64_t timeout_ns)
{
    size_t bytes = atomic_exchange_explicit(&r->received, 0, memory_order_relaxed);
    uint64_t spin_ns = teffi_spin_choose_ns(&r->spin, bytes), from_ns = teffi_now(r->platform);
    if (spin_ns > timeout_ns)
        spin_ns = timeout_ns;
    bool found = spin_ns && spin_for_events(r, from_ns + spin_ns);
    if (!found)
        sleep_for_events(r, timeout_ns == UINT64_MAX ? timeout_ns : timeout_ns - spin_ns);
    teffi_spin_record_wait(&r->spin, spin_ns, found, teffi_now(r->platform) - from_ns);
}

/* Waits for events, and keeps them for run_events(). in: poller, which this thread has claimed.
 * run_events() has handled the events of the previous wait, so no kept event points to a source
 * that free_dead_sources() frees. */
static void wait_for_events(teffi_poller *poller, uint64_t timeout_ns)
{
    teffi_reactor *r = (teffi_reactor *)poller;
    free_dead_sources(r);
    if (timeout_ns)
        spin_or_sleep_for_events(r, timeout_ns);
    else
        keep_events(r, call_epoll_wait(r, 0));
}

/* Reports the edges of one event. An event without a source comes from wake_poller(): for such an
 * event, this function resets the eventfd instead. */
static void report_edges(teffi_reactor *r, const struct epoll_event *event)
{
    const uint32_t ends = EPOLLERR | EPOLLHUP;
    uint64_t wakes;
    reactor_source *source = event->data.ptr;
    if (!source) {
        (void)!read(r->wakes, &wakes, sizeof wakes);
        return;
    }
    if (event->events & (EPOLLRDHUP | ends))
        /* relaxed: teffi_reactor_report_edge() below orders it */
        atomic_store_explicit(&source->hung_up, true, memory_order_relaxed);
    if (event->events & (EPOLLIN | EPOLLRDHUP | ends) && source->in)
        teffi_reactor_report_edge(r, source->in);
    if (event->events & (EPOLLOUT | ends) && source->out)
        teffi_reactor_report_edge(r, source->out);
}

/* Reports the edges of the events that wait_for_events() has kept. Then attempts the operations of
 * all sides in `due`. out: true: `due` was not empty. */
static bool run_events(teffi_poller *poller)
{
    teffi_reactor *r = (teffi_reactor *)poller;
    for (int i = 0; i < r->n_events; i++)
        report_edges(r, &r->events[i]);
    r->n_events = 0;
    reactor_side *side = take_due_sides(r);
    bool any = side != NULL;
    for (reactor_side *next; side; side = next) {
        next = side->next;
        attempt_side_operation(side);
    }
    return any;
}

/* ---- the reactor ---- */

static bool open_descriptors(teffi_reactor *r)
{
    struct epoll_event event = {.events = EPOLLIN};
    const struct timespec none = {0};
    r->epoll = epoll_create1(EPOLL_CLOEXEC);
    r->wakes = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    /* epoll_pwait2() with a timeout of 0 fails only if the system does not have this call */
    r->in_ms = epoll_pwait2(r->epoll, &event, 1, &none, NULL) < 0;
    return r->epoll >= 0 && r->wakes >= 0 &&
           epoll_ctl(r->epoll, EPOLL_CTL_ADD, r->wakes, &event) == 0;
}

teffi_reactor *teffi_reactor_new(const teffi_platform *platform)
{
    teffi_reactor *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->platform = platform;
    r->poller = (teffi_poller){.wait = wait_for_events, .run = run_events, .wake = wake_poller};
    r->events = calloc(REACTOR_EVENTS, sizeof *r->events);
    if (open_descriptors(r) && r->events)
        return r;
    teffi_reactor_free(r);
    return NULL;
}

void teffi_reactor_free(teffi_reactor *r)
{
    free_dead_sources(r);
    if (r->epoll >= 0)
        close(r->epoll);
    if (r->wakes >= 0)
        close(r->wakes);
    free(r->events);
    free(r);
}
