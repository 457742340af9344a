/* test_reclaim.c - after a peak of calls their memory is decommitted, on a clock that is moved by
 * hand; and who comes late to what went back finds nobody. */
#include "test.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "call/ctx.h"
#include "call/call.h"
#include "call/calls.h"
#include "os/thread.h"

enum { MS = 1000000, PEAK = 200000, PAGE = 4096 };

/* Blocks that may stay: a few whole ones, and one for each entry that a thread has on its lists.
 * Those are of few blocks when they were released in order. */
enum { STAY = TEFFI_SLAB_KEEPS + 8 };

static const teffi_node_id peer = {7, 7};

static teffi_home home;
static teffi_slab *slab;
static teff_ctx *ctx;

/* ---- the world ---- */

static _Atomic uint64_t now_ns;

static uint64_t mono_ns(void *arg)
{
    return now_ns;
}

static void pass(unsigned ms)
{
    now_ns += ms * (uint64_t)MS;
    teffi_slab_reclaim(now_ns);
}

static void settle(void)
{
    enum { PERIODS = 2, SLICES = PEAK / TEFFI_SLAB_BLOCK / TEFFI_SLAB_SLICE + 1 };
    for (int i = 0; i < PERIODS + SLICES; i++)
        pass(TEFFI_SLAB_AGE_MS);
}

static int setup(void **state)
{
    static const teffi_exec_ops ops = {0};
    static teffi_platform platform = {.mono_ns = mono_ns};
    static teffi_exec exec = {.ops = &ops, .platform = &platform};
    now_ns = (uint64_t)1000 * MS;
    memset(&home, 0, sizeof home);
    home.exec = &exec;
    teffi_calls_init(&home);
    slab = &home.calls.slab;
    ctx = teffi_ctx_new(&home);
    return ctx == NULL;
}

static int teardown(void **state)
{
    teff_ctx_free(ctx);
    teffi_calls_fini(&home);
    return 0;
}

/* ---- calls ---- */

typedef struct use {
    uint32_t slot, generation;
} use;

static teffi_call *call_new(void)
{
    teffi_call *call = teffi_ctx_call_new(ctx, UINT64_MAX);
    assert_non_null(call);
    return call;
}

static use use_of(const teffi_call *call)
{
    return (use){call->slot, call->generation};
}

static void respond(use of)
{
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_RESPONSE);
    assert_non_null(msg);
    msg->call.slot = of.slot;
    msg->call.generation = msg->type_id = of.generation;
    assert_null(teffi_call_end_by_response(&home, msg));
}

static use *peak(int n)
{
    use *uses = malloc((size_t)n * sizeof *uses);
    assert_non_null(uses);
    for (int i = 0; i < n; i++)
        uses[i] = use_of(call_new());
    return uses;
}

static uint32_t held(void)
{
    uint32_t n = 0, end = teffi_slab_block_count(slab);
    for (uint32_t b = 0; (b = teffi_slab_next_committed(slab, b)) < end; b++)
        n++;
    return n;
}

static bool is_resident(uint32_t block)
{
    unsigned char pages[TEFFI_SLAB_BLOCK * sizeof(teffi_call) / PAGE];
    void *at = teffi_slab_at(slab, block * TEFFI_SLAB_BLOCK);
    assert_int_equal(mincore(at, sizeof pages * PAGE, pages), 0);
    for (size_t i = 0; i < sizeof pages; i++)
        if (pages[i] & 1)
            return true;
    return false;
}

/* By the kernel's count. */
static uint32_t resident(void)
{
    uint32_t n = 0;
    for (uint32_t b = 0; b < teffi_slab_block_count(slab); b++)
        n += is_resident(b);
    return n;
}

static void gone_but(uint32_t stay)
{
    if (held() > stay)
        fail_msg("%u blocks are held, %u may be", held(), stay);
    if (resident() > stay)
        fail_msg("%u blocks are resident, %u may be", resident(), stay);
}

static void nobody_is_found(const use *late, int n)
{
    for (int i = 0; i < n; i++) {
        respond(late[i]);
        teffi_call_set_sent_to(&home, late[i].slot, late[i].generation, peer);
    }
    assert_null(teffi_calls_end_sent_to(&home, peer));
}

static void a_peak_goes_back_and_late_responses_find_nobody(void **state)
{
    use *before[3];
    for (int round = 0; round < 3; round++) {
        before[round] = peak(PEAK);
        assert_int_equal(teffi_calls_count_pending(&home), PEAK);
        assert_true(held() >= PEAK / TEFFI_SLAB_BLOCK);
        for (int r = 0; r < round; r++)
            nobody_is_found(before[r], PEAK);
        assert_int_equal(teffi_calls_count_pending(&home), PEAK);
        teff_ctx_reset(ctx);
        settle();
        gone_but(STAY);
        nobody_is_found(before[round], PEAK);
    }
    assert_true(teffi_slab_block_count(slab) <= PEAK / TEFFI_SLAB_BLOCK + 1);
    for (int round = 0; round < 3; round++)
        free(before[round]);
}

/* ---- what is in use ---- */

