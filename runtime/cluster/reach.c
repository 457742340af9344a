/* reach.c - remembers broken connections, probes silos, lists those that are not reached, judges
 * which silos must go. */
#include "cluster/reach.h"

#include <stdio.h>
#include "call/task.h"
#include "cluster.pb-c.h"
#include "cluster/watch.h"
#include "node/ask.h"

/* A silo is judged when it was not reached for one and a half leases, its own or this silo's, and
 * for JUDGE_MIN_MS at least: a dead silo was declared dead before; and after a cut has ended, a
 * connection may be made anew only after 5 s. All silos are probed after a half of that time: a
 * silo that is dead is known to be so before (watch.c). A silo is listed after three quarters. */
enum { JUDGE_LEASE_PERCENT = 150, JUDGE_MIN_MS = 10000 };
enum { PROBE_ALL_QUARTERS = 2, LIST_QUARTERS = 3, JUDGE_QUARTERS = 4 };

/* out: after what time without a response from the silo it is judged who must go. */
static uint64_t compute_judge_ns(const teffi_membership *m, const teffi_member *silo)
{
    uint32_t own_ms = m->node->home.lease.length_ms;
    uint64_t lease_ms = silo && silo->lease_ms > own_ms ? silo->lease_ms : own_ms;
    uint64_t judge_ms = lease_ms * JUDGE_LEASE_PERCENT / 100;
    return (judge_ms < JUDGE_MIN_MS ? JUDGE_MIN_MS : judge_ms) * UINT64_C(1000000);
}

/* ---- broken connections ---- */

bool teffi_membership_is_connection_broken(teffi_membership *m, teffi_node_id node)
{
    bool found = false;
    pthread_mutex_lock(&m->beat.lock);
    for (size_t i = 0; i < TEFFI_WATCHED_MAX && !found; i++)
        found = teffi_node_equals(m->beat.broken[i], node);
    pthread_mutex_unlock(&m->beat.lock);
    return found;
}

void teffi_membership_prune_broken_connections(teffi_membership *m, const teffi_view *view)
{
    pthread_mutex_lock(&m->beat.lock);
    for (size_t i = 0; i < TEFFI_WATCHED_MAX; i++)
        if (!teffi_node_is_none(m->beat.broken[i]) &&
            !teffi_view_find_member(view, m->beat.broken[i]))
            m->beat.broken[i] = (teffi_node_id){0};
    pthread_mutex_unlock(&m->beat.lock);
}

void teffi_membership_record_connection_state(teffi_membership *m, teffi_node_id node, bool up)
{
    if (!m)
        return;
    teffi_exec *exec = m->node->home.exec;
    const teffi_node_id none = {0};
    pthread_mutex_lock(&m->beat.lock);
    teffi_node_id *at = NULL; /* the silo's entry; if it has none and !up: a free entry */
    for (size_t i = 0; i < TEFFI_WATCHED_MAX; i++)
        if (teffi_node_equals(m->beat.broken[i], node) ||
            (!up && !at && teffi_node_is_none(m->beat.broken[i])))
            at = &m->beat.broken[i];
    bool newly_broken = !up && at && teffi_node_is_none(*at);
    if (at)
        *at = up ? none : node;
    /* Read the other silos' heartbeats now, not at the next regular time. The time for which a
     * heartbeat has not changed is measured from the first read of its last value, so an earlier
     * read finds a dead silo earlier. */
    if (newly_broken && m->joined && !m->beat.looks && exec->ops->timer_cancel(exec, &m->beat.look))
        teffi_membership_set_timer(m, &m->beat.look, 0);
    else if (newly_broken)
        m->beat.hurry = true;
    pthread_mutex_unlock(&m->beat.lock);
}

/* ---- silos that were not reached ---- */

/* reach.lock held. out: NULL: the silo is not listed. in: silo: none: a free entry. */
static teffi_unreached *find_unreached_entry(teffi_reach *r, teffi_node_id silo)
{
    for (size_t i = 0; i < TEFFI_WATCHED_MAX; i++)
        if (teffi_node_equals(r->of[i].node, silo))
            return &r->of[i];
    return NULL;
}

bool teffi_reach_is_unreached(teffi_membership *m, teffi_node_id silo)
{
    pthread_mutex_lock(&m->reach.lock);
    bool found = find_unreached_entry(&m->reach, silo) != NULL;
    pthread_mutex_unlock(&m->reach.lock);
    return found;
}

bool teffi_reach_is_suspected(teffi_membership *m, teffi_node_id silo)
{
    return teffi_membership_is_connection_broken(m, silo) || teffi_reach_is_unreached(m, silo);
}

