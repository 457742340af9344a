/* test_marks.c - a long loop keeps its memory small: it forgets responses early, or drops them.
 * Way:     turns and a thread -> teff_ctx_rewind, teff_drop */
#include <malloc.h>
#include <string.h>
#include "acts.h"
#include "memory/pool.h"
#include "call/ctx.h"

enum { LOOPS = 500 };

static unsigned calls_of(const teff_ctx *of)
{
    unsigned n = 0;
    for (const teffi_call *call = LIST_FIRST(&of->calls); call; call = LIST_NEXT(call, in_ctx))
        n++;
    return n;
}

/* Each third callee waits, so that its call is pending; the others may run in place. */
static teff_err ask(teff_ctx *of, int64_t i, direct_number **out)
{
    char text[100];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    return direct_actor_obey(of, FIRST + i % 5,
                             ACT(i % 3 ? responds : sleeps, .n = i, .text = text), out);
}

static teff_err loops(teff_ctx *of, direct_number *out)
{
    direct_number *first, *got;
    teff_err err = ask(of, 7, &first);
    char *mine = teff_strdup(of, "mine");
    unsigned calls = calls_of(of);
    size_t used = of->arena.used_bytes;
    teff_mark mark = teff_ctx_mark(of);
    for (int64_t i = 0; i < LOOPS && !err; i++) {
        err = ask(of, i, &got);
        if (!err && got->n == i + 1 && strlen(got->text) == 99)
            out->n++;
        teff_alloc(of, 3000);
        teff_ctx_rewind(of, mark);
        if (calls_of(of) != calls || of->arena.used_bytes != used)
            return TEFF_E_FAILED;
    }
    return err ? err : first->n == 8 && !strcmp(mine, "mine") ? TEFF_OK : TEFF_E_FAILED;
}

static teff_err loops_in_a_turn(teff_ctx *turn, int64_t key, const direct_act *in,
                                direct_number *out)
{
    return loops(turn, out);
}

static void test_a_loop_keeps_what_was_before_the_mark(void **state)
{
    direct_number *out;
    direct_number mine = {0};
    lab_ok(ctx, loops(ctx, &mine));
    assert_int_equal(mine.n, LOOPS);
    lab_ok(ctx, direct_actor_obey(ctx, 1, RUN(loops_in_a_turn), &out));
    assert_int_equal(out->n, LOOPS);
    teff_ctx_reset(ctx);
    assert_null(ctx->arena.chunks);
    assert_int_equal(calls_of(ctx), 0);
}

/* An empty arena has no block to go back to. */
static void test_a_mark_at_the_beginning(void **state)
{
    direct_number *got;
    teff_ctx_reset(ctx);
    teff_mark mark = teff_ctx_mark(ctx);
    for (int64_t i = 0; i < 20; i++) {
        teff_alloc(ctx, 100000);
        lab_ok(ctx, ask(ctx, i, &got));
        assert_int_equal(got->n, i + 1);
        teff_ctx_rewind(ctx, mark);
        assert_null(ctx->arena.chunks);
        assert_int_equal(ctx->arena.used_bytes, 0);
    }
}

static void test_marks_nest(void **state)
{
    teff_ctx_reset(ctx);
    teff_mark outer = teff_ctx_mark(ctx);
    char *a = teff_strdup(ctx, "a");
    teff_mark inner = teff_ctx_mark(ctx);
    for (int i = 0; i < 100; i++) {
        memset(teff_alloc(ctx, 5000), 0xff, 5000);
        teff_ctx_rewind(ctx, inner);
        assert_string_equal(a, "a");
    }
    assert_ptr_not_equal(ctx->arena.chunks, NULL);
    teff_ctx_rewind(ctx, outer);
    assert_null(ctx->arena.chunks);
}

/* What is large has blocks of its own; they go back as well. 200 MB pass through. */
static void test_large_pieces_are_given_back(void **state)
{
    enum { LARGE = 400 * 1024 };
    teff_ctx_reset(ctx);
    char *mine = teff_strdup(ctx, "mine");
    teff_mark mark = teff_ctx_mark(ctx);
    size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
    for (int i = 0; i < LOOPS; i++) {
        memset(teff_alloc(ctx, LARGE), 'x', LARGE);
        teff_ctx_rewind(ctx, mark);
    }
    size_t after = mallinfo2().uordblks + mallinfo2().hblkhd;
    assert_true(after < before + 2 * (size_t)TEFFI_BLOCK_KEPT_MAX);
    assert_string_equal(mine, "mine");
}

