/* promise.c - extends leases while the store is away: silos that cannot reach it either promise to
 * agree to nobody's death meanwhile; and a death needs the agreement of silos without a promise.
 * Way:     lease's timer -> [ask for promises] ===> tell -> [promise]
 *          heartbeat: a silent silo -> [ask for consents] ===> tell -> [consent] -> declare it dead
 * Threads: any. The state is guarded by promises.lock.
 * Model:   tests/model/outage.pml */

/* A silo S numbers its heartbeats. Let c be the last one that the store has confirmed, n the
 * number of members, S included, of the view that S had when it sent c, and L the length of the
 * lease. When half of the lease is over, S asks the other members for promises. If at least n / 2
 * of them, rounded down, promise, the lease lasts for L from when S asked, but at most outage_ms
 * longer than c alone allows.
 *     Another silo that has watched S's heartbeat b stand still may declare S dead when at least
 * n / 2 members other than S, rounded up, consent. Of the n - 1 others, one at least would then
 * have both promised and consented. No silo does both: it consents only after the end of its
 * promise, and after that it gives no promise for b or an earlier heartbeat. No consent is needed
 * when outage_ms has passed, too, since then the lease is over in any case.
 *     A heartbeat may have been written, but not confirmed. Then b > c, and S does not know of b;
 * it asks for promises for c, which those who consented for b refuse. If S has sent heartbeats
 * after c with another view, it is not known which members would be asked for consent, so the
 * lease is not extended; nor if the heartbeat that was confirmed before c had another view.
 *     All this relies on the store: it writes no heartbeat after a later one, and loses none that
 * it has confirmed. (One that is lost does no harm, as the one before it has the same view.) */
#include "cluster/promise.h"

#include "call/task.h"
#include "cluster.pb-c.h"
#include "node/ask.h"

/* Parts of a lease, in percent. AWAY: without a confirmed heartbeat for so long, a silo does not
 * reach the store. HELD: how long a promise lasts; 5 % for different clocks, as for a death. */
enum { AWAY_PERCENT = 30, HALF_PERCENT = 50, ROUND_PERCENT = 10, HELD_PERCENT = 105 };

static uint64_t get_lease_part_ns(const teffi_membership *m, unsigned percent)
{
    return teffi_lease_length_ns(&m->node->home.lease) / 100 * percent;
}

/* ---- this silo's heartbeats ---- */

void teffi_promise_prepare_next_beat(teffi_membership *m, teffi_own_beat *beat)
{
    teffi_promises *p = &m->promises;
    pthread_mutex_lock(&p->lock);
    beat->number = ++p->beats;
    beat->view = teffi_membership_version(m->node);
    beat->sent_ns = teffi_now(m->node->platform);
    p->view_changed |= p->confirmed.view != beat->view;
    pthread_mutex_unlock(&p->lock);
}

void teffi_promise_record_confirmed_beat(teffi_membership *m, const teffi_own_beat *beat)
{
    teffi_promises *p = &m->promises;
    pthread_mutex_lock(&p->lock);
    /* No heartbeat was sent after *beat: they are written one at a time. But view_changed is
     * also set if the heartbeat that was confirmed before *beat had another view. */
    p->view_changed = p->confirmed.view != beat->view;
    p->confirmed = *beat;
    bool extended = p->extended;
    p->extended = false;
    pthread_mutex_unlock(&p->lock);
    if (extended)
        teffi_logf(&m->node->platform->log, TEFF_LOG_INFO, "membership: the store is back");
}

/* ---- promises and consents of this silo ---- */

/* promises.lock held. May the entry be reused? Yes if it records no consent and its promise is
 * over, or if its silo is not in the view. */
static bool promised_entry_is_reusable(teffi_membership *m, const teffi_view *view,
                                       const teffi_promised *at)
{
    return (at->until_ns <= teffi_now(m->node->platform) && !at->denied_beat) ||
           !teffi_view_find_member(view, at->silo);
}

/* promises.lock held. Finds the silo's entry, or makes one in place of a reusable entry. out: NULL
 * if the silo is not in the view, or if no entry is reusable. */
