/* test_observer.c - clients and grains observe grains on real silos: notifications arrive in order,
 * through any gateway; observers that are gone or slow are dropped and told. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "chat.teff.h"
#include "lab.h"
#include "message/notice.h"
#include "silo/client.h"

enum { LINES = 500, MANY = 200 };

static lab *l;

/* ---- the grains ---- */

static teff_err join_room(chat_room *self, const chat_joining *in, chat_number *out)
{
    teff_err err = chat_listener_subscribe(self->ctx, in->listener, in->expiry_ms);
    out->n = (int64_t)chat_listener_count(self->ctx);
    return err;
}

static teff_err leave_room(chat_room *self, const chat_joining *in, chat_number *out)
{
    out->n = chat_listener_unsubscribe(self->ctx, in->listener);
    return TEFF_OK;
}

static teff_err say(chat_room *self, const chat_line *in, chat_number *out)
{
    teff_err err = chat_listener_said_notify(self->ctx, in);
    out->n = (int64_t)chat_listener_count(self->ctx);
    return err;
}

static teff_err quit(chat_room *self)
{
    teff_deactivate(self->ctx);
    return chat_listener_emptied_notify(self->ctx);
}

static teff_err fail_after_all(chat_room *self, const chat_joining *in, chat_number *out)
{
    teff_err err = chat_listener_subscribe(self->ctx, in->listener, 0);
    if (!err)
        err = chat_listener_said_notify(self->ctx, chat_line(.n = 1));
    return err ? err : teff_fail(self->ctx, TEFF_E_USER(2), "on purpose");
}

typedef teff_err script(chat_room *self, const chat_script *in, chat_number *out);

static teff_err run(chat_room *self, const chat_script *in, chat_number *out)
{
    return ((script *)(uintptr_t)in->fn)(self, in, out);
}

static const chat_room_methods room = {.join = join_room,
                                       .leave = leave_room,
                                       .say = say,
                                       .quit = quit,
                                       .run = run,
                                       .fail = fail_after_all};

static struct { /* by the recorder's key; atomic */
    _Atomic int64_t lines[4], last[4], disorder, emptied;
} recorded;

static teff_err watch(chat_recorder *self, const chat_watching *in, chat_number *out)
{
    ProtobufCBinaryData ref;
    chat_number *listeners;
    teff_err err = chat_listener_of_grain(self->ctx, &ref);
    if (!err)
        err = chat_room_join(self->ctx, in->room, chat_joining(.listener = ref), &listeners);
    if (!err)
        out->n = listeners->n;
    return err;
}

static teff_err record(chat_recorder *self, const chat_line *in)
{
    recorded.disorder += in->n <= recorded.last[self->key];
    recorded.last[self->key] = in->n;
    recorded.lines[self->key]++;
    return TEFF_OK;
}

static teff_err record_end(chat_recorder *self)
{
    recorded.emptied++;
    return TEFF_OK;
}

static teff_err read_record(chat_recorder *self, chat_number *out)
{
    out->n = recorded.lines[self->key];
    return TEFF_OK;
}

static const chat_recorder_methods recorder = {
    .watch = watch, .read = read_record, .listener_said = record, .listener_emptied = record_end};

static void host(teff_silo *silo)
{
    assert_int_equal(teff_silo_host(silo, chat_room_type(&room, NULL)), TEFF_OK);
    assert_int_equal(teff_silo_host(silo, chat_recorder_type(&recorder, NULL)), TEFF_OK);
}

/* ---- the clients ---- */

typedef struct listener {
    teff_client *client;
    teff_ctx *ctx;
    teff_observer *observer;
    _Atomic int64_t lines, last, disorder, emptied;
    _Atomic int dropped[TEFF_DROPPED_DISCONNECTED + 1];
    _Atomic bool holds, held; /* callbacks wait while holds is set */
    _Atomic bool wrong;       /* a drop did not name the grain */
    _Atomic uintptr_t thread; /* of the last callback */
    const char *room;         /* if set: on_dropped joins it again */
    const char *asks;         /* if set: said calls this room */
} listener;

