/* membership.c - joins, leaves, follows the table, tells the others, removes the silent.
 * Way:     silo/lifecycle -> [membership] -> rows, view -> upcalls.view
 * Threads: adopt_lock makes views one after another; the tick's state is the tick's.
 * Source:  ORLEANS 2.1 */
#include "cluster/membership.h"

#include <stdlib.h>
#include <string.h>
#include "base/hash.h"
#include "base/log.h"
#include "cluster.pb-c.h"
#include "cluster/rows.h"
#include "node/task.h"
#include "wire/codec.h"

enum {
    TICK_MS = 2000,           /* "I am alive", and a look at the table's version */
    RETRY_MS = 500,           /* after a tick that failed */
    SILENT_MS = 15000,        /* a silo whose figure stands still this long is declared dead */
    LOOK_MAX_MS = 5000,       /* of it between two looks: we may have stood still ourselves */
    STALE_AT_JOIN_MS = 60000, /* by the wall clock: rows of a cluster that was killed long ago */
    CONFLICTS_MAX = 100,
    PUSH_TIMEOUT_MS = 5000,
    FORGET_MS = 10000, /* a silo that left may be forwarding, and says goodbye itself */
    GONE_MAX = 64,
    WATCHED_MAX = 64,
    BURY_MAX = 200, /* stale rows declared dead by one join, within the store's batch */
    FORGET_MAX = 20 /* tombstones removed by one join */
};

static const uint64_t second_2022 = 1640995200u;

typedef struct watched { /* what the tick has seen of another silo */
    teffi_node_id node;
    uint64_t figure, still_ns, looked_ns;
} watched;

typedef struct gone { /* out of the view; its connections are let go later */
    teffi_node_id node;
    uint64_t since_ns;
} gone;

struct teffi_membership {
    teffi_node *node;
    uint32_t *types;
    size_t n_types;
    pthread_mutex_t adopt_lock;
    gone gone[GONE_MAX]; /* guarded by adopt_lock */
    size_t n_gone;
    _Atomic bool joined, left, ousted;
    pthread_mutex_t tick_lock;
    bool stopped; /* guarded by tick_lock: no tick is started any more */
    teffi_timer tick;
    watched watch[WATCHED_MAX]; /* the tick's */
};

/* ---- adopting views ---- */

static void tell_net(teffi_node *node, const teffi_view *old, const teffi_view *now)
{
    for (size_t i = 0; i < now->n_members; i++) {
        const teffi_member *m = &now->members[i];
        if (!teffi_node_is(m->node, node->id) && !(old && teffi_view_find(old, m->node)))
            (void)node->net->ops->peer_add(node->net, m->node, m->address);
    }
}

/* Those that went at since_ns or before. adopt_lock held. */
static void forget(teffi_membership *m, uint64_t since_ns)
{
    size_t kept = 0;
    for (size_t i = 0; i < m->n_gone; i++) {
        if (m->gone[i].since_ns <= since_ns)
            m->node->net->ops->peer_remove(m->node->net, m->gone[i].node, true);
        else
            m->gone[kept++] = m->gone[i];
    }
    m->n_gone = kept;
}

static void note_gone(teffi_membership *m, const teffi_view *old, const teffi_view *now)
{
    for (size_t i = 0; old && i < old->n_members; i++) {
        if (teffi_view_find(now, old->members[i].node))
            continue;
        if (m->n_gone == GONE_MAX)
            forget(m, m->gone[0].since_ns);
        m->gone[m->n_gone++] = (gone){old->members[i].node, teffi_now(m->node->platform)};
    }
}

static void forget_gone(teffi_membership *m)
{
    uint64_t now = teffi_now(m->node->platform), wait = FORGET_MS * 1000000ull;
    pthread_mutex_lock(&m->adopt_lock);
    forget(m, now > wait ? now - wait : 0);
    pthread_mutex_unlock(&m->adopt_lock);
}

static void log_view(teffi_node *node, const teffi_view *view)
{
    teffi_logf(&node->platform->log, TEFFI_INFO, "membership: view %llu, %zu silos, %zu active",
               (unsigned long long)view->version, view->n_members, view->n_active);
}

