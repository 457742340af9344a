/* heartbeat.c - the ticker: scans all connections and peers periodically, sends heartbeats, kills
 * silent connections and late handshakes, redials, and frees connections that have ended. Between
 * scans it runs delayed writes and reads, and frees many ended connections sooner. */
#include "memory/pool.h"
#include "memory/slab.h"
#include "link/steps.h"

enum {
    SILENT_HEARTBEATS = 5,   /* longest time for a receive or a write, in heartbeats */
    HELD_UP_HEARTBEATS = 2,  /* a longer gap between two scans: this process was held up */
    PARTIAL_HEARTBEATS = 10, /* longest time for a frame, or for PARTIAL_STEP of a large one */
    SCAN_MIN_MS = 5,         /* between two scans; a redial or a request may cause one earlier */
    SCAN_MAX_MS = 250,
};

/* Is since_ns more than limit_ns before now_ns? If since_ns is 0, no time is set: false. */
static bool is_older(uint64_t since_ns, uint64_t now_ns, uint64_t limit_ns)
{
    return since_ns && now_ns > since_ns && now_ns - since_ns > limit_ns;
}

typedef enum conn_need {
    NEED_NONE,
    NEED_KILL_LATE,
    NEED_KILL_SILENT,
    NEED_TAKE_BACK, /* its read has waited too long for a worker: the ticker runs the read */
    NEED_BEAT
} conn_need;

/* Finds what must be done for conn. in: judge: conn may be killed now if it is late or silent. */
static conn_need find_needed_action(const teffi_conn *conn, uint64_t now_ns, bool judge)
{
    const conn_liveness *l = &conn->liveness;
    uint64_t beat_ns = teffi_link_of(conn)->heartbeat_ms * 1000000ull;
    uint64_t silent_ns = SILENT_HEARTBEATS * beat_ns;
    if (conn->state == CONN_ENDED)
        return NEED_NONE;
    if (conn->state != CONN_UP)
        return judge && now_ns > conn->handshake.deadline_ns && !l->given_up ? NEED_KILL_LATE
                                                                             : NEED_NONE;
    if (judge && !l->given_up &&
        (is_older(l->receiving_since_ns, now_ns, silent_ns) ||
         is_older(l->writing_since_ns, now_ns, silent_ns) ||
         is_older(l->partial_since_ns, now_ns, PARTIAL_HEARTBEATS * beat_ns)))
        return NEED_KILL_SILENT;
    if (teffi_inbound_is_overdue(&conn->receiver.inbound, now_ns))
        return NEED_TAKE_BACK;
    return !l->writing_since_ns && is_older(l->wrote_ns, now_ns, beat_ns) ? NEED_BEAT : NEED_NONE;
}

/* Does what find_needed_action() has found. NEED_TAKE_BACK: this thread handles the received bytes,
 * unless a worker has begun to. */
static void do_needed_action(teffi_conn *conn, conn_need need)
{
    teffi_link *link = teffi_link_of(conn);
    link_counters *counters = &link->conns.counters;
    switch (need) {
    case NEED_KILL_LATE:
        conn->liveness.given_up = true;
        teffi_counters_add_one_and_log(counters, LINK_HELLO_TIMEOUTS,
                                       "%s: no handshake in %u ms, closed", conn->target,
                                       link->hello_timeout_ms);
        teffi_conn_kill(conn);
        break;
    case NEED_KILL_SILENT:
        conn->liveness.given_up = true;
        teffi_counters_add_one_and_log(
            counters, LINK_SILENT, "node %08x: silent for %u heartbeats of %u ms, closed",
            conn->handshake.remote.node.silo, SILENT_HEARTBEATS, link->heartbeat_ms);
        teffi_conn_kill(conn);
        break;
    case NEED_TAKE_BACK:
        if (teffi_inbound_take_back(&conn->receiver.inbound, teffi_conns_now(conn->conns)))
            teffi_driver_handle_frames_and_read(conn);
        break;
    case NEED_BEAT:
        teffi_sender_send_control(conn, TEFFI_FRAME_HEARTBEAT, NULL, 0);
        break;
    case NEED_NONE:
        break;
    }
}

