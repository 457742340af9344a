/* scene_client.c - who polls for a client: threads that wait for responses, and the ticker.
 * Responses arrive while threads wait, between two waits, and from other threads. Somebody polls
 * whenever a thread waits; and what nobody waits for is read soon.
 * Way:     explore_main -> [scene] -> explored link/heartbeat.c, conn/polling.c, conn/connection.c
 * Threads: as explore.h: up to three that wait, the peer, one that wakes a waiting thread without
 *          the network, and the ticker. */
#include <string.h>
#include "explore.h"
#include "link/steps.h"

enum { CLIENTS = 3, WAITS_MAX = 3, SPARE_MAX = 2 };
/* Runs of the delayed work: before what has arrived is read; after the last event of any kind. */
enum { RUNS_MAX = 3, IDLE_RUNS_MAX = 6 };

typedef struct client {
    teffi_poll_parker parker;
    unsigned waits; /* left */
    bool asked;     /* the peer, or the other thread, owes it a response */
    bool inside;    /* in teffi_polling_wait, without its token */
    explore_thread *thread;
} client;

static struct { /* the poller, and the network behind it */
    teffi_poller poller;
    unsigned arrived, kept; /* bits by client; bit CLIENTS: a message that no thread waits for */
    bool woken, is_used, is_asleep;
    unsigned runs; /* of the delayed work, since the oldest that was not read arrived */
} net;

static teffi_link link;
static client clients[CLIENTS];
static unsigned n_clients, n_over, spare, idle_runs;
static teffi_parker all_over;
static explore_thread *ticker;

/* ---- what the explored sources call of the rest of the link ---- */

void teffi_accept_retry(teffi_link *of)
{
    (void)of;
}

bool teffi_client_reader_run_overdue_reads(teffi_conns *conns, bool all)
{
    (void)conns;
    (void)all;
    return false;
}

teffi_conn *teffi_dial_make_conn_to_peer(link_peer *peer)
{
    (void)peer;
    return NULL;
}

void teffi_dial_start(teffi_conn *conn)
{
    (void)conn;
}

void teffi_driver_free_dead_conns(teffi_link *of)
{
    (void)of;
}

void teffi_driver_handle_frames_and_read(teffi_conn *conn)
{
    (void)conn;
}

void teffi_driver_resume_waiting_conns(teffi_link *of)
{
    (void)of;
}

void teffi_sender_send_control(teffi_conn *conn, uint8_t kind, const uint8_t *payload, size_t len)
{
    (void)conn;
    (void)kind;
    (void)payload;
    (void)len;
}

void teffi_sender_write_coalesced(teffi_conns *conns)
{
    (void)conns;
    net.runs++;
    if (++idle_runs > IDLE_RUNS_MAX)
        explore_fail("the ticker wakes again and again for nothing");
}

/* ---- the poller ---- */

static void use_net(bool begins)
{
    if (begins && (net.is_used || !net.poller.claimed))
        explore_fail("two threads poll");
    net.is_used = begins;
}

static void net_wait(teffi_poller *poller, uint64_t timeout_ns)
{
    (void)poller;
    use_net(true);
    if (net.kept)
        explore_fail("events were kept, and not handled");
    explore_point("scene", "poll");
    if (!net.arrived && !net.woken && timeout_ns) {
        net.is_asleep = true;
        (void)explore_wait(&net, timeout_ns == UINT64_MAX ? UINT64_MAX : ex.now_ns + timeout_ns);
        net.is_asleep = false;
    }
    net.woken = false;
    net.kept = net.arrived;
    net.arrived = 0;
    use_net(false);
}

static void net_wake(teffi_poller *poller)
{
    (void)poller;
    net.woken = true;
    explore_notify(&net);
}

static void respond(client *to)
{
    to->asked = to->inside = false;
    teffi_parker_wake_with_token(&to->parker.parker, TEFFI_TOKEN);
}

static bool net_run(teffi_poller *poller)
{
    (void)poller;
    use_net(true);
    unsigned kept = net.kept;
    net.kept = 0;
    for (unsigned i = 0; i < n_clients; i++)
        if (kept & 1u << i)
            respond(&clients[i]);
    use_net(false);
    return kept;
}

/* ---- the threads ---- */

static void arrive(unsigned bit)
{
    explore_point("scene", "arrive");
    idle_runs = 0;
    if (!net.arrived)
        net.runs = 0;
    net.arrived |= bit;
    explore_notify(&net);
}