static teffi_promised *find_or_make_promised_entry(teffi_membership *m, const teffi_view *view,
                                                   teffi_node_id silo)
{
    teffi_promised *unused = NULL;
    if (!teffi_view_find_member(view, silo))
        return NULL;
    for (size_t i = 0; i < TEFFI_WATCHED_MAX; i++)
        if (teffi_node_equals(m->promises.of[i].silo, silo))
            return &m->promises.of[i];
    for (size_t i = 0; i < TEFFI_WATCHED_MAX && !unused; i++)
        if (promised_entry_is_reusable(m, view, &m->promises.of[i]))
            unused = &m->promises.of[i];
    if (unused)
        *unused = (teffi_promised){.silo = silo};
    return unused;
}

const char *teffi_promise_give(teffi_membership *m, teffi_node_id silo, uint64_t beat)
{
    teffi_promises *p = &m->promises;
    pthread_mutex_lock(&p->lock);
    /* The view is read under the lock. Otherwise it may be older than an entry, and may lack the
     * entry's silo: the entry would count as reusable. */
    const teffi_view *view = teffi_view_ref_current(m->node);
    const teffi_member *member = view ? teffi_view_find_member(view, silo) : NULL;
    uint64_t held_ns = member ? member->lease_ms * UINT64_C(10000) * HELD_PERCENT : 0;
    uint64_t now = teffi_now(m->node->platform);
    bool away =
        p->confirmed.number && now - p->confirmed.sent_ns > get_lease_part_ns(m, AWAY_PERCENT);
    teffi_promised *at = member && away ? find_or_make_promised_entry(m, view, silo) : NULL;
    bool given = at && beat > at->denied_beat;
    if (given)
        at->until_ns = now + held_ns;
    teffi_view_unref(view);
    pthread_mutex_unlock(&p->lock);
    return given     ? NULL
           : !member ? "membership: no promise: not a member"
           : !away   ? "membership: no promise: this silo reaches the store"
           : !at     ? "membership: no promise: too many silos have asked"
                     : "membership: no promise: its death was consented to";
}

/* promises.lock held. Consents to the death of a silent silo, whose last heartbeat is `beat`, and
 * records the consent. out: false: no consent was given, because this silo's promise to the silent
 * one still holds, the silent one is not in the view, or no entry is reusable. */
static bool give_consent(teffi_membership *m, const teffi_view *view, teffi_node_id silo,
                         uint64_t beat)
{
    teffi_promised *at = find_or_make_promised_entry(m, view, silo);
    bool given = at && at->until_ns <= teffi_now(m->node->platform);
    if (given && at->denied_beat < beat)
        at->denied_beat = beat;
    return given;
}

uint32_t teffi_membership_consent_to_deaths(teffi_membership *m, const Teff__Cluster__Consent *ask)
{
    uint32_t given = 0;
    pthread_mutex_lock(&m->promises.lock);
    const teffi_view *view = teffi_view_ref_current(m->node);
    for (size_t i = 0; view && i < ask->n_silent && i < TEFFI_SILENT_MAX; i++) {
        const Teff__Cluster__Silent *s = ask->silent[i];
        teffi_node_id silo = {s->node ? s->node->silo : 0, s->node ? s->node->incarnation : 0};
        given |= (uint32_t)give_consent(m, view, silo, s->beat) << i;
    }
    teffi_view_unref(view);
    pthread_mutex_unlock(&m->promises.lock);
    return given;
}

/* ---- asking the other members ---- */

/* Sends a request to each member of the view but this silo. out: an array with a call for each
 * member. The call is NULL for this silo, and for each member whose call could not be started. */
static teffi_call **start_calls_to_other_members(teff_ctx *ctx, const teffi_view *view,
                                                 uint32_t method, const ProtobufCMessage *ask,
                                                 const ProtobufCMessageDescriptor *response)
{
    teffi_call **calls = teff_alloc(ctx, view->n_members * sizeof *calls);
    uint32_t timeout_ms = 1 + ctx->home->lease.length_ms / 5;
    for (size_t i = 0; i < view->n_members; i++)
        calls[i] = teffi_node_equals(view->members[i].node, ctx->node->id)
                       ? NULL
                       : teffi_ctx_start_rpc(ctx, view->members[i].node, TEFFI_SLOT_MEMBERSHIP,
                                             method, ask, timeout_ms, response);
    return calls;
}

