/* bank.h - silos with grains that run what a test hands them, in transactions. Batches of
 * transactions, and what the root tells at the end, fail on command.
 * Way:     calls -> turns -> [__wrap_teffi_store_submit, __wrap_teffi_participants_send_outcome] */
#pragma once

#include "bank.teff.h"
#include "lab.h"

typedef teff_err bank_script(teff_ctx *turn, bank_balance *state, const bank_act *in,
                             bank_number *out);

#define RUN(fn) bank_act(.script = (uintptr_t)(fn))
#define ACT(fn, ...) bank_act(.script = (uintptr_t)(fn), __VA_ARGS__)

typedef enum fault {
    NONE,
    FAILS,           /* nothing is written */
    UNKNOWN_BEFORE,  /* nothing is written, and that is not known */
    UNKNOWN_WRITTEN, /* it is written, and that is not known */
    UNKNOWN_OTHER,   /* others have written the same states, and that is not known */
    DOOMED_WRITTEN,  /* it is written, but the turn `doomed` ends before it knows that */
} fault;

extern struct bank {
    _Atomic fault next_batch;       /* of a transaction: more than one state */
    _Atomic bool reads_fail;        /* those of states */
    _Atomic bool touch_conflicts;   /* the next write of one state, as if the fence had changed */
    _Atomic int batches, most_rows; /* of transactions that reached the store */
    _Atomic int mute;               /* so many ends of transactions are not told */
    /* to a silo that is in the table, and not yet in the view of the sender: messages that were
     * refused; those that were sent, after a refresh of the view */
    _Atomic int refused, sent;
    _Atomic bool refreshed;
    _Atomic int held; /* turns that wait for the gate */
    _Atomic bool gate;
    teff_ctx *doomed;
    _Atomic int64_t left_with; /* what vault "a" had in its last on_deactivate */
} bank;

extern const teffi_node_id newcomer; /* that silo */

extern lab *l;
extern teff_ctx *ctx; /* the caller's: a silo's or a client's */

/* On one silo, on two, from a client of one of two. */
int bank_setup_one(void **state);
int bank_setup_two(void **state);
int bank_setup_client(void **state);
int bank_teardown(void **state);

#define EACH(fn)                                                                                   \
    cmocka_unit_test_setup_teardown(fn, bank_setup_one, bank_teardown),                            \
        cmocka_unit_test_setup_teardown(fn, bank_setup_two, bank_teardown),                        \
        cmocka_unit_test_setup_teardown(fn, bank_setup_client, bank_teardown)

/* in: to: what the script wants; NULL: nothing. result: NULL: not wanted. */
teff_err ask_teller(bank_script *fn, int64_t n, const char *to, int64_t *result);
teff_err ask_vault(const char *key, bank_script *fn, int64_t n, const char *to);

/* Vaults "a" and "b" have so much: at first; now; also in the store. */
void begin_with(int64_t a, int64_t b);
void balances_are(int64_t a, int64_t b);
void are_stored(int64_t a, int64_t b);
void reload_both(void);
int64_t balance(const char *key);

/* In a script: let vault `to` run fn. */
teff_err call(teff_ctx *turn, const char *to, bank_script *fn, int64_t n, int64_t *result);
void wait_for_gate(teff_ctx *turn);
/* Splits "a b" at its space. */
void split(teff_ctx *turn, const char *both, char **a, char **b);

/* Of vaults: adds n, saves; the same, if covered; reads; ends its activation; takes n from itself
 * and gives it to vault `to`. Of tellers: moves n from a to b if `to` is "a b", and then waits. */
bank_script adds, adds_if_covered, reads, quits, pays, moves, moves_and_waits;