/* Responds to each request once, and sends messages that no thread waits for. */
static void be_peer(void *arg)
{
    (void)arg;
    while (n_over < n_clients || spare) {
        unsigned i = explore_draw(n_clients + 1);
        if (i < n_clients && clients[i].asked) {
            clients[i].asked = false;
            arrive(1u << i);
        } else if (i == n_clients && spare) {
            spare--;
            arrive(1u << CLIENTS);
        }
        if (explore_draw(4) == 0)
            (void)explore_wait(&spare, ex.now_ns + explore_draw(3 * LINK_SOON_NS));
        else
            explore_back_off("scene");
    }
}

/* As a thread that cancels calls. */
static void be_canceller(void *arg)
{
    (void)arg;
    for (unsigned n = explore_draw(4); n > 0; n--) {
        client *c = &clients[explore_draw(n_clients)];
        explore_point("scene", "cancel");
        if (c->asked)
            respond(c);
        else
            explore_back_off("scene");
    }
}

static void be_client(void *arg)
{
    client *c = arg;
    while (c->waits) {
        c->waits--;
        idle_runs = 0;
        c->asked = c->inside = true;
        if (explore_draw(4) == 0)
            (void)explore_wait(&c->waits, ex.now_ns + explore_draw(3 * LINK_SOON_NS));
        if (!(teffi_polling_wait(&link.conns, &c->parker) & TEFFI_TOKEN))
            explore_fail("a wait ends without its token");
        if (c->inside)
            explore_fail("a wait ends without its response");
        idle_runs = 0;
        if (explore_draw(2))
            (void)explore_wait(&c->waits, ex.now_ns + explore_draw(3 * LINK_SOON_NS));
    }
    if (++n_over == n_clients)
        teffi_parker_wake(&all_over);
}

/* Called when nobody runs. */
static void look_for_unread(void)
{
    for (unsigned i = 0; i < n_clients; i++)
        if (clients[i].thread->state == EXPLORE_WAITS &&
            clients[i].thread->on == &clients[i].parker && !net.is_asleep)
            explore_fail("a thread waits, and nobody polls");
    if (!net.arrived)
        return;
    if (net.is_asleep)
        explore_fail("a thread sleeps in the poller beside events");
    if (ticker->due_ns > ex.now_ns + LINK_SOON_NS || net.runs > RUNS_MAX)
        explore_fail("what has arrived is not read soon");
}

static void live(void *arg)
{
    (void)arg;
    ticker = &ex.thread[ex.n_threads];
    if (teffi_link_heartbeat_start(&link))
        explore_fail("the ticker does not start");
    for (unsigned i = 0; i < n_clients; i++)
        clients[i].thread = &ex.thread[explore_start("client", be_client, &clients[i])];
    explore_thread *peer = &ex.thread[explore_start("peer", be_peer, NULL)];
    explore_thread *other = &ex.thread[explore_start("canceller", be_canceller, NULL)];
    while (n_over < n_clients)
        teffi_parker_wait(&all_over, UINT64_MAX);
    while (peer->state != EXPLORE_ENDED)
        (void)explore_wait(peer, UINT64_MAX);
    while (other->state != EXPLORE_ENDED)
        (void)explore_wait(other, UINT64_MAX);
    if (explore_draw(2)) /* what is left is read, too */
        (void)explore_wait(&link, ex.now_ns + 16 * LINK_SOON_NS);
    link.freeing = true;
    teffi_link_heartbeat_stop(&link);
}

static void play(void)
{
    memset(&link, 0, sizeof link);
    memset(clients, 0, sizeof clients);
    memset(&net, 0, sizeof net);
    memset(&all_over, 0, sizeof all_over);
    net.poller = (teffi_poller){.wait = net_wait, .run = net_run, .wake = net_wake};
    n_over = idle_runs = 0;
    n_clients = 1 + explore_draw(CLIENTS);
    spare = explore_draw(SPARE_MAX + 1);
    for (unsigned i = 0; i < n_clients; i++)
        clients[i].waits = 1 + explore_draw(WAITS_MAX);
    link.conns.platform = &explore_platform;
    link.conns.role = TEFFI_ROLE_CLIENT;
    link.heartbeat_ms = 1000;
    teffi_conns_init(&link.conns);
    teffi_polling_init(&link.conns, &net.poller);
    ex.when_all_wait = look_for_unread;
    explore_start("main", live, NULL);
    explore_run();
}

const explore_scene explore_client = {"client", 1024, play};