/* Takes the reference. */
static void adopt(teffi_membership *m, teffi_view *view)
{
    teffi_node *node = m->node;
    pthread_mutex_lock(&m->adopt_lock);
    const teffi_view *old = node->view;
    if (old && old->version >= view->version) {
        pthread_mutex_unlock(&m->adopt_lock);
        teffi_view_unref(view);
        return;
    }
    log_view(node, view);
    tell_net(node, old, view);
    pthread_mutex_lock(&node->lock);
    node->view = view;
    pthread_mutex_unlock(&node->lock);
    if (node->upcalls.view)
        node->upcalls.view(node, old, view);
    note_gone(m, old, view);
    bool member = teffi_view_find(view, node->id) != NULL;
    pthread_mutex_unlock(&m->adopt_lock);
    teffi_view_unref(old);
    if (!member && m->joined && !m->left && !m->ousted) {
        m->ousted = true;
        teffi_logf(&node->platform->log, TEFFI_ERROR,
                   "membership: this silo was declared dead; it serves nothing any more");
    }
}

static teff_err adopt_rows(teff_ctx *ctx, const teffi_rows *rows)
{
    teffi_view *view = teffi_rows_view(ctx, rows);
    if (!view)
        return teffi_ctx_fail(ctx, TEFF_E_NOMEM, "membership: out of memory for a view");
    adopt(ctx->node->membership, view);
    return TEFF_OK;
}

static uint64_t adopted_version(teffi_node *node)
{
    const teffi_view *view = teffi_view_get(node);
    uint64_t version = view ? view->version : 0;
    teffi_view_unref(view);
    return version;
}

teff_err teffi_membership_refresh(teff_ctx *ctx, uint64_t version)
{
    teffi_rows rows;
    uint64_t now = version;
    teff_err err = version ? TEFF_OK : teffi_rows_version(ctx, &now);
    if (err || adopted_version(ctx->node) >= now)
        return err;
    err = teffi_rows_read(ctx, &rows);
    if (!err && rows.version > adopted_version(ctx->node))
        err = adopt_rows(ctx, &rows);
    if (!err && rows.version < version)
        err = teffi_ctx_fail(ctx, TEFF_E_TIMEOUT, "membership: view %llu is not in the table",
                             (unsigned long long)version);
    return err;
}

bool teffi_membership_ousted(const teffi_membership *membership)
{
    return membership->ousted;
}

/* ---- telling the others ---- */

/* A silo that cannot be reached is leaving, or the tick will find it silent; one that is reached
 * but does not answer is worth a word. */
static void push_view(teff_ctx *ctx)
{
    teffi_node *node = ctx->node;
    const teffi_view *view = teffi_view_get(node);
    Teff__Cluster__ViewAtLeast ask = TEFF__CLUSTER__VIEW_AT_LEAST__INIT;
    ask.version = view->version;
    teffi_call **calls = teff_alloc(ctx, view->n_members * sizeof *calls);
    for (size_t i = 0; i < view->n_members; i++)
        if (!teffi_node_is(view->members[i].node, node->id))
            calls[i] = teffi_ctx_rpc_start(ctx, view->members[i].node, TEFFI_SLOT_MEMBERSHIP,
                                           TEFFI_METHOD_VIEW_AT_LEAST, &ask.base, PUSH_TIMEOUT_MS,
                                           &teff__cluster__view_is__descriptor);
    for (size_t i = 0; i < view->n_members; i++) {
        if (calls[i] && teffi_ctx_await_call(ctx, calls[i], NULL) == TEFF_E_TIMEOUT)
            teffi_logf(&node->platform->log, TEFFI_WARN,
                       "membership: %s did not adopt view %llu: %s", view->members[i].address,
                       (unsigned long long)view->version, teff_error(ctx));
    }
    teffi_view_unref(view);
}

static void answer_view(teff_ctx *ctx, void *arg)
{
    teffi_msg *msg = arg; /* unpacked by handle() */
    Teff__Cluster__ViewIs is = TEFF__CLUSTER__VIEW_IS__INIT;
    const Teff__Cluster__ViewAtLeast *ask = (const Teff__Cluster__ViewAtLeast *)msg->body;
    teff_err err = teffi_membership_refresh(ctx, ask->version);
    if (err) {
        teffi_node_answer(ctx->node, msg, err, teff_error(ctx));
        return;
    }
    is.version = adopted_version(ctx->node);
    teffi_node_answer_with(ctx->node, msg, &is.base);
}

