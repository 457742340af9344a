/* waits.c - lists the activations that have set requests aside, and visits them. */
#include "activation/waits.h"

#include "memory/pool.h"

/* From the first visit that finds new requests to the probe, and the longest pause between two
 * probes: in visits. */
enum { PAUSE_MIN = 2, PAUSE_MAX = 40 };

/* One activation that is watched. Its memory may be reused for another grain meanwhile; then its
 * generation differs. */
typedef struct visit {
    teffi_item item;  /* TEFFI_ITEM_VISIT, on its way to the activation */
    teffi_qnode link; /* in teffi_waits.listed */
    teffi_activation *act;
    uint32_t generation;
    teffi_waits *waits;
} visit;

static void free_visit(visit *v)
{
    atomic_fetch_sub_explicit(&v->waits->watched, 1, memory_order_relaxed);
    teffi_pool_put(v, sizeof *v);
}

void teffi_waits_free_visit(teffi_item *item)
{
    free_visit(teffi_container(item, visit, item));
}

/* Sets the timer, unless it is already set or `waits` is closed. The caller holds the lock. */
static void set_visit_timer(teffi_waits *waits)
{
    teffi_exec *exec = waits->node->home.exec;
    if (waits->is_set || waits->closed)
        return;
    waits->is_set = true;
    exec->ops->timer_set(exec, &waits->timer,
                         teffi_now(exec->platform) + TEFFI_VISIT_MS * 1000000ull);
}

/* Appends the visit to waits->listed, and sets the timer. */
static void append_visit_to_list(visit *v)
{
    pthread_mutex_lock(&v->waits->lock);
    teffi_queue_push(&v->waits->listed, &v->link);
    set_visit_timer(v->waits);
    pthread_mutex_unlock(&v->waits->lock);
}

/* Called if no request waits at the activation now. If TEFFI_WAITED is set, a request was set aside
 * there meanwhile: clears the flag, and lists the activation again. If only TEFFI_WATCHED is set,
 * clears it, and frees v: the activation is no longer watched. If neither flag is set, the
 * activation has ended: frees v. */
static void list_again_or_free(visit *v)
{
    uint8_t was = TEFFI_WATCHED;
    /* acq_rel: pairs with teffi_waits_watch() */
    if (atomic_compare_exchange_strong_explicit(&v->act->watched, &was, 0, memory_order_acq_rel,
                                                memory_order_acquire) ||
        !was) {
        free_visit(v);
        return;
    }
    atomic_fetch_and_explicit(&v->act->watched, (uint8_t)~TEFFI_WAITED, memory_order_acq_rel);
    append_visit_to_list(v);
}

/* Sends a visit to the activation if requests are queued or set aside there. Otherwise calls
 * list_again_or_free().
 * relaxed: a request is counted in `queued` before TEFFI_WAITED is set for it. If that flag has
 * been cleared since then, the value loaded here includes the request. If it does not include the
 * request, the flag is still set, and list_again_or_free() lists the activation again. */
static void send_visit_if_requests_wait(visit *v)
{
    if ((int32_t)atomic_load_explicit(&v->act->queued, memory_order_relaxed) <= 0)
        list_again_or_free(v);
    else if (!teffi_group_push(&v->act->group, &v->item))
        free_visit(v); /* the activation has ended */
}

/* The timer's function: looks at the first TEFFI_VISITS_MAX activations listed, and sends visits to
 * those where requests wait. */
static void send_visits(teffi_timer *timer)
{
    teffi_waits *waits = teffi_container(timer, teffi_waits, timer);
    teffi_queue due = {0};
    teffi_qnode *n;
    pthread_mutex_lock(&waits->lock);
    waits->is_set = false;
    while (due.count < TEFFI_VISITS_MAX && (n = teffi_queue_pop(&waits->listed)))
        teffi_queue_push(&due, n);
    if (waits->listed.count)
        set_visit_timer(waits);
    pthread_mutex_unlock(&waits->lock);
    while ((n = teffi_queue_pop(&due)))
        send_visit_if_requests_wait(teffi_container(n, visit, link));
}

void teffi_waits_init(teffi_waits *waits, teffi_node *node)
{
    waits->node = node;
    waits->timer.fire = send_visits;
    pthread_mutex_init(&waits->lock, NULL);
}

void teffi_waits_stop(teffi_waits *waits)
{
    teffi_exec *exec = waits->node->home.exec;
    pthread_mutex_lock(&waits->lock);
    waits->closed = true;
    exec->ops->timer_cancel(exec, &waits->timer);
    pthread_mutex_unlock(&waits->lock);
}

void teffi_waits_fini(teffi_waits *waits)
{
    teffi_qnode *n;
    while ((n = teffi_queue_pop(&waits->listed)))
        free_visit(teffi_container(n, visit, link));
    pthread_mutex_destroy(&waits->lock);
}

void teffi_waits_watch(teffi_activation *act)
{
    teffi_waits *waits = act->grains->waits;
    visit *v = NULL;
    /* acq_rel: pairs with list_again_or_free() */
    if (atomic_fetch_or_explicit(&act->watched, TEFFI_WATCHED | TEFFI_WAITED,
                                 memory_order_acq_rel) &
        TEFFI_WATCHED)
        return;
    if (atomic_load_explicit(&waits->watched, memory_order_relaxed) < TEFFI_VISITED_MAX)
        v = teffi_pool_get(sizeof *v);
    if (!v) {
        atomic_store_explicit(&act->watched, 0, memory_order_relaxed);
        return;
    }
    *v = (visit){
        .item.kind = TEFFI_ITEM_VISIT, .act = act, .generation = act->generation, .waits = waits};
    atomic_fetch_add_explicit(&waits->watched, 1, memory_order_relaxed);
    append_visit_to_list(v);
}

/* Counts the visits down to the next probe. If there are new requests, restarts the countdown at
 * PAUSE_MIN visits; but a countdown that began at PAUSE_MIN runs to its end first. If a countdown
 * ends and there are no new requests, the next one is twice as long, but at most PAUSE_MAX.
 * out: true: a probe is due now. */
static bool count_down_to_probe(teffi_more *more)
{
    bool is_due = more->pause && --more->countdown == 0;
    if (more->has_new && (is_due || more->pause != PAUSE_MIN)) {
        more->has_new = false;
        more->pause = more->countdown = PAUSE_MIN;
    } else if (is_due) {
        more->pause = more->pause < PAUSE_MAX / 2 ? (uint8_t)(2 * more->pause) : PAUSE_MAX;
        more->countdown = more->pause;
    }
    return is_due;
}

bool teffi_waits_list_again_and_count_down(teffi_activation *act, teffi_item *item)
{
    visit *v = teffi_container(item, visit, item);
    if (act->generation != v->generation) {
        free_visit(v);
        return false;
    }
    bool has_new =
        atomic_fetch_and_explicit(&act->watched, (uint8_t)~TEFFI_WAITED, memory_order_acq_rel) &
        TEFFI_WAITED;
    append_visit_to_list(v);
    if (!act->more || !act->more->pending.count)
        return false;
    act->more->has_new |= has_new;
    act->more->has_probed = false;
    return count_down_to_probe(act->more);
}
