/* test_reactor.c - each edge is used once, whichever threads report, begin and poll. */
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "test.h"
#include "base/queue.h"
#include "os/thread.h"
#include "stream/reactor.h"

/* An operation that takes an item. */
typedef struct probe {
    reactor_side side;
    teffi_reactor *reactor;
    _Atomic int items;
    _Atomic unsigned inside, attempts, ended, overlaps;
    unsigned again;                /* begins inside ended */
    bool edge_during, leaves_more; /* in its first attempt; after each */
} probe;

/* A clock that advances at each look, and what happens at one of them. */
static struct {
    _Atomic uint64_t now_ns;
    uint64_t step_ns;
    unsigned looks, at; /* 0: nothing happens */
    void (*then)(void);
} ticks;

static uint64_t read_ticks(void *arg)
{
    if (++ticks.looks == ticks.at)
        ticks.then();
    return atomic_fetch_add(&ticks.now_ns, ticks.step_ns) + ticks.step_ns;
}

static const teffi_platform platform = {.mono_ns = read_ticks};

static bool take_item(probe *p)
{
    int items = atomic_load(&p->items);
    while (items > 0 && !atomic_compare_exchange_weak(&p->items, &items, items - 1))
        ;
    return items > 0;
}

static bool attempt_probe(reactor_side *side)
{
    probe *p = teffi_container(side, probe, side);
    p->overlaps += p->inside++ > 0;
    bool took = take_item(p);
    if (p->edge_during && p->attempts == 0) {
        p->items++;
        teffi_reactor_report_edge(p->reactor, side);
    }
    p->attempts++;
    if (took && p->leaves_more)
        teffi_side_set_ready(side);
    p->inside--;
    return took;
}

static void count_end(reactor_side *side)
{
    probe *p = teffi_container(side, probe, side);
    unsigned ended = ++p->ended;
    if (ended <= p->again)
        teffi_reactor_begin_wait(p->reactor, side);
}

static void init_probe(probe *p, teffi_reactor *r)
{
    *p = (probe){.side = {.attempt = attempt_probe, .ended = count_end}, .reactor = r};
}

static int make_reactor(void **state)
{
    *state = teffi_reactor_new(&platform);
    return *state ? 0 : -1;
}

static int free_reactor(void **state)
{
    teffi_reactor_free(*state);
    return 0;
}

static void add_item(probe *p)
{
    p->items++;
    teffi_reactor_report_edge(p->reactor, &p->side);
}

static void look_once(teffi_reactor *r)
{
    assert_true(teffi_poller_poll_once(&r->poller));
}

/* ---- one side ---- */

static void begin_waits_for_an_edge(void **state)
{
    probe p;
    init_probe(&p, *state);
    teffi_reactor_begin_wait(*state, &p.side);
    look_once(*state);
    assert_int_equal(p.attempts, 0);
    add_item(&p);
    look_once(*state);
    assert_int_equal(p.ended, 1);
    assert_int_equal(p.attempts, 1);
}

static void an_edge_before_begin_is_kept(void **state)
{
    probe p;
    init_probe(&p, *state);
    add_item(&p);
    look_once(*state);
    assert_int_equal(p.attempts, 0);
    teffi_reactor_begin_wait(*state, &p.side);
    assert_int_equal(p.attempts, 0); /* never inside begin */
    look_once(*state);
    assert_int_equal(p.ended, 1);
}

static void an_edge_without_an_item_goes_on_waiting(void **state)
{
    probe p;
    init_probe(&p, *state);
    teffi_reactor_begin_wait(*state, &p.side);
    for (unsigned i = 1; i <= 3; i++) {
        teffi_reactor_report_edge(*state, &p.side);
        look_once(*state);
        look_once(*state);
        assert_int_equal(p.attempts, i);
    }
    assert_int_equal(p.ended, 0);
    add_item(&p);
    look_once(*state);
    assert_int_equal(p.ended, 1);
}

static void an_edge_during_the_attempt_is_tried_again(void **state)
{
    probe p;
    init_probe(&p, *state);
    p.edge_during = true;
    teffi_reactor_begin_wait(*state, &p.side);
    teffi_reactor_report_edge(*state, &p.side);
    look_once(*state);
    assert_int_equal(p.attempts, 2);
    assert_int_equal(p.ended, 1);
}

static void an_edge_during_the_last_attempt_is_the_next_ones(void **state)
{
    probe p;
    init_probe(&p, *state);
    p.edge_during = true;
    p.again = 1;
    teffi_reactor_begin_wait(*state, &p.side);
    add_item(&p);
    look_once(*state);
    look_once(*state);
    assert_int_equal(p.ended, 2);
}