static void handle(teffi_node *node, teffi_msg *msg)
{
    teff_err err = TEFF_E_NOT_FOUND;
    if (msg->method_id == TEFFI_METHOD_VIEW_AT_LEAST) {
        err = teffi_msg_unpack(msg, &teff__cluster__view_at_least__descriptor);
        if (!err)
            err = teffi_task_start(node, answer_view, msg, "membership: adopt a view");
    }
    if (err)
        teffi_node_answer(node, msg, err, "membership: cannot take this request");
}

/* ---- changing the table ---- */

/* Reads, lets change fill in rows, writes; again after a conflict. change returns how many rows. */
typedef size_t change_fn(teff_ctx *ctx, const teffi_rows *rows, teffi_member_row *changed,
                         const void *arg);

static teff_err change_table(teff_ctx *ctx, change_fn *change, const void *arg)
{
    teffi_rows rows;
    for (int i = 0; i < CONFLICTS_MAX; i++) {
        teff_err err = teffi_rows_read(ctx, &rows);
        if (err)
            return err;
        teffi_member_row *changed = teff_alloc(ctx, (rows.n + 1) * sizeof *changed);
        size_t n = change(ctx, &rows, changed, arg);
        if (n == 0)
            return adopt_rows(ctx, &rows);
        err = teffi_rows_write(ctx, &rows, changed, n);
        if (!err)
            return teffi_membership_refresh(ctx, rows.version + 1);
        if (err != TEFF_E_CONFLICT && err != TEFF_E_UNKNOWN)
            return err;
        uint64_t wait = ctx->node->platform->random(ctx->node->platform->arg) % 20;
        teffi_ctx_sleep(ctx, 1 + (uint32_t)wait);
    }
    return teffi_ctx_fail(ctx, TEFF_E_TIMEOUT, "membership: %d conflicts in a row", CONFLICTS_MAX);
}

static const teffi_member_row *find_silo(const teffi_rows *rows, uint32_t silo)
{
    for (size_t i = 0; i < rows->n; i++)
        if (rows->rows[i].member.node.silo == silo)
            return &rows->rows[i];
    return NULL;
}

void teffi_membership_guess(teff_ctx *ctx, const char *address)
{
    teffi_node *node = ctx->node;
    uint64_t now_s = node->platform->wall_ns(node->platform->arg) / 1000000000u;
    node->id.silo = (uint32_t)teffi_hash64(address, strlen(address), 0) & ~TEFFI_CLIENT_BIT;
    node->id.silo += node->id.silo == 0;
    node->id.incarnation = now_s > second_2022 ? (uint32_t)(now_s - second_2022) : 1;
    memcpy(node->address, address, strlen(address) + 1);
}

teff_err teffi_membership_identify(teff_ctx *ctx, const char *address)
{
    teffi_node *node = ctx->node;
    teffi_node_id guessed = node->id;
    teffi_rows rows;
    teff_err err = teffi_rows_read(ctx, &rows);
    if (err)
        return err;
    if (teffi_node_none(guessed))
        teffi_membership_guess(ctx, address);
    const teffi_member_row *before = find_silo(&rows, node->id.silo);
    if (before && before->member.node.incarnation >= node->id.incarnation)
        node->id.incarnation = before->member.node.incarnation + 1;
    return TEFF_OK;
}

static bool stale_at_join(teff_ctx *ctx, const teffi_member_row *row)
{
    uint64_t figure = 0;
    uint64_t now_ms = ctx->node->platform->wall_ns(ctx->node->platform->arg) / 1000000u;
    if (row->dead || teffi_alive_read(ctx, row->member.node, &figure))
        return false;
    return now_ms > figure + STALE_AT_JOIN_MS;
}

static int by_incarnation(const void *a, const void *b)
{
    const teffi_member_row *x = a, *y = b;
    uint32_t i = x->member.node.incarnation, j = y->member.node.incarnation;
    return (i > j) - (i < j);
}

/* The oldest tombstones over the number kept: silos on any free port never come back to theirs.
 * Incarnations begin with the clock, so that they rise without a tombstone too. */
static size_t forget_oldest(const teffi_rows *rows, const teffi_member_row *before,
                            teffi_member_row *changed)
{
    size_t n = 0;
    for (size_t i = 0; i < rows->n; i++)
        if (rows->rows[i].dead && &rows->rows[i] != before)
            changed[n++] = rows->rows[i];
    if (n <= TEFFI_TOMBSTONES_MAX)
        return 0;
    qsort(changed, n, sizeof *changed, by_incarnation);
    n -= TEFFI_TOMBSTONES_MAX;
    n = n < FORGET_MAX ? n : FORGET_MAX;
    for (size_t i = 0; i < n; i++)
        changed[i].forget = true;
    return n;
}

