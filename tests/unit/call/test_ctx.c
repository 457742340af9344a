/* test_ctx.c - deadlines that a context hands on, and the texts of its errors. */
#include "test.h"

#include <string.h>
#include "call/ctx.h"

enum { MS = 1000000, NOW_MS = 5000 };

static teffi_home home;
static teff_ctx ctx;

static uint64_t stopped_clock(void *arg)
{
    return (uint64_t)NOW_MS * MS;
}

static int setup(void **state)
{
    static const teffi_platform platform = {.mono_ns = stopped_clock};
    static teffi_exec exec = {.platform = &platform};
    home.exec = &exec;
    teffi_ctx_init(&ctx, &home, NULL);
    return 0;
}

static void a_call_ends_with_its_caller(void **state)
{
    enum { DEFAULT = TEFFI_TIMEOUT_DEFAULT_MS, MAX = TEFFI_TIMEOUT_MAX_MS };
    static const struct {
        uint32_t timeout_ms, of_ctx_ms, due_ms;
        uint64_t left_ms; /* 0: it has passed */
    } rows[] = {
        {0, 0, 0, DEFAULT},
        {0, 70, 0, 70},
        {30, 70, 0, 30},
        {1, 0, 0, 1},
        {MAX, 0, 0, MAX},
        {UINT32_MAX, 0, 0, MAX},
        {30, 0, NOW_MS + 20, 20},
        {10, 0, NOW_MS + 20, 10},
        {0, 0, NOW_MS + DEFAULT + 1, DEFAULT},
        {30, 0, NOW_MS + 1, 1},
        {30, 0, NOW_MS, 0},
        {30, 0, NOW_MS - 1, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        teff_ctx_set_timeout(&ctx, rows[i].of_ctx_ms);
        ctx.due_ms = rows[i].due_ms;
        uint64_t expected_ns = rows[i].left_ms ? (NOW_MS + rows[i].left_ms) * MS : 0;
        if (teffi_ctx_compute_call_deadline(&ctx, rows[i].timeout_ms) != expected_ns)
            fail_msg("row %zu", i);
    }
}

static void the_last_text_counts(void **state)
{
    assert_string_equal(teff_error(&ctx), "");
    assert_int_equal(teff_fail(&ctx, TEFF_E_IO, "no %s", "disk"), TEFF_E_IO);
    assert_string_equal(teff_error(&ctx), "no disk");
    assert_int_equal(ctx.text_err, TEFF_E_IO);
    assert_int_equal(teff_fail(&ctx, TEFF_OK, "%s at all", teff_error(&ctx)), TEFF_E_FAILED);
    assert_string_equal(teff_error(&ctx), "no disk at all");
    assert_int_equal(teff_fail(&ctx, TEFF_E_CLOSED, "%d", 7), TEFF_E_CLOSED);
    assert_string_equal(teff_error(&ctx), "7");
    assert_int_equal(ctx.text_err, TEFF_E_CLOSED);
    assert_int_equal(teff_fail(&ctx, TEFF_E_IO, "%s", ""), TEFF_E_IO);
    assert_string_equal(teff_error(&ctx), "");
    (void)teff_fail(&ctx, TEFF_E_IO, "no disk");
    teff_ctx_reset(&ctx);
    assert_string_equal(teff_error(&ctx), "");
}

static void a_long_text_is_cut(void **state)
{
    char text[2 * TEFF_TEXT_MAX];
    for (size_t len = TEFF_TEXT_MAX - 2; len <= TEFF_TEXT_MAX + 1; len++) {
        memset(text, 'x', len);
        text[len] = '\0';
        (void)teff_fail(&ctx, TEFF_E_IO, "%s", text);
        size_t most = TEFF_TEXT_MAX - 1;
        assert_int_equal(strlen(teff_error(&ctx)), len < most ? len : most);
    }
}

static void a_thread_copies_into_its_context(void **state)
{
    static const uint8_t zeros[100];
    char *copy = teff_strdup(&ctx, "text");
    assert_string_equal(copy, "text");
    assert_memory_equal(teff_alloc(&ctx, sizeof zeros), zeros, sizeof zeros);
    teff_mark mark = teff_ctx_mark(&ctx);
    size_t used = ctx.arena.used_bytes;
    (void)teff_alloc(&ctx, 100000);
    teff_ctx_rewind(&ctx, mark);
    assert_int_equal(ctx.arena.used_bytes, used);
    assert_string_equal(copy, "text");
    teff_ctx_reset(&ctx);
    assert_int_equal(ctx.arena.used_bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_call_ends_with_its_caller, setup),
        cmocka_unit_test_setup(the_last_text_counts, setup),
        cmocka_unit_test_setup(a_long_text_is_cut, setup),
        cmocka_unit_test_setup(a_thread_copies_into_its_context, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
