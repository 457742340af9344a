/* sim.h - one thread, one clock, one seed: every choice of a run is drawn here and traced.
 * Way:     world -> [sim] picks a READY group, a delivery, a timer -> the real code -> trace
 * Threads: one. Virtual time moves by what a run of a group costs, or to the next event when
 *          nothing is ready.
 * Source:  DESIGN section 8; RELIABILITY section 5 */
#ifndef SIM_H
#define SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "fiber/fiber.h"
#include "platform/platform.h"
#include "sched/exec.h"
#include "sim_draw.h"
#include "sim_trace.h"

#define SIM_MS 1000000ull
#define SIM_SECOND 1000000000ull

typedef struct sim sim;

/* What an event does when it is due; run false: the simulation ends, only free arg. */
typedef void sim_fn(sim *s, void *arg, bool run);

typedef struct sim_event {
    uint64_t due_ns, order; /* equal times: in the order in which they were set */
    sim_fn *fn;
    void *arg;
    teffi_timer *timer; /* of the runtime, instead of fn; its bucket is the place in the heap */
    struct sim_exec *exec;
} sim_event;

/* Bugs planted in the simulator's world, to see that the checkers find them. */
typedef enum sim_plant {
    SIM_PLANT_NONE = 0,
    SIM_PLANT_TWICE,    /* a request is delivered twice */
    SIM_PLANT_REGISTER, /* a registration is confirmed and not made */
    SIM_PLANT_LOST,     /* an answer is lost, the connection stands */
    SIM_PLANT_UNSAVED,  /* a write is acknowledged and not made */
    SIM_PLANT_HASTY,    /* a silo goes without leaving */
    SIM_PLANT_RECOVER,  /* an answer to a directory's recovery has lost its entries */
    SIM_PLANT_STALE,    /* a row is read as it was before its last write */
    SIM_PLANTS
} sim_plant;

/* How much goes wrong, in per mille; drawn from the seed. */
typedef struct sim_faults {
    unsigned store_unknown; /* TEFF_E_UNKNOWN, before or after the write took place */
    unsigned store_slow;    /* an operation takes up to half a second */
    unsigned cuts;          /* not per mille: connections cut in the run */
    unsigned timeouts;      /* calls with a short time limit */
} sim_faults;

/* One node's side of the platform: its own random numbers, its name in the trace. */
typedef struct sim_node {
    sim *sim;
    unsigned no;
    char name[24];
    sim_draw random;
    teffi_platform platform;
} sim_node;

struct sim {
    uint64_t seed, now_ns;
    sim_draw pick, delay, fault;
    sim_trace trace;
    sim_faults faults;
    sim_plant plant;
    sim_event *events; /* a heap: the earliest first */
    size_t n_events, events_max;
    uint64_t order;
    struct sim_ready *ready; /* groups that wait to be run, in no order that matters */
    size_t n_ready, ready_max;
    teffi_fiber_pool *fibers; /* of all nodes */
    struct sim_net *nets;
    struct sim_conn *conns;
    struct teffi_store *rows; /* the one memory engine behind all stores */
    uint64_t store_running;
    void (*after)(void *world); /* looks at the world after each step */
    void *world;
    bool lenient; /* a living silo was declared dead: who runs twice is told by leases, one day */
    bool broken;
    char why[400];          /* what was violated first */
    void (*report)(sim *s); /* of a broken run; does not return */
};

void sim_init(sim *s, uint64_t seed, sim_plant plant);

/* sim_fini - frees everything of a run that was not broken. */
void sim_fini(sim *s);

/* sim_step - run one thing. out: false: nothing is left to do, or the run is broken. */
bool sim_step(sim *s);

/* sim_at - fn(arg) after delay_ns. */
void sim_at(sim *s, uint64_t delay_ns, sim_fn *fn, void *arg);

/* sim_fail - note that something was violated; the run ends. The first one counts. */
void sim_fail(sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* sim_violated - as sim_fail, of what holds while no living silo is declared dead. */
#define sim_violated(s, ...) ((s)->lenient ? (void)0 : sim_fail((s), __VA_ARGS__))

/* sim_pump - one step for who waits on this stack; a run that is broken, or in which nothing can
 * happen any more, is reported and ends here. */
void sim_pump(sim *s, const char *who);

/* sim_platform_init - a node's platform. in: node, lives as long as the simulation. */
void sim_platform_init(sim_node *node, sim *s, unsigned no, const char *name);

/* ---- sim_exec.c ---- */
typedef struct sim_exec {
    teffi_exec exec;
    sim_node *node;
    bool stopped;
} sim_exec;

teff_err sim_exec_new(const teffi_platform *platform, unsigned workers,
                      const teff_sched_options *opt, teffi_exec **exec);

/* sim_exec_run - run a group that was drawn, of those that are ready. */
void sim_exec_run(sim *s);

/* ---- events of timers, in sim.c ---- */
void sim_timer_set(sim *s, sim_exec *exec, teffi_timer *timer, uint64_t due_ns);
bool sim_timer_cancel(sim *s, teffi_timer *timer);
/* sim_timers_drop - an executor goes: its timers fire no more. */
void sim_timers_drop(sim *s, const sim_exec *exec);

/* ---- sim_net.c, sim_store.c ---- */
teff_err sim_net_new(const teffi_platform *platform, const struct teffi_net_options *opt,
                     struct teffi_net **net, char *text);
void sim_net_fini(sim *s);
/* sim_net_cut - break one connection: what is in flight is lost, both ends learn of it later. */
void sim_net_cut(sim *s);

teff_err sim_store_open(const teffi_platform *platform, const char *address,
                        struct teffi_store **store, char *text);

#endif
