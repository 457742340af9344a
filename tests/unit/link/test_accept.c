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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_descriptor),
        cmocka_unit_test(no_descriptor_at_the_gateway),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
