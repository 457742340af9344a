// bench.hpp - what the rows' files share.
#pragma once
#include <caf/all.hpp>

#include <chrono>
#include <string>
#include <vector>

using namespace caf;
using std::vector;

using done_atom = atom_constant<atom("done")>;
using go_atom = atom_constant<atom("go")>;
using seconds_clock = std::chrono::steady_clock;

inline double seconds_since(seconds_clock::time_point begin)
{
    return std::chrono::duration<double>(seconds_clock::now() - begin).count();
}

inline void wait_done(scoped_actor &me, long n)
{
    for (long i = 0; i < n; i++)
        me->receive([](done_atom) {});
}

double resident(); // bytes

// One run of n operations; the number done.
using row_run = long (*)(actor_system &system, scoped_actor &me, long n);

row_run grain_row(const std::string &name);  // grains.cpp; NULL: no such row
row_run remote_row(const std::string &name); // remote.cpp
void grain_bytes(actor_system &system, long n);

// So many callers at once, n calls in all; which(caller, i) gives the target of the next.
using which = actor (*)(actor_system &system, long caller, long i);
long calling(actor_system &system, scoped_actor &me, long callers, long n, which target);
behavior grain(event_based_actor *self);

// The second process: answers until its standard input ends.
int serve(size_t workers);
void load_remote(actor_system_config &config);