/* Records the result of a probe. A silo that was reached is no longer suspected because of a broken
 * connection, either. in: since_ns: a time before the probe was sent. */
static void record_probe_result(teffi_membership *m, const teffi_member *silo, bool reached,
                                uint64_t since_ns)
{
    const teffi_node_id none = {0};
    pthread_mutex_lock(&m->reach.lock);
    teffi_unreached *at = find_unreached_entry(&m->reach, silo->node);
    teffi_unreached *unused = at ? NULL : find_unreached_entry(&m->reach, none);
    if (at && reached)
        *at = (teffi_unreached){0};
    else if (unused && !reached)
        *unused = (teffi_unreached){silo->node, since_ns, compute_judge_ns(m, silo)};
    pthread_mutex_unlock(&m->reach.lock);
    if (reached)
        teffi_membership_record_connection_state(m, silo->node, true);
}

/* Copies the silos that were not reached for at least this part of the time after which they are
 * judged. in: to: with room for TEFFI_WATCHED_MAX. out: how many. */
static size_t list_unreached_for(teffi_membership *m, unsigned quarters, teffi_node_id *to)
{
    uint64_t now = teffi_now(m->node->platform);
    size_t n = 0;
    pthread_mutex_lock(&m->reach.lock);
    for (const teffi_unreached *at = m->reach.of; at < m->reach.of + TEFFI_WATCHED_MAX; at++)
        if (!teffi_node_is_none(at->node) &&
            now - at->since_ns >= at->judge_ns * quarters / JUDGE_QUARTERS)
            to[n++] = at->node;
    pthread_mutex_unlock(&m->reach.lock);
    return n;
}

size_t teffi_reach_list_unreached(teff_ctx *ctx, teffi_node_id **silos)
{
    *silos = teff_alloc(ctx, TEFFI_WATCHED_MAX * sizeof **silos);
    return list_unreached_for(ctx->node->membership, LIST_QUARTERS, *silos);
}

/* Forgets silos that the view lacks. */
static void prune_unreached_silos(teffi_membership *m, const teffi_view *view)
{
    pthread_mutex_lock(&m->reach.lock);
    for (size_t i = 0; i < TEFFI_WATCHED_MAX; i++)
        if (!teffi_view_find_member(view, m->reach.of[i].node))
            m->reach.of[i] = (teffi_unreached){0};
    pthread_mutex_unlock(&m->reach.lock);
}

/* ---- probes ---- */

static teffi_call *start_probe(teff_ctx *ctx, teffi_node_id silo)
{
    const Teff__Cluster__Probed ask = TEFF__CLUSTER__PROBED__INIT;
    return teffi_ctx_start_rpc(ctx, silo, TEFFI_SLOT_MEMBERSHIP, TEFFI_METHOD_PROBE, &ask.base,
                               1 + ctx->home->lease.length_ms / 5,
                               &teff__cluster__probed__descriptor);
}

/* out: true: the silo has responded. A silo of an earlier build responds with NOT_FOUND. */
static bool await_probe(teff_ctx *ctx, teffi_call *probe)
{
    teff_err err = teffi_ctx_await_call(ctx, probe, NULL);
    return err == TEFF_OK || err == TEFF_E_NOT_FOUND;
}

/* The task of teffi_reach_probe_if_needed(). */
static void probe_listed_silos(teff_ctx *ctx, void *arg)
{
    teffi_membership *m = arg;
    const teffi_view *view = teffi_view_ref_current(ctx->node);
    size_t n = m->reach.n_to;
    teffi_call **probes = teff_alloc(ctx, n * sizeof *probes);
    uint64_t since_ns = teffi_now(ctx->node->platform);
    for (size_t i = 0; i < n; i++)
        probes[i] = start_probe(ctx, m->reach.to[i]);
    for (size_t i = 0; i < n; i++) {
        const teffi_member *silo = teffi_view_find_member(view, m->reach.to[i]);
        bool reached = probes[i] && await_probe(ctx, probes[i]);
        if (probes[i] && silo)
            record_probe_result(m, silo, reached, since_ns);
    }
    teffi_view_unref(view);
    atomic_store(&m->reach.probing, false);
}

/* Must all silos be probed? Yes if one that is alive was not reached for a while. */
static bool must_probe_all(teffi_membership *m, const teffi_view *view)
{
    teffi_node_id unreached[TEFFI_WATCHED_MAX];
    size_t n = list_unreached_for(m, PROBE_ALL_QUARTERS, unreached);
    for (size_t i = 0; i < n; i++) {
        const teffi_member *silo = teffi_view_find_member(view, unreached[i]);
        if (silo && !teffi_watch_is_probably_dead(m, silo))
            return true;
    }
    return false;
}