/* So many under way, the oldest awaited, used, and dropped. */
static teff_err slides(teff_ctx *of, int64_t *right)
{
    enum { WIDTH = 16 };
    teff_call calls[WIDTH];
    direct_number *got;
    teff_err err = TEFF_OK;
    for (int64_t i = 0; i < LOOPS + WIDTH && !err; i++) {
        teff_call *call = &calls[i % WIDTH];
        if (i >= WIDTH) {
            err = direct_actor_obey_await(of, *call, &got);
            *right += !err && got->n == i - WIDTH + 1;
            teff_drop(of, call);
            if (call->impl || calls_of(of) > WIDTH)
                return TEFF_E_FAILED;
        }
        if (!err && i < LOOPS)
            err = direct_actor_obey_async(of, FIRST + i, ACT(i % 3 ? responds : sleeps, .n = i),
                                          NULL, call);
    }
    return err;
}

static teff_err slides_in_a_turn(teff_ctx *turn, int64_t key, const direct_act *in,
                                 direct_number *out)
{
    return slides(turn, &out->n);
}

static void test_responses_are_dropped_one_by_one(void **state)
{
    direct_number *out;
    int64_t right = 0;
    teff_ctx_reset(ctx);
    lab_ok(ctx, slides(ctx, &right));
    assert_int_equal(right, LOOPS);
    assert_int_equal(calls_of(ctx), 0);
    lab_ok(ctx, direct_actor_obey(ctx, 1, RUN(slides_in_a_turn), &out));
    assert_int_equal(out->n, LOOPS);
}

static void test_none_is_dropped_twice(void **state)
{
    teff_call none = {NULL}, call;
    direct_number *got;
    teff_drop(ctx, &none);
    lab_ok(ctx, direct_actor_obey_async(ctx, FIRST, RUN(responds), NULL, &call));
    lab_ok(ctx, direct_actor_obey_await(ctx, call, &got));
    teff_drop(ctx, &call);
    teff_drop(ctx, &call);
    assert_int_equal(direct_actor_obey_await(ctx, call, &got), TEFF_E_INVALID);
}

/* Their responses come later, to nobody. */
static teff_err abandons(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    teff_call dropped, forgotten;
    direct_number *got;
    teff_mark mark = teff_ctx_mark(turn);
    teff_err err = direct_actor_obey_async(turn, FIRST, RUN(waits), NULL, &dropped);
    if (!err)
        err = direct_actor_obey_async(turn, FIRST + 1, RUN(waits), NULL, &forgotten);
    teff_drop(turn, &dropped);
    teff_ctx_rewind(turn, mark);
    out->text = teff_strdup(turn, calls_of(turn) ? "some are left" : "none");
    world.gate = true;
    for (int64_t i = 0; i < 100 && !err; i++)
        err = direct_actor_obey(turn, FIRST + 2, ACT(sleeps, .n = i), &got);
    return err;
}

static void test_calls_under_way_are_abandoned(void **state)
{
    direct_number *out;
    for (int i = 0; i < 20; i++) {
        world.gate = false;
        lab_ok(ctx, direct_actor_obey(ctx, 1, RUN(abandons), &out));
        assert_string_equal(out->text, "none");
    }
}

/* A call from before the mark may go before what came after it. */
static void test_an_older_call_is_dropped_first(void **state)
{
    teff_call older, oldest;
    direct_number *got, *kept;
    teff_ctx_reset(ctx);
    lab_ok(ctx, direct_actor_obey_async(ctx, FIRST, ACT(responds, .n = 1), NULL, &oldest));
    lab_ok(ctx, direct_actor_obey_async(ctx, FIRST, ACT(responds, .n = 2), NULL, &older));
    lab_ok(ctx, direct_actor_obey_await(ctx, oldest, &kept));
    teff_mark mark = teff_ctx_mark(ctx);
    lab_ok(ctx, direct_actor_obey(ctx, FIRST, ACT(responds, .n = 3), &got));
    teff_drop(ctx, &older);
    teff_ctx_rewind(ctx, mark);
    assert_int_equal(calls_of(ctx), 1);
    assert_int_equal(kept->n, 2);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, acts_setup, acts_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_a_loop_keeps_what_was_before_the_mark),
        CASE(test_a_mark_at_the_beginning),
        CASE(test_marks_nest),
        CASE(test_large_pieces_are_given_back),
        CASE(test_responses_are_dropped_one_by_one),
        CASE(test_none_is_dropped_twice),
        CASE(test_calls_under_way_are_abandoned),
        CASE(test_an_older_call_is_dropped_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
