/* heartbeat.c - writes this silo's heartbeat, which renews its lease; reads the others', declares
 * silent silos dead. */
#include "cluster/join.h"
#include "cluster/promise.h"

#include "call/task.h"
#include "cluster/reach.h"
#include "cluster/watch.h"

/* Times are parts of a lease: the silo's own for its heartbeats and looks, the other silo's for its
 * death. With the default of 10 s, a heartbeat is written each 2 s, or 0.5 s after a failed one. A
 * silo is declared dead when its heartbeat has stood still for 15 s; for 10.5 s if its connection
 * broke: its lease is over by then, unless the clocks differ by 5 %. A lease that promises may have
 * extended needs more, see promise.c. */
enum { BEATS = 5, RETRIES = 20, SILENT_PERCENT = 150, BROKEN_PERCENT = 105 };

/* out: the given percentage of the member's lease, in nanoseconds. */
static uint64_t get_lease_percent_ns(const teffi_member *member, unsigned percent)
{
    return member->lease_ms * UINT64_C(10000) * percent;
}

/* ---- the other silos ---- */

/* Each silo watches the silos whose connections broke, and the NEXT silos after it in the view, so
 * that every silo has equally many watchers. */
enum { NEXT = 16 };

/* Silos whose heartbeats stood still. */
typedef struct silent_silos {
    teffi_silent of[TEFFI_SILENT_MAX];
    size_t n;
} silent_silos;

/* Marks row as dead if its silo is one of the silent ones and still silent. Reads the heartbeat
 * again: a silo that has written one meanwhile is not dead. in: row, the caller's copy. out: false:
 * the silo is not declared dead, and the caller drops the copy. */
static bool mark_dead_if_still_silent(teff_ctx *ctx, const silent_silos *silent,
                                      teffi_member_row *row)
{
    for (size_t i = 0; i < silent->n; i++) {
        if (!teffi_node_equals(row->member.node, silent->of[i].node))
            continue;
        teffi_alive alive;
        bool dead = !teffi_heartbeat_read(ctx, row->member.node, &alive) &&
                    alive.etag == silent->of[i].etag;
        row->dead = row->dies = dead;
        row->alive_etag = alive.etag;
        return dead;
    }
    return false;
}

/* A teffi_change_fn: declares the silent silos dead, and marks the oldest tombstones to be removed.
 * in: arg, the silent silos. */
static size_t change_rows_to_dead(teff_ctx *ctx, const teffi_rows *rows, teffi_member_row *changed,
                                  const void *arg)
{
    size_t n = 0;
    for (size_t i = 0; i < rows->n; i++) {
        changed[n] = rows->rows[i];
        if (!rows->rows[i].dead && mark_dead_if_still_silent(ctx, arg, &changed[n]))
            n++;
    }
    return n ? n + teffi_rows_mark_old_tombstones(rows, 0, changed + n) : 0;
}

/* Looks at the other silo's heartbeat.
 * out: for how much longer the heartbeat may stand still; 0: the silo is silent, and *silent is
 * set. If the store cannot be read, the silo does not count as silent. */
static uint64_t check_watched_silo(teff_ctx *ctx, const teffi_member *other, teffi_silent *silent)
{
    teffi_alive alive;
    bool broken = teffi_reach_is_suspected(ctx->node->membership, other->node);
    uint64_t limit_ns = get_lease_percent_ns(other, broken ? BROKEN_PERCENT : SILENT_PERCENT);
    uint64_t outage_ns = other->outage_ms * UINT64_C(10000) * BROKEN_PERCENT, still_ns;
    if (teffi_watch_look(ctx, other, &alive, &still_ns))
        return limit_ns;
    *silent = (teffi_silent){.node = other->node,
                             .address = other->address,
                             .etag = alive.etag,
                             .beat = alive.beat,
                             .view = alive.view,
                             .needs_consent = still_ns <= limit_ns + outage_ns && !alive.plain};
    return still_ns > limit_ns ? 0 : limit_ns - still_ns + 1;
}