static void calls_in_use_keep_their_blocks_and_are_found(void **state)
{
    enum { EVERY = 1000, KEPT = PEAK / EVERY };
    use kept[KEPT];
    teff_ctx *passing = teffi_ctx_new(&home);
    for (int i = 0; i < PEAK; i++) {
        teffi_call *call = i % EVERY ? teffi_ctx_call_new(passing, UINT64_MAX) : call_new();
        teffi_call_set_sent_to(&home, call->slot, call->generation, peer);
        if (i % EVERY == 0)
            kept[i / EVERY] = use_of(call);
    }
    teff_ctx_free(passing);
    settle();
    assert_int_equal(teffi_calls_count_pending(&home), KEPT);
    gone_but(STAY + KEPT); /* which is what a lost link looks at */
    for (int i = 0; i < KEPT / 2; i++)
        respond(kept[i]);
    assert_int_equal(teffi_calls_count_pending(&home), KEPT - KEPT / 2);
    assert_true(teffi_calls_any_sent_to(&home, peer));
    assert_null(teffi_calls_end_sent_to(&home, peer));
    assert_int_equal(teffi_calls_count_pending(&home), 0);
    teff_ctx_reset(ctx);
}

/* Others come meanwhile. */
static void calls_come_while_memory_goes(void **state)
{
    free(peak(PEAK));
    teff_ctx_reset(ctx);
    for (int i = 0; i < 10; i++) {
        use here = use_of(call_new());
        pass(TEFFI_SLAB_AGE_MS / 2);
        assert_int_equal(teffi_calls_count_pending(&home), 1);
        respond(here);
        teff_ctx_reset(ctx);
    }
    gone_but(STAY);
}

/* Ten thousand calls at a time are no peak, but needed: nothing goes. */
static void what_is_needed_stays(void **state)
{
    enum { AT_ONCE = 10000, ROUNDS = 300 };
    for (int i = 0; i < ROUNDS; i++) {
        free(peak(AT_ONCE));
        teff_ctx_reset(ctx);
        assert_true(held() >= AT_ONCE / TEFFI_SLAB_BLOCK);
        pass(10);
    }
    assert_true(teffi_slab_block_count(slab) <= AT_ONCE / TEFFI_SLAB_BLOCK + 1);
    settle();
    gone_but(STAY);
}

/* Each at once, whether it has ended or is under way. */
static void dropped_calls_are_used_again(void **state)
{
    for (int i = 0; i < PEAK; i++) {
        teff_call call = {call_new()};
        if (i % 2)
            respond(use_of(call.impl));
        teff_drop(ctx, &call);
        assert_null(call.impl);
    }
    assert_int_equal(teffi_slab_block_count(slab), 1);
}

/* ---- threads ---- */

enum { CALLERS = 3, BATCH = 4000, BATCHES = 40, RING = 4096 };

static _Atomic uint64_t ring[RING]; /* uses, most of them over */
static _Atomic int running;
static _Atomic bool went; /* some memory, meanwhile */
static _Atomic unsigned wrong, answered;

static uint64_t draw(uint64_t *rng, uint64_t below)
{
    *rng ^= *rng << 13;
    *rng ^= *rng >> 7;
    *rng ^= *rng << 17;
    return *rng % below;
}

static void end_batch(teff_ctx *own, teffi_call **calls, uint64_t *rng)
{
    for (int i = 0; i < BATCH; i++) {
        use of = use_of(calls[i]);
        ring[draw(rng, RING)] = (uint64_t)of.slot << 32 | of.generation;
        respond(of); /* unless somebody else has */
        if (teffi_ctx_await_call(own, calls[i], NULL) || !calls[i]->response ||
            calls[i]->response->type_id != of.generation)
            wrong++;
        answered++;
    }
}

static void *calling(void *arg)
{
    uint64_t rng = 0x9e3779b97f4a7c15u * (uint64_t)(uintptr_t)arg;
    teff_ctx *own = teffi_ctx_new(&home);
    static _Thread_local teffi_call *calls[BATCH];
    for (int batch = 0; batch < BATCHES || !went; batch++) {
        for (int i = 0; i < BATCH; i++)
            if (!(calls[i] = teffi_ctx_call_new(own, UINT64_MAX)))
                abort();
        end_batch(own, calls, &rng);
        teff_ctx_reset(own);
        for (int i = 0; i < 100; i++) /* who moves the clock goes on */
            teffi_thread_yield();
    }
    teff_ctx_free(own);
    running--;
    return NULL;
}

static void *coming_late(void *arg)
{
    uint64_t rng = (uint64_t)(uintptr_t)arg;
    while (running > 0) {
        uint64_t of = ring[draw(&rng, RING)];
        respond((use){(uint32_t)(of >> 32), (uint32_t)of});
        teffi_call_set_sent_to(&home, (uint32_t)(of >> 32), (uint32_t)of, peer);
        if (draw(&rng, 256) == 0)
            (void)teffi_calls_count_pending(&home);
    }
    return NULL;
}

static void threads_call_and_come_late_while_memory_goes(void **state)
{
    pthread_t threads[CALLERS + 1];
    running = CALLERS;
    wrong = answered = 0;
    went = false;
    for (int i = 0; i <= CALLERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, i < CALLERS ? calling : coming_late,
                                        (void *)(uintptr_t)(i + 1)),
                         0);
    while (running > 0) {
        pass(TEFFI_SLAB_AGE_MS);
        went = went || held() < teffi_slab_block_count(slab);
    }
    for (int i = 0; i <= CALLERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(wrong, 0);
    assert_true(went && answered >= CALLERS * BATCH * BATCHES);
    settle();
    assert_int_equal(teffi_calls_count_pending(&home), 0);
}

int main(void)
{
#define RECLAIM(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        RECLAIM(a_peak_goes_back_and_late_responses_find_nobody),
        RECLAIM(calls_in_use_keep_their_blocks_and_are_found),
        RECLAIM(calls_come_while_memory_goes),
        RECLAIM(what_is_needed_stays),
        RECLAIM(dropped_calls_are_used_again),
        RECLAIM(threads_call_and_come_late_while_memory_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
