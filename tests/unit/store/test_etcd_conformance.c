/* test_etcd_conformance.c - the suite, on an etcd of one member. */
#include "conformance.h"
#include "etcd_server.h"
#include "scratch.h"

#include <stdio.h>

int main(int argc, char **argv)
{
    /* the largest value beside the largest key and table, which are sent three times */
    enum { VALUE_MAX = 3 * 512 * 1024 - 7000, BATCH_MAX = 127 };
    static const conf_engine engines[] = {
        {.name = "etcd",
         .fresh = etcd_server_fresh,
         .shared = true,
         .value_max = VALUE_MAX,
         .batch_max = BATCH_MAX},
        {.name = "etcd, reopened",
         .fresh = etcd_server_fresh,
         .shared = true,
         .reopens = true,
         .value_max = VALUE_MAX,
         .batch_max = BATCH_MAX},
    };
    int failed = conf_child(argc, argv);
    if (failed >= 0)
        return failed;
    if (scratch_open() != 0)
        return 1;
    if (!etcd_server_start(1)) {
        puts("skipped: no etcd (package etcd-server)");
        scratch_close();
        return 77;
    }
    failed = 0;
    for (size_t i = 0; i < sizeof engines / sizeof engines[0] && failed == 0; i++)
        failed = conf_run(&engines[i]);
    etcd_server_stop();
    scratch_close();
    return failed;
}