/* Does this silo watch the member with index `at`? in: ahead: the distance in the view from this
 * silo's own index to `at`; after the last member comes the first. */
static bool is_watched(teffi_membership *m, const teffi_view *view, size_t ahead, size_t at)
{
    return ahead <= NEXT || teffi_reach_is_suspected(m, view->members[at].node);
}

/* Adds a silo to the list. If the list is full, a silo that needs no consent replaces a listed silo
 * that needs consent, if there is one; any other silo is left out. */
static void add_silent_silo_if_room(silent_silos *silent, const teffi_silent *one)
{
    if (silent->n < TEFFI_SILENT_MAX) {
        silent->of[silent->n++] = *one;
        return;
    }
    for (size_t i = 0; i < silent->n && !one->needs_consent; i++) {
        if (!silent->of[i].needs_consent)
            continue;
        silent->of[i] = *one;
        return;
    }
}

/* Checks the watched silos and lists the silent ones, TEFFI_SILENT_MAX at most. in: next_ns, the
 * time to the next look. out: next_ns, or less if another silo may be silent before that. */
static uint64_t list_silent_silos(teff_ctx *ctx, const teffi_view *view, uint64_t next_ns,
                                  silent_silos *silent)
{
    const teffi_member *self = teffi_view_find_member(view, ctx->node->id);
    size_t own = self ? (size_t)(self - view->members) : 0;
    for (size_t i = 1; i < view->n_members; i++) {
        size_t at = (own + i) % view->n_members;
        teffi_silent one;
        if (!is_watched(ctx->node->membership, view, i, at))
            continue;
        uint64_t left_ns = check_watched_silo(ctx, &view->members[at], &one);
        if (!left_ns)
            add_silent_silo_if_room(silent, &one);
        else if (left_ns < next_ns)
            next_ns = left_ns;
    }
    return next_ns;
}

/* The task of push_view_soon(). */
static void push_view_as_task(teff_ctx *ctx, void *arg)
{
    (void)arg;
    teffi_membership_push_view(ctx, false);
}

/* Starts a task that makes the other silos adopt this silo's view. It is a task of its own, since a
 * silo that does not respond must not delay the next look. If there is no memory for the task, the
 * other silos adopt the view at their next look. */
static void push_view_soon(teffi_node *node)
{
    (void)!teffi_task_start(&node->home, push_view_as_task, NULL, "membership: push a view", true);
}

/* Logs why a silent silo is not declared dead, unless this was already logged after the silo's last
 * heartbeat. */
static void log_missing_consents(teff_ctx *ctx, const teffi_silent *silent)
{
    teffi_watched_silo *w = teffi_watch_find_entry(ctx->node->membership, silent->node);
    const teffi_log *log = &ctx->node->platform->log;
    if (w->unconsented)
        return;
    w->unconsented = true;
    if (silent->consents_needed)
        teffi_logf(
            log, TEFF_LOG_WARN,
            "membership: %s is silent, but is not declared dead yet: its lease may have been "
            "extended, and %zu of the %zu needed silos consent",
            silent->address, silent->consents, silent->consents_needed);
    else
        teffi_logf(
            log, TEFF_LOG_WARN,
            "membership: %s is silent, but is not declared dead yet: its lease may have been "
            "extended, and its view %llu, which says whose consent is needed, is not known",
            silent->address, (unsigned long long)silent->view);
}

/* Asks the members to consent to the death of each silent silo with needs_consent.
 * teffi_promise_ask_consents() clears this flag if enough members consent. A silo whose flag is
 * still set is dropped from the list: its lease may have been extended. */
static void ask_consents_and_drop_unconsented(teff_ctx *ctx, const teffi_view *view,
                                              silent_silos *silent)
{
    size_t kept = 0;
    bool any = false;
    for (size_t i = 0; i < silent->n; i++)
        any |= silent->of[i].needs_consent;
    if (any)
        teffi_promise_ask_consents(ctx, view, silent->of, silent->n);
    for (size_t i = 0; i < silent->n; i++)
        if (silent->of[i].needs_consent)
            log_missing_consents(ctx, &silent->of[i]);
        else
            silent->of[kept++] = silent->of[i];
    silent->n = kept;
}