static void an_edge_is_used_once(void **state)
{
    probe p;
    init_probe(&p, *state);
    p.again = 1;
    teffi_reactor_begin_wait(*state, &p.side);
    p.items++;
    add_item(&p);
    for (unsigned i = 0; i < 3; i++)
        look_once(*state);
    assert_int_equal(p.ended, 1); /* the second item was not reported */
    add_item(&p);
    look_once(*state);
    assert_int_equal(p.ended, 2);
    teffi_reactor_report_edge(*state, &p.side);
    teffi_side_clear_ready(&p.side);
    teffi_reactor_begin_wait(*state, &p.side);
    look_once(*state);
    assert_int_equal(p.ended, 2);
}

/* What began inside `ended` is tried in the next look, after the sides that waited before. */
static void a_side_with_more_shares_the_poller(void **state)
{
    probe flood, other;
    init_probe(&flood, *state);
    init_probe(&other, *state);
    flood.leaves_more = true;
    flood.again = 1000;
    flood.items = 1000;
    teffi_reactor_begin_wait(*state, &flood.side);
    teffi_reactor_report_edge(*state, &flood.side);
    teffi_reactor_begin_wait(*state, &other.side);
    look_once(*state);
    assert_int_equal(flood.ended, 1);
    add_item(&other);
    look_once(*state);
    assert_int_equal(flood.ended, 2);
    assert_int_equal(other.ended, 1);
}

/* ---- the wake-up ---- */

static bool has_wake(const teffi_reactor *r)
{
    struct pollfd fd = {.fd = r->wakes, .events = POLLIN};
    return poll(&fd, 1, 0) == 1;
}

static void only_a_sleeping_poller_is_woken(void **state)
{
    teffi_reactor *r = *state;
    probe p;
    init_probe(&p, r);
    teffi_reactor_begin_wait(r, &p.side);
    add_item(&p);
    assert_false(has_wake(r));
    look_once(r);
    r->asleep = true;
    teffi_reactor_report_edge(r, &p.side);
    assert_false(has_wake(r)); /* nothing waits for it */
    teffi_reactor_begin_wait(r, &p.side);
    assert_true(has_wake(r));
    r->asleep = false;
}

static void a_wake_before_the_wait_ends_it(void **state)
{
    teffi_reactor *r = *state;
    assert_true(teffi_poller_claim(&r->poller));
    r->poller.wake(&r->poller);
    r->poller.wait(&r->poller, UINT64_MAX);
    assert_false(r->poller.run(&r->poller));
    assert_false(has_wake(r));
    teffi_poller_release(&r->poller);
}

static _Atomic int waited_ms;  /* of the newest epoll_wait */
static _Atomic bool waits_not; /* it only asks */

int __real_epoll_wait(int epoll, struct epoll_event *events, int n, int ms);
int __wrap_epoll_wait(int epoll, struct epoll_event *events, int n, int ms);

int __wrap_epoll_wait(int epoll, struct epoll_event *events, int n, int ms)
{
    waited_ms = ms;
    return __real_epoll_wait(epoll, events, n, waits_not ? 0 : ms);
}

/* As on a Linux that cannot wait for part of a ms. */
static void a_time_in_ms_is_rounded_up(void **state)
{
    static const struct {
        uint64_t ns;
        int ms;
    } rows[] = {{0, 0},
                {1, 1},
                {1000000, 1},
                {1000001, 2},
                {2999999, 3},
                {INT_MAX * 1000000ull, INT_MAX},
                {INT_MAX * 1000000ull + 1, -1},
                {UINT64_MAX, -1}};
    teffi_reactor *r = *state;
    waits_not = true;
    r->in_ms = true;
    assert_true(teffi_poller_claim(&r->poller));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        r->poller.wait(&r->poller, rows[i].ns);
        assert_int_equal(waited_ms, rows[i].ms);
        assert_int_equal(r->n_events, 0);
    }
    waits_not = false;
    teffi_poller_release(&r->poller);
}

static _Atomic bool polls;

static void *poll_reactor(void *arg)
{
    teffi_reactor *r = arg;
    while (polls) {
        if (!teffi_poller_claim(&r->poller))
            continue;
        r->poller.wait(&r->poller, UINT64_MAX);
        (void)r->poller.run(&r->poller);
        teffi_poller_release(&r->poller);
    }
    return NULL;
}