/* conns.lock held. Records the time of this scan. May late and silent connections be killed now?
 * After a late scan, none is killed within the next SILENT_HEARTBEATS: this process was held up, so
 * bytes of its peers may be unread. Of several late scans in a row, only the first starts such a
 * period: otherwise a process whose scans are all late would never kill a connection. */
static bool record_scan_and_check_may_kill(teffi_link *link, uint64_t now_ns)
{
    uint64_t beat_ns = link->heartbeat_ms * 1000000ull;
    bool held_up = is_older(link->scanned_ns, now_ns, HELD_UP_HEARTBEATS * beat_ns);
    if (held_up && !link->held_up)
        link->judge_from_ns = now_ns + SILENT_HEARTBEATS * beat_ns;
    link->held_up = held_up;
    link->scanned_ns = now_ns;
    return now_ns >= link->judge_from_ns;
}

/* Lists the connections that need an action, and releases conns.lock before it does the actions,
 * because do_needed_action() may end a connection. What a listed connection needs may have changed
 * by then, so find_needed_action() is called again. */
static void do_due_conn_actions(teffi_link *link, uint64_t now_ns)
{
    teffi_conn *due = NULL;
    pthread_mutex_lock(&link->conns.lock);
    bool judge = record_scan_and_check_may_kill(link, now_ns);
    for (teffi_conn *c = LIST_FIRST(&link->conns.all); c; c = LIST_NEXT(c, link)) {
        if (find_needed_action(c, now_ns, judge) == NEED_NONE)
            continue;
        teffi_conn_ref(c);
        c->next_due = due;
        due = c;
    }
    pthread_mutex_unlock(&link->conns.lock);
    for (teffi_conn *next; due; due = next) {
        next = due->next_due;
        do_needed_action(due, find_needed_action(due, now_ns, judge));
        teffi_conn_unref(due);
    }
}

/* Dials the peers whose redial is due. out: when the next redial is due; UINT64_MAX: never. */
static uint64_t redial_peers(teffi_link *link, uint64_t now_ns)
{
    uint64_t next_ns = UINT64_MAX;
    pthread_mutex_lock(&link->conns.lock);
    for (unsigned i = 0; i < LINK_BUCKETS && !link->leaving; i++)
        for (link_peer *peer = link->peers.buckets[i]; peer; peer = peer->bucket_next) {
            if (!peer->known || peer->out || !peer->redial_ns)
                continue;
            teffi_conn *conn = now_ns < peer->redial_ns ? NULL : teffi_dial_make_conn_to_peer(peer);
            if (conn)
                teffi_dial_start(conn);
            else if (now_ns < peer->redial_ns && peer->redial_ns < next_ns)
                next_ns = peer->redial_ns;
        }
    pthread_mutex_unlock(&link->conns.lock);
    return next_ns;
}

static uint64_t clamp_u64(uint64_t value, uint64_t min, uint64_t max)
{
    return value < min ? min : value > max ? max : value;
}

/* conns.lock held. A scan runs four times per heartbeat, but at intervals of SCAN_MIN_MS to
 * SCAN_MAX_MS. During a shutdown the interval is SCAN_MIN_MS. If a redial is due before the next
 * scan, the scan runs when the redial is due. out: ns until the next scan. */
static uint64_t get_scan_delay_ns(const teffi_link *link, uint64_t redial_ns, uint64_t now_ns)
{
    uint64_t ns = clamp_u64(link->heartbeat_ms / 4, SCAN_MIN_MS, SCAN_MAX_MS) * 1000000u;
    if (link->leaving)
        ns = SCAN_MIN_MS * 1000000u;
    return redial_ns == UINT64_MAX ? ns : clamp_u64(redial_ns - now_ns, 1000000u, ns);
}