/* Logs which silent silos were declared dead: those that the new view lacks. The others have
 * written a heartbeat meanwhile. in: err: of the change; if it is set, all silos are logged. */
static void log_declared_deaths(teff_ctx *ctx, const silent_silos *silent, teff_err err)
{
    const teffi_view *now = teffi_view_ref_current(ctx->node);
    for (size_t i = 0; i < silent->n; i++)
        if (err || !teffi_view_find_member(now, silent->of[i].node))
            teffi_logf(&ctx->node->platform->log, TEFF_LOG_WARN, "membership: %s is silent, %s",
                       silent->of[i].address, err ? teff_error(ctx) : "declared dead");
    teffi_view_unref(now);
}

/* Checks the watched silos and declares the silent ones dead. in: next_ns, the time to the next
 * look. out: next_ns, or less if a silo may be silent before that; 0 if this call has tried
 * to declare silos dead: the caller looks again at once, because there may be more silent silos
 * than one change can declare dead. */
static uint64_t declare_silent_silos_dead(teff_ctx *ctx, uint64_t next_ns)
{
    const teffi_view *view = teffi_view_ref_current(ctx->node);
    silent_silos silent = {.n = 0};
    if (view) {
        teffi_membership_prune_broken_connections(ctx->node->membership, view);
        next_ns = list_silent_silos(ctx, view, next_ns, &silent);
        ask_consents_and_drop_unconsented(ctx, view, &silent);
        teffi_reach_judge(ctx, view);
    }
    if (silent.n) {
        teff_err err = teffi_membership_change(ctx, change_rows_to_dead, &silent);
        log_declared_deaths(ctx, &silent, err);
        if (!err)
            push_view_soon(ctx->node);
        next_ns = 0;
    }
    teffi_view_unref(view);
    return next_ns;
}

/* ---- looks ---- */

/* A look reads the table and the heartbeats of other silos, and may change the table. It is a task
 * apart from the heartbeat: however long it takes, the lease is renewed. */
static void start_look_task(teffi_timer *timer);

/* Sets the timer of the next look. in: after_ns: the time from now to the next look. It is ignored,
 * and the next look is due at once, if a connection broke during the look that ends now. */
static void set_look_timer(teffi_membership *m, uint64_t after_ns)
{
    uint64_t due_ns = teffi_now(m->node->platform) + after_ns;
    pthread_mutex_lock(&m->beat.lock);
    m->beat.look.fire = start_look_task;
    teffi_membership_set_timer(m, &m->beat.look, m->beat.hurry ? 0 : due_ns);
    m->beat.looks = false;
    m->beat.hurry = false;
    pthread_mutex_unlock(&m->beat.lock);
}

static bool last_heartbeat_failed(teffi_membership *m)
{
    pthread_mutex_lock(&m->beat.lock);
    bool failed = m->beat.failed;
    pthread_mutex_unlock(&m->beat.lock);
    return failed;
}

static void log_error(const teff_ctx *ctx, teff_err err)
{
    if (err && err != TEFF_E_CONFLICT) /* a conflict has no text and is logged as a lost lease */
        teffi_logf(&ctx->node->platform->log, TEFF_LOG_WARN, "membership: %s", teff_error(ctx));
}

/* The task of one check: declares silent silos dead and refreshes the view. Skips both if this silo
 * could not write its own last heartbeat. In either case, disconnects departed silos and sets the
 * timer of the next check. */
static void check_heartbeats(teff_ctx *ctx, void *arg)
{
    teffi_membership *m = arg;
    uint64_t lease_ns = teffi_lease_length_ns(&m->node->home.lease), next_ns = lease_ns / RETRIES;
    teffi_reach_probe_if_needed(m);
    if (!last_heartbeat_failed(m)) {
        uint64_t left_ns = declare_silent_silos_dead(ctx, lease_ns / BEATS);
        teff_err err = teffi_membership_refresh(ctx, 0);
        log_error(ctx, err);
        next_ns = err ? next_ns : left_ns;
    }
    teffi_membership_disconnect_departed(m);
    set_look_timer(m, next_ns);
}