static teff_err heard(chat_listener *self, const chat_line *in)
{
    listener *me = self->user;
    chat_number *n;
    me->held = me->holds;
    while (me->holds)
        teff_sleep(self->ctx, 1);
    me->disorder += in->n <= me->last;
    me->last = in->n;
    me->thread = (uintptr_t)pthread_self();
    if (me->asks && chat_room_leave(self->ctx, me->asks, chat_joining(), &n))
        me->wrong = true;
    me->lines++;
    return TEFF_OK;
}

static teff_err heard_end(chat_listener *self)
{
    listener *me = self->user;
    me->emptied++;
    return TEFF_E_USER(1);
}

static void join_again(teff_ctx *ctx, listener *me)
{
    ProtobufCBinaryData ref;
    chat_number *n;
    if (teff_observer_get_ref(ctx, me->observer, &ref) ||
        chat_room_join(ctx, me->room, chat_joining(.listener = ref), &n))
        me->wrong = true;
}

static void dropped(chat_listener *self, const teff_dropped *how)
{
    listener *me = self->user;
    if (how->why == TEFF_DROPPED_DISCONNECTED)
        me->wrong |= how->key || how->grain_type;
    else
        me->wrong |= strcmp(how->grain_type, "chat.Room") != 0 || how->key->text[0] != 'r';
    if (me->room)
        join_again(self->ctx, me);
    me->dropped[how->why]++;
}

static const chat_listener_methods callbacks = {
    .said = heard, .emptied = heard_end, .on_dropped = dropped};

static void open_listener(listener *me, const int *gateways)
{
    *me = (listener){.client = lab_client(l, gateways)};
    me->ctx = teff_client_new_ctx(me->client);
    assert_non_null(me->ctx);
    lab_ok(me->ctx, chat_listener_observe(me->ctx, &callbacks, me, &me->observer));
}

static void close_listener(listener *me)
{
    me->holds = false;
    teff_observer_free(me->observer);
    teff_ctx_free(me->ctx);
    teff_client_free(me->client);
    assert_int_equal(me->disorder, 0);
    assert_false(me->wrong);
}

static ProtobufCBinaryData ref_of(listener *me)
{
    ProtobufCBinaryData ref;
    lab_ok(me->ctx, teff_observer_get_ref(me->ctx, me->observer, &ref));
    return ref;
}

static int64_t join(listener *me, const char *name, uint32_t expiry_ms)
{
    chat_number *out;
    lab_ok(me->ctx,
           chat_room_join(me->ctx, name,
                          chat_joining(.listener = ref_of(me), .expiry_ms = expiry_ms), &out));
    return out->n;
}

/* Says one line from silo i. out: how many listeners are left. */
static int64_t say_line(int i, const char *name, int64_t n)
{
    chat_number *out;
    lab_ok(l->ctx[i], chat_room_say(l->ctx[i], name, chat_line(.n = n), &out));
    int64_t left = out->n;
    teff_ctx_reset(l->ctx[i]);
    return left;
}

static const int at_0[] = {0, -1}, at_1[] = {1, -1}, at_both[] = {0, 1, -1};

/* ---- one silo ---- */

static int setup_one(void **state)
{
    memset(&recorded, 0, sizeof recorded);
    l = lab_open_more(1, host);
    return 0;
}

static int setup_three(void **state)
{
    memset(&recorded, 0, sizeof recorded);
    l = lab_open_more(3, host);
    return 0;
}

static int teardown(void **state)
{
    lab_close(l);
    return recorded.disorder != 0;
}

static void notifications_arrive_in_order(void **state)
{
    listener me;
    open_listener(&me, at_0);
    assert_int_equal(join(&me, "r", 0), 1);
    assert_int_equal(join(&me, "r", 0), 1); /* the same reference: renewed */
    for (int64_t i = 1; i <= LINES; i++)
        assert_int_equal(say_line(0, "r", i), 1);
    lab_until(me.lines == LINES);
    assert_int_equal(me.last, LINES);
    assert_true(me.thread != (uintptr_t)pthread_self());
    lab_ok(l->ctx[0], chat_room_quit(l->ctx[0], "r"));
    lab_until(me.emptied == 1 && me.dropped[TEFF_DROPPED_ENDED] == 1);
    assert_int_equal(say_line(0, "r", 1), 0);
    close_listener(&me);
}

