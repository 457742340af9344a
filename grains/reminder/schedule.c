/* schedule.c - keeps the reminders of this silo's partitions: arms, finds and drops them; starts
 * the tasks that load and tick them. */
#include "reminder/schedule.h"

#include <stdlib.h>
#include "call/task.h"

enum {
    RELOAD_MS = 300000, /* rows that this silo was not told of are found so late */
    /* A reload comes earlier by up to this, so that silos do not read at the same time. */
    RELOAD_SPREAD_MS = 60000,
    TICK_TIMEOUT_MS = 30000,
    RETRY_MS = 1000,     /* of a load that failed, and of a task for which there was no memory */
    STEP_MS = 1000,      /* changes of the wall clock below this are ignored at a load */
    TRIES_SHIFT_MAX = 6, /* the pauses between tries double so often: 1 s to 64 s */
    /* Of the ticks under way, at most so many are tries again: grains that do not respond leave
     * room for the others. */
    RETRYING_MAX = TEFFI_REMINDER_TICKS_MAX / 2
};

static uint64_t read_wall_ms(const teffi_reminders *all)
{
    const teffi_platform *platform = all->grains->node->platform;
    return platform->wall_ns(platform->arg) / 1000000;
}

static uint64_t due_ns_after_ms(const teffi_reminders *all, uint64_t ms)
{
    return teffi_now(all->grains->node->platform) + ms * 1000000;
}

/* ---- tasks; without the lock ---- */

static void set_timer(teffi_reminders *all, uint64_t ms);

/* Starts one more task of ticks. in: it is counted in all->tasks. out: false: no memory. */
static bool start_tick_task(teffi_reminders *all)
{
    if (!teffi_task_start(&all->grains->node->home, all->run_ticks, all, "ticks of reminders",
                          false))
        return true;
    pthread_mutex_lock(&all->lock);
    all->tasks--;
    set_timer(all, RETRY_MS);
    pthread_mutex_unlock(&all->lock);
    return false;
}

/* in: all->loads was set by the caller. */
static void start_load_task(teffi_reminders *all)
{
    if (!teffi_task_start(&all->grains->node->home, all->run_load, all, "load reminders", false))
        return;
    pthread_mutex_lock(&all->lock);
    all->loads = false;
    set_timer(all, RETRY_MS);
    pthread_mutex_unlock(&all->lock);
}

/* ---- under the lock ---- */

/* out: true: the caller must call start_load_task() without the lock. */
static bool claim_load(teffi_reminders *all)
{
    bool any = false;
    for (unsigned i = 0; i < TEFFI_PARTITIONS; i++)
        any |= all->load[i] == TEFFI_LOAD_WANTED;
    if (!any || all->loads || all->closed)
        return false;
    all->loads = true;
    return true;
}

/* out: how many of the reminders that are due may tick now. */
static uint32_t count_startable(const teffi_reminders *all)
{
    uint32_t room = RETRYING_MAX - all->retrying, retries = all->n_due[true];
    return all->n_due[false] + (retries < room ? retries : room);
}

/* Is a task missing: one that does not wait for a tick? out: true: the caller must call
 * start_tick_task() without the lock. */
static bool claim_tick_task(teffi_reminders *all)
{
    if (all->closed || all->tasks - all->ticking >= count_startable(all) ||
        all->tasks >= TEFFI_REMINDER_TICKS_MAX)
        return false;
    all->tasks++;
    return true;
}

static void set_reload_timer(teffi_reminders *all, uint64_t now_ns)
{
    set_timer(all, all->reload_ns > now_ns ? (all->reload_ns - now_ns) / 1000000 + 1 : 0);
}

static uint64_t choose_reload_ns(const teffi_reminders *all)
{
    const teffi_platform *platform = all->grains->node->platform;
    return due_ns_after_ms(all, RELOAD_MS - platform->random(platform->arg) % RELOAD_SPREAD_MS);
}

