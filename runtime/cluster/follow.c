/* follow.c - read the table, adopt its views one after another, wake waiters for changes. */
#include "cluster/membership.h"

#include "call/task.h"

enum {
    DROP_MS = 10000,     /* time for a silo that left to forward requests and to say goodbye */
    LOOK_APART_MS = 100, /* between two refreshes for silos that were not reached */
    READ_TRIES =
        9 /* tries to pass to teffi_membership_await_change(): the end of a read wakes it */
};

/* follow.lock held. Adds the members of `now` that `old` lacks to the net's peers, so that messages
 * can be sent to them. This silo is not added. peer_add refuses a member whose address is invalid,
 * and every member after the net's shutdown; these errors are ignored.
 * out: false: no memory; the caller must not adopt `now`: members that were not added here would
 * never be added, because the next view adds only the members that `now` lacks. */
static bool add_peers(teffi_node *node, const teffi_view *old, const teffi_view *now)
{
    bool added = true;
    for (size_t i = 0; i < now->n_members && added; i++) {
        const teffi_member *m = &now->members[i];
        const teffi_net_ops *ops = node->home.net->ops;
        if (teffi_node_equals(m->node, node->id) || (old && teffi_view_find_member(old, m->node)))
            continue;
        added = ops->peer_add(node->home.net, m->node, m->address) != TEFF_E_NOMEM;
        if (ops->expect_key)
            ops->expect_key(node->home.net, m->node, m->key);
    }
    return added;
}

/* follow.lock held. Drops the connections to silos that left the view at since_ns or before. */
static void disconnect_departed_before(teffi_membership *m, uint64_t since_ns)
{
    size_t kept = 0;
    for (size_t i = 0; i < m->follow.n_departed; i++) {
        if (m->follow.departed[i].since_ns <= since_ns)
            m->node->home.net->ops->peer_remove(m->node->home.net, m->follow.departed[i].node,
                                                true);
        else
            m->follow.departed[kept++] = m->follow.departed[i];
    }
    m->follow.n_departed = kept;
}

/* in: member: of the old view, missing in `now`. out: true: it is dead; false: it has left. If its
 * row was removed from the table, its status in the old view decides: ACTIVE means dead. */
static bool is_dead(const teffi_member *member, const teffi_view *now)
{
    teffi_standing standing = teffi_view_standing(now, member->node);
    return standing == TEFFI_STANDING_DEAD ||
           (standing == TEFFI_STANDING_STRANGER && member->status == TEFFI_ACTIVE);
}

/* follow.lock held. Appends to the list follow.departed a silo that has left the cluster; its
 * connections are dropped later. If the list is full, the connections of the oldest entries are
 * dropped now. */
static void add_departed_silo(teffi_membership *m, teffi_node_id silo)
{
    if (m->follow.n_departed == TEFFI_DEPARTED_MAX)
        disconnect_departed_before(m, m->follow.departed[0].since_ns);
    m->follow.departed[m->follow.n_departed++] =
        (teffi_departed){silo, teffi_now(m->node->platform)};
}

/* follow.lock held. Stops sending requests for grains to the members of `old` that `now` lacks.
 * Disconnects those that are dead, which also ends the calls sent to them. Adds those that have
 * left to follow.departed, which keeps their connections for another DROP_MS: such a silo forwards
 * the requests that arrive before the other silos have adopted this view, and says goodbye itself
 * afterwards. */
static void disconnect_dead_and_add_departed(teffi_membership *m, const teffi_view *old,
                                             const teffi_view *now)
{
    teffi_net *net = m->node->home.net;
    for (size_t i = 0; old && i < old->n_members; i++) {
        const teffi_member *member = &old->members[i];
        if (teffi_view_find_member(now, member->node))
            continue;
        net->ops->peer_left(net, member->node);
        if (is_dead(member, now))
            net->ops->peer_dead(net, member->node);
        else
            add_departed_silo(m, member->node);
    }
}

void teffi_membership_disconnect_departed(teffi_membership *m)
{
    uint64_t now = teffi_now(m->node->platform), wait = DROP_MS * 1000000ull;
    pthread_mutex_lock(&m->follow.lock);
    disconnect_departed_before(m, now > wait ? now - wait : 0);
    pthread_mutex_unlock(&m->follow.lock);
}