static pthread_t start_poller(teffi_reactor *r)
{
    pthread_t id;
    polls = true;
    assert_int_equal(pthread_create(&id, NULL, poll_reactor, r), 0);
    return id;
}

static void stop_poller(teffi_reactor *r, pthread_t id)
{
    polls = false;
    r->poller.wake(&r->poller);
    pthread_join(id, NULL);
}

/* out: false: not within a minute. */
static bool await_count(const _Atomic unsigned *count, unsigned n)
{
    time_t limit = time(NULL) + 60;
    while (*count < n && time(NULL) < limit)
        teffi_thread_yield();
    return *count >= n;
}

static void an_edge_wakes_the_poller(void **state)
{
    probe p;
    init_probe(&p, *state);
    pthread_t id = start_poller(*state);
    for (unsigned i = 1; i <= 1000; i++) {
        if (i % 2) {
            teffi_reactor_begin_wait(*state, &p.side);
            add_item(&p);
        } else {
            add_item(&p);
            teffi_reactor_begin_wait(*state, &p.side);
        }
        assert_true(await_count(&p.ended, i));
    }
    stop_poller(*state, id);
    assert_int_equal(p.overlaps, 0);
}

/* ---- many threads ---- */

enum { PAIRS = 4, ITEMS = 20000, AHEAD = 2 };

typedef struct pair {
    probe probe;
    uint64_t random;
    pthread_t producer, consumer;
    _Atomic bool failed;
} pair;

static void draw_pause(uint64_t *random)
{
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    for (unsigned n = *random >> 61 ? 0 : (unsigned)(*random >> 40) % 8; n; n--)
        teffi_thread_yield();
}

static void *produce_items(void *arg)
{
    pair *me = arg;
    uint64_t random = me->random;
    for (unsigned i = 0; i < ITEMS; i++) {
        while (me->probe.items > AHEAD && !me->failed)
            teffi_thread_yield();
        add_item(&me->probe);
        draw_pause(&random);
    }
    return NULL;
}

/* As a stream's owner: take at once what is there; else begin, and wait for the end. */
static void *consume_items(void *arg)
{
    pair *me = arg;
    probe *p = &me->probe;
    uint64_t random = me->random + PAIRS;
    for (unsigned taken = 0, waits = 0; taken < ITEMS && !me->failed; taken++) {
        teffi_side_clear_ready(&p->side);
        if (take_item(p)) {
            teffi_side_set_ready(&p->side);
        } else {
            teffi_reactor_begin_wait(p->reactor, &p->side);
            me->failed = !await_count(&p->ended, ++waits);
        }
        draw_pause(&random);
    }
    return NULL;
}

static uint64_t seed_of_run(void)
{
    uint64_t seed = 0;
    const char *set = getenv("TEFF_SEED");
    if (set)
        seed = strtoull(set, NULL, 10);
    else
        assert_int_equal(getrandom(&seed, sizeof seed, 0), sizeof seed);
    print_message("TEFF_SEED=%" PRIu64 "\n", seed);
    return seed;
}

static void no_edge_is_lost_among_threads(void **state)
{
    static pair pairs[PAIRS];
    uint64_t seed = seed_of_run();
    pthread_t id = start_poller(*state);
    for (unsigned i = 0; i < PAIRS; i++) {
        pair *p = &pairs[i];
        init_probe(&p->probe, *state);
        p->probe.leaves_more = true;
        p->random = seed + i;
        p->failed = false;
        assert_int_equal(pthread_create(&p->producer, NULL, produce_items, p), 0);
        assert_int_equal(pthread_create(&p->consumer, NULL, consume_items, p), 0);
    }
    for (unsigned i = 0; i < PAIRS; i++) {
        pthread_join(pairs[i].producer, NULL);
        pthread_join(pairs[i].consumer, NULL);
    }
    stop_poller(*state, id);
    for (unsigned i = 0; i < PAIRS; i++) {
        assert_false(pairs[i].failed);
        assert_int_equal(pairs[i].probe.items, 0);
        assert_int_equal(pairs[i].probe.overlaps, 0);
    }
}

/* ---- sources ---- */

typedef struct test_source {
    reactor_source source;
    probe in, out;
    unsigned freed;
} test_source;

static void count_free(reactor_source *source)
{
    teffi_container(source, test_source, source)->freed++;
}

