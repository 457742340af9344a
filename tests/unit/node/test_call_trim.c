/* test_call_trim.c - after a peak of calls their memory goes back to the system, on a clock and a
 * timer that are moved by hand; and who comes late to what went back finds nobody. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "node/ctx.h"
#include "platform/thread.h"

enum { MS = 1000000, PEAK = 200000, PAGE = 4096 };

/* Blocks that may stay: a few whole ones, and one for each entry that a thread has on its lists.
 * Those are of few blocks when they were released in order. */
enum { STAY = TEFFI_CALL_KEEPS + 8, OWN = 3 * TEFFI_CALL_BLOCK };

static const teffi_node_id peer = {7, 7};

static teffi_node node;
static teffi_call_space *space;
static teff_ctx *ctx;

/* ---- the world ---- */

static _Atomic uint64_t now_ns;
static teffi_timer *_Atomic timer; /* NULL: none is set */
static unsigned fires;

static uint64_t mono_ns(void *arg)
{
    (void)arg;
    return now_ns;
}

static void timer_set(teffi_exec *exec, teffi_timer *t, uint64_t due_ns)
{
    (void)exec;
    t->due_ns = due_ns;
    assert_null(atomic_exchange(&timer, t));
}

static void pass(unsigned ms)
{
    for (unsigned i = 0; i < ms; i++) {
        now_ns += MS;
        teffi_timer *t = timer;
        if (!t || t->due_ns > now_ns)
            continue;
        timer = NULL;
        fires++;
        t->fire(t);
    }
}

/* out: ms until nothing is left to be done. */
static unsigned settle(void)
{
    unsigned ms = 0;
    for (; timer; ms++) {
        assert_true(ms < 60000);
        pass(1);
    }
    return ms;
}

static int setup(void **state)
{
    static const teffi_exec_ops ops = {.timer_set = timer_set};
    static teffi_platform platform = {.mono_ns = mono_ns};
    static teffi_exec exec = {.ops = &ops, .platform = &platform};
    (void)state;
    now_ns = (uint64_t)1000 * MS;
    timer = NULL;
    fires = 0;
    memset(&node, 0, sizeof node);
    node.platform = &platform;
    node.exec = &exec;
    teffi_calls_init(&node.calls, &node);
    space = &node.calls.table.space;
    ctx = teffi_ctx_new(&node);
    return ctx == NULL;
}

static int teardown(void **state)
{
    (void)state;
    teff_ctx_free(ctx);
    teffi_calls_fini(&node.calls);
    return 0;
}

/* ---- calls ---- */

typedef struct use {
    uint32_t slot, generation;
} use;

static teffi_call *call_new(void)
{
    teffi_call *call = teffi_call_new(&node, ctx, UINT64_MAX);
    assert_non_null(call);
    return call;
}

static use use_of(const teffi_call *call)
{
    return (use){call->slot, call->generation};
}

static void answer(use of)
{
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_RESPONSE);
    assert_non_null(msg);
    msg->call_slot = of.slot;
    msg->call_generation = msg->type_id = of.generation;
    teffi_call_answer(&node, msg);
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
    uint32_t n = 0, end = teffi_call_blocks(space);
    for (uint32_t b = 0; (b = teffi_call_held(space, b)) < end; b++)
        n++;
    return n;
}

static bool is_resident(uint32_t block)
{
    unsigned char pages[TEFFI_CALL_BLOCK * sizeof(teffi_call) / PAGE];
    void *at = teffi_call_block_at(space, block).calls;
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
    for (uint32_t b = 0; b < teffi_call_blocks(space); b++)
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
        answer(late[i]);
        teffi_call_sent_to(&node, late[i].slot, late[i].generation, peer);
    }
    teffi_call_lost(&node, peer, false);
}

static void a_peak_goes_back_and_late_answers_find_nobody(void **state)
{
    use *before[3];
    (void)state;
    for (int round = 0; round < 3; round++) {
        before[round] = peak(PEAK);
        assert_int_equal(teffi_calls_pending(&node.calls), PEAK);
        assert_true(held() >= PEAK / TEFFI_CALL_BLOCK);
        for (int r = 0; r < round; r++)
            nobody_is_found(before[r], PEAK);
        assert_int_equal(teffi_calls_pending(&node.calls), PEAK);
        teff_ctx_reset(ctx);
        (void)settle();
        gone_but(STAY);
        nobody_is_found(before[round], PEAK);
    }
    assert_true(teffi_call_blocks(space) <= PEAK / TEFFI_CALL_BLOCK + 1);
    for (int round = 0; round < 3; round++)
        free(before[round]);
}

/* ---- entries, without calls ---- */

static teffi_call **entries(int n)
{
    teffi_call **got = malloc((size_t)n * sizeof *got);
    assert_non_null(got);
    for (int i = 0; i < n; i++)
        assert_non_null(got[i] = teffi_call_get(&node.calls.table));
    return got;
}

