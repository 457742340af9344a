/* lock.h - the lock that a transaction holds on an activation: who may start, what is kept to roll
 * back, and how it ends.
 * Way:     hosting/handler -> [lock] -> turn -> transaction.h; the root's COMMIT or ABORT -> [lock]
 * States:  none -a turn begins-> held -a turn has responded-> held, prepared
 *          -COMMIT, ABORT, RELOAD; resolved after its deadline-> none
 * Threads: on the activation's group.
 * Model:   tests/model/transaction.pml
 * Source:  Rosenkrantz, Stearns, Lewis, "System level concurrency control for distributed database
 *          systems" (1978): wait-die
 *
 *   a request of transaction T meets            and
 *     no lock, no running turn                    locks the grain and starts
 *     T's lock, no running turn                   starts
 *     T's lock of an earlier attempt              rolls that back, then as without a lock
 *     T's lock of a later attempt                 fails: TEFF_E_ABORTED
 *     T's lock, at which a turn has failed        fails as that did
 *     the lock of an older transaction, or an     fails: TEFF_E_ABORTED; T's root begins again.
 *       older transaction that waits                A root itself holds nothing, and waits
 *     anything else                               waits
 *   a request outside of transactions           waits while the grain is locked
 *   the same from within T, at T's lock         fails: TEFF_E_INVALID, as it would wait for itself
 *   the end of the activation                   waits for the end of the lock, if T saves its state
 *
 * The older waits for the younger only, so there is no cycle. A transaction keeps its age when it
 * begins again: in the end it is the oldest. Ages are logical stamps, as silos' clocks may differ:
 * a silo's next stamp is higher than all that it has seen (Lamport, "Time, clocks, and the ordering
 * of events in a distributed system", 1978). */
#pragma once

#include "activation/activation.h"

/* teffi_transaction.step: what the message does */
typedef enum teffi_step {
    TEFFI_STEP_ROOT = 1, /* request: begins the transaction, or begins it again */
    TEFFI_STEP_JOIN,     /* request: made in the transaction */
    TEFFI_STEP_COMMIT,   /* one-way, method 0: it was written; etag is the new one of the row */
    TEFFI_STEP_ABORT,    /* one-way, method 0: roll back */
    TEFFI_STEP_RELOAD,   /* one-way, method 0: the row may have changed: roll back, deactivate */
    TEFFI_STEP_RESOLVE   /* one-way, method 0: the root does not know: find out from the row */
} teffi_step;

/* A transaction, as its requests and one-ways carry it. */
typedef struct teffi_transaction {
    uint64_t age;       /* stamp of the root's silo when it began: less is older */
    teffi_node_id root; /* the root's silo, which gives each stamp once */
    uint32_t attempt;
    uint32_t step; /* teffi_step */
    uint64_t etag; /* COMMIT only */
} teffi_transaction;

_Static_assert(sizeof(teffi_transaction) == 32, "on the wire as it is in memory, without padding");

/* The lock of an activation, on the heap. */
typedef struct teffi_lock {
    teffi_transaction owner;
    uint64_t until_ns; /* resolve it if it is still held then */
    uint8_t *before;   /* the packed state when the lock was taken; NULL: no state */
    size_t before_len;
    uint32_t turns;    /* that have begun */
    bool writes;       /* the state was saved, or cleared, in the transaction */
    bool removes;      /* it was cleared last */
    bool hopeless;     /* cannot be committed any more: a turn has failed, or ABORT has come */
    bool reloads;      /* RELOAD has come */
    teff_err fate;     /* the error of the turn that made it hopeless; TEFF_OK: none did */
    bool must_resolve; /* a life turn must end it, or one runs */
    /* of the turn that runs, or ran last (transaction.c) */
    uint32_t begun, heard; /* calls in the transaction: begun; whose participants are in list */
    teff_err failed;       /* the first error of such a call; TEFF_OK: none */
    bool again;            /* failed says that the transaction may succeed if it begins again */
    char *why;             /* failed's text, on the heap; may be NULL */
    uint8_t *list;         /* packed Participants, on the heap */
    size_t list_len, list_room;
    /* looks after the lock once a second */
    teffi_timer timer;
    teffi_wait wait;
    bool armed;            /* timer is set, or its item is under way */
    teffi_activation *act; /* NULL: released; wait's arrival frees the lock */
} teffi_lock;

