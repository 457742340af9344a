/* test_redis_conformance.c - the suite, on a Redis server. */
#include "conformance.h"
#include "redis_server.h"
#include "scratch.h"

#include <stdio.h>

int main(int argc, char **argv)
{
    static const conf_engine engines[] = {
        {.name = "redis", .fresh = redis_server_fresh, .shared = true},
        {.name = "redis, reopened", .fresh = redis_server_fresh, .shared = true, .reopens = true},
    };
    int failed = conf_child(argc, argv);
    if (failed >= 0)
        return failed;
    if (scratch_open() != 0)
        return 1;
    if (!redis_server_start("yes")) {
        puts("skipped: no redis-server (package redis-server)");
        scratch_close();
        return 77;
    }
    failed = 0;
    for (size_t i = 0; i < sizeof engines / sizeof engines[0] && failed == 0; i++)
        failed = conf_run(&engines[i]);
    redis_server_stop();
    scratch_close();
    return failed;
}
