/* heartbeat.c - writes this silo's heartbeat, reads the others', declares silent silos dead. */
#include "cluster/join.h"

#include "call/task.h"

enum {
    BEAT_MS = 2000,    /* between two heartbeats; each also reads the table's version */
    RETRY_MS = 500,    /* after a failed heartbeat */
    SILENT_MS = 15000, /* a silo whose heartbeat does not change for this long is declared dead */
    LOOK_MAX_MS =
        5000 /* longest interval that counts: after a longer one, this process stood still */
};

static void beat_when_due(teffi_timer *timer);

static void set_timer(teffi_membership *m, uint32_t ms)
{
    teffi_exec *exec = m->node->home.exec;
    uint64_t due = teffi_now(m->node->platform) + ms * 1000000ull;
    pthread_mutex_lock(&m->beat.lock);
    m->beat.timer.fire = beat_when_due;
    if (!m->beat.stopped && !m->ousted)
        exec->ops->timer_set(exec, &m->beat.timer, due);
    pthread_mutex_unlock(&m->beat.lock);
}

static size_t change_row_to_dead(teff_ctx *ctx, const teffi_rows *rows, teffi_member_row *changed,
                                 const void *arg)
{
    const teffi_node_id *who = arg;
    (void)ctx;
    for (size_t i = 0; i < rows->n; i++) {
        if (!teffi_node_is(rows->rows[i].member.node, *who) || rows->rows[i].dead)
            continue;
        changed[0] = rows->rows[i];
        changed[0].dead = true;
        return 1 + teffi_rows_forget_oldest(rows, 0, changed + 1);
    }
    return 0;
}

static teffi_watched *find_watched(teffi_membership *m, teffi_node_id node)
{
    teffi_watched *free_one = &m->beat.watched[0];
    for (int i = 0; i < TEFFI_WATCHED_MAX; i++) {
        if (teffi_node_is(m->beat.watched[i].node, node))
            return &m->beat.watched[i];
        if (m->beat.watched[i].looked_ns < free_one->looked_ns)
            free_one = &m->beat.watched[i];
    }
    *free_one = (teffi_watched){.node = node};
    return free_one;
}

/* The silence is measured by this silo's own clock, so that a wrong clock kills no silo. Intervals
 * over LOOK_MAX_MS do not count: if this process stood still, the others may have, too. */
static bool is_silent(teff_ctx *ctx, teffi_node_id other)
{
    teffi_membership *m = ctx->node->membership;
    uint64_t figure, now = teffi_now(ctx->node->platform);
    teff_err err = teffi_alive_read(ctx, other, &figure);
    if (err && err != TEFF_E_MALFORMED) /* MALFORMED: a live silo overwrites the damaged row */
        return false;
    teffi_watched *w = find_watched(m, other);
    uint64_t between = w->looked_ns ? now - w->looked_ns : 0;
    if (between > LOOK_MAX_MS * 1000000ull)
        between = LOOK_MAX_MS * 1000000ull;
    w->still_ns = w->figure == figure ? w->still_ns + between : 0;
    w->figure = figure;
    w->looked_ns = now;
    return w->still_ns > SILENT_MS * 1000000ull;
}

/* Each silo watches the next ones in the view, so that every silo is watched by equally many. */
static void declare_silent_dead(teff_ctx *ctx)
{
    teffi_node *node = ctx->node;
    const teffi_view *view = teffi_view_get(node);
    bool changed = false;
    const teffi_member *self = view ? teffi_view_find(view, node->id) : NULL;
    size_t own = self ? (size_t)(self - view->members) : 0;
    for (size_t i = 1; view && i < view->n_members && i <= TEFFI_WATCHED_MAX; i++) {
        const teffi_member *other = &view->members[(own + i) % view->n_members];
        if (!is_silent(ctx, other->node))
            continue;
        teffi_logf(&node->platform->log, TEFF_LOG_WARN, "membership: %s is silent, declared dead",
                   other->address);
        changed |= teffi_membership_change(ctx, change_row_to_dead, &other->node) == TEFF_OK;
    }
    teffi_view_unref(view);
    if (changed)
        teffi_membership_push_view(ctx, false);
}

static void run_heartbeat(teff_ctx *ctx, void *arg)
{
    teffi_membership *m = arg;
    uint64_t wall_ns = m->node->platform->wall_ns(m->node->platform->arg);
    teff_err err = teffi_alive_write(ctx, wall_ns / 1000000u);
    if (!err) {
        declare_silent_dead(ctx);
        err = teffi_membership_refresh(ctx, 0);
    }
    if (m->ousted) /* the heartbeat just written would stay in the table for ever */
        (void)!teffi_alive_forget(ctx, m->node->id);
    teffi_membership_drop_departed(m);
    if (err)
        teffi_logf(&m->node->platform->log, TEFF_LOG_WARN, "membership: %s", teff_error(ctx));
    set_timer(m, err ? RETRY_MS : BEAT_MS);
}

static void beat_when_due(teffi_timer *timer)
{
    teffi_membership *m = teffi_container(timer, teffi_membership, beat.timer);
    pthread_mutex_lock(&m->beat.lock);
    bool failed = !m->beat.stopped &&
                  teffi_task_start(&m->node->home, run_heartbeat, m, "membership: heartbeat", true);
    pthread_mutex_unlock(&m->beat.lock);
    if (failed)
        set_timer(m, RETRY_MS);
}

void teffi_heartbeat_stop(teffi_membership *m)
{
    pthread_mutex_lock(&m->beat.lock);
    m->beat.stopped = true;
    m->node->home.exec->ops->timer_cancel(m->node->home.exec, &m->beat.timer);
    pthread_mutex_unlock(&m->beat.lock);
}

void teffi_heartbeat_start(teffi_membership *m)
{
    set_timer(m, BEAT_MS);
}