/* Marks all partitions to be loaded again if that is due. */
static void begin_reload_if_due(teffi_reminders *all, uint64_t now_ns)
{
    if (now_ns < all->reload_ns)
        return;
    for (unsigned i = 0; i < TEFFI_PARTITIONS; i++)
        if (all->load[i] == TEFFI_LOAD_LOADED)
            all->load[i] = TEFFI_LOAD_WANTED;
    all->reload_ns = choose_reload_ns(all);
}

/* The timer of all: loads all partitions again if that is due, and starts tasks. */
static void on_reminders_timer(teffi_timer *timer)
{
    teffi_reminders *all = teffi_container(timer, teffi_reminders, timer);
    uint64_t now_ns = teffi_now(all->grains->node->platform);
    pthread_mutex_lock(&all->lock);
    all->timer_ns = 0;
    begin_reload_if_due(all, now_ns);
    bool loads = claim_load(all), ticks = claim_tick_task(all);
    set_reload_timer(all, now_ns);
    pthread_mutex_unlock(&all->lock);
    if (loads)
        start_load_task(all);
    while (ticks && start_tick_task(all)) {
        pthread_mutex_lock(&all->lock);
        ticks = claim_tick_task(all);
        pthread_mutex_unlock(&all->lock);
    }
}

/* Lets the timer of all fire in ms milliseconds, or earlier if it is set to an earlier time. If it
 * has just fired, on_reminders_timer() waits for the lock, and does what is wanted now. */
static void set_timer(teffi_reminders *all, uint64_t ms)
{
    teffi_exec *exec = all->grains->node->home.exec;
    uint64_t due_ns = due_ns_after_ms(all, ms);
    if (all->closed ||
        (all->timer_ns && (all->timer_ns <= due_ns || !exec->ops->timer_cancel(exec, &all->timer))))
        return;
    all->timer_ns = due_ns;
    all->timer.fire = on_reminders_timer;
    exec->ops->timer_set(exec, &all->timer, due_ns);
}

static void set_reminder_due(teffi_reminder *r)
{
    r->state = TEFFI_REMINDER_DUE;
    r->retries = r->tries > 0;
    TAILQ_INSERT_TAIL(&r->all->due[r->retries], r, due_link);
    r->all->n_due[r->retries]++;
}

static void remove_from_due(teffi_reminder *r)
{
    TAILQ_REMOVE(&r->all->due[r->retries], r, due_link);
    r->all->n_due[r->retries]--;
}

/* The timer of a reminder: it is due, or was dropped when the timer had fired already. */
static void on_reminder_timer(teffi_timer *timer)
{
    teffi_reminder *r = teffi_container(timer, teffi_reminder, timer);
    teffi_reminders *all = r->all;
    pthread_mutex_lock(&all->lock);
    bool gone = r->gone;
    if (!gone)
        set_reminder_due(r);
    bool ticks = claim_tick_task(all);
    pthread_mutex_unlock(&all->lock);
    if (gone)
        free(r);
    if (ticks)
        (void)start_tick_task(all);
}

/* in: the reminder's timer is not set. */
static void arm_reminder_at(teffi_reminder *r, uint64_t due_ns)
{
    teffi_exec *exec = r->all->grains->node->home.exec;
    r->state = TEFFI_REMINDER_ARMED;
    r->due_ns = due_ns;
    r->timer.fire = on_reminder_timer;
    exec->ops->timer_set(exec, &r->timer, due_ns);
}

/* out: when the next tick is due, by the monotonic clock. *limited: the wall clock was set back,
 * and this is a guess. */
static uint64_t compute_due_ns(const teffi_reminder *r, bool *limited)
{
    return due_ns_after_ms(r->all,
                           teffi_reminder_wait_ms(&r->value, read_wall_ms(r->all), limited));
}

/* Arms the reminder anew, unless a tick is under way. If its timer has fired already, only stores
 * the new time: the tick finds that it is too early, and the reminder is armed again. */
static void arm_reminder_again(teffi_reminder *r)
{
    teffi_exec *exec = r->all->grains->node->home.exec;
    if (r->state == TEFFI_REMINDER_TICKS)
        return;
    r->due_ns = compute_due_ns(r, NULL);
    if (r->state == TEFFI_REMINDER_DUE)
        remove_from_due(r);
    else if (!exec->ops->timer_cancel(exec, &r->timer))
        return;
    arm_reminder_at(r, r->due_ns);
}

