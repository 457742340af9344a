/* test_call_race.c - responses, deadlines, lost links, forwards and callers that give up meet, in
 * entries that are used again at once: each call ends once, as itself. */
#include <pthread.h>
#include <string.h>
#include "call/calls.h"
#include "call/ctx.h"
#include "lone_node.h"

enum { CALLERS = 3, RESPONDERS = 2, RING = 64, AT_LEAST = 50 };

enum { RESPONDED, LATE, LOST, FAILED, GIVEN_UP, WAYS, CANCELLED = WAYS };

static const teffi_node_id peers[2] = {{11, 1}, {22, 1}};

typedef struct party {
    pthread_t thread;
    uint64_t rng;
    const char *wrong;
} party;

static teffi_node *node;
static _Atomic uint64_t ring[RING]; /* calls of late: slot, generation */
static _Atomic bool enough, stop;   /* callers first: what they wait for must still come */
static _Atomic uint64_t seen[WAYS + 1];
static _Atomic int left; /* callers that have ended */

static uint64_t draw(party *p, uint64_t below)
{
    p->rng ^= p->rng << 13;
    p->rng ^= p->rng >> 7;
    p->rng ^= p->rng << 17;
    return p->rng % below;
}

/* ---- callers ---- */

static void note(party *p, const teffi_call *call, uint64_t deadline_ns)
{
    switch (call->err) {
    case TEFF_OK:
        seen[RESPONDED]++;
        if (!call->response || call->response->type_id != call->generation)
            p->wrong = "the response to another use";
        break;
    case TEFF_E_TIMEOUT:
        seen[LATE]++;
        if (teffi_now(node->platform) < deadline_ns)
            p->wrong = "a timeout before the deadline";
        break;
    case TEFF_E_UNREACHABLE:
        seen[LOST]++;
        break;
    case TEFF_E_FAILED:
        seen[FAILED]++;
        break;
    case TEFF_E_CANCELLED:
        seen[CANCELLED]++;
        break;
    default:
        p->wrong = "an end that nobody made";
    }
}

static void call_once(party *p, teff_ctx *ctx)
{
    static const uint64_t us[] = {0, 500, 1000, 2000, 60000000};
    uint64_t deadline_ns = teffi_now(node->platform) + us[draw(p, 5)] * 1000;
    teffi_call *call = teffi_ctx_call_new(ctx, deadline_ns);
    if (!call) {
        p->wrong = "no memory";
        return;
    }
    teffi_node_id to = peers[draw(p, 2)];
    ring[draw(p, RING)] = (uint64_t)call->slot << 32 | call->generation;
    teffi_call_set_sent_to(&node->home, call->slot, call->generation, to);
    uint64_t how = draw(p, 8);
    if (how == 0) {
        seen[GIVEN_UP]++;
        return;
    }
    if (how == 1)
        (void)teffi_call_fail(call, TEFF_E_FAILED, NULL);
    if (teffi_ctx_await_call(ctx, call, NULL) != call->err)
        p->wrong = "it ended in two ways";
    note(p, call, deadline_ns);
    if (is_pending(call) || teffi_call_fail(call, TEFF_E_IO, NULL))
        p->wrong = "it ended, and was pending";
}

static void *calling(void *arg)
{
    party *p = arg;
    teff_ctx *ctx = teffi_ctx_new(&node->home);
    while (!enough && !p->wrong) {
        call_once(p, ctx);
        if (draw(p, 4) == 0)
            teff_ctx_reset(ctx);
    }
    teff_ctx_free(ctx);
    left++;
    return NULL;
}

/* ---- who ends them ---- */

static void respond(uint64_t use)
{
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_RESPONSE);
    if (!msg)
        return;
    msg->call.slot = (uint32_t)(use >> 32);
    msg->call.generation = msg->type_id = (uint32_t)use;
    assert_null(teffi_call_end_by_response(&node->home, msg));
}

static void *responding(void *arg)
{
    party *p = arg;
    while (!stop) {
        uint64_t use = ring[draw(p, RING)];
        respond(use);
        if (draw(p, 4) == 0) /* twice */
            respond(use);
    }
    return NULL;
}

/* Links break now and then, and messages are forwarded, some long after. */
static void *losing(void *arg)
{
    party *p = arg;
    while (!stop) {
        uint64_t use = ring[draw(p, RING)];
        teffi_call_set_sent_to(&node->home, (uint32_t)(use >> 32), (uint32_t)use,
                               peers[draw(p, 2)]);
        if (draw(p, 64) == 0)
            assert_null(teffi_calls_end_sent_to(&node->home, peers[draw(p, 2)]));
    }
    return NULL;
}

static bool all_seen(void)
{
    for (int way = 0; way < WAYS; way++)
        if (seen[way] < AT_LEAST)
            return false;
    return true;
}

static void start(party *parties, int from, int n, void *(*run)(void *arg))
{
    for (int i = from; i < from + n; i++) {
        parties[i].rng = 0x9e3779b97f4a7c15u * (uint64_t)(i + 1);
        assert_int_equal(pthread_create(&parties[i].thread, NULL, run, &parties[i]), 0);
    }
}

static void join(party *parties, int from, int n)
{
    for (int i = from; i < from + n; i++)
        pthread_join(parties[i].thread, NULL);
}

static void no_wrong(const party *parties)
{
    for (int i = 0; i < CALLERS; i++)
        if (parties[i].wrong)
            fail_msg("caller %d: %s", i, parties[i].wrong);
}

static void each_call_ends_once(void **state)
{
    party parties[CALLERS + RESPONDERS + 1] = {0};
    uint64_t before = teffi_calls_count_pending(&node->home);
    start(parties, 0, CALLERS, calling);
    start(parties, CALLERS, RESPONDERS, responding);
    start(parties, CALLERS + RESPONDERS, 1, losing);
    until(all_seen());
    enough = true;
    join(parties, 0, CALLERS);
    stop = true;
    join(parties, CALLERS, RESPONDERS + 1);
    no_wrong(parties);
    until(teffi_calls_count_pending(&node->home) <= before);
}

/* As a node that closes: again and again, until nobody is inside any more. */
static void closing_ends_what_still_comes(void **state)
{
    party parties[CALLERS] = {0};
    start(parties, 0, CALLERS, calling);
    until(!teffi_calls_cancel_all(&node->home) && seen[CANCELLED] >= AT_LEAST);
    enough = true;
    until(!teffi_calls_cancel_all(&node->home) && left == CALLERS);
    join(parties, 0, CALLERS);
    no_wrong(parties);
}

static int setup(void **state)
{
    enough = stop = false;
    left = 0;
    node = lone_node_open();
    return 0;
}

static int teardown(void **state)
{
    lone_node_close(node);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_call_ends_once, setup, teardown),
        cmocka_unit_test_setup_teardown(closing_ends_what_still_comes, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