/* out: the other end's descriptor. */
static int add_source(teffi_reactor *r, test_source *s)
{
    int fds[2];
    memset(s, 0, sizeof *s);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    init_probe(&s->in, r);
    init_probe(&s->out, r);
    s->source =
        (reactor_source){.fd = fds[0], .in = &s->in.side, .out = &s->out.side, .free = count_free};
    s->in.items = s->out.items = 1000;
    s->in.again = s->out.again = 1000;
    teffi_reactor_begin_wait(r, &s->in.side);
    teffi_reactor_begin_wait(r, &s->out.side);
    assert_true(teffi_reactor_watch(r, &s->source, true, false));
    return fds[1];
}

/* in: the ends come first, so that no operation waits. */
static void end_source(teffi_reactor *r, test_source *s, int peer)
{
    s->in.again = s->out.again = 0;
    teffi_reactor_report_edge(r, &s->in.side);
    teffi_reactor_report_edge(r, &s->out.side);
    look_once(r);
    teffi_reactor_free_source_later(r, &s->source);
    close(peer);
}

static void edges_come_from_sockets(void **state)
{
    test_source s;
    int peer = add_source(*state, &s);
    look_once(*state);
    assert_int_equal(s.in.ended, 0);
    assert_int_equal(s.out.ended, 1);
    assert_int_equal(write(peer, "x", 1), 1);
    look_once(*state);
    assert_int_equal(s.in.ended, 1);
    look_once(*state);
    assert_int_equal(s.in.ended, 1); /* an edge, though the byte is unread */
    assert_false(s.source.hung_up);
    assert_int_equal(shutdown(peer, SHUT_WR), 0);
    look_once(*state);
    assert_int_equal(s.in.ended, 2);
    assert_true(s.source.hung_up);
    assert_true(teffi_reactor_watch(*state, &s.source, true, true));
    look_once(*state);
    assert_int_equal(s.in.ended, 3); /* reported anew */
    end_source(*state, &s, peer);
    look_once(*state);
}

static void a_buried_source_is_freed_at_the_next_wait(void **state)
{
    teffi_reactor *r = *state;
    test_source s;
    int peer = add_source(r, &s);
    look_once(r);
    end_source(r, &s, peer);
    assert_int_equal(s.freed, 0);
    look_once(r);
    assert_int_equal(s.freed, 1);
    assert_int_equal(fcntl(s.source.fd, F_GETFD), -1);
}

/* As that of a forked process. */
static void a_copy_of_a_buried_descriptor_has_no_edges(void **state)
{
    teffi_reactor *r = *state;
    test_source s;
    int peer = add_source(r, &s), copy = dup(s.source.fd);
    look_once(r);
    end_source(r, &s, dup(peer));
    look_once(r);
    assert_int_equal(s.freed, 1);
    assert_true(teffi_poller_claim(&r->poller));
    assert_int_equal(write(peer, "x", 1), 1);
    r->poller.wait(&r->poller, 0);
    assert_int_equal(r->n_events, 0);
    teffi_poller_release(&r->poller);
    close(peer);
    close(copy);
}

/* The kernel has reported an edge of a source that is buried before the edge is handled. */
static void an_edge_of_a_buried_source_is_harmless(void **state)
{
    teffi_reactor *r = *state;
    test_source s;
    int peer = add_source(r, &s);
    look_once(r);
    s.in.again = 0;
    add_item(&s.in);
    look_once(r);
    unsigned attempts = s.in.attempts;
    assert_true(teffi_poller_claim(&r->poller));
    assert_int_equal(write(peer, "x", 1), 1);
    r->poller.wait(&r->poller, 0);
    teffi_reactor_free_source_later(r, &s.source);
    (void)r->poller.run(&r->poller);
    assert_int_equal(s.freed, 0);
    assert_int_equal(s.in.attempts, attempts);
    r->poller.wait(&r->poller, 0);
    assert_int_equal(s.freed, 1);
    (void)r->poller.run(&r->poller);
    teffi_poller_release(&r->poller);
    close(peer);
}

static void free_frees_the_buried(void **state)
{
    test_source s;
    teffi_reactor *r = teffi_reactor_new(&platform);
    int peer = add_source(r, &s);
    end_source(r, &s, peer);
    assert_int_equal(s.freed, 0);
    teffi_reactor_free(r);
    assert_int_equal(s.freed, 1);
}

/* ---- spinning before the sleep (spin.h) ---- */

static probe spun_for;
static int spun_pipe;

static void report_edge_of_another_thread(void)
{
    add_item(&spun_for);
}

static void make_descriptor_readable(void)
{
    assert_int_equal(write(spun_pipe, "x", 1), 1);
}