static void remove_from_partition(teffi_reminder *r)
{
    teffi_table_del(&r->all->parts[r->partition], &r->node);
    r->gone = true;
}

/* Removes the reminder from its partition, and frees it now or when its timer or tick ends. */
static void drop_reminder(teffi_reminder *r)
{
    teffi_exec *exec = r->all->grains->node->home.exec;
    remove_from_partition(r);
    if (r->state == TEFFI_REMINDER_DUE)
        remove_from_due(r);
    if (r->state == TEFFI_REMINDER_DUE ||
        (r->state == TEFFI_REMINDER_ARMED && exec->ops->timer_cancel(exec, &r->timer)))
        free(r);
}

static void drop_partition(teffi_reminders *all, unsigned partition)
{
    size_t at = 0;
    teffi_tnode *next = NULL, *node;
    all->load[partition] = TEFFI_LOAD_NONE;
    while ((node = teffi_table_next_node(&all->parts[partition], &at, &next)))
        drop_reminder(teffi_container(node, teffi_reminder, node));
    teffi_table_fini(&all->parts[partition]);
}

static teffi_part_phase read_phase(const teffi_reminders *all, unsigned partition)
{
    teffi_shard *shard = &all->grains->shards->at[partition];
    pthread_mutex_lock(&shard->lock);
    teffi_part_phase phase = shard->phase;
    pthread_mutex_unlock(&shard->lock);
    return phase;
}

static teffi_reminder *find_reminder(const teffi_reminders *all, teffi_bytes key,
                                     unsigned partition, uint64_t hash)
{
    teffi_tnode *node = teffi_table_find_first(&all->parts[partition], hash);
    for (; node; node = teffi_table_find_next(node)) {
        teffi_reminder *r = teffi_container(node, teffi_reminder, node);
        if (r->key_len == key.len && memcmp(r->key, key.data, key.len) == 0)
            return r;
    }
    return NULL;
}

/* out: the new reminder, which is not armed; NULL: no memory. */
static teffi_reminder *insert_reminder(teffi_reminders *all, teffi_bytes key, unsigned partition,
                                       uint64_t hash, const char *type)
{
    size_t type_bytes = strlen(type) + 1;
    teffi_reminder *r = malloc(sizeof *r + key.len + type_bytes);
    if (!r)
        return NULL;
    *r =
        (teffi_reminder){.all = all, .partition = (uint8_t)partition, .key_len = (uint16_t)key.len};
    memcpy(r->key, key.data, key.len);
    memcpy(r->key + key.len, type, type_bytes);
    if (teffi_table_add(&all->parts[partition], &r->node, hash))
        return r;
    free(r);
    return NULL;
}

/* The same row was loaded again: arms the reminder anew if the wall clock was set since. A limited
 * wait begins anew with each load: it does not put off the tick. */
static void follow_wall_clock(teffi_reminder *r)
{
    bool limited;
    uint64_t due_ns = compute_due_ns(r, &limited), step_ns = STEP_MS * 1000000ull;
    bool earlier = due_ns + step_ns<r->due_ns, later = due_ns> r->due_ns + step_ns;
    if (r->state == TEFFI_REMINDER_ARMED && !r->tries && (earlier || (later && !limited)))
        arm_reminder_again(r);
}

static void note_row(teffi_reminders *all, teffi_bytes key, unsigned partition, const char *type,
                     uint64_t etag, const teffi_reminder_value *value)
{
    uint64_t hash = teffi_siphash(&all->grains->secret, key.data, key.len);
    teffi_reminder *r = find_reminder(all, key, partition, hash);
    bool is_new = !r;
    if (is_new && !(r = insert_reminder(all, key, partition, hash, type))) {
        all->lacks_memory = true; /* a load that is under way fails */
        if (all->load[partition] == TEFFI_LOAD_LOADED)
            all->load[partition] = TEFFI_LOAD_WANTED;
        set_timer(all, RETRY_MS);
        return;
    }
    if (etag <= r->etag) {
        if (etag == r->etag)
            follow_wall_clock(r);
        return;
    }
    r->etag = etag;
    r->value = *value;
    r->tries = 0;
    r->rereads = false;
    if (is_new)
        arm_reminder_at(r, compute_due_ns(r, NULL));
    else
        arm_reminder_again(r);
}

