/* sim_bank.h - what the transactions of a run have done: its calls, their runs, and what these saw.
 * Way:     bank callers, bank grains -> [bank] -> check, at the end of the run
 * A call is what a caller asks for, however often it is made. A run is one execution of a root's
 * method: a call has several if its transaction begins again, and at most one counts. A plain read
 * is a call with one run, so that both are checked alike. */
#pragma once

#include "sim_world.h"

enum { SIM_ACCESSES = 16, SIM_DEEDS = 6 };

/* One account as a run has met it. */
typedef struct sim_access {
    uint64_t version, writer; /* as seen; writer: a run, 0 = nobody */
    int64_t by;
    unsigned account;
    bool writes; /* version + 1, in the name of this run */
} sim_access;

typedef struct sim_run {
    uint64_t call, begin_ns;
    unsigned n, expected; /* accesses; so many if it counts */
    sim_access access[SIM_ACCESSES];
    bool counts;
} sim_run;

typedef enum sim_outcome {
    SIM_OUTCOME_OPEN = 0, /* or not known */
    SIM_OUTCOME_ANSWERED, /* `run` counts */
    SIM_OUTCOME_FAILED    /* nothing counts */
} sim_outcome;

typedef struct sim_deal {
    sim_outcome outcome;
    uint64_t end_ns; /* when it was answered */
    uint64_t run;    /* that counts; 0: none, or not known yet */
} sim_deal;

struct sim_bank {
    sim_draw draw;
    teff_type_info account, teller; /* with drawn idle times */
    sim_deal *calls;                /* from 1 on */
    sim_run *runs;                  /* from 1 on */
    uint64_t n_calls, calls_max, n_runs, runs_max;
    uint64_t answered, failed, unknown;
};

/* ---- sim_bank.c: the ledger; sim_bank_order.c: its check ---- */
/* sim_bank_call - a call begins. sim_bank_run - a run of it; expected: accesses, if it counts. */
uint64_t sim_bank_call(sim_world *w);
uint64_t sim_bank_run(sim_world *w, uint64_t call, unsigned expected);
/* sim_bank_note - a run sees an account, and may write it. */
void sim_bank_note(sim_world *w, uint64_t run, const sim_access *access);
/* sim_bank_ended - run: that has answered; 0: none, as the call has failed, or may have. */
void sim_bank_ended(sim_world *w, uint64_t call, teff_err err, uint64_t run);
/* sim_bank_saw - a plain read that began at begin_ns has seen an account. */
void sim_bank_saw(sim_world *w, uint64_t begin_ns, unsigned account, const world_seen *seen);
/* sim_bank_order_check - is there an order of all that counts? In: each run's `counts` is set. */
void sim_bank_order_check(sim_world *w);

/* ---- sim_bank_caller.c ---- */
/* sim_bank_look - one plain read. */
teff_err sim_bank_look(sim_world *w, teff_ctx *ctx, unsigned account);