/* A callback may make calls, which suspend it. */
static void callbacks_call_grains(void **state)
{
    listener me;
    open_listener(&me, at_0);
    me.asks = "other";
    join(&me, "r", 0);
    for (int64_t i = 1; i <= MANY; i++)
        say_line(0, "r", i);
    lab_until(me.lines == MANY);
    close_listener(&me);
}

static void an_observer_leaves(void **state)
{
    listener me, other;
    chat_number *out;
    open_listener(&me, at_0);
    open_listener(&other, at_0);
    join(&me, "r", 0);
    assert_int_equal(join(&other, "r", 0), 2);
    lab_ok(me.ctx, chat_room_leave(me.ctx, "r", chat_joining(.listener = ref_of(&me)), &out));
    assert_int_equal(out->n, 1);
    lab_ok(me.ctx, chat_room_leave(me.ctx, "r", chat_joining(.listener = ref_of(&me)), &out));
    assert_int_equal(out->n, 0);
    assert_int_equal(say_line(0, "r", 1), 1);
    lab_until(other.lines == 1);
    assert_int_equal(me.lines, 0);
    close_listener(&me);
    close_listener(&other);
}

/* After teff_observer_free the client bounces notifications, and the room forgets the observer. */
static void a_freed_observer_is_forgotten(void **state)
{
    listener me;
    open_listener(&me, at_0);
    join(&me, "r", 0);
    say_line(0, "r", 1);
    lab_until(me.lines == 1);
    teff_observer_free(me.observer);
    lab_until(say_line(0, "r", 2) == 0);
    me.observer = NULL;
    assert_int_equal(me.lines, 1);
    assert_int_equal(me.dropped[TEFF_DROPPED_GONE], 0);
    close_listener(&me);
}

static void a_client_that_is_gone_is_forgotten(void **state)
{
    listener me, other;
    open_listener(&me, at_0);
    open_listener(&other, at_0);
    join(&me, "r", 0);
    join(&other, "r", 0);
    close_listener(&me);
    for (int64_t i = 1; say_line(0, "r", i) != 1; i++)
        ;
    say_line(0, "r", 1000000);
    lab_until(other.last == 1000000);
    close_listener(&other);
}

/* The callback does not return, so notifications wait, until the queue is full. What waits is
 * delivered, then the observer is told, once. */
static void a_slow_observer_is_dropped_and_told(void **state)
{
    listener me;
    open_listener(&me, at_0);
    join(&me, "r", 0);
    me.holds = true;
    say_line(0, "r", 1);
    lab_until(me.held);
    int64_t n = 1;
    chat_number *out;
    while (say_line(0, "r", n + 1))
        n++;
    /* the response comes after all notifications: else a late one would find room */
    lab_ok(me.ctx, chat_room_leave(me.ctx, "r", chat_joining(), &out));
    me.holds = false;
    lab_until(me.dropped[TEFF_DROPPED_SLOW] == 1);
    assert_int_equal(me.lines, TEFF_OBSERVER_QUEUE_MAX + 1);
    assert_int_equal(me.last, TEFF_OBSERVER_QUEUE_MAX + 1);
    assert_int_equal(join(&me, "r", 0), 1);
    say_line(0, "r", 1000000);
    lab_until(me.last == 1000000);
    assert_int_equal(me.dropped[TEFF_DROPPED_SLOW], 1);
    close_listener(&me);
}

static void an_observer_that_expires_is_told(void **state)
{
    listener me;
    open_listener(&me, at_0);
    join(&me, "r", 1);
    int64_t n = 0;
    lab_until((say_line(0, "r", ++n), me.dropped[TEFF_DROPPED_EXPIRED] == 1));
    assert_int_equal(say_line(0, "r", 0), 0);
    close_listener(&me);
}

static teff_err refuses_bytes(chat_room *self, const chat_script *in, chat_number *out)
{
    const ProtobufCBinaryData refs[] = {
        {0, NULL}, {in->listener.len - 1, in->listener.data}, {3, in->listener.data}};
    for (size_t i = 0; i < sizeof refs / sizeof *refs; i++)
        if (chat_listener_subscribe(self->ctx, refs[i], 0) != TEFF_E_INVALID ||
            chat_listener_said_notify_one(self->ctx, refs[i], chat_line()) != TEFF_E_INVALID)
            return TEFF_E_FAILED;
    if (chat_watcher_subscribe(self->ctx, in->listener, 0) != TEFF_E_INVALID ||
        chat_watcher_seen_notify_one(self->ctx, in->listener, chat_line()) != TEFF_E_INVALID)
        return TEFF_E_FAILED;
    out->n = (int64_t)chat_listener_count(self->ctx);
    return chat_listener_said_notify_one(self->ctx, in->listener, chat_line(.n = 7));
}