/* Lists the silos to probe. A silo that is probably dead is not probed, so that its death costs the
 * others few messages. */
static void list_silos_to_probe(teffi_membership *m, const teffi_view *view)
{
    bool all = must_probe_all(m, view);
    m->reach.n_to = 0;
    for (size_t i = 0; i < view->n_members && m->reach.n_to < TEFFI_WATCHED_MAX; i++) {
        const teffi_member *silo = &view->members[i];
        if ((all || teffi_reach_is_suspected(m, silo->node)) &&
            !teffi_node_equals(silo->node, m->node->id) && !teffi_watch_is_probably_dead(m, silo))
            m->reach.to[m->reach.n_to++] = silo->node;
    }
}

void teffi_reach_probe_if_needed(teffi_membership *m)
{
    const teffi_view *view = teffi_view_ref_current(m->node);
    if (view && !atomic_exchange(&m->reach.probing, true)) {
        prune_unreached_silos(m, view);
        list_silos_to_probe(m, view);
        if (!m->reach.n_to ||
            teffi_task_start(&m->node->home, probe_listed_silos, m, "membership: probe", true))
            atomic_store(&m->reach.probing, false);
    }
    teffi_view_unref(view);
}

/* ---- who must go ---- */

/* Is silo a younger than b? An incarnation is the time of its start, or above that. */
static bool is_younger(teffi_node_id a, teffi_node_id b)
{
    return a.incarnation != b.incarnation ? a.incarnation > b.incarnation : a.silo > b.silo;
}

/* Are two silos cut from each other? out: false for a silo and itself. */
static bool are_cut(size_t n, const bool *cuts, size_t i, size_t j)
{
    return i != j && (cuts[i * n + j] || cuts[j * n + i]);
}

static size_t count_cuts(size_t n, const bool *cuts, size_t i)
{
    size_t count = 0;
    for (size_t j = 0; j < n; j++)
        count += are_cut(n, cuts, i, j);
    return count;
}

/* in: counts: of each silo, its cuts from silos that do not go; 0 if it goes itself.
 * out: the index of the silo that must go next; n: no cut is left. */
static size_t find_next_loser(const teffi_node_id *silos, size_t n, const size_t *counts)
{
    size_t next = n, most = 0;
    for (size_t i = 0; i < n; i++) {
        size_t count = counts[i];
        if (count > most || (count && count == most && is_younger(silos[i], silos[next]))) {
            next = i;
            most = count;
        }
    }
    return next;
}

void teffi_reach_find_losers(const teffi_node_id *silos, size_t n, const bool *cuts, size_t *counts,
                             bool *loses)
{
    for (size_t i = 0; i < n; i++) {
        counts[i] = count_cuts(n, cuts, i);
        loses[i] = false;
    }
    for (size_t next; (next = find_next_loser(silos, n, counts)) < n;) {
        loses[next] = true;
        counts[next] = 0;
        for (size_t j = 0; j < n; j++)
            counts[j] -= !loses[j] && are_cut(n, cuts, next, j);
    }
}

/* Sets the cuts that a silo's heartbeat lists. A silo that is probably dead has none: it goes for
 * that reason. in: i: the silo's index in the view. */
static void set_cuts(teffi_membership *m, const teffi_view *view, size_t i,
                     const teffi_alive *alive, bool *cuts)
{
    bool dead = teffi_watch_is_probably_dead(m, &view->members[i]);
    for (size_t k = 0; k < alive->n_unreached && !dead; k++) {
        const teffi_member *other = teffi_view_find_member(view, alive->unreached[k]);
        if (other && !teffi_watch_is_probably_dead(m, other))
            cuts[i * view->n_members + (size_t)(other - view->members)] = true;
    }
}

/* Reads which silos each member lists in its heartbeat. out: cuts, as for
 * teffi_reach_find_losers(). errs: those of teffi_heartbeat_read(). */
static teff_err read_cuts(teff_ctx *ctx, const teffi_view *view, bool *cuts)
{
    teffi_alive alive;
    teff_err err = TEFF_OK;
    for (size_t i = 0; i < view->n_members && !err; i++) {
        err = teffi_heartbeat_read(ctx, view->members[i].node, &alive);
        set_cuts(ctx->node->membership, view, i, &alive, cuts);
    }
    return err;
}

