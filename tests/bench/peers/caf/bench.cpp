// bench.cpp - the scheduler's rows in CAF 0.17: event-based actors, plain sends.
// usage: caf ROW WORKERS N       prints RESULT ops=... seconds=...
#include "bench.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <thread>
#include <unistd.h>

using ping_atom = atom_constant<atom("ping")>;
using pong_atom = atom_constant<atom("pong")>;
using late_atom = atom_constant<atom("late")>;

static void end_all(scoped_actor &me, const vector<actor> &all)
{
    for (auto &one : all)
        me->send_exit(one, exit_reason::user_shutdown);
}

static actor sender(event_based_actor *self)
{
    return actor_cast<actor>(self->current_sender());
}

// ---- ping-pong ----

static behavior ponger(event_based_actor *self)
{
    return {[=](ping_atom, long v) { self->send(sender(self), pong_atom::value, v); }};
}

struct count_state {
    long left = 0;
};

static behavior pinger(stateful_actor<count_state> *self, actor pong, long n, actor done)
{
    self->state.left = n;
    self->send(pong, ping_atom::value, n);
    return {[=](pong_atom, long) {
        if (--self->state.left > 0) {
            self->send(pong, ping_atom::value, self->state.left);
            return;
        }
        self->send(done, done_atom::value);
        self->send_exit(pong, exit_reason::user_shutdown);
        self->quit();
    }};
}

static long ping_pong(actor_system &system, scoped_actor &me, long n)
{
    system.spawn(pinger, system.spawn(ponger), n, actor_cast<actor>(me));
    wait_done(me, 1);
    return n;
}

// ---- thread ring ----

struct ring_state {
    actor next;
};

static behavior ring_member(stateful_actor<ring_state> *self, actor done)
{
    return {[=](actor next) { self->state.next = next; },
            [=](long hops) {
                if (hops == 0)
                    self->send(done, done_atom::value);
                else
                    self->send(self->state.next, hops - 1);
            }};
}

static long ring(actor_system &system, scoped_actor &me, long n)
{
    vector<actor> all;
    for (int i = 0; i < 503; i++)
        all.push_back(system.spawn(ring_member, actor_cast<actor>(me)));
    for (int i = 0; i < 503; i++)
        me->send(all[i], all[(i + 1) % 503]);
    me->send(all[0], n);
    wait_done(me, 1);
    end_all(me, all);
    return n;
}

// ---- counting, fork-join throughput ----

static behavior counter(stateful_actor<count_state> *self, long n, actor done)
{
    self->state.left = n;
    return {[=](go_atom) {
        if (--self->state.left == 0) {
            self->send(done, done_atom::value);
            self->quit();
        }
    }};
}

static long feed(actor_system &system, scoped_actor &me, long counters, long n)
{
    vector<actor> all;
    for (long i = 0; i < counters; i++)
        all.push_back(system.spawn(counter, n / counters, actor_cast<actor>(me)));
    system.spawn([=](event_based_actor *self) {
        for (long k = 0; k < n / counters; k++)
            for (auto &one : all)
                self->send(one, go_atom::value);
    });
    wait_done(me, counters);
    return n / counters * counters;
}

static long counting(actor_system &system, scoped_actor &me, long n)
{
    return feed(system, me, 1, n);
}

static long fork_join_throughput(actor_system &system, scoped_actor &me, long n)
{
    return feed(system, me, 60, n);
}

// ---- fork-join create ----

static long fork_join_create(actor_system &system, scoped_actor &me, long n)
{
    auto count = std::make_shared<std::atomic<long>>(0);
    actor done = actor_cast<actor>(me);
    system.spawn([=](event_based_actor *self) {
        for (long i = 0; i < n; i++) {
            auto child = self->spawn<lazy_init>([=](event_based_actor *me) -> behavior {
                return {[=](go_atom) {
                    if (++*count == n)
                        me->send(done, done_atom::value);
                    me->quit();
                }};
            });
            self->send(child, go_atom::value);
        }
    });
    wait_done(me, 1);
    return n;
}