/* Asks for promises. out: how many other members have given one. */
static size_t ask_and_count_promises(teff_ctx *ctx, const teffi_view *view, uint64_t beat)
{
    Teff__Cluster__Promise ask = TEFF__CLUSTER__PROMISE__INIT;
    size_t given = 0;
    ask.beat = beat;
    teffi_call **calls = start_calls_to_other_members(ctx, view, TEFFI_METHOD_PROMISE, &ask.base,
                                                      &teff__cluster__promised__descriptor);
    for (size_t i = 0; i < view->n_members; i++)
        given += calls[i] && !teffi_ctx_await_call(ctx, calls[i], NULL);
    return given;
}

/* Asks the other members for promises, and extends the lease if enough of them promise.
 * in: confirmed: the last confirmed heartbeat. view: the view with which it was sent. since_ns: the
 * time when this round began. All heartbeats sent before since_ns, but after the confirmed one, had
 * the same view. */
static void ask_promises_and_extend_lease(teff_ctx *ctx, const teffi_own_beat *confirmed,
                                          const teffi_view *view, uint64_t since_ns)
{
    teffi_membership *m = ctx->node->membership;
    teffi_lease *lease = &ctx->home->lease;
    size_t given = ask_and_count_promises(ctx, view, confirmed->number),
           needed = view->n_members / 2;
    uint64_t lease_ns = teffi_lease_length_ns(lease), until_ns = since_ns + lease_ns;
    uint64_t last_ns = confirmed->sent_ns + lease_ns + lease->outage_ms * UINT64_C(1000000);
    if (given < needed ||
        !teffi_lease_extend(lease, since_ns, until_ns < last_ns ? until_ns : last_ns))
        return;
    pthread_mutex_lock(&m->promises.lock);
    bool first = !m->promises.extended;
    m->promises.extended = true;
    pthread_mutex_unlock(&m->promises.lock);
    if (first)
        teffi_logf(&ctx->node->platform->log, TEFF_LOG_WARN,
                   "membership: the store is away, as %zu of %zu other silos say, too: the lease "
                   "goes on, for %u ms at most",
                   given, view->n_members - 1, lease->outage_ms);
}

/* Do all members extend their leases? A member that never extends its lease may run an older build,
 * which declares silos dead without asking for consents. */
static bool all_members_extend_leases(const teffi_view *view)
{
    for (size_t i = 0; i < view->n_members; i++)
        if (!view->members[i].outage_ms)
            return false;
    return true;
}

/* The task of one round: asks for promises if the lease may be extended. At its end, it sets the
 * timer for the next round. */
static void run_promise_round(teff_ctx *ctx, void *arg)
{
    teffi_membership *m = arg;
    pthread_mutex_lock(&m->promises.lock);
    teffi_own_beat confirmed = m->promises.confirmed;
    bool certain = confirmed.number && !m->promises.view_changed;
    /* The time is read under the lock. So if `certain` is true, a heartbeat with another view than
     * confirmed.view can be sent only after since_ns. */
    uint64_t since_ns = teffi_now(ctx->node->platform);
    pthread_mutex_unlock(&m->promises.lock);
    const teffi_view *view = certain ? teffi_membership_find_view(m, confirmed.view) : NULL;
    if (view && all_members_extend_leases(view))
        ask_promises_and_extend_lease(ctx, &confirmed, view, since_ns);
    teffi_view_unref(view);
    teffi_promise_schedule_round(m);
}

/* The timer's callback: starts a round if less than half of the lease is left. Otherwise, or if the
 * round could not be started, sets the timer again. */
static void start_promise_round_if_due(teffi_timer *timer)
{
    teffi_membership *m = teffi_container(timer, teffi_membership, beat.promise);
    uint64_t half_ns = get_lease_part_ns(m, HALF_PERCENT);
    bool due = teffi_lease_until_ns(&m->node->home.lease) < teffi_now(m->node->platform) + half_ns;
    pthread_mutex_lock(&m->beat.lock);
    bool started = due && !m->beat.stopped &&
                   !teffi_task_start(&m->node->home, run_promise_round, m,
                                     "membership: ask for promises", true);
    pthread_mutex_unlock(&m->beat.lock);
    if (!started)
        teffi_promise_schedule_round(m);
}