/* Scans all connections and peers once; reclaims memory. out: ns until the next scan; 0: the link
 * is being freed. */
static uint64_t scan_conns_and_peers(teffi_link *link)
{
    uint64_t now_ns = teffi_conns_now(&link->conns);
    (void)teffi_block_reclaim(now_ns);
    teffi_slab_reclaim(now_ns);
    do_due_conn_actions(link, now_ns);
    uint64_t redial_ns = redial_peers(link, now_ns);
    teffi_accept_retry(link);
    teffi_driver_resume_waiting_conns(link);
    teffi_driver_free_dead_conns(link);
    pthread_mutex_lock(&link->conns.lock);
    pthread_cond_broadcast(&link->conns.changed);
    uint64_t ns = link->freeing ? 0 : get_scan_delay_ns(link, redial_ns, now_ns);
    pthread_mutex_unlock(&link->conns.lock);
    return ns;
}

/* Must run_delayed_work() be called soon? */
static bool delayed_work_is_requested(const link_ticker *ticker)
{
    return atomic_load_explicit(&ticker->asked_soon, memory_order_relaxed);
}

/* Writes coalesced frames, frees connections that have ended, and runs overdue reads. Lets the
 * ticker poll if no other thread polls. Requests another run if it is too early to decide about
 * the reads or the polling. */
static void run_delayed_work(teffi_link *link)
{
    link_ticker *ticker = &link->conns.ticker;
    /* seq_cst: work added before this store is found below. If a thread adds work after it, that
     * thread loads false in teffi_conns_ask_to_run_delayed_work(), and requests another run. */
    atomic_store_explicit(&ticker->asked_soon, false, memory_order_seq_cst);
    teffi_sender_write_coalesced(&link->conns);
    teffi_driver_free_dead_conns(link);
    bool reads = teffi_client_reader_run_overdue_reads(&link->conns, false);
    bool polls = teffi_polling_move_to_ticker_if_idle(&link->conns);
    if (reads || polls)
        atomic_store_explicit(&ticker->asked_soon, true, memory_order_seq_cst);
}

/* Sleeps until a scan is requested or `ns` nanoseconds have passed; may return earlier. If delayed
 * work is requested meanwhile, runs it about LINK_SOON_NS later, and sleeps again. The thread
 * sleeps on a parker or in the poller instead of using nng's timers, which take up to a millisecond
 * of CPU time at each expiry. */
static void sleep_and_run_delayed_work_until_scan(teffi_link *link, uint64_t ns)
{
    link_ticker *ticker = &link->conns.ticker;
    uint64_t now_ns = teffi_conns_now(&link->conns), until_ns = now_ns + ns;
    bool soon, came;
    do {
        soon = delayed_work_is_requested(ticker);
        came = teffi_polling_sleep_or_poll(&link->conns, soon ? LINK_SOON_NS : until_ns - now_ns);
        if (soon)
            run_delayed_work(link);
        now_ns = teffi_conns_now(&link->conns);
        /* acquire: pairs with teffi_conns_ask_ticker_to_scan() */
    } while (!atomic_exchange_explicit(&ticker->asked, false, memory_order_acquire) &&
             (came || soon || delayed_work_is_requested(ticker)) && now_ns < until_ns);
}

static void run_ticker(void *arg)
{
    for (uint64_t ns; (ns = scan_conns_and_peers(arg));)
        sleep_and_run_delayed_work_until_scan(arg, ns);
}

teff_err teffi_link_heartbeat_start(teffi_link *link)
{
    link->scanned_ns = teffi_conns_now(&link->conns);
    return teffi_thread_start(&link->ticker, "teff-link", run_ticker, link);
}

void teffi_link_heartbeat_stop(teffi_link *link)
{
    teffi_conns_ask_ticker_to_scan(&link->conns);
    teffi_thread_join(&link->ticker);
}
