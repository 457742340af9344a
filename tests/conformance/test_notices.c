/* test_notices.c - observers of clients: in order, subscribed twice, unsubscribed, gone. */
#include "conform.h"

typedef struct ear { /* of one observer */
    _Atomic int heard, last, out_of_order, dropped;
    _Atomic int why;
    teff_observer *observer;
    ProtobufCBinaryData ref;
} ear;

static teff_err seen(actors_watcher *self, const actors_result *in)
{
    ear *e = self->user;
    if (in->n <= atomic_load(&e->last))
        atomic_fetch_add(&e->out_of_order, 1);
    atomic_store(&e->last, (int)in->n);
    atomic_fetch_add(&e->heard, 1);
    return TEFF_OK;
}

static void dropped(actors_watcher *self, const teff_dropped *how)
{
    ear *e = self->user;
    atomic_store(&e->why, (int)how->why);
    atomic_fetch_add(&e->dropped, 1);
}

static void listen_with(conform *c, ear *e)
{
    static const actors_watcher_methods methods = {.seen = seen, .on_dropped = dropped};
    memset(e, 0, sizeof *e);
    conform_ok(c->ctx, actors_watcher_observe(c->ctx, &methods, e, &e->observer));
    conform_ok(c->ctx, teff_observer_get_ref(c->ctx, e->observer, &e->ref));
}

/* n: the expiry, in ms. */
static teff_err subscribes(turn *t)
{
    return actors_watcher_subscribe(t->ctx, t->in->observer, (uint32_t)t->in->n);
}

static teff_err unsubscribes(turn *t)
{
    t->out->n = actors_watcher_unsubscribe(t->ctx, t->in->observer);
    return TEFF_OK;
}

static teff_err notifies(turn *t)
{
    return actors_watcher_seen_notify(t->ctx, actors_result(.n = t->in->n));
}

static teff_err counts(turn *t)
{
    t->out->n = (int64_t)actors_watcher_count(t->ctx);
    return TEFF_OK;
}

static void subscribe(conform *c, const ear *e)
{
    (void)RUN(c, plain, "a", subscribes, .observer = e->ref);
}

static void notifications_in_order(conform *c)
{
    enum { NOTES = 50 };
    ear e;
    listen_with(c, &e);
    subscribe(c, &e);
    for (int i = 1; i <= NOTES; i++)
        (void)RUN(c, plain, "a", notifies, .n = i);
    UNTIL(c, e.heard == NOTES);
    assert_int_equal(e.out_of_order, 0);
    assert_int_equal(e.dropped, 0);
    teff_observer_free(e.observer);
}

static void two_observers(conform *c)
{
    ear a, b;
    listen_with(c, &a);
    listen_with(c, &b);
    subscribe(c, &a);
    subscribe(c, &b);
    assert_int_equal(RUN(c, plain, "a", counts), 2);
    (void)RUN(c, plain, "a", notifies, .n = 1);
    UNTIL(c, a.heard == 1 && b.heard == 1);
    teff_observer_free(a.observer);
    teff_observer_free(b.observer);
}

/* The second subscription renews the first one. */
static void subscribed_twice(conform *c)
{
    ear e;
    listen_with(c, &e);
    subscribe(c, &e);
    subscribe(c, &e);
    assert_int_equal(RUN(c, plain, "a", counts), 1);
    (void)RUN(c, plain, "a", notifies, .n = 1);
    (void)RUN(c, plain, "a", notifies, .n = 2);
    UNTIL(c, e.last == 2);
    assert_int_equal(e.heard, 2);
    teff_observer_free(e.observer);
}

static void unsubscribed(conform *c)
{
    ear e;
    listen_with(c, &e);
    subscribe(c, &e);
    assert_true(RUN(c, plain, "a", unsubscribes, .observer = e.ref));
    assert_false(RUN(c, plain, "a", unsubscribes, .observer = e.ref));
    (void)RUN(c, plain, "a", notifies, .n = 1);
    subscribe(c, &e);
    (void)RUN(c, plain, "a", notifies, .n = 2);
    UNTIL(c, e.last == 2);
    assert_int_equal(e.heard, 1);
    teff_observer_free(e.observer);
}

static void expired(conform *c)
{
    ear e;
    listen_with(c, &e);
    (void)RUN(c, plain, "a", subscribes, .observer = e.ref, .n = 100);
    teff_sleep(c->ctx, 300);
    (void)RUN(c, plain, "a", notifies, .n = 1);
    UNTIL(c, e.dropped == 1);
    assert_int_equal(e.why, TEFF_DROPPED_EXPIRED);
    assert_int_equal(e.heard, 0);
    assert_int_equal(RUN(c, plain, "a", counts), 0);
    teff_observer_free(e.observer);
}

static void told_when_the_activation_ends(conform *c)
{
    ear e;
    listen_with(c, &e);
    subscribe(c, &e);
    (void)RUN(c, plain, "a", quits);
    UNTIL(c, e.dropped == 1);
    assert_int_equal(e.why, TEFF_DROPPED_ENDED);
    assert_int_equal(RUN(c, plain, "a", counts), 0);
    subscribe(c, &e);
    (void)RUN(c, plain, "a", notifies, .n = 1);
    UNTIL(c, e.heard == 1);
    teff_observer_free(e.observer);
}

static int64_t count_after_notice(conform *c)
{
    (void)RUN(c, plain, "a", notifies, .n = 1);
    return RUN(c, plain, "a", counts);
}

static void freed_observer_is_forgotten(conform *c)
{
    ear e;
    listen_with(c, &e);
    subscribe(c, &e);
    teff_observer_free(e.observer);
    UNTIL(c, count_after_notice(c) == 0);
    assert_int_equal(e.heard, 0);
}

int main(void)
{
    static const conform_row rows[] = {
        {"ObserverTests.ObserverTest_SimpleNotification", notifications_in_order, EVERYWHERE},
        {"ObserverTests.ObserverTest_SubscribeUnsubscribe", unsubscribed, EVERYWHERE},
        {"ObserverTests.ObserverTest_DoubleSubscriptionSameReference", subscribed_twice,
         EVERYWHERE},
        {"ObserverTests.ObserverTest_DoubleSubscriptionDifferentReferences", two_observers,
         EVERYWHERE},
        {"ObserverTests.ObserverTest_DeleteObject", freed_observer_is_forgotten, EVERYWHERE},
        {"ObserverManagerTests.expiry", expired, EVERYWHERE},
        {"ObserverTests.the activation ends", told_when_the_activation_ends, EVERYWHERE},
    };
    return conform_run(rows, sizeof rows / sizeof rows[0]);
}