void teffi_promise_schedule_round(teffi_membership *m)
{
    const teffi_lease *lease = &m->node->home.lease;
    if (!lease->outage_ms)
        return;
    uint64_t half_ns = get_lease_part_ns(m, HALF_PERCENT), until_ns = teffi_lease_until_ns(lease);
    uint64_t soon_ns = teffi_now(m->node->platform) + get_lease_part_ns(m, ROUND_PERCENT);
    uint64_t due_ns = until_ns > half_ns + soon_ns ? until_ns - half_ns : soon_ns;
    pthread_mutex_lock(&m->beat.lock);
    m->beat.promise.fire = start_promise_round_if_due;
    teffi_membership_set_timer(m, &m->beat.promise, due_ns);
    pthread_mutex_unlock(&m->beat.lock);
}

/* ---- consents to a death ---- */

/* How many members of the silo's view, which is the heartbeat's, have consented? */
typedef struct consents {
    const teffi_view *view; /* NULL: not known here */
    size_t given;
} consents;

/* Adds the consents of one member to counts[0..n-1]. in: from: the member. given: its response;
 * bit i is set if the member consents to the death of silent[i]. The consent does not count if the
 * member is silent[i] itself, or is not in counts[i].view, the view that silent[i] had. */
static void count_consents_of_member(const teffi_silent *silent, size_t n, teffi_node_id from,
                                     uint32_t given, consents *counts)
{
    for (size_t i = 0; i < n; i++) {
        const teffi_view *view = counts[i].view;
        counts[i].given += given >> i & 1 && view && teffi_view_find_member(view, from) &&
                           !teffi_node_equals(silent[i].node, from);
    }
}

static void make_consent_request(teff_ctx *ctx, const teffi_silent *silent, size_t n,
                                 Teff__Cluster__Consent *ask)
{
    Teff__Cluster__Silent *list = teff_alloc(ctx, n * sizeof *list);
    Teff__Cluster__Node *nodes = teff_alloc(ctx, n * sizeof *nodes);
    teff__cluster__consent__init(ask);
    ask->silent = teff_alloc(ctx, n * sizeof *ask->silent);
    ask->n_silent = n;
    for (size_t i = 0; i < n; i++) {
        teff__cluster__node__init(&nodes[i]);
        teff__cluster__silent__init(&list[i]);
        nodes[i].silo = silent[i].node.silo;
        nodes[i].incarnation = silent[i].node.incarnation;
        list[i].node = &nodes[i];
        list[i].beat = silent[i].beat;
        ask->silent[i] = &list[i];
    }
}

/* Asks this silo and the other members of its view for consents, and counts these. Silent members
 * are asked, too: a member that is cut off only from the store can respond. */
static void collect_consents(teff_ctx *ctx, const teffi_view *view, const teffi_silent *silent,
                             size_t n, consents *of)
{
    Teff__Cluster__Consent ask;
    ProtobufCMessage *response;
    make_consent_request(ctx, silent, n, &ask);
    count_consents_of_member(silent, n, ctx->node->id,
                             teffi_membership_consent_to_deaths(ctx->node->membership, &ask), of);
    teffi_call **calls = start_calls_to_other_members(ctx, view, TEFFI_METHOD_CONSENT, &ask.base,
                                                      &teff__cluster__consented__descriptor);
    for (size_t i = 0; i < view->n_members; i++)
        if (calls[i] && !teffi_ctx_await_call(ctx, calls[i], &response))
            count_consents_of_member(silent, n, view->members[i].node,
                                     ((const Teff__Cluster__Consented *)response)->given, of);
}

void teffi_promise_ask_consents(teff_ctx *ctx, const teffi_view *view, teffi_silent *silent,
                                size_t n)
{
    consents of[TEFFI_SILENT_MAX] = {{0}};
    bool any = false;
    for (size_t i = 0; i < n; i++)
        of[i].view = silent[i].needs_consent
                         ? teffi_membership_find_view(ctx->node->membership, silent[i].view)
                         : NULL;
    for (size_t i = 0; i < n; i++)
        any |= of[i].view != NULL;
    if (any)
        collect_consents(ctx, view, silent, n, of);
    for (size_t i = 0; i < n; i++) {
        bool known = of[i].view && teffi_view_find_member(of[i].view, silent[i].node);
        silent[i].consents = of[i].given;
        silent[i].consents_needed = known ? (of[i].view->n_members + 1) / 2 : 0;
        if (known && of[i].given >= silent[i].consents_needed)
            silent[i].needs_consent = false;
        teffi_view_unref(of[i].view);
    }
}
