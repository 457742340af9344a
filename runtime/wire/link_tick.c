/* link_tick.c - what time brings: heartbeats, silent peers, late handshakes, redials, and the
 * burial of connections.
 * Way:     a thread of its own -> [tick] -> link_send, link_dial, link_conn
 * Threads: the ticker. It sleeps on a parker: nng's timers burn up to a millisecond at each expiry.
 *          Connections are held while the lock is not. */
#include "wire/link.h"

#include <stddef.h>
#include "base/block.h"

static bool older(uint64_t since_ns, uint64_t now_ns, uint64_t limit_ns)
{
    return since_ns && now_ns > since_ns && now_ns - since_ns > limit_ns;
}

typedef enum fate { FATE_NONE, FATE_LATE, FATE_SILENT, FATE_BEAT } fate;

/* judge: may it be found late or silent? */
static fate fate_of(const teffi_conn *conn, uint64_t now_ns, bool judge)
{
    uint64_t beat_ns = conn->owner->heartbeat_ms * 1000000ull;
    uint64_t silent_ns = LINK_SILENT_HEARTBEATS * beat_ns;
    if (conn->state != CONN_UP)
        return judge && now_ns > conn->deadline_ns ? FATE_LATE : FATE_NONE;
    if (judge && (older(conn->waiting_since_ns, now_ns, silent_ns) ||
                  older(conn->sending_since_ns, now_ns, silent_ns) ||
                  older(conn->partial_since_ns, now_ns, LINK_FRAME_HEARTBEATS * beat_ns)))
        return FATE_SILENT;
    return !conn->sending_since_ns && older(conn->wrote_ns, now_ns, beat_ns) ? FATE_BEAT
                                                                             : FATE_NONE;
}

static void meet_fate(teffi_conn *conn, fate what)
{
    teffi_link *link = conn->owner;
    switch (what) {
    case FATE_LATE:
        conn->late = true;
        teffi_link_note(link, LINK_HELLO_TIMEOUTS, "%s: no handshake in %u ms, closed",
                        conn->dialled ? conn->target : "accepted", link->hello_timeout_ms);
        teffi_link_conn_kill(conn);
        break;
    case FATE_SILENT:
        if (conn->silent)
            break; /* it was killed, and has not come to its end yet */
        conn->silent = true;
        teffi_link_note(link, LINK_SILENT, "node %08x: silent for %u heartbeats of %u ms, closed",
                        conn->peer.node.silo, LINK_SILENT_HEARTBEATS, link->heartbeat_ms);
        teffi_link_conn_kill(conn);
        break;
    case FATE_BEAT:
        teffi_link_send_control(conn, TEFFI_FRAME_HEARTBEAT, NULL, 0);
        break;
    case FATE_NONE:
        break;
    }
}

/* Lock held. When this process was held up, what came meanwhile may be unread: nobody is late or
 * silent before another period has passed. Where every tick is held up, each second one judges. */
static bool may_judge(teffi_link *link, uint64_t now_ns)
{
    uint64_t beat_ns = link->heartbeat_ms * 1000000ull;
    bool held_up = older(link->ticked_ns, now_ns, LINK_HELD_UP_HEARTBEATS * beat_ns);
    if (held_up && !link->held_up)
        link->judge_from_ns = now_ns + LINK_SILENT_HEARTBEATS * beat_ns;
    link->held_up = held_up;
    link->ticked_ns = now_ns;
    return now_ns >= link->judge_from_ns;
}

static void look_at_conns(teffi_link *link, uint64_t now_ns)
{
    teffi_conn *due = NULL;
    pthread_mutex_lock(&link->lock);
    bool judge = may_judge(link, now_ns);
    for (teffi_conn *c = link->conns; c; c = c->next) {
        if (fate_of(c, now_ns, judge) == FATE_NONE || (c->late && c->state != CONN_UP))
            continue;
        teffi_link_conn_ref(c);
        c->tick_next = due;
        due = c;
    }
    pthread_mutex_unlock(&link->lock);
    while (due) {
        teffi_conn *next = due->tick_next;
        meet_fate(due, fate_of(due, now_ns, judge));
        teffi_link_conn_unref(due);
        due = next;
    }
}