// ---- big ----

struct big_state {
    long draw;
    long left;
};

static void big_next(stateful_actor<big_state> *self, const vector<actor> &all, actor done)
{
    if (self->state.left-- == 0) {
        self->send(done, done_atom::value);
        return;
    }
    self->state.draw = self->state.draw * 16807 % 2147483647;
    self->send(all[size_t(self->state.draw >> 8) % all.size()], ping_atom::value);
}

static behavior big_member(stateful_actor<big_state> *self, const vector<actor> *all, long n,
                           long draw, actor done)
{
    self->state = {draw, n};
    return {[=](go_atom) { big_next(self, *all, done); },
            [=](pong_atom) { big_next(self, *all, done); },
            [=](ping_atom) { self->send(sender(self), pong_atom::value); }};
}

static long big(actor_system &system, scoped_actor &me, long n)
{
    vector<actor> all;
    for (long i = 0; i < 120; i++)
        all.push_back(system.spawn(big_member, &all, n / 120, i * 7919 + 1, actor_cast<actor>(me)));
    for (auto &one : all)
        me->send(one, go_atom::value);
    wait_done(me, 120);
    end_all(me, all);
    return n / 120 * 120;
}

// ---- chameneos ----

struct mall_state {
    actor waiting;
    int colour;
    long left;
};

static behavior mall(stateful_actor<mall_state> *self, long n, actor done)
{
    self->state.left = n;
    return {[=](int colour) {
        auto &state = self->state;
        if (state.left == 0)
            return;
        if (!state.waiting) {
            state.waiting = sender(self);
            state.colour = colour;
            return;
        }
        self->send(state.waiting, colour);
        self->send(sender(self), state.colour);
        state.waiting = nullptr;
        if (--state.left == 0)
            self->send(done, done_atom::value);
    }};
}

struct creature_state {
    int colour;
};

static behavior creature(stateful_actor<creature_state> *self, actor mall, int colour)
{
    self->state.colour = colour;
    self->send(mall, colour);
    return {[=](int other) {
        if (other != self->state.colour)
            self->state.colour = 3 - self->state.colour - other;
        self->send(mall, self->state.colour);
    }};
}

static long chameneos(actor_system &system, scoped_actor &me, long n)
{
    vector<actor> all{system.spawn(mall, n, actor_cast<actor>(me))};
    for (int i = 0; i < 100; i++)
        all.push_back(system.spawn(creature, all[0], i % 3));
    wait_done(me, 1);
    end_all(me, all);
    return n;
}

// ---- skynet ----

struct sky_state {
    long sum = 0;
    int answers = 0;
};

static behavior sky(stateful_actor<sky_state> *self, actor parent, long number, long size)
{
    if (size == 1) {
        self->send(parent, number);
        return {};
    }
    for (long i = 0; i < 10; i++)
        self->spawn(sky, actor_cast<actor>(self), number + i * size / 10, size / 10);
    return {[=](long v) {
        self->state.sum += v;
        if (++self->state.answers == 10) {
            self->send(parent, self->state.sum);
            self->quit();
        }
    }};
}

static long skynet(actor_system &system, scoped_actor &me, long n)
{
    system.spawn(sky, actor_cast<actor>(me), 0l, n);
    me->receive([=](long sum) {
        if (sum != n * (n - 1) / 2)
            abort();
    });
    return n;
}

// ---- timer churn ----

static behavior churner(stateful_actor<count_state> *self, long n, actor done)
{
    self->state.left = n;
    return {[=](go_atom) {
                auto &clock = self->home_system().clock();
                clock.cancel_ordinary_timeout(self, late_atom::value);
                if (self->state.left-- == 0) {
                    self->send(done, done_atom::value);
                    self->quit();
                    return;
                }
                auto due = clock.now() + std::chrono::seconds(1);
                clock.set_ordinary_timeout(due, self, late_atom::value, 1);
                self->send(self, go_atom::value);
            }};
}