/* ---- for others ---- */

bool teffi_reminders_init(teffi_reminders *all, teffi_grains *grains, teffi_task_fn *run_ticks,
                          teffi_task_fn *load)
{
    all->grains = grains;
    all->run_ticks = run_ticks;
    all->run_load = load;
    all->tick_timeout_ms = TICK_TIMEOUT_MS;
    all->cancel = teff_cancel_new();
    pthread_mutex_init(&all->lock, NULL);
    TAILQ_INIT(&all->due[false]);
    TAILQ_INIT(&all->due[true]);
    all->reload_ns = choose_reload_ns(all);
    return all->cancel != NULL;
}

void teffi_reminders_fini(teffi_reminders *all)
{
    if (!all->grains)
        return;
    for (unsigned i = 0; i < TEFFI_PARTITIONS; i++)
        drop_partition(all, i);
    teff_cancel_free(all->cancel);
    pthread_mutex_destroy(&all->lock);
}

void teffi_reminders_stop(teffi_reminders *all)
{
    teffi_exec *exec = all->grains->node->home.exec;
    pthread_mutex_lock(&all->lock);
    all->closed = true;
    (void)exec->ops->timer_cancel(exec, &all->timer);
    for (unsigned i = 0; i < TEFFI_PARTITIONS; i++)
        drop_partition(all, i);
    pthread_mutex_unlock(&all->lock);
    teff_cancel_fire(all->cancel);
}

void teffi_reminders_apply_phases(teffi_grains *grains)
{
    teffi_reminders *all = grains->reminders;
    pthread_mutex_lock(&all->lock);
    for (unsigned i = 0; i < TEFFI_PARTITIONS; i++) {
        teffi_part_phase phase = read_phase(all, i);
        if (phase == TEFFI_NOT_MINE)
            drop_partition(all, i);
        else if (phase == TEFFI_SERVING && all->load[i] == TEFFI_LOAD_NONE)
            all->load[i] = TEFFI_LOAD_WANTED;
    }
    bool loads = claim_load(all);
    pthread_mutex_unlock(&all->lock);
    if (loads)
        start_load_task(all);
}

bool teffi_reminders_note(teffi_reminders *all, teffi_bytes key, unsigned partition,
                          const char *type, uint64_t etag, const teffi_reminder_value *value)
{
    pthread_mutex_lock(&all->lock);
    bool owner = !all->closed && read_phase(all, partition) != TEFFI_NOT_MINE;
    if (owner)
        note_row(all, key, partition, type, etag, value);
    pthread_mutex_unlock(&all->lock);
    return owner;
}

bool teffi_reminders_forget(teffi_reminders *all, teffi_bytes key, unsigned partition,
                            uint64_t etag)
{
    uint64_t hash = teffi_siphash(&all->grains->secret, key.data, key.len);
    pthread_mutex_lock(&all->lock);
    bool owner = !all->closed && read_phase(all, partition) != TEFFI_NOT_MINE;
    teffi_reminder *r = owner ? find_reminder(all, key, partition, hash) : NULL;
    if (r && r->etag <= etag)
        drop_reminder(r);
    pthread_mutex_unlock(&all->lock);
    return owner;
}

bool teffi_reminders_is_closed(teffi_reminders *all)
{
    pthread_mutex_lock(&all->lock);
    bool closed = all->closed;
    pthread_mutex_unlock(&all->lock);
    return closed;
}

/* out: the reminder that is due longest, of those that may tick now; NULL: none. */
static teffi_reminder *find_startable(const teffi_reminders *all)
{
    teffi_reminder *fresh = TAILQ_FIRST(&all->due[false]);
    teffi_reminder *retry = all->retrying < RETRYING_MAX ? TAILQ_FIRST(&all->due[true]) : NULL;
    return !retry || (fresh && fresh->due_ns <= retry->due_ns) ? fresh : retry;
}