/* out: when the next one is due, UINT64_MAX: none waits. */
static uint64_t redial(teffi_link *link, uint64_t now_ns)
{
    teffi_conn *due = NULL;
    uint64_t next_ns = UINT64_MAX;
    pthread_mutex_lock(&link->lock);
    for (unsigned i = 0; i < LINK_BUCKETS && !link->leaving; i++)
        for (link_node *node = link->buckets[i]; node; node = node->bucket_next) {
            if (!node->known || node->out || !node->redial_ns)
                continue;
            if (now_ns < node->redial_ns) {
                next_ns = node->redial_ns < next_ns ? node->redial_ns : next_ns;
                continue;
            }
            teffi_conn *conn = teffi_link_dial_node(node);
            if (!conn)
                continue;
            conn->tick_next = due;
            due = conn;
        }
    pthread_mutex_unlock(&link->lock);
    while (due) {
        teffi_conn *next = due->tick_next;
        teffi_link_dial_start(due);
        due = next;
    }
    return next_ns;
}

static uint64_t clamp(uint64_t value, uint64_t min, uint64_t max)
{
    return value < min ? min : value > max ? max : value;
}

/* Lock held. Four looks a heartbeat; earlier for a redial, and often for who waits in shutdown. */
static uint64_t sleep_ns(const teffi_link *link, uint64_t redial_ns, uint64_t now_ns)
{
    uint64_t ns = clamp(link->heartbeat_ms / 4, LINK_TICK_MIN_MS, LINK_TICK_MAX_MS) * 1000000u;
    if (link->leaving)
        ns = LINK_TICK_MIN_MS * 1000000u;
    return redial_ns == UINT64_MAX ? ns : clamp(redial_ns - now_ns, 1000000u, ns);
}

/* out: how long to sleep; 0: the end. */
static uint64_t tick(teffi_link *link)
{
    uint64_t now_ns = teffi_link_now(link);
    teffi_block_age(now_ns);
    look_at_conns(link, now_ns);
    uint64_t redial_ns = redial(link, now_ns);
    teffi_link_accept_more(link);
    teffi_link_conn_reap(link);
    pthread_mutex_lock(&link->lock);
    pthread_cond_broadcast(&link->changed);
    uint64_t ns = link->freeing ? 0 : sleep_ns(link, redial_ns, now_ns);
    pthread_mutex_unlock(&link->lock);
    return ns;
}

/* For so long, or until somebody asks for a look. Who wakes up for bursts, or reads, sees to them
 * and sleeps on. */
static void rest(teffi_link *link, uint64_t ns)
{
    uint64_t began_ns = teffi_link_now(link), passed_ns = 0;
    for (bool on = true; on;) {
        bool bursts = teffi_link_burst_due(link);
        teffi_parker_wait(&link->tick_parker, bursts ? LINK_BURST_MAX_NS : ns - passed_ns);
        if (bursts)
            teffi_link_burst_late(link);
        passed_ns = teffi_link_now(link) - began_ns;
        /* acquire: pairs with tick_soon, for what it was asked for */
        on = !atomic_exchange_explicit(&link->tick_asked, false, memory_order_acquire) &&
             (bursts || teffi_link_burst_due(link)) && passed_ns < ns;
    }
}

static void tick_on(void *arg)
{
    teffi_link *link = arg;
    for (uint64_t ns; (ns = tick(link));)
        rest(link, ns);
}

teff_err teffi_link_tick_start(teffi_link *link)
{
    link->ticked_ns = teffi_link_now(link);
    teff_err err = teffi_thread_start(&link->ticker, "teff-link", tick_on, link);
    link->ticking = err == TEFF_OK;
    return err;
}

void teffi_link_tick_soon(teffi_link *link)
{
    /* release: pairs with rest */
    atomic_store_explicit(&link->tick_asked, true, memory_order_release);
    teffi_parker_wake(&link->tick_parker);
}

void teffi_link_tick_stop(teffi_link *link)
{
    teffi_link_tick_soon(link);
    if (link->ticking)
        teffi_thread_join(&link->ticker);
    link->ticking = false;
}
