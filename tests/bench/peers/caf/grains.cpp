// grains.cpp - grains' rows in CAF: a grain is an actor, found through a map when it has a name.
#include "bench.hpp"

#include <cstdlib>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <unordered_map>

using std::string;

behavior grain(event_based_actor *self)
{
    return {[=](uint64_t number, const string &name) {
        self->send(actor_cast<actor>(self->current_sender()), number + 1, name);
    }};
}

// ---- the name table: whoever asks first makes the grain ----

static std::unordered_map<uint64_t, actor> names;
static std::shared_mutex names_lock;

static actor named(actor_system &system, uint64_t key)
{
    {
        std::shared_lock guard{names_lock};
        auto found = names.find(key);
        if (found != names.end())
            return found->second;
    }
    std::unique_lock guard{names_lock};
    auto &entry = names[key];
    if (!entry)
        entry = system.spawn(grain);
    return entry;
}

static vector<actor> known;

static void make_known(actor_system &system, size_t n)
{
    while (known.size() < n)
        known.push_back(named(system, known.size()));
}

// ---- callers ----

struct caller_state {
    long i = 0;
};

static behavior caller(stateful_actor<caller_state> *self, long me, long n, which target, actor done)
{
    auto next = [=] {
        long i = self->state.i;
        self->send(target(self->home_system(), me, i), uint64_t(i), string("small"));
    };
    next();
    return {[=](uint64_t number, const string &) {
        if (number != uint64_t(++self->state.i))
            abort();
        if (self->state.i < n) {
            next();
            return;
        }
        self->send(done, done_atom::value);
        self->quit();
    }};
}

long calling(actor_system &system, scoped_actor &me, long callers, long n, which target)
{
    for (long c = 0; c < callers; c++)
        system.spawn(caller, c, n / callers, target, actor_cast<actor>(me));
    wait_done(me, callers);
    return n / callers * callers;
}

// ---- rows ----

static actor own(actor_system &, long c, long)
{
    return known[size_t(c)];
}

static uint64_t mixed(long c, long i)
{
    uint64_t x = uint64_t(c) << 32 | uint64_t(i);
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (x ^ x >> 31) % 100000;
}

static long one(actor_system &system, scoped_actor &me, long n)
{
    make_known(system, 1);
    return calling(system, me, 1, n, own);
}

static long ping(actor_system &system, scoped_actor &me, long n)
{
    make_known(system, 100);
    return calling(system, me, 100, n, own);
}

static long random(actor_system &system, scoped_actor &me, long n)
{
    make_known(system, 100000);
    return calling(system, me, 64, n, [](actor_system &, long c, long i) {
        return known[mixed(c, i)];
    });
}

static long random_named(actor_system &system, scoped_actor &me, long n)
{
    make_known(system, 100000);
    return calling(system, me, 64, n, [](actor_system &system, long c, long i) {
        return named(system, mixed(c, i));
    });
}

static behavior fan(stateful_actor<caller_state> *self, long n, actor done)
{
    auto next = [=] {
        for (uint64_t i = 0; i < 1000; i++)
            self->send(known[i], i, string("small"));
    };
    next();
    return {[=](uint64_t, const string &) {
        if (++self->state.i % 1000 != 0)
            return;
        if (self->state.i < n) {
            next();
            return;
        }
        self->send(done, done_atom::value);
        self->quit();
    }};
}

static long fan_out(actor_system &system, scoped_actor &me, long n)
{
    make_known(system, 1000);
    system.spawn(fan, n, actor_cast<actor>(me));
    wait_done(me, 1);
    return (n + 999) / 1000 * 1000;
}

static uint64_t first_key;

static long activate(actor_system &system, scoped_actor &me, long n)
{
    first_key = names.size();
    return calling(system, me, 1, n, [](actor_system &system, long, long i) {
        return named(system, first_key + uint64_t(i));
    });
}

void grain_bytes(actor_system &system, long n)
{
    scoped_actor me{system};
    activate(system, me, 1000);
    double before = resident();
    activate(system, me, n);
    std::this_thread::sleep_for(std::chrono::seconds(1));
    printf("RESULT bytes=%f\n", (resident() - before) / double(n));
}

row_run grain_row(const string &name)
{
    static const struct {
        const char *name;
        row_run run;
    } rows[] = {{"one", one},
                {"ping", ping},
                {"random", random},
                {"random-named", random_named},
                {"fan-out", fan_out},
                {"activate", activate}};
    for (auto &row : rows)
        if (name == row.name)
            return row.run;
    return nullptr;
}