/* follow.lock held. Keeps a view that was just replaced, in place of the oldest kept view. If
 * outage_ms is 0, the view is released instead: earlier views are needed only to extend leases
 * while the store cannot be reached (see promise.c).
 * in: view: owned, or NULL. */
static void keep_or_release_old_view(teffi_membership *m, const teffi_view *view)
{
    const teffi_view **at = &m->follow.before[m->follow.n_before % TEFFI_VIEWS_KEPT];
    if (!view || !m->node->home.lease.outage_ms) {
        teffi_view_unref(view);
        return;
    }
    teffi_view_unref(*at);
    *at = view;
    m->follow.n_before++;
}

const teffi_view *teffi_membership_find_view(teffi_membership *m, uint64_t version)
{
    const teffi_view *found = teffi_view_ref_current(m->node);
    if (found && found->version == version)
        return found;
    teffi_view_unref(found);
    found = NULL;
    pthread_mutex_lock(&m->follow.lock);
    for (unsigned i = 0; i < TEFFI_VIEWS_KEPT; i++)
        if (m->follow.before[i] && m->follow.before[i]->version == version)
            found = teffi_view_ref(m->follow.before[i]);
    pthread_mutex_unlock(&m->follow.lock);
    return found;
}

/* Adopts a view if it is newer than the adopted one; otherwise releases it. in: view, owned.
 * out: false: no memory. */
static bool adopt_view(teffi_membership *m, teffi_view *view)
{
    teffi_node *node = m->node;
    pthread_mutex_lock(&m->follow.lock);
    const teffi_view *old = node->view;
    bool newer = !old || old->version < view->version;
    bool added = newer && add_peers(node, old, view);
    if (!added) {
        pthread_mutex_unlock(&m->follow.lock);
        teffi_view_unref(view);
        return !newer;
    }
    teffi_logf(&node->platform->log, TEFF_LOG_INFO, "membership: view %llu, %zu silos, %zu active",
               (unsigned long long)view->version, view->n_members, view->n_active);
    /* first: what is sent because of the view carries it */
    if (node->home.net->ops->carry_view)
        node->home.net->ops->carry_view(node->home.net, view->version);
    pthread_mutex_lock(&node->lock);
    node->view = view;
    pthread_mutex_unlock(&node->lock);
    teffi_outsiders_apply_view_and_drop_dead(m, view);
    if (node->upcalls.view)
        node->upcalls.view(node, old, view);
    disconnect_dead_and_add_departed(m, old, view);
    m->follow.adopted = view->version;
    bool member = teffi_view_find_member(view, node->id) != NULL;
    keep_or_release_old_view(m, old);
    pthread_mutex_unlock(&m->follow.lock);
    teffi_membership_signal_change(m);
    if (!member && m->joined)
        teffi_membership_lose_lease(m, "the cluster has declared it dead");
    return true;
}

/* Reads the table's rows. Logs the number of unreadable rows when it changes, but not when it
 * becomes 0. */
teff_err teffi_membership_read_table(teff_ctx *ctx, teffi_rows *rows)
{
    teff_err err = teffi_rows_read(ctx, rows);
    if (err || atomic_exchange(&ctx->node->membership->follow.junk, rows->junk) == rows->junk ||
        rows->junk == 0)
        return err;
    teffi_logf(&ctx->node->platform->log, TEFF_LOG_WARN,
               "membership: %zu rows of cluster %s are no member's and are skipped", rows->junk,
               ctx->node->cluster);
    return TEFF_OK;
}

teff_err teffi_membership_adopt_rows(teff_ctx *ctx, const teffi_rows *rows)
{
    teffi_view *view = teffi_rows_make_view(ctx, rows);
    if (!view || !adopt_view(ctx->node->membership, view))
        return teff_fail(ctx, TEFF_E_NOMEM, "membership: out of memory for a view");
    return TEFF_OK;
}

uint64_t teffi_membership_version(teffi_node *node)
{
    return node->membership->follow.adopted;
}

/* Reads the table, and adopts its view if it is newer. The caller has set `reading`. read_err is
 * stored before `reads`; await_version_or_new_read loads `reads` first. */
static teff_err read_table_and_adopt_view(teff_ctx *ctx)
{
    teffi_membership *m = ctx->node->membership;
    teffi_rows rows;
    teff_err err = teffi_membership_read_table(ctx, &rows);
    if (!err && rows.version > teffi_membership_version(ctx->node))
        err = teffi_membership_adopt_rows(ctx, &rows);
    m->follow.read_err = (uint32_t)err;
    m->follow.reads++;
    m->follow.reading = false;
    teffi_membership_signal_change(m);
    return err;
}

