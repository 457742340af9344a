/* test_exceptions.cpp - turns written in C++ that wait inside a catch block, or in a destructor
 * while an exception is thrown: each keeps its own exceptions, on whichever thread it goes on.
 * usage: test_exceptions [thrown out of what] */
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <sys/wait.h>
#include <teff/process.h>
#include <unistd.h>

namespace
{

enum { TURNS = 8, ROUNDS = 200, PATIENCE_S = 60 };

std::atomic<int> wrong{0}, ended{0};

struct turn {
    int id;
    teff_process *me;

    void expect(bool right) const
    {
        if (!right)
            wrong++;
    }

    void wait() const
    {
        expect(teff_process_yield(me) == TEFF_OK);
    }

    void rethrow_what_was_caught(int round) const
    {
        const int mine = id * 1000 + round;
        expect(!std::current_exception());
        try {
            throw mine;
        } catch (int caught) {
            expect(caught == mine);
            wait();
            try {
                throw;
            } catch (int again) {
                expect(again == mine);
                wait();
                expect(std::current_exception() != nullptr);
            } catch (...) {
                expect(false);
            }
        }
        expect(!std::current_exception());
    }

    struct waits_in_destructor {
        const turn &of;
        ~waits_in_destructor()
        {
            of.expect(std::uncaught_exceptions() == 1);
            of.wait();
            of.expect(std::uncaught_exceptions() == 1);
        }
    };

    void wait_while_thrown(int round) const
    {
        expect(std::uncaught_exceptions() == 0);
        try {
            waits_in_destructor waits{*this};
            throw static_cast<long>(round);
        } catch (long caught) {
            expect(caught == round);
        }
        expect(std::uncaught_exceptions() == 0);
    }
};

teff_err throw_and_wait(void *self, teff_process *me)
{
    turn *t = static_cast<turn *>(self);
    t->me = me;
    for (int round = 0; round < ROUNDS; round++) {
        t->rethrow_what_was_caught(round);
        t->wait_while_thrown(round);
    }
    ended++;
    return TEFF_OK;
}

teff_err throw_out(void *, teff_process *)
{
    throw 1;
}

std::atomic<bool> waits_for_more{false};

/* Others run above it on the same stack meanwhile. */
teff_err waits_in_try(void *, teff_process *me)
{
    try {
        waits_for_more = true;
        while (teff_process_yield(me) == TEFF_OK)
            ;
    } catch (...) {
        std::_Exit(3);
    }
    return TEFF_OK;
}

teff_err step_throws_out(void *, const teff_event *, size_t, teff_step *)
{
    throw 2;
}

teff_process_system *system_of(unsigned workers)
{
    teff_process_options opt = {};
    teff_process_system *system = nullptr;
    opt.size = sizeof opt;
    opt.workers = workers;
    if (teff_process_system_new(&opt, &system) != TEFF_OK)
        std::abort();
    return system;
}

void spawn(teff_process_system *system, const teff_process_ops &ops, void *self)
{
    if (teff_process_spawn(system, &ops, self, nullptr, nullptr, 0, nullptr) != TEFF_OK)
        std::abort();
}

bool run(unsigned workers, uint32_t flags)
{
    static teff_process_ops ops;
    static turn turns[TURNS];
    ops = {};
    ops.name = "thrower";
    ops.flags = flags;
    ops.run = throw_and_wait;
    wrong = 0;
    ended = 0;
    teff_process_system *system = system_of(workers);
    for (int i = 0; i < TURNS; i++) {
        turns[i] = {i, nullptr};
        spawn(system, ops, &turns[i]);
    }
    while (ended < TURNS && !wrong)
        usleep(1000);
    std::fprintf(stderr, "%s, %u workers: %d ended, %d times wrong\n",
                 flags ? "fibers" : "no fibers", workers, ended.load(), wrong.load());
    if (wrong)
        std::_Exit(1); /* they may go on for ever */
    teff_process_system_free(system);
    return true;
}

[[noreturn]] void throw_out_of(const char *what)
{
    static teff_process_ops ops;
    ops.name = "thrower";
    if (std::strcmp(what, "step") == 0) {
        ops.step = step_throws_out;
    } else {
        ops.run = throw_out;
        ops.flags = std::strcmp(what, "fiber") == 0 ? TEFF_PROCESS_FIBER : 0;
    }
    static teff_process_ops outer;
    outer.name = "outer";
    outer.run = waits_in_try;
    teff_process_system *system = system_of(1);
    if (std::strcmp(what, "nested function") == 0) {
        spawn(system, outer, nullptr);
        while (!waits_for_more)
            usleep(1000);
    }
    spawn(system, ops, nullptr);
    for (;;)
        pause();
}

/* The process ends as after any exception that nobody catches. */
bool terminates(const char *what)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        execl("/proc/self/exe", "test_exceptions", what, static_cast<char *>(nullptr));
        _exit(0);
    }
    waitpid(child, &status, 0);
    bool right = WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
    std::fprintf(stderr, "thrown out of a %s: status %d\n", what, status);
    return right;
}

} // namespace

int main(int argc, char **argv)
{
    alarm(PATIENCE_S);
    if (argc > 1)
        throw_out_of(argv[1]);
    bool right = terminates("step") && terminates("function") && terminates("nested function") &&
                 terminates("fiber");
    right = run(1, TEFF_PROCESS_FIBER) && run(2, TEFF_PROCESS_FIBER) && run(1, 0) && right;
    return right ? 0 : 1;
}
