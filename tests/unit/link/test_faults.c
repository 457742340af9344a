/* test_faults.c - a link that cannot be made: memory, or the ticker's thread, is refused. */
#include "../faults.h"

#include "group/exec.h"
#include "link/net.h"
#include "os/platform.h"

static teffi_poller *polled;

static void note_poller(teffi_exec *exec, teffi_poller *poller)
{
    polled = poller;
}

static teff_err make_link(void)
{
    static const teffi_exec_ops exec_ops = {.poll = note_poller};
    static const teffi_net_events events = {0};
    static teffi_platform platform;
    static teffi_exec exec = {.ops = &exec_ops, .platform = &platform};
    const teffi_net_options opt = {.self = {.node = {1, 1}, .role = TEFFI_ROLE_SILO},
                                   .events = &events,
                                   .transport = TEFFI_TRANSPORT_REACTOR,
                                   .exec = &exec};
    char text[TEFF_TEXT_MAX];
    teffi_net *net;
    teffi_platform_init_real(&platform, TEFF_LOG_ERROR);
    polled = NULL;
    teff_err err = teffi_net_link_new(&platform, &opt, &net, text);
    assert_int_equal(err == TEFF_OK, polled != NULL);
    if (!err)
        net->ops->free(net);
    return err;
}

/* Workers poll until the executor stops, which is after the link's memory is gone. */
static void workers_do_not_poll_for_a_link_that_was_not_made(void **state)
{
    long n = 1;
    for (teff_err err = TEFF_E_IO; err; n++) {
        atomic_store(&faults_left, n);
        err = make_link();
        assert_int_equal(err != TEFF_OK, atomic_exchange(&faults_left, 0) <= 0);
    }
    assert_true(n > 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workers_do_not_poll_for_a_link_that_was_not_made)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