static void references_are_checked(void **state)
{
    listener me;
    chat_number *out;
    teff_observer *observer;
    open_listener(&me, at_0);
    lab_ok(me.ctx, chat_room_run(
                       me.ctx, "r",
                       chat_script(.fn = (uintptr_t)refuses_bytes, .listener = ref_of(&me)), &out));
    assert_int_equal(out->n, 0);
    lab_until(me.last == 7);
    lab_fails(me.ctx, chat_listener_subscribe(me.ctx, ref_of(&me), 0), TEFF_E_INVALID);
    lab_fails(me.ctx, chat_listener_said_notify(me.ctx, chat_line()), TEFF_E_INVALID);
    lab_fails(l->ctx[0], chat_listener_observe(l->ctx[0], &callbacks, NULL, &observer),
              TEFF_E_INVALID);
    assert_int_equal(chat_listener_count(me.ctx), 0);
    assert_false(chat_listener_unsubscribe(me.ctx, ref_of(&me)));
    close_listener(&me);
}

/* Sets belong to no transaction. */
static void a_rollback_takes_nothing_back(void **state)
{
    listener me;
    chat_number *out;
    open_listener(&me, at_0);
    lab_fails(me.ctx, chat_room_fail(me.ctx, "r", chat_joining(.listener = ref_of(&me)), &out),
              TEFF_E_USER(2));
    assert_int_equal(say_line(0, "r", 2), 1);
    lab_until(me.lines == 2);
    close_listener(&me);
}

/* ---- a gateway that is lost while it makes a reference ---- */

bool __real_teffi_seal_make(const uint8_t *key, teffi_node_id node, uint8_t *seal);
bool __wrap_teffi_seal_make(const uint8_t *key, teffi_node_id node, uint8_t *seal);

static _Atomic(teff_client *) loser; /* loses its gateway when this makes the next seal */
static _Atomic int seals;

bool __wrap_teffi_seal_make(const uint8_t *key, teffi_node_id node, uint8_t *seal)
{
    teff_client *client = atomic_exchange(&loser, NULL);
    seals++;
    if (client)
        teffi_client_observers_lose_gateway(client, l->silos[0]->node.id);
    return __real_teffi_seal_make(key, node, seal);
}

/* The reference may lead to the connection that broke, so another one is made. */
static void a_reference_is_newer_than_the_last_loss(void **state)
{
    listener me;
    open_listener(&me, at_0);
    seals = 0;
    loser = me.client;
    join(&me, "r", 0);
    assert_int_equal(seals, 2);
    join(&me, "r", 0);
    assert_int_equal(seals, 2);                                 /* the reference is kept */
    assert_int_equal(me.dropped[TEFF_DROPPED_DISCONNECTED], 0); /* it had none to lose */
    say_line(0, "r", 1);
    lab_until(me.lines == 1);
    close_listener(&me);
}

/* ---- several silos ---- */

/* Rooms on all silos notify a client of one of them. */
static void notifications_come_from_other_silos(void **state)
{
    listener me[2];
    int64_t n = 20;
    open_listener(&me[0], at_1);
    open_listener(&me[1], at_both);
    for (int r = 0; r < 30; r++) {
        char name[16];
        snprintf(name, sizeof name, "r%d", r);
        me[0].last = me[1].last = 0;
        join(&me[0], name, 0);
        assert_int_equal(join(&me[1], name, 0), 2);
        for (int64_t i = 1; i <= 20; i++)
            assert_int_equal(say_line(r % 3, name, i), 2);
        lab_until(me[0].lines == (r + 1) * 20 && me[1].lines == (r + 1) * 20);
    }
    close_listener(&me[0]);
    assert_int_equal(me[1].disorder, 0);
    for (int r = 0; r < 30; r++) {
        char name[16];
        snprintf(name, sizeof name, "r%d", r);
        lab_until(say_line(r % 3, name, ++n) == 1);
    }
    me[1].disorder = 0; /* lines of different rooms have no order */
    close_listener(&me[1]);
}

