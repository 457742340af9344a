/* conform.h - one test body, run in four settings: simulated and on threads, on one silo and three.
 * Only public headers and generated code: what users of teff see.
 * Way:     row -> [conform] -> teff_testing | teff_silo, teff_client -> the row's body
 * Threads: bodies run on main's thread; the turns of grains maybe on others: they use `world`. */
#pragma once

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <teff/testing.h>
#include "actors.teff.h"
#include "test.h"

enum { CONFORM_SILOS_MAX = 4, CONFORM_CALLS_MAX = 64 };

typedef struct conform { /* a cluster in one setting */
    bool simulated;
    unsigned silos;
    teff_ctx *ctx;         /* of a client of all silos */
    teff_testing *cluster; /* if simulated */
    teff_silo *silo[CONFORM_SILOS_MAX];
    teff_client *client;
} conform;

/* A turn of any type. silo: on which it runs. */
typedef struct turn {
    teff_ctx *ctx;
    const char *key;
    unsigned silo;
    const actors_step *in;
    actors_result *out;    /* NULL: of a one-way method */
    actors_keeper *keeper; /* NULL: of another type */
} turn;

typedef teff_err script(turn *t);

/* What turns record. Zeroed before each body. */
typedef struct conform_world {
    _Atomic bool gate;                      /* turns that held go on */
    _Atomic int begun, ended, inside, most; /* of scripts that call world_enter, world_leave */
    _Atomic int activated, deactivated, alive, most_alive;
    _Atomic int reason;   /* of the last deactivation */
    _Atomic int fails;    /* so many activations fail, as TEFF_E_USER(5) */
    _Atomic int ticks, n; /* n: a row's own */
    _Atomic(script *) on_activate, on_deactivate, on_reminder;
} conform_world;

extern conform_world world;

static inline void world_enter(void)
{
    int inside = atomic_fetch_add(&world.inside, 1) + 1, most = atomic_load(&world.most);
    while (most < inside && !atomic_compare_exchange_weak(&world.most, &most, inside))
        ;
    atomic_fetch_add(&world.begun, 1);
}

static inline void world_leave(void)
{
    atomic_fetch_sub(&world.inside, 1);
    atomic_fetch_add(&world.ended, 1);
}

/* Scripts for all: does nothing; waits for the gate, 20 s at most; reports its silo; ends the
 * activation. */
script nothing, holds, where, quits;

/* STEP(holds, .n = 3): a script, then other members. */
#define STEP(...) actors_step(.script = (uintptr_t)(script *)__VA_ARGS__)

/* A call of method `run` of a type, which must succeed. out: the result's n. */
#define RUN(c, type, key, ...)                                                                     \
    __extension__({                                                                                \
        actors_result *run_out = NULL;                                                             \
        conform_ok((c)->ctx, actors_##type##_run((c)->ctx, key, STEP(__VA_ARGS__), &run_out));     \
        run_out->n;                                                                                \
    })

/* Begins such a call; conform_await takes its response. */
#define BEGIN(c, type, key, ...)                                                                   \
    __extension__({                                                                                \
        teff_call begun_call;                                                                      \
        conform_ok((c)->ctx, actors_##type##_run_async((c)->ctx, key, STEP(__VA_ARGS__), NULL,     \
                                                       &begun_call));                              \
        begun_call;                                                                                \
    })

/* Waits until it holds: 20 s of the cluster at most. */
#define UNTIL(c, condition)                                                                        \
    do {                                                                                           \
        for (int until_ms = 0; !(condition); until_ms += 2) {                                      \
            if (until_ms > 20000)                                                                  \
                fail_msg("never: %s", #condition);                                                 \
            teff_sleep((c)->ctx, 2);                                                               \
        }                                                                                          \
    } while (0)

#define conform_ok(ctx, call)                                                                      \
    do {                                                                                           \
        teff_err ok_err = (call);                                                                  \
        if (ok_err)                                                                                \
            fail_msg("%s: %s: %s", #call, teff_err_name(ok_err), teff_error(ctx));                 \
    } while (0)

/* A call that must fail so. */
#define conform_fails(c, expected, call)                                                           \
    do {                                                                                           \
        teff_err fails_err = (call);                                                               \
        if (fails_err != (expected))                                                               \
            fail_msg("%s: %s: %s", #call, teff_err_name(fails_err), teff_error((c)->ctx));         \
    } while (0)

/* conform_await_all - all n calls must succeed. */
static inline void conform_await_all(conform *c, const teff_call *calls, size_t n)
{
    conform_ok(c->ctx, teff_await_all(c->ctx, calls, n));
}

/* conform_silo - a silo that serves. conform_start - a silo starts, or starts again. conform_stop -
 * it stops in order; on threads not silo 0, whose store the others use. */
teff_silo *conform_silo(conform *c, unsigned no);
void conform_start(conform *c, unsigned no);
void conform_stop(conform *c, unsigned no);

/* conform_key_away - a key of type Plain whose grain is active on a silo that may be stopped; out:
 * that silo. in: three silos. */
unsigned conform_key_away(conform *c, char key[16]);

/* Where a body can run. */
enum {
    SIMULATED = 1,
    ON_THREADS = 2,
    ONE_SILO = 4,
    THREE_SILOS = 8,
    EVERYWHERE = SIMULATED | ON_THREADS | ONE_SILO | THREE_SILOS
};

typedef struct conform_row {
    const char *name; /* of Orleans' test class and method, or the class and what it shows */
    void (*body)(conform *c);
    unsigned settings;
} conform_row;

/* conform_run - all rows in all their settings, simulated ones with five seeds. TEFF_SEED=n: with
 * this one. TEFF_SEEDS=n: only simulated, with n seeds. out: main's result. */
int conform_run(const conform_row *rows, size_t n);