static size_t join_rows(teff_ctx *ctx, const teffi_rows *rows, teffi_member_row *changed,
                        const void *arg)
{
    teffi_node *node = ctx->node;
    const teffi_membership *m = arg;
    const teffi_member_row *before = find_silo(rows, node->id.silo);
    size_t n = 0;
    memset(&changed[n], 0, sizeof changed[n]);
    changed[n].member.node = node->id;
    changed[n].member.status = TEFFI_ACTIVE;
    memcpy(changed[n].member.address, node->address, sizeof node->address);
    changed[n].member.types = m->types;
    changed[n].member.n_types = m->n_types;
    changed[n].etag = before ? before->etag : 0;
    n++;
    for (size_t i = 0; i < rows->n; i++) {
        bool own = before && before == &rows->rows[i];
        if (n == BURY_MAX || own || !stale_at_join(ctx, &rows->rows[i]))
            continue;
        changed[n] = rows->rows[i];
        changed[n++].dead = true;
    }
    return n + forget_oldest(rows, before, changed + n);
}

static void tick_due(teffi_timer *timer);

static void set_tick(teffi_membership *m, uint32_t ms)
{
    teffi_exec *exec = m->node->exec;
    uint64_t due = teffi_now(m->node->platform) + ms * 1000000ull;
    pthread_mutex_lock(&m->tick_lock);
    m->tick.fire = tick_due;
    if (!m->stopped && !m->ousted)
        exec->ops->timer_set(exec, &m->tick, due);
    pthread_mutex_unlock(&m->tick_lock);
}

/* The row must be there when others see us in the table: without it we would look long dead. */
static teff_err first_alive(teff_ctx *ctx)
{
    const teffi_platform *platform = ctx->node->platform;
    teff_err err = TEFF_E_UNKNOWN;
    for (int i = 0; i < CONFLICTS_MAX && err == TEFF_E_UNKNOWN; i++)
        err = teffi_alive_write(ctx, platform->wall_ns(platform->arg) / 1000000u);
    return err;
}

teff_err teffi_membership_join(teff_ctx *ctx)
{
    teffi_node *node = ctx->node;
    teffi_membership *m = node->membership;
    teff_err err = first_alive(ctx);
    if (!err)
        err = change_table(ctx, join_rows, m);
    if (err)
        return err;
    m->joined = true;
    push_view(ctx);
    set_tick(m, TICK_MS);
    return TEFF_OK;
}

/* Our own row with another status; nothing to do when the table has lost us. */
static size_t own_row(teff_ctx *ctx, const teffi_rows *rows, teffi_member_row *changed,
                      const void *arg)
{
    const teffi_member_row *mine = find_silo(rows, ctx->node->id.silo);
    if (!mine || mine->dead || !teffi_node_is(mine->member.node, ctx->node->id))
        return 0;
    changed[0] = *mine;
    changed[0].member.status = TEFFI_LEAVING;
    changed[0].dead = arg != NULL;
    return 1;
}

teff_err teffi_membership_leaving(teff_ctx *ctx)
{
    teff_err err = change_table(ctx, own_row, NULL);
    if (!err)
        push_view(ctx);
    return err;
}

teff_err teffi_membership_left(teff_ctx *ctx)
{
    teffi_membership *m = ctx->node->membership;
    m->left = true;
    teff_err err = change_table(ctx, own_row, m);
    if (!err)
        push_view(ctx);
    return err;
}

/* ---- following the table ---- */

static size_t bury(teff_ctx *ctx, const teffi_rows *rows, teffi_member_row *changed,
                   const void *arg)
{
    const teffi_node_id *who = arg;
    (void)ctx;
    for (size_t i = 0; i < rows->n; i++) {
        if (!teffi_node_is(rows->rows[i].member.node, *who) || rows->rows[i].dead)
            continue;
        changed[0] = rows->rows[i];
        changed[0].dead = true;
        return 1;
    }
    return 0;
}