/* Waits without a limit, and handles what has come. The wait begins with a spin; at its third look
 * at the clock, `then` is called. */
static void spin_until(teffi_reactor *r, void (*then)(void))
{
    ticks.looks = 0;
    ticks.step_ns = 1000;
    ticks.at = 3;
    ticks.then = then;
    r->spin.credit = 1;
    assert_true(teffi_poller_claim(&r->poller));
    r->poller.wait(&r->poller, UINT64_MAX);
    (void)r->poller.run(&r->poller);
    teffi_poller_release(&r->poller);
    ticks.at = 0;
    assert_int_equal(r->spin.credit, 2);
}

static void a_spin_ends_with_an_edge_or_an_event(void **state)
{
    test_source s;
    init_probe(&spun_for, *state);
    teffi_reactor_begin_wait(*state, &spun_for.side);
    spin_until(*state, report_edge_of_another_thread);
    assert_int_equal(spun_for.ended, 1);
    spun_pipe = add_source(*state, &s);
    look_once(*state);
    unsigned before = s.in.ended;
    spin_until(*state, make_descriptor_readable);
    assert_int_equal(s.in.ended, before + 1);
    end_source(*state, &s, spun_pipe);
    look_once(*state); /* frees it */
}

static void a_spin_in_vain_ends_in_time(void **state)
{
    static const uint64_t timeouts_ns[] = {2000000, TEFFI_SPIN_NS / 5};
    teffi_reactor *r = *state;
    for (int i = 0; i < 2; i++) {
        ticks.now_ns = ticks.looks = 0;
        ticks.step_ns = 1000;
        r->spin.credit = 1;
        r->poller.wait(&r->poller, timeouts_ns[i]);
        uint64_t spun_ns = i ? timeouts_ns[i] : TEFFI_SPIN_NS;
        assert_in_range(ticks.now_ns, spun_ns, spun_ns + 4 * ticks.step_ns);
        assert_int_equal(r->spin.credit, 0);
    }
}

static void who_receives_much_does_not_spin(void **state)
{
    teffi_reactor *r = *state;
    r->spin.credit = 2;
    r->received = TEFFI_SPIN_BYTES_MAX + 1;
    ticks.looks = 0;
    ticks.step_ns = 1;
    r->poller.wait(&r->poller, 1000);
    assert_int_equal(ticks.looks, 2); /* no spin */
    assert_int_equal(r->received, 0);
    r->poller.wait(&r->poller, 1000);
    assert_true(ticks.looks > 4);
}

static void no_reactor_without_descriptors(void **state)
{
    struct rlimit before, none;
    int highest = dup(0);
    close(highest);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    for (int more = 0; more < 2; more++) {
        none = before;
        none.rlim_cur = (rlim_t)(highest + more);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
        teffi_reactor *r = teffi_reactor_new(&platform);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        assert_null(r);
        int next = dup(0);
        close(next);
        assert_int_equal(next, highest); /* none is left */
    }
}

#define WITH_REACTOR(test) cmocka_unit_test_setup_teardown(test, make_reactor, free_reactor)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_REACTOR(begin_waits_for_an_edge),
        WITH_REACTOR(an_edge_before_begin_is_kept),
        WITH_REACTOR(an_edge_without_an_item_goes_on_waiting),
        WITH_REACTOR(an_edge_during_the_attempt_is_tried_again),
        WITH_REACTOR(an_edge_during_the_last_attempt_is_the_next_ones),
        WITH_REACTOR(an_edge_is_used_once),
        WITH_REACTOR(a_side_with_more_shares_the_poller),
        WITH_REACTOR(only_a_sleeping_poller_is_woken),
        WITH_REACTOR(a_wake_before_the_wait_ends_it),
        WITH_REACTOR(a_time_in_ms_is_rounded_up),
        WITH_REACTOR(an_edge_wakes_the_poller),
        WITH_REACTOR(no_edge_is_lost_among_threads),
        WITH_REACTOR(edges_come_from_sockets),
        WITH_REACTOR(a_buried_source_is_freed_at_the_next_wait),
        WITH_REACTOR(a_copy_of_a_buried_descriptor_has_no_edges),
        WITH_REACTOR(an_edge_of_a_buried_source_is_harmless),
        WITH_REACTOR(a_spin_ends_with_an_edge_or_an_event),
        WITH_REACTOR(a_spin_in_vain_ends_in_time),
        WITH_REACTOR(who_receives_much_does_not_spin),
        cmocka_unit_test(free_frees_the_buried),
        cmocka_unit_test(no_reactor_without_descriptors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
