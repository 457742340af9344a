/* test_etcd_conformance.c - the suite, on an etcd of one member; restarts also on one of three. */
#include "conformance.h"
#include "etcd_server.h"
#include "proxy_faults.h"
#include "scratch.h"
#include "tcp_proxy.h"

#include <stdio.h>
#include <string.h>

static unsigned members, killed;

static void open_faults(const char *address, char *via)
{
    snprintf(via, CONF_ADDRESS_MAX, "etcd://127.0.0.1:%u%s", proxy_open(etcd_server_port(0)),
             strrchr(address, '/'));
}

static void set_alarm(const char *action)
{
    char json[100], answer[1024];
    snprintf(json, sizeof json, "{\"action\":\"%s\",\"alarm\":\"NOSPACE\"}", action);
    if (etcd_server_post(0, "/v3/maintenance/alarm", json, answer, sizeof answer) != 200)
        fail_msg("%s: %s", json, answer);
}

static void change_row_a(const char *address)
{
    static const char bytes[] = "\1--sum--bad";
    char key[200], json[512] = "{\"key\":\"", answer[1024];
    int len = snprintf(key, sizeof key, "%s/words/a", strrchr(address, '/') + 1);
    etcd_server_encode(json, key, (size_t)len);
    strcat(json, "\",\"value\":\"");
    etcd_server_encode(json, bytes, sizeof bytes - 1);
    strcat(json, "\"}");
    assert_int_equal(etcd_server_post(0, "/v3/kv/put", json, answer, sizeof answer), 200);
}

static void begin_fault(conf_fault f, const char *address)
{
    if (f == CONF_RESTARTED)
        etcd_server_kill(killed);
    else if (f == CONF_FULL)
        set_alarm("ACTIVATE");
    else if (f == CONF_DAMAGED)
        change_row_a(address);
    else
        proxy_fault_begin(f);
}

static void await_fault(conf_fault f)
{
    proxy_fault_await(f, "]}"); /* the body comes after the head */
}

static void end_fault(conf_fault f, const char *address)
{
    (void)address;
    if (f == CONF_RESTARTED) {
        etcd_server_restart(killed);
        killed = (killed + 1) % members;
    } else if (f == CONF_FULL) {
        set_alarm("DEACTIVATE");
    } else {
        proxy_fault_end(f);
    }
}

static void deliver_late(void)
{
    (void)proxy_deliver();
}

#define NO_REPLICA "a member takes writes or, without a majority, serves nothing, see test_etcd"

static const conf_faults faults = {
    .lacks = {[CONF_REPLICA] = NO_REPLICA},
    .damaged_err = TEFF_E_CONFLICT, /* every change through etcd gives the row another etag */
    .open = open_faults,
    .begin = begin_fault,
    .await = await_fault,
    .end = end_fault,
    .late = deliver_late,
    .close = proxy_close,
};

#define ONE_MEMBER "as with one member"

/* The store knows all members, and there is no proxy. */
static const conf_faults cluster_faults = {
    .lacks =
        {
            [CONF_CONFLICT] = ONE_MEMBER,
            [CONF_UNKNOWN_BEFORE] = ONE_MEMBER,
            [CONF_UNKNOWN_AFTER] = ONE_MEMBER,
            [CONF_SLOW] = ONE_MEMBER,
            [CONF_SILENT] = ONE_MEMBER,
            [CONF_LOST] = ONE_MEMBER,
            [CONF_FULL] = ONE_MEMBER,
            [CONF_REPLICA] = NO_REPLICA,
            [CONF_DAMAGED] = ONE_MEMBER,
        },
    .serves_on = true,
    .begin = begin_fault,
    .end = end_fault,
};

static bool start_members(unsigned n)
{
    members = n;
    killed = 0;
    return etcd_server_start(n);
}

int main(int argc, char **argv)
{
    /* the largest value beside the largest key and table, which are sent three times */
    enum { VALUE_MAX = 3 * 512 * 1024 - 7000, BATCH_MAX = 127 };
    static const conf_engine engines[] = {
        {.name = "etcd",
         .fresh = etcd_server_fresh,
         .shared = true,
         .value_max = VALUE_MAX,
         .batch_max = BATCH_MAX,
         .faults = &faults},
        {.name = "etcd, reopened",
         .fresh = etcd_server_fresh,
         .shared = true,
         .reopens = true,
         .value_max = VALUE_MAX,
         .batch_max = BATCH_MAX},
    };
    static const conf_engine cluster = {.name = "etcd, three members",
                                        .fresh = etcd_server_fresh,
                                        .shared = true,
                                        .faults = &cluster_faults};
    int failed = conf_child(argc, argv);
    if (failed >= 0)
        return failed;
    if (scratch_open() != 0)
        return 1;
    if (!start_members(1)) {
        puts("skipped: no etcd (package etcd-server)");
        scratch_close();
        return 77;
    }
    failed = 0;
    for (size_t i = 0; i < sizeof engines / sizeof engines[0] && failed == 0; i++)
        failed = conf_run(&engines[i]);
    etcd_server_stop();
    if (failed == 0 && start_members(3)) {
        failed = conf_run_faults(&cluster);
        etcd_server_stop();
    }
    scratch_close();
    return failed;
}
