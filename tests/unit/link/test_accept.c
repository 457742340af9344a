/* test_accept.c - a listener without file descriptors accepts again when there are some: the ticker
 * tries, not the callback of the accept that failed. */
#include "net_test.h"

#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include "link/link.h"
#include "raw_peer.h"

static _Atomic unsigned by_ticker, by_others;
static const teffi_transport_ops *usual;

static void count_accept(teffi_transport *transport)
{
    char name[16] = "";
    pthread_getname_np(pthread_self(), name, sizeof name);
    *(strcmp(name, "teff-link") == 0 ? &by_ticker : &by_others) += 1;
    usual->accept(transport);
}

static void count_accepts_of(test_node *node)
{
    static teffi_transport_ops counting;
    teffi_conns *conns = &((teffi_link *)node->net)->conns;
    pthread_mutex_lock(&conns->lock); /* each accept but the first comes after it */
    usual = conns->transport->ops;
    counting = *usual;
    counting.accept = count_accept;
    conns->transport->ops = &counting;
    pthread_mutex_unlock(&conns->lock);
}

/* All but one are in use. */
static void leave_one_descriptor(const struct rlimit *was)
{
    int lowest_free = dup(0);
    struct rlimit now = {(rlim_t)lowest_free + 1, was->rlim_max};
    assert_true(lowest_free > 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
    close(lowest_free);
}

static void no_descriptor(void **state)
{
    struct rlimit was;
    /* with a worker, which polls instead of the ticker */
    test_node *silo = test_node_start((test_options){.heartbeat_ms = 20, .workers = 1});
    count_accepts_of(silo);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    leave_one_descriptor(&was);
    unsigned others = by_others, tries = by_ticker;
    raw_peer *raw = raw_connect(silo->address); /* takes the last one */
    test_wait(silo, by_ticker >= tries + 3);
    assert_int_equal(by_others, others);
    assert_int_equal(test_counters(silo->net).accepted, 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    teffi_greeting greeting = raw_greeting(7, 1, 1);
    assert_true(raw_join(raw, &greeting));
    raw_peer *next = raw_connect(silo->address); /* and goes on */
    test_wait(silo, test_counters(silo->net).accepted == 2);
    raw_close(raw);
    raw_close(next);
    test_node_stop(silo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_descriptor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
