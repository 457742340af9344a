/* sim_world.h - a simulated cluster: its silos, clients and callers, and the checks of a run.
 * Way:     main -> [world] schedule from the seed -> silo and client steps in tasks -> audit
 * Ledgers record each grain's calls and its activation; the cluster does not see them. */
#pragma once

#include <teff/filter.h>
#include "sim.h"
#include "os/memory_use.h"
#include "silo/client.h"
#include "silo/silo.h"
#include "world.teff.h"

enum {
    SIM_SILOS_MAX = 6,
    SIM_CLIENTS_MAX = 3,
    SIM_KEYS = 6,
    SIM_KINDS = 7,
    SIM_VIEWS = 512,
    SIM_BALLAST = 1200 * 1024,
    SIM_FILTERS = 3,
};

typedef enum sim_kind {
    SIM_COUNTER = 0,
    SIM_TALLY,
    SIM_RELAY,
    SIM_KEYED,
    SIM_ACCOUNT,
    SIM_TELLER,
    SIM_CREW
} sim_kind;

typedef struct sim_ledger {  /* of one grain */
    uint64_t acked, unknown; /* additions */
    unsigned alive_on;       /* silo number + 1 of its live activation, 0 = none */
    uint64_t born_ns;        /* when that began */
    unsigned running;        /* turns of methods that exclude each other */
    unsigned reading;        /* turns of read-only methods */
    uint64_t seen;           /* the highest count that a response has shown */
    bool loose;              /* the outcome of a save was unknown: its state may be lost */
    uint64_t stays_until_ns; /* by the clock of its silo: the activation's delay; 0: none */
} sim_ledger;

typedef enum sim_state {
    SIM_AWAY = 0,
    SIM_JOINING,
    SIM_SERVING,
    SIM_LEAVING,
    SIM_CLOSING
} sim_state;

struct sim_world;
typedef struct sim_processes sim_processes; /* sim_process.c */
typedef struct sim_bank sim_bank;           /* sim_bank.h */

typedef struct sim_begun { /* calls under way of the turns of one silo */
    uint64_t n, by[SIM_KINDS][SIM_KEYS];
} sim_begun;

typedef struct sim_beacon { /* of an activation on a silo */
    uint64_t birth, n;
} sim_beacon;

typedef struct sim_alarm { /* a grain's reminder */
    bool set;              /* registered */
    bool unsure;           /* a turn that changes it is under way, or its outcome is not known */
    uint64_t due_ms, ticked_ns; /* of its last tick that succeeded */
} sim_alarm;

typedef struct sim_seen_flash { /* the last one of a beacon that a client has received */
    uint64_t birth, n;
    bool told; /* since then the client was dropped, or has subscribed again */
} sim_seen_flash;

typedef struct sim_silo { /* one silo, which may start and stop several times */
    struct sim_world *world;
    sim_node node;
    unsigned no;
    char address[32];
    teff_silo *silo;
    sim_state state;
    bool failed; /* to join */
    bool lost;   /* its lease */
    sim_begun begun;
    uint64_t stops_ns; /* the stop of a silo with stuck workers ends before this */
    sim_beacon beacons[SIM_KEYS];
    uint64_t view;      /* newest seen */
    unsigned starts;    /* how often it has started */
    uint64_t serves_ns; /* since when */
} sim_silo;

/* Turns of the activation may have ended without reporting that, as the silo had no lease. */
static inline bool sim_had_no_lease_since(const sim_silo *place, uint64_t born_ns)
{
    return born_ns <= place->node.lapsed_ns;
}

typedef struct sim_client {
    struct sim_world *world;
    sim_node node;
    teff_client *client;
    bool joined;
    sim_seen_flash flashes[SIM_KEYS];
} sim_client;

typedef enum sim_stage {
    SIM_RUNS = 0, /* the schedule's time */
    SIM_DRAINS,   /* callers end */
    SIM_AUDITS,   /* grains are asked what they hold */
    SIM_LEAVES,   /* all silos leave, clients close */
    SIM_ENDED
} sim_stage;