/* What to do with a request. */
typedef enum teffi_verdict { TEFFI_START, TEFFI_SET_ASIDE, TEFFI_DIE } teffi_verdict;

/* teffi_transaction_read - msg's transaction. out: false: it has none, or malformed bytes. */
bool teffi_transaction_read(const teffi_msg *msg, teffi_transaction *transaction);

/* teffi_transaction_write - let msg carry transaction, copied to msg's arena. out: false: no
 * memory. */
TEFF_MUST_USE bool teffi_transaction_write(teffi_msg *msg, const teffi_transaction *transaction);

/* teffi_transaction_is - are a and b the same transaction, in any attempt? */
bool teffi_transaction_is(const teffi_transaction *a, const teffi_transaction *b);

/* teffi_transaction_note_stamp - this silo's next stamps are higher than stamp. Any thread. */
void teffi_transaction_note_stamp(teffi_grains *grains, uint64_t stamp);

/* teffi_transaction_new_root - let a request that begins a transaction carry it. out: false: no
 * memory. */
TEFF_MUST_USE bool teffi_transaction_new_root(teffi_grains *grains, teffi_msg *request);

/* teffi_lock_judge - what is to be done with a request of a transaction, by the table above? Rolls
 * back an earlier attempt of the same transaction. in: is_new, the request is not among the
 * requests set aside. */
teffi_verdict teffi_lock_judge(teffi_activation *act, const teffi_transaction *transaction,
                               bool is_new);

/* teffi_lock_refusal - the error of a request that must die: that of the turn that made the lock of
 * its transaction and attempt hopeless, since it would fail again; else TEFF_E_ABORTED. */
teff_err teffi_lock_refusal(const teffi_activation *act, const teffi_transaction *transaction);

/* teffi_lock_count_waiting - msg joins (more) or leaves the requests set aside: count those of the
 * lock's transaction. */
void teffi_lock_count_waiting(teffi_activation *act, const teffi_msg *msg, bool more);

/* teffi_lock_take - lock act for the transaction of request, or begin another turn in its lock. In
 * the turn, on its fiber.
 * out:  *lock. errs: TEFF_E_NOMEM; TEFF_E_TOO_LARGE: the state is over a limit; text in ctx. */
TEFF_MUST_USE teff_err teffi_lock_take(teff_ctx *ctx, teffi_activation *act,
                                       const teffi_msg *request, teffi_lock **lock);

/* teffi_lock_handle_end - apply a COMMIT, ABORT, RELOAD or RESOLVE; ignored unless it is of the
 * lock's transaction and attempt. On a worker's own stack, like the two below. */
void teffi_lock_handle_end(teffi_activation *act, const teffi_transaction *end);

/* teffi_lock_settle - after an item, if act is VALID: roll back and release a lock that cannot be
 * committed, or that holds up act's end and saves nothing. out: true: start teffi_lock_resolve. */
bool teffi_lock_settle(teffi_activation *act);

/* teffi_lock_resolve - find out from the row whether the transaction of a silent root was written,
 * and end the lock. If the row is unchanged, it is written again as it is: then its etag is another
 * one, and the root's batch will fail. The function of a life turn.
 * teffi_lock_resolve_later - it could not start, or has ended in its middle: the watch tries
 *       again. */
void teffi_lock_resolve(teff_ctx *ctx, teffi_activation *act);
void teffi_lock_resolve_later(teffi_activation *act);

/* teffi_lock_roll_back - make the state what it was when the lock was taken, and release it. On a
 * worker's own stack. */
void teffi_lock_roll_back(teffi_activation *act);

/* teffi_lock_release - free act's lock, if it has one; the state stays. */
void teffi_lock_release(teffi_activation *act);
