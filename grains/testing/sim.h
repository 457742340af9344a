/* sim.h - one thread, one clock, one seed: every choice of a run is drawn here and traced.
 * Way:     world -> [sim] picks a READY group, a delivery, a timer -> the real code -> trace
 * Threads: one. Virtual time advances by the cost of a group's run, or to the next event when no
 *          group is READY. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "fiber/fiber.h"
#include "os/platform.h"
#include "group/deferred.h"
#include "sched/exec.h"
#include "group/inbound.h"
#include "sim_draw.h"
#include "sim_fault_list.h"
#include "sim_trace.h"
#include "store/store.h"

#define SIM_MS 1000000ull
#define SIM_SECOND 1000000000ull
#define SIM_STALL_MAX_NS (4 * SIM_SECOND)
#define SIM_SILENT_NS (5 * SIM_SECOND) /* five heartbeats of a link */

struct sim_conn;
struct teffi_msg;
typedef struct sim sim;

/* An event's function. run false: the simulation ends; only free arg. */
typedef void sim_fn(sim *s, void *arg, bool run);

typedef struct sim_event {
    uint64_t due_ns, order; /* equal times: in the order in which they were set */
    sim_fn *fn;
    void *arg;
    teffi_timer *timer; /* of the runtime, instead of fn; its bucket is the index in the heap */
    struct sim_exec *exec;
    const struct sim_node *node; /* to which it happens: not while that is paused; NULL: to none */
} sim_event;

/* Bugs planted in the simulator's world, to see that the checkers find them. */
typedef enum sim_plant {
    SIM_PLANT_NONE = 0,
    SIM_PLANT_TWICE,    /* a request is delivered twice */
    SIM_PLANT_REGISTER, /* a registration is confirmed and not made */
    SIM_PLANT_LOST,     /* a response is lost, the connection stays up */
    SIM_PLANT_UNSAVED,  /* a write is acknowledged and not made */
    SIM_PLANT_HASTY,    /* a silo stops without leaving */
    SIM_PLANT_RECOVER,  /* a response to a directory's recovery lacks its entries */
    SIM_PLANT_STALE,    /* a row is read as it was before its last write */
    SIM_PLANT_REPEATED, /* a message to a process is delivered twice */
    SIM_PLANT_DROPPED,  /* a message to a process is lost, the connection stays up */
    SIM_PLANT_FORGED,   /* a cancel has another cookie */
    SIM_PLANT_SKIPPED,  /* a worker that a push wakes in the poller does not handle what it found */
    SIM_PLANT_KEPT,     /* a pass that ends in the poller does not run its deferred work */
    SIM_PLANT_UNREAD,   /* a deferred read that finds nothing does not begin a receive */
    SIM_PLANT_ENDLESS,  /* a lease does not run out */
    SIM_PLANT_SKEWED,   /* clocks differ by more than the lease allows for */
    SIM_PLANT_FORGOTTEN, /* a state is written without its answers */
    SIM_PLANT_KEYLESS,   /* a request loses its idempotency key */
    SIM_PLANT_PAIRED,    /* a crash fails the run if a connection was cut before it */
    SIM_PLANTS
} sim_plant;

/* Rates of faults in per mille, drawn from the seed. */
typedef struct sim_faults {
    unsigned store_unknown; /* TEFF_E_UNKNOWN, before or after the write took place */
    unsigned store_slow;    /* an operation takes up to half a second */
    unsigned store_failed;  /* TEFF_E_IO: the operation is not done */
    unsigned cuts;          /* not per mille: connections cut in the run */
    unsigned timeouts;      /* calls with a short time limit */
    unsigned stalls;        /* not per mille: connections that stand still for a while */
    unsigned parts;         /* not per mille: pairs of nodes that do not reach each other */
    unsigned crashes;       /* not per mille: silos that end without leaving */
    unsigned outages;       /* not per mille: silos that do not reach the store for a while */
    unsigned blackouts;     /* the same: of all silos at about the same time */
    unsigned pauses;        /* not per mille: silos whose process stands still for a while */
    unsigned stuck;         /* not per mille: silos whose workers do nothing any more */
    unsigned mutes;         /* not per mille: pairs of which one does not reach the other */
    unsigned restarts;      /* not per mille: the silo with the others' store is killed */
    bool splits;            /* silos are split into two parts that do not reach each other */
    unsigned holds;         /* not per mille: silos whose store, or its results, are late */
    unsigned late_batches;  /* of transactions: they begin up to batch_late_ms later */
    unsigned late_outcomes; /* messages that tell a participant how its transaction has ended */
    uint32_t batch_late_ms;
    unsigned wire_breaks;              /* frames with which their connection breaks */
    uint64_t wire_min_ns, wire_max_ns; /* a frame is under way; 0: as sim_wire.c draws it */
    bool late_timers;                  /* after a pause, they fire after all else that is due */
    bool skews;                        /* nodes have clocks of their own */
} sim_faults;

