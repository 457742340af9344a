/* test_accept.c - a listener without file descriptors accepts again when there are some: the ticker
 * tries, not the callback of the accept that failed. Handshakes are counted for each host. */
#include "net_test.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include "link/link.h"
#include "raw_peer.h"

static _Atomic unsigned by_ticker, by_others;
static const teffi_transport_ops *usual;

static void count_accept(teffi_transport *transport, teffi_door door)
{
    char name[16] = "";
    pthread_getname_np(pthread_self(), name, sizeof name);
    *(strcmp(name, "teff-link") == 0 ? &by_ticker : &by_others) += 1;
    usual->accept(transport, door);
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

/* The silo's gateway, or the silo itself. */
static void run_out_of_descriptors(bool at_gateway)
{
    struct rlimit was;
    /* with a worker, which polls instead of the ticker */
    test_node *silo = test_node_start((test_options){
        .heartbeat_ms = 20, .workers = 1, .gateway = at_gateway ? "127.0.0.1:0" : NULL});
    const char *address = at_gateway ? silo->gateway : silo->address;
    count_accepts_of(silo);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    leave_one_descriptor(&was);
    unsigned others = by_others, tries = by_ticker;
    raw_peer *raw = raw_connect(address); /* takes the last one */
    test_wait(silo, by_ticker >= tries + 3);
    assert_int_equal(by_others, others);
    assert_int_equal(test_counters(silo->net).accepted, 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    teffi_greeting greeting = raw_greeting(at_gateway ? 7 | TEFFI_CLIENT_BIT : 7, 1, 1);
    greeting.hello.role = at_gateway ? TEFFI_ROLE_CLIENT : TEFFI_ROLE_SILO;
    if (at_gateway)
        greeting.hello.address[0] = '\0';
    assert_true(raw_join(raw, &greeting));
    raw_peer *next = raw_connect(address); /* and goes on */
    test_wait(silo, test_counters(silo->net).accepted == 2);
    raw_close(raw);
    raw_close(next);
    test_node_stop(silo);
}

static void no_descriptor(void **state)
{
    run_out_of_descriptors(false);
}

static void no_descriptor_at_the_gateway(void **state)
{
    run_out_of_descriptors(true);
}

static unsigned count_for_hosts(test_node *node)
{
    teffi_conns *conns = &((teffi_link *)node->net)->conns;
    unsigned n = 0;
    pthread_mutex_lock(&conns->lock);
    for (unsigned i = 0; i <= LINK_HOSTS; i++)
        n += conns->pending_of_host[i];
    pthread_mutex_unlock(&conns->lock);
    return n;
}

/* One peer joins, and one goes. */
static void a_handshake_that_is_over_does_not_count_for_its_host(void **state)
{
    test_node *silo = test_node_start((test_options){.heartbeat_ms = 1000});
    raw_peer *joins = raw_connect(silo->address), *goes = raw_connect_from(silo->address, 2);
    teffi_greeting greeting = raw_greeting(7, 1, 1);
    test_wait(silo, test_counters(silo->net).accepted == 2);
    assert_int_equal(count_for_hosts(silo), 2);
    assert_true(raw_join(joins, &greeting));
    test_wait(silo, silo->ups == 1);
    assert_int_equal(count_for_hosts(silo), 1);
    raw_close(goes);
    test_wait(silo, count_for_hosts(silo) == 0);
    raw_close(joins);
    test_wait(silo, silo->downs == 1);
    assert_int_equal(count_for_hosts(silo), 0);
    test_node_stop(silo);
}

/* More connections than may be in their handshake at a time. Other hosts have opened the first
 * ones, and may still send their hellos in the end; two of them may share a number with the host
 * that opens many. */
static void the_oldest_of_the_host_with_most_handshakes_goes(void **state)
{
    enum { MAX = 1024, N = MAX + 20, OTHERS = 3 };
    struct rlimit was, files;
    getrlimit(RLIMIT_NOFILE, &was);
    files = (struct rlimit){was.rlim_max, was.rlim_max};
    setrlimit(RLIMIT_NOFILE, &files);
    if (files.rlim_cur < 4096)
        skip();
    test_node *silo = test_node_start((test_options){.heartbeat_ms = 1000});
    raw_peer **raw = calloc(N, sizeof *raw), *others[OTHERS];
    unsigned joined = 0;
    for (uint8_t i = 0; i < OTHERS; i++)
        others[i] = raw_connect_from(silo->address, i + 2);
    for (int i = 0; i < N; i++)
        raw[i] = raw_connect(silo->address);
    test_wait(silo, test_counters(silo->net).crowded == N + OTHERS - MAX);
    assert_true(raw_ended(raw[0]) && raw_ended(raw[19])); /* each accept kills another one */
    raw_peer *late = raw_connect(silo->address);
    teffi_greeting g = raw_greeting(960, 1, 1);
    assert_true(raw_join(late, &g)); /* there is room for one that means it */
    for (uint32_t i = 0; i < OTHERS; i++) {
        g = raw_greeting(961 + i, 1, 1);
        joined += raw_join(others[i], &g);
        raw_close(others[i]);
    }
    assert_true(joined > 0);
    raw_close(late);
    for (int i = 0; i < N; i++)
        raw_close(raw[i]);
    test_wait(silo, count_for_hosts(silo) == 0);
    free(raw);
    test_node_stop(silo);
    setrlimit(RLIMIT_NOFILE, &was);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_descriptor),
        cmocka_unit_test(no_descriptor_at_the_gateway),
        cmocka_unit_test(a_handshake_that_is_over_does_not_count_for_its_host),
        cmocka_unit_test(the_oldest_of_the_host_with_most_handshakes_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