/* Ends this silo's lease. in: other: a silo that it has not reached. */
static void end_own_lease(teffi_membership *m, const teffi_member *other)
{
    char why[TEFF_TEXT_MAX];
    snprintf(why, sizeof why,
             "it does not reach the silo %.200s, and of the silos that do not reach each other it "
             "is one that must go",
             other->address);
    teffi_membership_lose_lease(m, why);
}

/* Removes the fence rows of the losers among the silos that this silo has not reached. */
static teff_err remove_fences_of_losers(teff_ctx *ctx, const teffi_view *view,
                                        const teffi_node_id *unreached, size_t n_unreached,
                                        const bool *loses)
{
    teffi_node_id *losers = teff_alloc(ctx, (n_unreached + 1) * sizeof *losers);
    size_t n = 0;
    for (size_t i = 0; i < n_unreached && n < TEFFI_SILENT_MAX; i++) {
        const teffi_member *other = teffi_view_find_member(view, unreached[i]);
        if (other && loses[other - view->members])
            losers[n++] = unreached[i];
    }
    teff_err err = n ? teffi_rows_remove_fences(ctx, view->version, losers, &n) : TEFF_OK;
    for (size_t i = 0; i < n && !err; i++)
        teffi_logf(&ctx->node->platform->log, TEFF_LOG_WARN,
                   "membership: %s must go: this silo has not reached it for too long",
                   teffi_view_find_member(view, losers[i])->address);
    return err;
}

/* Judges, because these silos were not reached for too long. */
static teff_err judge_and_act(teff_ctx *ctx, const teffi_view *view, const teffi_node_id *unreached,
                              size_t n_unreached)
{
    size_t n = view->n_members;
    teffi_node_id *silos = teff_alloc(ctx, n * sizeof *silos);
    bool *cuts = teff_alloc(ctx, n * n), *loses = teff_alloc(ctx, n);
    size_t *counts = teff_alloc(ctx, n * sizeof *counts);
    const teffi_member *self = teffi_view_find_member(view, ctx->node->id), *first = NULL;
    for (size_t i = 0; i < n; i++)
        silos[i] = view->members[i].node;
    for (size_t i = 0; i < n_unreached && !first; i++)
        first = teffi_view_find_member(view, unreached[i]);
    teff_err err = self && first ? read_cuts(ctx, view, cuts) : TEFF_E_NOT_FOUND;
    if (err)
        return err;
    teffi_reach_find_losers(silos, n, cuts, counts, loses);
    if (!loses[self - view->members])
        return remove_fences_of_losers(ctx, view, unreached, n_unreached, loses);
    end_own_lease(ctx->node->membership, first);
    return TEFF_OK;
}

void teffi_reach_judge(teff_ctx *ctx, const teffi_view *view)
{
    teffi_node_id *unreached = teff_alloc(ctx, TEFFI_WATCHED_MAX * sizeof *unreached);
    size_t n = list_unreached_for(ctx->node->membership, JUDGE_QUARTERS, unreached);
    teff_err err = n ? judge_and_act(ctx, view, unreached, n) : TEFF_OK;
    if (err && err != TEFF_E_CONFLICT && err != TEFF_E_NOT_FOUND)
        teffi_logf(&ctx->node->platform->log, TEFF_LOG_WARN,
                   "membership: cannot judge which silos must go: %s", teff_error(ctx));
}

/* ---- before a join ---- */

/* A silo of the table that a joining silo probes. */
typedef struct candidate {
    struct candidate *next;
    teffi_member member;
    uint64_t etag; /* of its heartbeat, as first read; 0: not read yet */
    bool is_alive; /* its heartbeat has changed */
    bool settled;  /* it has responded, or is probably dead */
    bool reached;  /* it has responded */
} candidate;

static const candidate *find_candidate(const candidate *list, teffi_node_id silo)
{
    while (list && !teffi_node_equals(list->member.node, silo))
        list = list->next;
    return list;
}

/* Allows sends to the silo. The net forgets a silo outside the view when its connection breaks, so
 * this is done before each probe. out: false: its address is not valid. */
static bool allow_sends(teffi_net *net, const teffi_member *member)
{
    if (net->ops->peer_add(net, member->node, member->address))
        return false;
    if (net->ops->expect_key)
        net->ops->expect_key(net, member->node, member->key);
    return true;
}

/* Makes the net forget a silo that was not reached, unless it is in the view: the net would dial it
 * for ever. If it is in a later view, it is added again. follow.lock: a view is adopted before or
 * after this. */