teffi_reminder *teffi_reminders_take_due(teffi_reminders *all, uint64_t *etag,
                                         teffi_reminder_value *value, bool *rereads)
{
    pthread_mutex_lock(&all->lock);
    teffi_reminder *r = all->closed ? NULL : find_startable(all);
    if (r) {
        remove_from_due(r);
        all->ticking++;
        all->retrying += r->retries;
        r->state = TEFFI_REMINDER_TICKS;
        *etag = r->etag;
        *value = r->value;
        *rereads = r->rereads;
    } else {
        all->tasks--;
    }
    pthread_mutex_unlock(&all->lock);
    return r;
}

/* out: the pause before the next try, by the number of those that failed. */
static uint32_t choose_pause_ms(uint32_t tries)
{
    uint32_t shift = tries < TRIES_SHIFT_MAX + 1 ? tries - 1 : TRIES_SHIFT_MAX;
    uint32_t ms = (uint32_t)RETRY_MS << shift;
    return ms < TEFF_REMINDER_TRIES_MAX_MS ? ms : TEFF_REMINDER_TRIES_MAX_MS;
}

/* The reminder stays: arms it for its next tick or next try. */
static void arm_after_tick(teffi_reminder *r, bool failed)
{
    r->rereads = failed;
    r->tries = failed ? r->tries + 1 : 0;
    arm_reminder_at(r, failed ? due_ns_after_ms(r->all, choose_pause_ms(r->tries))
                              : compute_due_ns(r, NULL));
}

void teffi_reminders_end_tick(teffi_reminder *r, teffi_tick_end end, uint64_t began, uint64_t etag,
                              const teffi_reminder_value *value)
{
    teffi_reminders *all = r->all;
    pthread_mutex_lock(&all->lock);
    bool changed = r->etag != began;
    all->ticking--;
    all->retrying -= r->retries;
    if (!r->gone && changed) {
        arm_reminder_at(r, compute_due_ns(r, NULL)); /* a newer row was noted meanwhile */
    } else if (!r->gone && end == TEFFI_TICK_GONE) {
        remove_from_partition(r);
    } else if (!r->gone) {
        r->etag = etag;
        r->value = *value;
        arm_after_tick(r, end == TEFFI_TICK_FAILED);
    }
    bool gone = r->gone;
    pthread_mutex_unlock(&all->lock);
    if (gone)
        free(r);
}

bool teffi_reminders_begin_load(teffi_reminders *all, uint8_t *set)
{
    bool any = false;
    memset(set, 0, TEFFI_PARTITION_SET_BYTES);
    pthread_mutex_lock(&all->lock);
    for (unsigned i = 0; !all->closed && i < TEFFI_PARTITIONS; i++)
        if (all->load[i] == TEFFI_LOAD_WANTED) {
            all->load[i] = TEFFI_LOAD_LOADING;
            set[i / 8] |= (uint8_t)(1u << i % 8);
            any = true;
        }
    all->lacks_memory = false;
    if (!any)
        all->loads = false;
    pthread_mutex_unlock(&all->lock);
    return any;
}

bool teffi_reminders_end_load(teffi_reminders *all, unsigned loaded)
{
    pthread_mutex_lock(&all->lock);
    bool ok = loaded == TEFFI_PARTITIONS && !all->lacks_memory;
    for (unsigned i = 0; i < TEFFI_PARTITIONS; i++)
        if (all->load[i] == TEFFI_LOAD_LOADING)
            all->load[i] = i < loaded && !all->lacks_memory ? TEFFI_LOAD_LOADED : TEFFI_LOAD_WANTED;
    all->failed_loads = ok ? 0 : all->failed_loads + 1;
    if (ok) {
        set_reload_timer(all, teffi_now(all->grains->node->platform));
    } else {
        all->loads = false; /* the timer starts the next load */
        set_timer(all, choose_pause_ms(all->failed_loads));
    }
    pthread_mutex_unlock(&all->lock);
    return ok;
}