typedef struct sim_world {
    sim s;
    sim_draw draw, outages, blackouts, pauses, clocks, mutes, holds, keyed, danger, splits;
    sim_draw restarts;
    uint64_t killed_ns; /* when the seed was killed last */
    uint64_t back_ns;   /* when it is started again, at the earliest */
    bool away_long;     /* the seed was once away for longer than SHORT_MS (sim_restart.c) */
    bool split_alone;   /* the silos are split, and there is no other fault */
    bool store_faults;  /* were drawn, though they may have ended */
    uint32_t lease_ms;  /* of all silos; 0: the default */
    uint32_t outage_ms, stuck_ms;
    bool stops_stuck;         /* a silo whose workers are stuck is told to stop */
    bool has_limits;          /* one of the next two, and delays */
    uint32_t activations_max; /* of all silos; 0: no limit */
    uint32_t memory_percent;
    sim_draw limits;
    sim_stage stage;
    uint64_t until_ns; /* of the stage: after it the run hangs */
    unsigned n_silos, n_clients;
    sim_silo silos[SIM_SILOS_MAX];
    sim_client clients[SIM_CLIENTS_MAX];
    sim_ledger ledger[SIM_KINDS][SIM_KEYS];
    teff_type_info info[SIM_KINDS]; /* with drawn idle times */
    uint64_t view_hash[SIM_VIEWS];  /* by version: all silos see the same */
    bool bulky;        /* counter 0 has a state larger than a frame of other messages */
    bool remote_store; /* of the first silo; the others join through it */
    unsigned callers;
    uint64_t quiet_ns; /* since when all is settled, 0 = it is not */
    unsigned closing;  /* silos within teffi_silo_close */
    uint64_t calls, failed, unknown, moves;
    uint64_t begun;           /* calls under way */
    sim_processes *processes; /* NULL: none in this run */
    sim_bank *bank;           /* NULL: none in this run */
    bool audited;
    bool has_keyed; /* the kind SIM_KEYED is hosted and called */
    bool has_cut;   /* a connection was cut */
    bool has_watch; /* clients observe beacons */
    sim_draw watch;
    bool has_alarms; /* grains have reminders */
    sim_draw alarm;
    sim_alarm alarms[SIM_KEYS];
    uint64_t rung;                /* ticks of reminders */
    uint64_t births, shone, told; /* of beacons; notifications received; drops received */
    bool has_crew;                /* the kind SIM_CREW is hosted and called */
    unsigned crew_missing;        /* the silo that does not host it */
    sim_draw crew;
    uint64_t crew_ran[SIM_KEYS]; /* turns */
    bool has_filters;            /* silos and clients have these */
    bool filters_refuse;         /* they refuse a few requests */
    teff_filter incoming[SIM_FILTERS], outgoing[SIM_FILTERS];
    sim_draw filter;
    uint64_t filtered; /* calls in filters, each in each filter */
} sim_world;

/* sim_world_init - kept: the faults that happen. sim_world_run - one whole run. out: false:
 * violated, world->s.why says what. */
void sim_world_init(sim_world *w, uint64_t seed, sim_plant plant, const sim_kept *kept);
bool sim_world_run(sim_world *w);
void sim_world_fini(sim_world *w);

/* sim_silo_start - a silo that is away joins. sim_silo_kill - a silo that serves crashes.
 * sim_silo_lose - its activations do not count any more, as others may exist from now on. */
void sim_silo_start(sim_silo *place);
void sim_silo_kill(sim_silo *place);
void sim_silo_lose(sim_silo *place);

/* sim_calm - no fault was drawn that may make a call fail. */
bool sim_calm(const sim_world *w);

/* sim_store_fails - may an operation of the store fail, or its outcome not be known? */
bool sim_store_fails(const sim_world *w);

/* sim_silo_pick - a silo in this state, drawn; it is neither paused nor stuck. NULL: none.
 * sim_silos_count - those in this state. */
sim_silo *sim_silo_pick(sim_world *w, sim_state state);
unsigned sim_silos_count(const sim_world *w, sim_state state);

/* ---- sim_faults.c ---- */
/* sim_has_faults - are faults drawn in this world, or is there a planted bug instead? */
bool sim_has_faults(const sim_world *w);
/* sim_faults_init - draws rates, cuts and stalls. sim_disasters_init - when it is known whether
 * there are processes. sim_faults_list_rates - after all rates were drawn. sim_faults_plan - when
 * the faults happen. */
void sim_faults_init(sim_world *w);
void sim_disasters_init(sim_world *w);
void sim_faults_list_rates(sim_world *w);
void sim_faults_plan(sim_world *w, uint64_t length_ms);
/* sim_clocks_init - draws whether clocks differ. sim_clocks_draw - those of a node.
 * sim_clocks_set_again - its wall clock, when it starts again. */