/* Rates that were drawn, but do not take effect. */
typedef struct sim_left_out {
    bool store_unknown, store_slow, timeouts, late_batches, late_outcomes, late_timers, skews;
} sim_left_out;

/* How one operation of the store fails, the n-th of the run. */
typedef enum sim_failure {
    SIM_FAILURE_NONE = 0,
    SIM_FAILURE_IO,           /* it is not done */
    SIM_FAILURE_UNKNOWN,      /* a write: not done, which nobody knows */
    SIM_FAILURE_UNKNOWN_DONE, /* a write: done, which nobody knows */
    SIM_FAILURE_CONFLICT,     /* a write, but of a state: somebody else was faster */
    SIM_FAILURES
} sim_failure;

typedef struct sim_nth {
    sim_failure failure;
    uint64_t n;   /* which operation fails, from 1 */
    uint64_t ops; /* so far; those of silos that reach the store */
    bool happened;
} sim_nth;

/* A cancel that has arrived; zeroed: none. */
enum { SIM_CANCELLED = 256 };
typedef struct sim_cancelled {
    const struct sim_node *node;
    uint64_t at, from; /* nodes, as words */
    uint32_t slot, generation;
    uint64_t cookie, until_ns; /* until_ns: of the node's clock */
} sim_cancelled;

/* One node's side of the platform: its own random numbers, its name in the trace. */
typedef struct sim_node {
    sim *sim;
    unsigned no;
    char name[24];
    sim_draw random;
    teffi_platform platform;
    uint64_t offset_ns, wall_ns; /* its clocks at the start of the run */
    int64_t fast_ppm;            /* how much faster than the world's its clocks are */
    bool dead;     /* crashed: it reaches neither other nodes nor the store until it starts again */
    unsigned part; /* of a split: 0 or 1; silos */
    uint64_t cut_until_ns;           /* till then it does not reach the store */
    uint64_t paused_until_ns;        /* till then nothing happens in it */
    const struct teffi_lease *lease; /* NULL: it has none */
    uint64_t lapsed_ns;              /* when its groups last ran while its lease did not hold */
    uint64_t held_until_ns; /* till then operations of the store do not begin, or not end */
    bool held_at_end;       /* they begin, and do not end */
    bool stuck;             /* only its system groups run; until its process ends */
    bool polled;            /* its transport works as the reactor, else as nng */
} sim_node;

struct sim {
    uint64_t seed, now_ns, aged_ns;
    sim_draw pick, delay, fault, stall, poll, late, ends;
    sim_trace trace;
    sim_faults faults;
    sim_left_out left_out;
    sim_fault_list list;
    sim_plant plant;
    sim_event *events; /* a heap: the earliest first */
    size_t n_events, events_max;
    uint64_t order;
    struct sim_ready *ready; /* READY groups, in no particular order */
    size_t n_ready, ready_max;
    teffi_fiber_pool *fibers; /* of all nodes */
    struct sim_net *nets;
    struct sim_conn *conns;
    struct teffi_store *rows; /* the one memory engine behind all stores */
    uint64_t store_running;
    uint64_t run_cost_max_ns; /* of a group's run; all nodes share one core */
    uint64_t late_ns;         /* bytes that wait longer to be written or read are a violation */
    sim_nth nth;
    uint64_t split_until_ns;    /* till then nodes of different parts do not reach each other */
    uint64_t paused_until_ns;   /* the latest of all nodes */
    void (*after)(void *world); /* looks at the world after each step */
    /* looks at the world after each write of the store; NULL: none */
    void (*wrote)(void *world, const teffi_store_op *op);
    void (*batch_is_late)(void *world); /* NULL: nothing happens then */
    /* bugs planted into frames, as tests/sim/sim_plant.h says; NULL: none */
    bool (*plant_frame)(struct sim_conn *conn, int to, struct teffi_msg *msg);
    bool (*plant_twice)(sim *s, const struct teffi_msg *msg);
    /* do they reach each other? NULL: this decides nothing */
    bool (*reaches)(void *world, const struct sim_node *a, const struct sim_node *b);
    void *world;
    sim_cancelled cancelled[SIM_CANCELLED]; /* sim_cancel.c; the newest */
    unsigned n_cancelled;
    bool broken;
    char why[400];          /* the first violation */
    void (*report)(sim *s); /* of a broken run; does not return */
};

void sim_init(sim *s, uint64_t seed, sim_plant plant);

/* sim_fini - frees everything of a run that was not broken. */
void sim_fini(sim *s);

/* sim_step - run one thing. out: false: nothing is left to do, or the run is broken. */
bool sim_step(sim *s);