static void grains_observe_grains(void **state)
{
    chat_number *out;
    for (int64_t key = 0; key < 4; key++)
        lab_ok(l->ctx[0], chat_recorder_watch(l->ctx[0], key, chat_watching(.room = "r"), &out));
    assert_int_equal(out->n, 4);
    for (int64_t i = 1; i <= MANY; i++)
        assert_int_equal(say_line((int)(i % 3), "r", i), 4);
    for (int64_t key = 0; key < 4; key++)
        lab_until(recorded.lines[key] == MANY);
    lab_ok(l->ctx[0], chat_room_quit(l->ctx[0], "r"));
    lab_until(recorded.emptied == 4);
}

static teff_err tells_silo(chat_room *self, const chat_script *in, chat_number *out)
{
    out->n = self->ctx->node->id.silo;
    return TEFF_OK;
}

/* The silo of a room leaves: the room says that its set has ended, and gets a new one elsewhere. */
static void a_room_that_moves_tells_its_observers(void **state)
{
    listener me;
    int on_2 = 0;
    open_listener(&me, at_0);
    for (int r = 0; r < 30; r++) {
        char name[16];
        chat_number *out;
        snprintf(name, sizeof name, "r%d", r);
        join(&me, name, 0);
        lab_ok(me.ctx, chat_room_run(me.ctx, name, chat_script(.fn = (uintptr_t)tells_silo), &out));
        on_2 += out->n == l->silos[2]->node.id.silo;
    }
    assert_true(on_2 > 0);
    assert_int_equal(lab_remove(l, 2), TEFF_OK);
    lab_until(me.dropped[TEFF_DROPPED_ENDED] == on_2);
    for (int r = 0; r < 30; r++) {
        char name[16];
        snprintf(name, sizeof name, "r%d", r);
        assert_int_equal(join(&me, name, 0), 1);
        assert_int_equal(say_line(r % 2, name, me.last + 1), 1);
        lab_until(me.lines == r + 1);
    }
    assert_int_equal(me.dropped[TEFF_DROPPED_DISCONNECTED], 0);
    close_listener(&me);
}

/* The gateway leaves: the client is told, and joins again through the other one. */
static void a_client_that_loses_its_gateway_is_told(void **state)
{
    listener me;
    open_listener(&me, at_both);
    me.room = "r";
    join(&me, "r", 0);
    say_line(2, "r", 1);
    lab_until(me.lines == 1);
    int gone = teffi_node_equals(
        teffi_node_from_word(((const teffi_client_ref *)(void *)ref_of(&me).data)->gateway),
        l->silos[1]->node.id);
    assert_int_equal(lab_remove(l, gone), TEFF_OK);
    lab_until(me.dropped[TEFF_DROPPED_DISCONNECTED] == 1);
    int64_t n = 1;
    lab_until((say_line(2, "r", ++n), me.lines > 1));
    close_listener(&me);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(notifications_arrive_in_order, setup_one, teardown),
        cmocka_unit_test_setup_teardown(callbacks_call_grains, setup_one, teardown),
        cmocka_unit_test_setup_teardown(an_observer_leaves, setup_one, teardown),
        cmocka_unit_test_setup_teardown(a_freed_observer_is_forgotten, setup_one, teardown),
        cmocka_unit_test_setup_teardown(a_client_that_is_gone_is_forgotten, setup_one, teardown),
        cmocka_unit_test_setup_teardown(a_slow_observer_is_dropped_and_told, setup_one, teardown),
        cmocka_unit_test_setup_teardown(an_observer_that_expires_is_told, setup_one, teardown),
        cmocka_unit_test_setup_teardown(references_are_checked, setup_one, teardown),
        cmocka_unit_test_setup_teardown(a_rollback_takes_nothing_back, setup_one, teardown),
        cmocka_unit_test_setup_teardown(a_reference_is_newer_than_the_last_loss, setup_one,
                                        teardown),
        cmocka_unit_test_setup_teardown(notifications_come_from_other_silos, setup_three, teardown),
        cmocka_unit_test_setup_teardown(grains_observe_grains, setup_three, teardown),
        cmocka_unit_test_setup_teardown(a_room_that_moves_tells_its_observers, setup_three,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_client_that_loses_its_gateway_is_told, setup_three,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