static void shuffle(teffi_call **got, int n)
{
    uint64_t rng = 0x9e3779b97f4a7c15u;
    for (int i = n - 1; i > 0; i--) {
        rng = rng * 6364136223846793005u + 1442695040888963407u;
        int j = (int)((rng >> 33) % (uint64_t)(i + 1));
        teffi_call *was = got[i];
        got[i] = got[j];
        got[j] = was;
    }
}

static void put_all(teffi_call **got, int from, int n)
{
    for (int i = from; i < n; i++)
        teffi_call_put(&node.calls.table, got[i]);
}

static void in_any_order(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++) {
        teffi_call **got = entries(PEAK);
        shuffle(got, PEAK);
        put_all(got, 0, PEAK);
        (void)settle();
        gone_but(STAY + OWN);
        free(got);
    }
}

/* Each is handed out once, also from blocks of which a few lie here. */
static void entries_that_lie_here_are_used_again(void **state)
{
    enum { KEPT = PEAK / 8 };
    bool *seen = calloc(PEAK + TEFFI_CALL_BLOCK, sizeof *seen);
    (void)state;
    teffi_call **got = entries(PEAK);
    shuffle(got, PEAK);
    put_all(got, KEPT, PEAK);
    (void)settle();
    for (int i = 0; i < KEPT; i++)
        seen[got[i]->slot] = true;
    teffi_call **again = entries(PEAK - KEPT);
    for (int i = 0; i < PEAK - KEPT; i++) {
        assert_false(seen[again[i]->slot]);
        assert_ptr_equal(teffi_call_at(space, again[i]->slot), again[i]);
        assert_ptr_equal(again[i]->node, &node);
        seen[again[i]->slot] = true;
    }
    assert_true(teffi_call_blocks(space) <= PEAK / TEFFI_CALL_BLOCK + 1);
    put_all(got, 0, KEPT);
    put_all(again, 0, PEAK - KEPT);
    (void)settle();
    gone_but(STAY + OWN);
    free(got);
    free(again);
    free(seen);
}

/* ---- what is in use ---- */

static void calls_in_use_keep_their_blocks_and_are_found(void **state)
{
    enum { EVERY = 1000, KEPT = PEAK / EVERY };
    use kept[KEPT];
    teff_ctx *passing = teffi_ctx_new(&node);
    (void)state;
    for (int i = 0; i < PEAK; i++) {
        teffi_call *call = i % EVERY ? teffi_call_new(&node, passing, UINT64_MAX) : call_new();
        teffi_call_sent_to(&node, call->slot, call->generation, peer);
        if (i % EVERY == 0)
            kept[i / EVERY] = use_of(call);
    }
    teff_ctx_free(passing);
    (void)settle();
    assert_int_equal(teffi_calls_pending(&node.calls), KEPT);
    gone_but(STAY + KEPT); /* which is what a lost link looks at */
    for (int i = 0; i < KEPT / 2; i++)
        answer(kept[i]);
    assert_int_equal(teffi_calls_pending(&node.calls), KEPT - KEPT / 2);
    assert_true(teffi_calls_sent_to(&node, peer));
    teffi_call_lost(&node, peer, false);
    assert_int_equal(teffi_calls_pending(&node.calls), 0);
    teff_ctx_reset(ctx);
}

/* Others come meanwhile: slices are short, and what comes goes on. */
static void calls_come_while_memory_goes(void **state)
{
    (void)state;
    free(peak(PEAK));
    teff_ctx_reset(ctx);
    unsigned ms = 0;
    for (; timer; ms++) {
        assert_true(ms < 60000);
        use here = use_of(call_new());
        pass(1);
        assert_int_equal(teffi_calls_pending(&node.calls), 1);
        answer(here);
        teff_ctx_reset(ctx);
    }
    assert_true(fires >= PEAK / TEFFI_CALL_BLOCK / TEFFI_CALL_TRIM_SLICE);
    gone_but(STAY);
}

/* Ten thousand calls at a time are no peak, but needed: nothing goes, and little is done. */
static void what_is_needed_stays(void **state)
{
    enum { AT_ONCE = 10000, ROUNDS = 300 };
    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        free(peak(AT_ONCE));
        teff_ctx_reset(ctx);
        assert_true(held() >= AT_ONCE / TEFFI_CALL_BLOCK);
        pass(10);
    }
    assert_true(fires <= ROUNDS * 10 / TEFFI_CALL_AGE_MS + 1);
    assert_true(teffi_call_blocks(space) <= AT_ONCE / TEFFI_CALL_BLOCK + 1);
    assert_true(timer != NULL);
    assert_true(settle() <= 3 * TEFFI_CALL_AGE_MS);
    gone_but(STAY);
}

static void a_node_that_stops_sets_no_timer(void **state)
{
    (void)state;
    teffi_calls_stop(&node.calls);
    free(peak(PEAK));
    teff_ctx_reset(ctx);
    assert_null(timer);
}

/* ---- generations ---- */

