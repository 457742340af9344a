/* processes.h - what the tests of processes share: waiting for counts, making systems. */
#pragma once

#include "test.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <teff/process.h>
#include "os/thread.h"

typedef struct latch { /* counts; one thread waits for a number */
    _Atomic unsigned count;
    teffi_parker parker;
} latch;

static inline void latch_hit(latch *l)
{
    atomic_fetch_add(&l->count, 1);
    teffi_parker_wake(&l->parker);
}

static inline void latch_wait(latch *l, unsigned n)
{
    while (atomic_load(&l->count) < n)
        teffi_parker_wait(&l->parker, UINT64_MAX);
}

static inline void count_end(void *arg, teff_pid pid, teff_err err)
{
    latch_hit(arg);
}

static inline teff_process_system *system_of(teff_process_options opt)
{
    teff_process_system *system = NULL;
    opt.size = sizeof opt;
    assert_int_equal(teff_process_system_new(&opt, &system), TEFF_OK);
    return system;
}

static inline teff_pid spawn(teff_process_system *system, const teff_process_ops *ops, void *self)
{
    teff_pid pid = {0};
    assert_int_equal(teff_process_spawn(system, ops, self, NULL, NULL, 0, &pid), TEFF_OK);
    return pid;
}

static inline teff_err send_tag(teff_process_system *system, teff_pid to, uint64_t tag)
{
    return teff_process_send(system, to, &(teff_event){.tag = tag});
}

/* Until the process rests in a state: the only wait that polls, since nobody is told of it. */
static inline void until_state(teff_process_system *system, teff_pid pid, teff_process_state state)
{
    teff_process_info infos[64];
    for (;;) {
        size_t n = teff_process_list(system, infos, 64);
        for (size_t i = 0; i < n; i++)
            if (teff_pid_equals(infos[i].pid, pid) && infos[i].state == state)
                return;
        teffi_thread_yield();
    }
}