void sim_clocks_init(sim_world *w);
void sim_clocks_draw(sim_world *w, sim_node *node);
void sim_clocks_set_again(sim_world *w, sim_node *node);

/* ---- sim_grains.c ---- */
void sim_grains_init(sim_world *w);
/* sim_grains_host - the types for a silo. */
void sim_grains_host(sim_silo *place);
void sim_key_name(unsigned key, char name[16]);
unsigned sim_key_of(const char *name);
/* sim_check_lease - a turn begins or resumes: its silo has a lease. */
void sim_check_lease(sim_silo *place, sim_kind kind, unsigned key);
/* sim_life_begin, _end - an activation, in its hooks. sim_turn_begin, _end - a turn that excludes
 * others. sim_turn_read - the whole of a read-only one. They check that it may be there. */
teff_err sim_life_begin(sim_silo *place, sim_kind kind, unsigned key);
void sim_life_end(sim_silo *place, sim_kind kind, unsigned key);
void sim_turn_begin(sim_silo *place, const teff_ctx *ctx, sim_kind kind, unsigned key);
void sim_turn_end(sim_silo *place, sim_kind kind, unsigned key);
void sim_turn_read(sim_silo *place, teff_ctx *ctx, sim_kind kind, unsigned key);

/* ---- sim_caller.c ---- */
/* sim_caller_start - a task on a node that makes some calls; place, when it runs in a silo. */
void sim_caller_start(sim_world *w, teffi_node *node, sim_silo *place);
/* A task on a silo or a client that makes n_calls calls. place: NULL: on a client. */
typedef struct sim_guest {
    sim_world *world;
    const sim_silo *place;
    unsigned n_calls;
} sim_guest;
/* sim_guest_start - draws a silo or a client, and starts run there if it serves or has joined. run
 * frees its argument, a sim_guest, and counts itself off in world->callers. */
void sim_guest_start(sim_world *w, sim_draw *draw, void (*run)(teff_ctx *ctx, void *arg),
                     const char *label);
/* sim_guest_stays - may it make one more call? */
bool sim_guest_stays(const sim_guest *guest);
/* A call of a grain, from its begin to its end. */
typedef struct sim_call {
    sim_kind kind;
    unsigned key;
    sim_begun *in; /* a turn's; NULL: a task's, which outlives none of its calls */
    uint64_t by,
        floor;      /* floor: the count that others had seen before: the response is not below */
    bool cancelled; /* by its caller, which expects it to end so */
} sim_call;

/* sim_call_begins - by: what it adds, 0 = it reads. The audit waits until each has ended.
 * sim_call_begins_in - in a turn on a silo. */
sim_call sim_call_begins(sim_world *w, sim_kind kind, unsigned key, uint64_t by);
sim_call sim_call_begins_in(sim_silo *place, sim_kind kind, unsigned key, uint64_t by);
/* sim_call_ended - with err, or (total not NULL) a count: into the ledger. */
void sim_call_ended(sim_world *w, teff_ctx *ctx, sim_call call, teff_err err,
                    const world_total *total);

/* ---- sim_watch.c ---- */
/* sim_watch_init - draws whether clients observe beacons. sim_watch_host - the type for a silo.
 * sim_watch_start - a client that has joined begins to observe. */
void sim_watch_init(sim_world *w);
void sim_watch_host(sim_silo *place);
void sim_watch_start(sim_client *client);

/* ---- sim_crew.c ---- */
/* sim_crew_init - draws whether this world has stateless workers, and their type. sim_crew_plan -
 * the first of their callers. sim_crew_host - the type for a silo. sim_crew_is_missing - this silo
 * does not host it. */
void sim_crew_init(sim_world *w);
void sim_crew_plan(sim_world *w);
void sim_crew_host(sim_silo *place);
bool sim_crew_is_missing(const sim_silo *place);

/* ---- sim_filter.c ---- */
/* sim_filter_init - draws whether silos and clients have filters. */
void sim_filter_init(sim_world *w);

/* ---- sim_alarm.c ---- */
/* sim_alarm_init - draws whether grains have reminders; after the clocks. sim_alarm_plan - the
 * first of their callers. sim_alarm_host - the type for a silo. sim_alarm_await_ticks - part of the
 * audit: each registered reminder ticks. */