static void set_generation(teffi_call *call, uint32_t generation)
{
    atomic_store(&call->word, (uint64_t)generation << 32);
}

static void lay_all(teffi_call_space *of, teffi_call *list)
{
    teffi_call_lot lot = {0};
    for (; list; list = list->next, lot.n++) {
        lot.slots[lot.n] = list->slot;
        lot.generations[lot.n] = teffi_call_last(list);
    }
    teffi_call_space_lay(of, &lot);
}

/* out: it could be given back. */
static bool goes(teffi_call_space *of)
{
    teffi_call_run run = teffi_call_space_claim(of, 0);
    if (!run.n)
        return false;
    assert_true(run.block == 0 && run.n == 1);
    assert_true(teffi_call_space_forget(of, run));
    teffi_call_space_return(of, run, true);
    return true;
}

/* They come from behind the furthest, round the end of the numbers too; and stay when that is so
 * far that it might be mistaken for what is behind. */
static void generations_go_on(void **state)
{
    static teffi_call_space own;
    uint32_t n, furthest = 0;
    (void)state;
    teffi_call_space_init(&own, &node);
    for (uint32_t round = 0; round < 50; round++) {
        teffi_call *list = teffi_call_space_take(&own, &n);
        assert_true(n == TEFFI_CALL_BLOCK && list->slot == 0);
        for (uint32_t i = 0; i < n; i++) {
            assert_int_equal(teffi_call_last(&list[i]), furthest);
            set_generation(&list[i], furthest + i * 1000);
        }
        furthest += 0x70000000u;
        set_generation(&list[round], furthest);
        lay_all(&own, list);
        assert_true(goes(&own));
        assert_int_equal(teffi_call_held(&own, 0), 1);
    }
    teffi_call *list = teffi_call_space_take(&own, &n);
    set_generation(&list[7], furthest + 0x80000000u);
    lay_all(&own, list);
    assert_false(goes(&own));
    assert_non_null(teffi_call_space_take(&own, &n));
    assert_int_equal(n, TEFFI_CALL_BLOCK);
    assert_int_equal(teffi_call_last(&list[7]), furthest + 0x80000000u);
    assert_int_equal(teffi_call_last(&list[8]), furthest);
    teffi_call_space_fini(&own);
}

/* ---- threads ---- */

enum { CALLERS = 3, BURST = 4000, BURSTS = 40, RING = 4096 };

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

static void end_burst(teff_ctx *own, teffi_call **calls, uint64_t *rng)
{
    for (int i = 0; i < BURST; i++) {
        use of = use_of(calls[i]);
        ring[draw(rng, RING)] = (uint64_t)of.slot << 32 | of.generation;
        answer(of); /* unless somebody else has */
        if (teffi_ctx_await_call(own, calls[i], NULL) || !calls[i]->reply ||
            calls[i]->reply->type_id != of.generation)
            wrong++;
        answered++;
    }
}

static void *calling(void *arg)
{
    uint64_t rng = 0x9e3779b97f4a7c15u * (uint64_t)(uintptr_t)arg;
    teff_ctx *own = teffi_ctx_new(&node);
    static _Thread_local teffi_call *calls[BURST];
    for (int burst = 0; burst < BURSTS || !went; burst++) {
        for (int i = 0; i < BURST; i++)
            if (!(calls[i] = teffi_call_new(&node, own, UINT64_MAX)))
                abort();
        end_burst(own, calls, &rng);
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
        answer((use){(uint32_t)(of >> 32), (uint32_t)of});
        teffi_call_sent_to(&node, (uint32_t)(of >> 32), (uint32_t)of, peer);
        if (draw(&rng, 256) == 0)
            (void)teffi_calls_pending(&node.calls);
    }
    return NULL;
}

static void threads_call_and_come_late_while_memory_goes(void **state)
{
    pthread_t threads[CALLERS + 1];
    (void)state;
    running = CALLERS;
    wrong = answered = 0;
    went = false;
    for (int i = 0; i <= CALLERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, i < CALLERS ? calling : coming_late,
                                        (void *)(uintptr_t)(i + 1)),
                         0);
    while (running > 0) {
        pass(TEFFI_CALL_AGE_MS);
        went = went || held() < teffi_call_blocks(space);
    }
    for (int i = 0; i <= CALLERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(wrong, 0);
    assert_true(went && answered >= CALLERS * BURST * BURSTS);
    (void)settle();
    assert_int_equal(teffi_calls_pending(&node.calls), 0);
}

int main(void)
{
#define TRIM(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TRIM(a_peak_goes_back_and_late_answers_find_nobody),
        TRIM(in_any_order),
        TRIM(entries_that_lie_here_are_used_again),
        TRIM(calls_in_use_keep_their_blocks_and_are_found),
        TRIM(calls_come_while_memory_goes),
        TRIM(what_is_needed_stays),
        TRIM(a_node_that_stops_sets_no_timer),
        TRIM(generations_go_on),
        TRIM(threads_call_and_come_late_while_memory_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
