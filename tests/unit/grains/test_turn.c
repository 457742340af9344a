/* test_turn.c - what a turn sees of its caller, at one millisecond and at the next. */
#include "bare.h"

#include "activation/turn.h"

enum { NOW_MS = 5000 }; /* bare_now_ns */

/* The caller's call has ended unless its turn is on the stack. */
static void a_turn_sees_that_its_time_is_over_or_its_caller_gone(void **state)
{
    static const struct {
        uint32_t due_ms;
        bool ended;
        teff_err err;
        uint32_t left_ms;
    } rows[] = {
        {0, false, TEFF_OK, UINT32_MAX},
        {NOW_MS + 2, false, TEFF_OK, 2},
        {NOW_MS + 1, false, TEFF_OK, 1},
        {NOW_MS, false, TEFF_E_TIMEOUT, 0},
        {NOW_MS - 1, false, TEFF_E_TIMEOUT, 0},
        {0, true, TEFF_E_CANCELLED, UINT32_MAX},
        {NOW_MS + 2, true, TEFF_E_CANCELLED, 2},
        {NOW_MS + 1, true, TEFF_E_TIMEOUT, 0}, /* it ends at a part of this millisecond */
        {NOW_MS, true, TEFF_E_TIMEOUT, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        teffi_msg *request = bare_message(TEFFI_MSG_REQUEST);
        request->src = bare_self;
        request->call.generation = 1; /* of no call */
        teffi_turn turn = {
            .request = request, .on_stack = !rows[i].ended, .due_ms = rows[i].due_ms};
        uint32_t left_ms;
        teffi_ctx_init(&turn.ctx, &node.home, NULL);
        turn.ctx.owner = &turn;
        if (teff_ctx_check(&turn.ctx, &left_ms) != rows[i].err || left_ms != rows[i].left_ms)
            fail_msg("row %zu", i);
        assert_int_equal(teff_ctx_check(&turn.ctx, NULL), rows[i].err);
        teffi_msg_free(request);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_turn_sees_that_its_time_is_over_or_its_caller_gone,
                                        bare_open, bare_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