/* sim_at - fn(arg) after delay_ns. sim_at_node - the same, in a node: later if that is paused. */
void sim_at(sim *s, uint64_t delay_ns, sim_fn *fn, void *arg);
void sim_at_node(const sim_node *node, uint64_t delay_ns, sim_fn *fn, void *arg);

/* sim_node_now - the node's monotonic clock. sim_node_due - the world's time at which that clock
 * shows `node_ns`. */
uint64_t sim_node_now(const sim_node *node);
uint64_t sim_node_due(const sim_node *node, uint64_t node_ns);

/* sim_is_paused - does the node's process stand still? */
bool sim_is_paused(const sim_node *node);

/* sim_fail - a violation: the run ends. Only the first one is kept. */
void sim_fail(sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* sim_pump - one step while a caller on this stack waits; a run that is broken, or has no event
 * left, is reported and ends here. */
void sim_pump(sim *s, const char *who);

/* sim_platform_init - a node's platform. in: node, lives as long as the simulation. */
void sim_platform_init(sim_node *node, sim *s, unsigned no, const char *name);

/* ---- sim_exec.c ---- */
typedef struct sim_exec {
    teffi_exec exec;
    sim_node *node;
    bool stopped;
    size_t n_ready; /* of its groups */
    teffi_deferred *_Atomic deferred;
    teffi_inbound_queue inbound;
    teffi_poller *poller; /* NULL: none, or stopped */
    bool waits;           /* a worker in the poller; one does whenever no group is READY */
    bool pushed;          /* a push has ended the wait */
    bool on_worker;       /* a worker polls, or ends its pass */
    teffi_timer leaves;   /* the poller, once the wait has ended */
    teffi_timer monitor;  /* runs deferred work of stuck workers */
} sim_exec;

teff_err sim_exec_new(const teffi_platform *platform, unsigned workers,
                      const teff_sched_options *opt, teffi_exec **exec);

/* sim_exec_run - run a group that was drawn, of those that are ready. out: false: all of them are
 * of paused nodes. */
bool sim_exec_run(sim *s);

/* sim_exec_end_wait - the worker in the poller leaves it soon. out: false: there is none. */
bool sim_exec_end_wait(teffi_exec *exec);

/* sim_exec_stick - from now on only system groups run, until node->stuck is cleared. */
void sim_exec_stick(teffi_exec *exec);

/* sim_exec_on_worker - does a worker of exec poll, or run deferred work? */
bool sim_exec_on_worker(const teffi_exec *exec);

/* ---- events of timers, in sim.c; due_ns: of the node's clock ---- */
void sim_timer_set(sim *s, sim_exec *exec, teffi_timer *timer, uint64_t due_ns);
bool sim_timer_cancel(sim *s, teffi_timer *timer);
/* sim_timers_drop - an executor is freed: its timers do not fire any more. */
void sim_timers_drop(sim *s, const sim_exec *exec);

/* ---- sim_net.c, sim_store.c ---- */
teff_err sim_net_new(const teffi_platform *platform, const struct teffi_net_options *opt,
                     struct teffi_net **net, char *text);
void sim_net_fini(sim *s);
/* sim_net_cut - break one connection: what is in flight may be lost, both ends notice later. out:
 * false: there is none, or the fault is left out. */
bool sim_net_cut(sim *s, sim_fault *fault);
/* sim_net_stall - one direction of a connection is up to SIM_STALL_MAX_NS late: less than the
 * timeouts of calls and connections. */
void sim_net_stall(sim *s, sim_fault *fault);
/* sim_net_split - break the connections of silos in different parts (sim.split_until_ns). */
void sim_net_split(sim *s);

/* sim_net_cut_unreachable - break the connections of nodes that do not reach each other. */
void sim_net_cut_unreachable(sim *s);

/* sim_net_part - two nodes do not reach each other for a while: their connections break, new ones
 * are refused. */
void sim_net_part(sim *s, sim_fault *fault);
/* sim_net_mute - one of two nodes does not reach the other for a while: what it sends on their
 * connection arrives late, or the other breaks the connection after five heartbeats; meanwhile the
 * other's messages arrive. New connections need both ways. */
void sim_net_mute(sim *s, sim_fault *fault, sim_draw *draw);
/* sim_net_pause - a node is paused: others break their connections to it when it has been silent
 * for as long as five heartbeats take. */
void sim_net_pause(struct teffi_net *net);
/* sim_net_kill - all connections of a node that is dead break. */
void sim_net_kill(struct teffi_net *net);
/* sim_poll_is_due - in: a node's poller. out: a wait would end at once. */
bool sim_poll_is_due(const teffi_poller *poller);

teff_err sim_store_open(const teffi_platform *platform, const char *address,
                        struct teffi_store **store, char *text);