static watched *watch_of(teffi_membership *m, teffi_node_id node)
{
    watched *free_one = &m->watch[0];
    for (int i = 0; i < WATCHED_MAX; i++) {
        if (teffi_node_is(m->watch[i].node, node))
            return &m->watch[i];
        if (m->watch[i].looked_ns < free_one->looked_ns)
            free_one = &m->watch[i];
    }
    *free_one = (watched){.node = node};
    return free_one;
}

/* By our own clock, so that nobody is buried for a clock that is wrong; and only while we looked:
 * when this process stood still, so may have the others. */
static bool silent(teff_ctx *ctx, teffi_node_id other)
{
    teffi_membership *m = ctx->node->membership;
    uint64_t figure, now = teffi_now(ctx->node->platform);
    if (teffi_alive_read(ctx, other, &figure))
        return false;
    watched *w = watch_of(m, other);
    uint64_t between = w->looked_ns ? now - w->looked_ns : 0;
    if (between > LOOK_MAX_MS * 1000000ull)
        between = LOOK_MAX_MS * 1000000ull;
    w->still_ns = w->figure == figure ? w->still_ns + between : 0;
    w->figure = figure;
    w->looked_ns = now;
    return w->still_ns > SILENT_MS * 1000000ull;
}

static size_t own_place(const teffi_view *view, teffi_node_id node)
{
    size_t i = 0;
    while (i < view->n_members && !teffi_node_is(view->members[i].node, node))
        i++;
    return i;
}

/* Each watches those that follow it in the view's order: everybody is watched by as many. */
static void bury_silent(teff_ctx *ctx)
{
    teffi_node *node = ctx->node;
    const teffi_view *view = teffi_view_get(node);
    bool changed = false;
    size_t own = view ? own_place(view, node->id) : 0;
    for (size_t i = 1; view && i < view->n_members && i <= WATCHED_MAX; i++) {
        const teffi_member *other = &view->members[(own + i) % view->n_members];
        if (!silent(ctx, other->node))
            continue;
        teffi_logf(&node->platform->log, TEFFI_WARN, "membership: %s is silent, declared dead",
                   other->address);
        changed |= change_table(ctx, bury, &other->node) == TEFF_OK;
    }
    teffi_view_unref(view);
    if (changed)
        push_view(ctx);
}

static void tick(teff_ctx *ctx, void *arg)
{
    teffi_membership *m = arg;
    uint64_t wall_ns = m->node->platform->wall_ns(m->node->platform->arg);
    teff_err err = teffi_alive_write(ctx, wall_ns / 1000000u);
    if (!err) {
        bury_silent(ctx);
        err = teffi_membership_refresh(ctx, 0);
    }
    forget_gone(m);
    if (err)
        teffi_logf(&m->node->platform->log, TEFFI_WARN, "membership: %s", teff_error(ctx));
    set_tick(m, err ? RETRY_MS : TICK_MS);
}

static void tick_due(teffi_timer *timer)
{
    teffi_membership *m = teffi_container(timer, teffi_membership, tick);
    pthread_mutex_lock(&m->tick_lock);
    bool failed = !m->stopped && teffi_task_start(m->node, tick, m, "membership: tick") != TEFF_OK;
    pthread_mutex_unlock(&m->tick_lock);
    if (failed)
        set_tick(m, RETRY_MS);
}

void teffi_membership_stop(teffi_membership *m)
{
    pthread_mutex_lock(&m->tick_lock);
    m->stopped = true;
    m->node->exec->ops->timer_cancel(m->node->exec, &m->tick);
    pthread_mutex_unlock(&m->tick_lock);
}

teffi_membership *teffi_membership_new(teffi_node *node, const uint32_t *types, size_t n)
{
    teffi_membership *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    m->node = node;
    m->types = calloc(n + 1, sizeof *m->types);
    m->n_types = n;
    if (!m->types) {
        free(m);
        return NULL;
    }
    if (n)
        memcpy(m->types, types, n * sizeof *types);
    pthread_mutex_init(&m->adopt_lock, NULL);
    pthread_mutex_init(&m->tick_lock, NULL);
    node->membership = m;
    teffi_node_target(node, TEFFI_SLOT_MEMBERSHIP, handle);
    return m;
}

void teffi_membership_free(teffi_membership *m)
{
    if (!m)
        return;
    teffi_view_unref(m->node->view);
    m->node->view = NULL;
    pthread_mutex_destroy(&m->adopt_lock);
    pthread_mutex_destroy(&m->tick_lock);
    free(m->types);
    free(m);
}
