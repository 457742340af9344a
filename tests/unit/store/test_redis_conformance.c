/* test_redis_conformance.c - the suite, on a Redis server. */
#include "conformance.h"
#include "proxy_faults.h"
#include "redis_server.h"
#include "scratch.h"
#include "tcp_proxy.h"

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <string.h>

static void open_faults(const char *address, char *via)
{
    snprintf(via, CONF_ADDRESS_MAX, "redis:127.0.0.1:%u%s", proxy_open(redis_server_port()),
             strrchr(address, '/'));
}

/* in: command: may have one %s, for more. */
static void run_command(const char *command, const char *more)
{
    redisContext *c = redisConnect("127.0.0.1", (int)redis_server_port());
    redisReply *reply = redisCommand(c, command, more);
    assert_non_null(reply);
    if (reply->type == REDIS_REPLY_ERROR)
        fail_msg("%s: %s", command, reply->str);
    freeReplyObject(reply);
    redisFree(c);
}

static void begin_fault(conf_fault f, const char *address)
{
    if (f == CONF_RESTARTED)
        redis_server_kill();
    else if (f == CONF_FULL)
        run_command("CONFIG SET maxmemory 1", NULL);
    else if (f == CONF_REPLICA)
        run_command("REPLICAOF 127.0.0.1 1", NULL);
    else if (f == CONF_DAMAGED)
        run_command("HSET %s:row:words:a value bad", strrchr(address, '/') + 1);
    else
        proxy_fault_begin(f);
}

static void await_fault(conf_fault f)
{
    proxy_fault_await(f, NULL);
}

static void end_fault(conf_fault f, const char *address)
{
    (void)address;
    if (f == CONF_RESTARTED)
        (void)redis_server_start("yes");
    else if (f == CONF_FULL)
        run_command("CONFIG SET maxmemory 0", NULL);
    else if (f == CONF_REPLICA)
        run_command("REPLICAOF NO ONE", NULL);
    else
        proxy_fault_end(f);
}

static void deliver_late(void)
{
    (void)proxy_deliver();
}

static const conf_faults faults = {
    .open = open_faults,
    .begin = begin_fault,
    .await = await_fault,
    .end = end_fault,
    .late = deliver_late,
    .close = proxy_close,
};

int main(int argc, char **argv)
{
    static const conf_engine engines[] = {
        {.name = "redis", .fresh = redis_server_fresh, .shared = true, .faults = &faults},
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
