// remote.cpp - calls over TCP loopback in CAF, to actors of a second process, by its middleman.
#include "bench.hpp"

#include <caf/io/all.hpp>

#include <cstdio>
#include <cstdlib>
#include <unistd.h>

void load_remote(actor_system_config &config)
{
    config.load<io::middleman>();
}

static behavior directory(event_based_actor *self)
{
    vector<actor> all;
    for (int i = 0; i < 1024; i++)
        all.push_back(self->spawn(grain));
    return {[=](go_atom, uint64_t i) { return all[i]; }};
}

int serve(size_t workers)
{
    actor_system_config config;
    config.set("scheduler.max-threads", workers);
    load_remote(config);
    actor_system system{config};
    auto port = system.middleman().publish(system.spawn(directory), 0, "127.0.0.1");
    if (!port)
        return 1;
    printf("%d\n", int(*port));
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0)
        continue;
    _exit(0);
}

// Gives its port. Its standard input ends with us.
static uint16_t start_server(size_t workers)
{
    int to[2], from[2], port = 0;
    if (pipe(to) || pipe(from))
        abort();
    if (fork() == 0) {
        dup2(to[0], 0);
        dup2(from[1], 1);
        close(to[1]);
        close(from[0]);
        auto text = std::to_string(workers);
        execl("/proc/self/exe", "caf", "serve", text.c_str(), "0", nullptr);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    if (fscanf(fdopen(from[0], "r"), "%d", &port) != 1)
        abort();
    return uint16_t(port);
}

static vector<actor> far;

static void find_far(actor_system &system, scoped_actor &me, size_t n)
{
    auto fail = [](error &) { abort(); };
    if (far.size() == n)
        return;
    size_t workers = get_or(system.config(), "scheduler.max-threads", size_t(1));
    auto directory = system.middleman().remote_actor("127.0.0.1", start_server(workers));
    if (!directory)
        abort();
    for (uint64_t i = 0; i < n; i++)
        me->request(*directory, infinite, go_atom::value, i)
            .receive([](actor one) { far.push_back(one); }, fail);
}

template <long Callers>
static long remote(actor_system &system, scoped_actor &me, long n)
{
    find_far(system, me, Callers);
    return calling(system, me, Callers, n, [](actor_system &, long c, long) {
        return far[size_t(c)];
    });
}

row_run remote_row(const std::string &name)
{
    return name == "remote-1"      ? remote<1>
           : name == "remote-64"   ? remote<64>
           : name == "remote-1024" ? remote<1024>
                                   : nullptr;
}