static void forget_if_not_reached(teff_ctx *ctx, const candidate *c)
{
    teffi_node *node = ctx->node;
    if (c->reached)
        return;
    pthread_mutex_lock(&node->membership->follow.lock);
    if (!teffi_view_current_has_member(node, c->member.node))
        node->home.net->ops->peer_remove(node->home.net, c->member.node, false);
    pthread_mutex_unlock(&node->membership->follow.lock);
}

/* Must a joining silo probe the silos of the table? */
static bool must_check(const teffi_membership *m, const teffi_rows *rows)
{
    size_t n = 0;
    for (size_t i = 0; i < rows->n; i++)
        n += !rows->rows[i].dead;
    return n <= TEFFI_CHECKED_MAX || m->had_lost_lease;
}

/* Lists the silos that the table has now, except dead ones and an earlier start of this silo; none
 * if they must not be probed. in: *list: the list so far; what it says of a silo is kept. errs:
 * those of teffi_rows_read(). */
static teff_err update_candidates(teff_ctx *ctx, candidate **list)
{
    candidate *now = NULL;
    teffi_rows rows;
    teff_err err = teffi_membership_read_table(ctx, &rows);
    bool checks = !err && must_check(ctx->node->membership, &rows);
    for (size_t i = 0; checks && i < rows.n; i++) {
        const teffi_member *member = &rows.rows[i].member;
        if (rows.rows[i].dead || member->node.silo == ctx->node->id.silo)
            continue;
        const candidate *before = find_candidate(*list, member->node);
        candidate *c = teff_alloc(ctx, sizeof *c);
        *c = before ? *before : (candidate){.member = *member};
        c->settled |= !allow_sends(ctx->node->home.net, member);
        c->next = now;
        now = c;
    }
    for (const candidate *c = *list; c; c = c->next)
        if (!find_candidate(now, c->member.node))
            forget_if_not_reached(ctx, c);
    *list = now;
    return err;
}

/* Looks at the heartbeat of a candidate that was not reached. A silo that is probably dead does not
 * prevent the join. */
static void look_at_candidate(teff_ctx *ctx, candidate *c)
{
    teffi_alive alive;
    uint64_t still_ns;
    if (teffi_watch_look(ctx, &c->member, &alive, &still_ns))
        return;
    c->is_alive |= c->etag && alive.etag != c->etag;
    c->etag = alive.etag;
    c->settled = teffi_watch_is_probably_dead(ctx->node->membership, &c->member);
}

/* Probes the candidates that are not settled. out: one that is not settled yet; if possible, one
 * that is alive; NULL: none. */
static const candidate *probe_candidates(teff_ctx *ctx, candidate *list)
{
    uint64_t since_ns = teffi_now(ctx->node->platform);
    const candidate *left = NULL;
    size_t n = 0, at = 0;
    for (const candidate *c = list; c; c = c->next)
        n++;
    teffi_call **probes = teff_alloc(ctx, (n + 1) * sizeof *probes);
    for (candidate *c = list; c; c = c->next, at++)
        probes[at] = c->settled ? NULL : start_probe(ctx, c->member.node);
    at = 0;
    for (candidate *c = list; c; c = c->next, at++) {
        bool reached = probes[at] && await_probe(ctx, probes[at]);
        if (probes[at])
            record_probe_result(ctx->node->membership, &c->member, reached, since_ns);
        c->settled |= reached;
        c->reached |= reached;
        if (!c->settled)
            look_at_candidate(ctx, c);
        if (!c->settled && (!left || c->is_alive))
            left = c;
    }
    return left;
}

/* Probes until each candidate is settled, or the time is over. out: *list: the last candidates. */
static teff_err probe_until_settled(teff_ctx *ctx, candidate **list)
{
    uint64_t until_ns =
        teffi_now(ctx->node->platform) + compute_judge_ns(ctx->node->membership, NULL);
    const candidate *left;
    teff_err err = update_candidates(ctx, list);
    while (!err && (left = probe_candidates(ctx, *list))) {
        bool over = teffi_now(ctx->node->platform) >= until_ns;
        if (over && !left->is_alive)
            return TEFF_OK;
        if (over)
            return teff_fail(
                ctx, TEFF_E_UNREACHABLE,
                "membership: the silo %.200s is alive, but this silo does not reach it",
                left->member.address);
        teffi_ctx_sleep(ctx, 1 + ctx->home->lease.length_ms / 20);
        err = update_candidates(ctx, list);
    }
    return err;
}

teff_err teffi_reach_check_before_join(teff_ctx *ctx)
{
    candidate *list = NULL;
    teff_err err = probe_until_settled(ctx, &list);
    for (const candidate *c = list; c; c = c->next)
        forget_if_not_reached(ctx, c);
    return err;
}