static long timers(actor_system &system, scoped_actor &me, long n)
{
    for (int i = 0; i < 1000; i++)
        me->send(system.spawn(churner, n / 1000, actor_cast<actor>(me)), go_atom::value);
    wait_done(me, 1000);
    return n / 1000 * 1000;
}

// ---- 5,000 pairs play n round trips in all, beside hogs that never yield ----

struct trips_state {
    vector<double> trips;
    seconds_clock::time_point sent;
};

static std::atomic<bool> stop;
static vector<double> all_trips[5000];

static behavior fair_pinger(stateful_actor<trips_state> *self, actor pong, int i, long n, actor done)
{
    auto next = [=] {
        self->state.sent = seconds_clock::now();
        self->send(pong, ping_atom::value, n);
    };
    next();
    return {[=](pong_atom, long) {
        self->state.trips.push_back(seconds_since(self->state.sent) * 1e6);
        if (long(self->state.trips.size()) < n) {
            next();
            return;
        }
        all_trips[i] = std::move(self->state.trips);
        self->send(done, done_atom::value);
        self->quit();
    }};
}

static void fair(actor_system &system, int hogs, long n)
{
    scoped_actor me{system};
    auto begin = seconds_clock::now();
    for (int i = 0; i < hogs; i++)
        system.spawn([](event_based_actor *) {
            while (!stop.load(std::memory_order_relaxed))
                ;
        });
    for (int i = 0; i < 5000; i++)
        system.spawn(fair_pinger, system.spawn(ponger), i, n / 5000, actor_cast<actor>(me));
    wait_done(me, 5000);
    double seconds = seconds_since(begin);
    stop = true;
    vector<double> trips;
    for (auto &some : all_trips)
        trips.insert(trips.end(), some.begin(), some.end());
    std::sort(trips.begin(), trips.end());
    printf("RESULT ops=%zu seconds=%f p99_us=%f\n", trips.size(), seconds,
           trips[trips.size() * 99 / 100]);
}

// ---- memory ----

double resident()
{
    long size, pages;
    std::ifstream("/proc/self/statm") >> size >> pages;
    return double(pages) * double(getpagesize());
}

static void idle_bytes(actor_system &system, long n)
{
    vector<actor> all(n);
    double before = resident();
    for (auto &one : all)
        one = system.spawn([](event_based_actor *) -> behavior { return {[](go_atom) {}}; });
    std::this_thread::sleep_for(std::chrono::seconds(2));
    printf("RESULT bytes=%f\n", (resident() - before) / double(n));
}

static const struct {
    const char *name;
    row_run run;
} rows[] = {
    {"ping-pong", ping_pong},
    {"ring", ring},
    {"counting", counting},
    {"fork-join-throughput", fork_join_throughput},
    {"fork-join-create", fork_join_create},
    {"big", big},
    {"chameneos", chameneos},
    {"skynet", skynet},
    {"timers", timers},
};

static row_run row_of(const std::string &name)
{
    for (auto &row : rows)
        if (name == row.name)
            return row.run;
    row_run found = grain_row(name);
    return found ? found : remote_row(name);
}

static void timed(actor_system &system, row_run run, long n)
{
    scoped_actor me{system};
    run(system, me, n); // warm
    auto begin = seconds_clock::now();
    long ops = run(system, me, n);
    printf("RESULT ops=%ld seconds=%f\n", ops, seconds_since(begin));
}

int main(int, char **argv)
{
    std::string row = argv[1];
    size_t workers = size_t(atol(argv[2]));
    long n = atol(argv[3]);
    if (row == "serve")
        return serve(workers);
    actor_system_config config;
    config.set("scheduler.max-threads", workers);
    if (remote_row(row))
        load_remote(config);
    actor_system system{config};
    if (row == "idle-bytes")
        idle_bytes(system, n);
    else if (row == "grain-bytes")
        grain_bytes(system, n);
    else if (row == "fair" || row == "hog")
        fair(system, row == "hog", n);
    else if (row_of(row))
        timed(system, row_of(row), n);
    fflush(stdout);
    _exit(0); // actors that are left need not end
}