void sim_alarm_init(sim_world *w);
void sim_alarm_plan(sim_world *w);
void sim_alarm_host(sim_silo *place);
void sim_alarm_await_ticks(sim_world *w, teff_ctx *ctx);

/* ---- sim_keyed.c ---- */
/* sim_keyed_init - draws whether this world has calls with idempotency keys, and their type.
 * sim_keyed_plan - the first of their callers. */
void sim_keyed_init(sim_world *w);
void sim_keyed_plan(sim_world *w);

/* ---- transactions: in some of the runs ---- */
/* sim_bank_init - draws whether this world has accounts. sim_bank_plan - the first of their
 * callers. sim_bank_host - their types for a silo. */
void sim_bank_init(sim_world *w);
void sim_bank_fini(sim_world *w);
void sim_bank_plan(sim_world *w);
void sim_bank_host(sim_silo *place);
/* sim_bank_calls - transactions and plain reads of accounts so far. */
uint64_t sim_bank_calls(const sim_world *w);
/* sim_bank_ask - the audit's reads. sim_bank_check - when all have gone. */
void sim_bank_ask(sim_world *w, teff_ctx *ctx);
void sim_bank_check(sim_world *w);

/* ---- sim_audit.c ---- */
/* sim_audit_start - a task on a silo asks each grain for its count; sets audited. */
void sim_audit_start(sim_world *w, teffi_node *node);
/* sim_audit_store - when all have gone: what the store holds, against the ledgers. */
void sim_audit_store(sim_world *w);
/* sim_audit_views - views rise, and one version is one view. After each step. */
void sim_audit_views(void *world);

/* ---- sim_stuck.c ---- */
/* sim_stuck_plan - draws whether, and when, workers are stuck; after the other leases. */
void sim_stuck_plan(sim_world *w, uint64_t length_ms);

/* ---- sim_danger.c ---- */
/* sim_danger_init - draws whether faults meet the transactions of this world while they end; such a
 * world has a bank. sim_danger_plan - these faults; after the others. */
void sim_danger_init(sim_world *w);
void sim_danger_plan(sim_world *w);

/* ---- sim_limits.c ---- */
/* sim_limits_init - draws whether silos limit their activations, by number or for memory.
 * sim_limits_read_memory - how much is used, drawn each time. sim_limits_check - do they? After
 * each step. sim_limits_delay - a counter's turn may delay its activation's end. sim_limits_end -
 * it ends: not during a delay, unless it must. */
void sim_limits_init(sim_world *w);
bool sim_limits_read_memory(void *node, teffi_memory_use *use);
void sim_limits_check(sim_world *w);
void sim_limits_delay(sim_silo *place, teff_ctx *ctx, sim_ledger *l);
void sim_limits_end(sim_silo *place, const sim_ledger *l, unsigned key, teff_reason why);

/* ---- sim_split.c ---- */
/* sim_split_init - draws whether the silos of this world are split into two parts; after the other
 * faults of sim_world_init. sim_split_plan - when. */
void sim_split_init(sim_world *w);
void sim_split_plan(sim_world *w, uint64_t length_ms);

/* ---- sim_restart.c ---- */
/* sim_restart_init - draws whether the seed of this world is started again. sim_restart_plan -
 * when. */
void sim_restart_init(sim_world *w);
void sim_restart_plan(sim_world *w, uint64_t length_ms);
/* sim_restart_check_lost - a silo has lost its lease: a violation, if the seed was away for a short
 * time only, and there was no other fault. */
void sim_restart_check_lost(sim_silo *place);

/* ---- sim_rows.c ---- */
/* sim_rows_check_write - after a write: no activation stays in use that does not know it. */
void sim_rows_check_write(void *world, const teffi_store_op *op);

/* ---- sim_process.c: in some of the runs ---- */
void sim_processes_init(sim_world *w);
void sim_processes_fini(sim_world *w);
/* sim_processes_start - when a silo begins to serve. sim_processes_stop - before it leaves; not in
 * a turn. */
void sim_processes_start(sim_silo *place);
void sim_processes_stop(sim_silo *place);
/* sim_processes_under_way - clients and tasks that have not ended. _asks - requests so far. */
unsigned sim_processes_under_way(const sim_world *w);
unsigned sim_processes_asks(const sim_world *w);
/* sim_processes_audit - when all is settled: what requests and messages came to. */
void sim_processes_audit(sim_world *w);