static void start_look_task(teffi_timer *timer)
{
    teffi_membership *m = teffi_container(timer, teffi_membership, beat.look);
    pthread_mutex_lock(&m->beat.lock);
    m->beat.looks = !m->beat.stopped;
    bool failed = !m->beat.stopped &&
                  teffi_task_start(&m->node->home, check_heartbeats, m, "membership: look", true);
    pthread_mutex_unlock(&m->beat.lock);
    if (failed)
        set_look_timer(m, teffi_lease_length_ns(&m->node->home.lease) / RETRIES);
}

/* ---- heartbeats ---- */

static void start_heartbeat_task(teffi_timer *timer);

static void record_beat_result_and_set_timer(teffi_membership *m, bool failed)
{
    uint64_t after_ns = teffi_lease_length_ns(&m->node->home.lease) / (failed ? RETRIES : BEATS);
    pthread_mutex_lock(&m->beat.lock);
    m->beat.failed = failed;
    m->beat.timer.fire = start_heartbeat_task;
    teffi_membership_set_timer(m, &m->beat.timer, teffi_now(m->node->platform) + after_ns);
    pthread_mutex_unlock(&m->beat.lock);
}

/* The task of one heartbeat: writes the heartbeat to the store, and sets the timer of the next
 * heartbeat; does neither if the workers are stuck. If the write succeeds, the lease is renewed. If
 * it fails with TEFF_E_CONFLICT, the lease is lost. */
static void run_heartbeat(teff_ctx *ctx, void *arg)
{
    teffi_membership *m = arg;
    teffi_own_beat beat;
    teffi_node_id *unreached;
    if (teffi_stuck_end_lease_if_stuck(m))
        return;
    size_t n_unreached = teffi_reach_list_unreached(ctx, &unreached);
    teffi_promise_prepare_next_beat(m, &beat);
    teff_err err = teffi_heartbeat_write_and_renew_lease(ctx, &beat, unreached, n_unreached);
    if (!err)
        teffi_promise_record_confirmed_beat(m, &beat);
    if (err == TEFF_E_CONFLICT)
        teffi_membership_lose_lease(m, "the cluster has declared it dead, or it runs twice");
    log_error(ctx, err);
    record_beat_result_and_set_timer(m, err != TEFF_OK);
}

/* The timer's callback: starts the task of the heartbeat. */
static void start_heartbeat_task(teffi_timer *timer)
{
    teffi_membership *m = teffi_container(timer, teffi_membership, beat.timer);
    pthread_mutex_lock(&m->beat.lock);
    bool failed = !m->beat.stopped &&
                  teffi_task_start(&m->node->home, run_heartbeat, m, "membership: heartbeat", true);
    pthread_mutex_unlock(&m->beat.lock);
    if (failed)
        record_beat_result_and_set_timer(m, true);
}

void teffi_membership_stop_timers(teffi_membership *m)
{
    const teffi_exec_ops *ops = m->node->home.exec->ops;
    pthread_mutex_lock(&m->beat.lock);
    m->beat.stopped = true; /* checked by the callback of a timer that is firing already */
    ops->timer_cancel(m->node->home.exec, &m->beat.timer);
    ops->timer_cancel(m->node->home.exec, &m->beat.look);
    ops->timer_cancel(m->node->home.exec, &m->beat.expiry);
    ops->timer_cancel(m->node->home.exec, &m->beat.promise);
    pthread_mutex_unlock(&m->beat.lock);
}

void teffi_membership_start_timers(teffi_membership *m)
{
    teffi_membership_start_lease_timer(m);
    teffi_promise_schedule_round(m);
    set_look_timer(m, teffi_lease_length_ns(&m->node->home.lease) / BEATS);
    record_beat_result_and_set_timer(m, false);
}
