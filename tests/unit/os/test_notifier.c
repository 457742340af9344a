/* test_notifier.c - a file descriptor that becomes readable, until its last user leaves it. */
#include "../faults.h"
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>
#include "os/notifier.h"

static bool is_readable(const teffi_notifier *notifier)
{
    struct pollfd poll_one = {.fd = notifier->fd, .events = POLLIN};
    return poll(&poll_one, 1, 0) == 1 && poll_one.revents == POLLIN;
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static void a_signal_makes_it_readable_until_it_is_read(void **state)
{
    uint64_t n = 0;
    teffi_notifier *notifier = teffi_notifier_new();
    assert_int_equal(fcntl(notifier->fd, F_GETFD), FD_CLOEXEC);
    assert_false(is_readable(notifier));
    teffi_notifier_signal(notifier);
    teffi_notifier_signal(notifier);
    assert_true(is_readable(notifier));
    assert_int_equal(read(notifier->fd, &n, sizeof n), sizeof n);
    assert_int_equal(n, 2);
    assert_false(is_readable(notifier));
    teffi_notifier_unref(notifier);
}

static void the_last_user_closes_it(void **state)
{
    long live = atomic_load(&faults_live);
    teffi_notifier *notifier = teffi_notifier_new();
    int fd = notifier->fd;
    teffi_notifier_ref(notifier);
    teffi_notifier_ref(notifier);
    for (int i = 0; i < 3; i++) {
        assert_true(is_open(fd));
        teffi_notifier_unref(notifier);
    }
    assert_false(is_open(fd));
    assert_int_equal(atomic_load(&faults_live), live);
    teffi_notifier_unref(NULL);
}

/* The lowest descriptor is as good as any other. */
static void it_may_have_descriptor_0(void **state)
{
    int saved = dup(0);
    close(0);
    teffi_notifier *notifier = teffi_notifier_new();
    assert_non_null(notifier);
    assert_int_equal(notifier->fd, 0);
    teffi_notifier_unref(notifier);
    assert_false(is_open(0));
    assert_int_equal(dup2(saved, 0), 0);
    close(saved);
}

static teff_err make_one(void)
{
    teffi_notifier *notifier = teffi_notifier_new();
    teffi_notifier_unref(notifier);
    return notifier ? TEFF_OK : TEFF_E_NOMEM;
}

static void without_memory_or_descriptors_there_is_none(void **state)
{
    struct rlimit before, none;
    assert_int_equal(fault_sweep(make_one, true), 1);
    long live = atomic_load(&faults_live);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){0, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_null(teffi_notifier_new());
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(atomic_load(&faults_live), live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_signal_makes_it_readable_until_it_is_read),
        cmocka_unit_test(the_last_user_closes_it),
        cmocka_unit_test(it_may_have_descriptor_0),
        cmocka_unit_test(without_memory_or_descriptors_there_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