/* The task that reads the table for a user's turn. A turn must not read the table itself, because a
 * turn that is ended while it waits for the store would leave `reading` set. The task's error is in
 * read_err. */
static void read_and_adopt_as_task(teff_ctx *ctx, void *arg)
{
    (void)arg;
    (void)!read_table_and_adopt_view(ctx);
}

/* Waits until a view of at least this version is adopted, or until a read of the table has begun
 * and ended since this function was called. If no read is running, begins one: in a task for a
 * user's turn, otherwise in this context. All waiting contexts share one read. A context that
 * arrives during a read waits for the next read, since the running read may miss rows that the
 * context needs.
 * errs: those of the last read; TEFF_E_NOMEM. */
static teff_err await_version_or_new_read(teff_ctx *ctx, uint64_t version)
{
    teffi_membership *m = ctx->node->membership;
    for (uint64_t enough = m->follow.reads + 2; m->follow.reads < enough;) {
        uint64_t seen = m->follow.changes.count;
        if (teffi_membership_version(ctx->node) >= version)
            return TEFF_OK;
        if (!atomic_exchange(&m->follow.reading, true)) {
            if (!ctx->group || ctx->group->system)
                return read_table_and_adopt_view(ctx);
            enough = m->follow.reads + 1;
            if (teffi_task_start(&m->node->home, read_and_adopt_as_task, m,
                                 "membership: read the table", true)) {
                m->follow.reading = false;
                return teff_fail(ctx, TEFF_E_NOMEM, "membership: out of memory to read");
            }
        }
        teffi_membership_await_change(ctx, seen, READ_TRIES);
    }
    teff_err err = (teff_err)m->follow.read_err;
    return err ? teff_fail(ctx, err, "membership: the table cannot be read") : TEFF_OK;
}

teff_err teffi_membership_refresh(teff_ctx *ctx, uint64_t version)
{
    uint64_t wanted = version;
    teff_err err = version ? TEFF_OK : teffi_rows_read_version(ctx, &wanted);
    if (!err)
        err = await_version_or_new_read(ctx, wanted);
    if (!err && teffi_membership_version(ctx->node) < version)
        err = teff_fail(ctx, TEFF_E_TIMEOUT, "membership: view %llu is not in the table",
                        (unsigned long long)version);
    return err;
}

/* The task of refresh_soon(). Sleeps first if the last such refresh began less than LOOK_APART_MS
 * ago. `looking` becomes false before the refresh begins, so that a later call starts another task.
 * If a peer's version is the only reason, the rows are read at once, together with others who wait
 * for that version. An error is ignored, since check_heartbeats() regularly refreshes the view,
 * too. */
static void refresh_as_task(teff_ctx *ctx, void *arg)
{
    teffi_membership *m = arg;
    uint64_t now = teffi_now(ctx->node->platform);
    uint64_t next = m->follow.looked_ns + LOOK_APART_MS * 1000000ull;
    if (m->follow.looked_ns && now < next)
        teffi_ctx_sleep(ctx, (uint32_t)((next - now) / 1000000u) + 1);
    m->follow.looked_ns = teffi_now(ctx->node->platform);
    m->follow.looking = false;
    bool doubted = atomic_exchange(&m->follow.doubted, false);
    uint64_t heard = atomic_exchange(&m->follow.heard, 0);
    if (doubted || heard)
        (void)!teffi_membership_refresh(ctx, doubted ? 0 : heard);
}

/* in: the reason is set, in `doubted` or `heard`. */
static void refresh_soon(teffi_membership *m)
{
    if (!atomic_exchange(&m->follow.looking, true) &&
        teffi_task_start(&m->node->home, refresh_as_task, m, "membership: look at the table", true))
        m->follow.looking = false;
}

void teffi_membership_refresh_soon(teffi_membership *m)
{
    m->follow.doubted = true;
    refresh_soon(m);
}

void teffi_membership_hear_view(teffi_node *node, uint64_t version)
{
    teffi_membership *m = node->membership;
    if (version <= teffi_membership_version(node))
        return;
    uint64_t heard = m->follow.heard;
    while (heard < version && !atomic_compare_exchange_weak(&m->follow.heard, &heard, version))
        ;
    refresh_soon(m);
}
