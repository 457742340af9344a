/* lock.h - the lock of a transaction on an activation: which requests may start, the state for a
 * roll-back, the end of the lock.
 * Way:     hosting/handler -> [lock] -> turn -> transaction.h; the root's COMMIT or ABORT -> [lock]
 * States:  none -a turn of the transaction begins-> held
 *          -COMMIT, ABORT, RELOAD, a later attempt, a silent root, an older transaction that waits,
 *           the end of act-> none
 * Threads: on the activation's group. Model: tests/model/transaction.pml
 * Source:  Rosenkrantz, Stearns, Lewis, "System level concurrency control for distributed database
 *          systems" (1978): wait-die
 *
 *   a request of transaction T meets            and
 *     no lock, no running turn                    locks the grain and starts
 *     T's lock, no running turn                   starts
 *     T's lock of an earlier attempt              rolls it back, then as without a lock
 *     T's lock of a later attempt                 fails: TEFF_E_ABORTED
 *     T's lock, which must abort                  fails with the error of the turn that failed, if
 *                                                   it is known (abort_err); else TEFF_E_ABORTED
 *     the lock or the waiting request of an       fails: TEFF_E_ABORTED; T's root begins again.
 *       older transaction                           T's root request waits instead: T has no lock.
 *                                                   Also if T's request waits when the older
 *                                                   transaction takes the lock
 *     anything else                               waits
 *   a request outside of transactions           waits while the grain is locked
 *   T's call of a method that is not transactional, or a call made in such a call, meets
 *     T's lock                                    fails: TEFF_E_INVALID: the lock would wait for
 *                                                   the call, and the call for the lock
 *     T's lock of an earlier attempt              waits; the lock is rolled back
 *     T's lock of a later attempt                 fails: TEFF_E_ABORTED
 *     the lock of an older transaction            fails: TEFF_E_ABORTED; if T's method returns this
 *                                                   error, T's root begins again. Also if the call
 *                                                   waits when the older transaction takes the lock
 *     anything else                               waits, or starts if there is no lock
 *     a grain whose type has made the method      begins another transaction, unless it fails as
 *       transactional in a newer build              above
 *   the end of the activation                   waits for the end of the lock, if T saves its state
 *
 * An older transaction may wait for a younger one, but never the reverse, so no two transactions
 * wait for each other. If a silo fails, a younger one may leave a lock and begin again. While
 * an older one waits for such a lock, the watch ends it when no turn has begun under it for 1 to
 * 2 s. A transaction keeps its age when it begins again, so it becomes the oldest in the end. Ages
 * are logical stamps, because the clocks of silos differ: a silo's next stamp is higher than all
 * stamps that it has seen (Lamport, "Time, clocks, and the ordering of events in a distributed
 * system", 1978). */
#pragma once

#include "activation/activation.h"

/* teffi_transaction.step: what the message does */
typedef enum teffi_step {
    TEFFI_STEP_ROOT = 1, /* request: begins the transaction, or begins it again */
    TEFFI_STEP_JOIN,     /* request: made in the transaction */
    TEFFI_STEP_COMMIT,   /* one-way, method 0: the batch was written; etag: the row's new one */
    TEFFI_STEP_ABORT,    /* one-way, method 0: roll back */
    TEFFI_STEP_RELOAD,   /* one-way, method 0: not written; the row may differ: deactivate */
    TEFFI_STEP_RESOLVE,  /* one-way, method 0: the batch's outcome is unknown: read the row */
    TEFFI_STEP_PLAIN     /* request: the transaction waits for it, but the caller does not know the
                          * method as transactional. Older builds use and understand only JOIN */
} teffi_step;

/* A transaction, in the form in which requests and one-ways carry it. */
typedef struct teffi_transaction {
    uint64_t age;       /* stamp from the root's silo; a lower one is older */
    teffi_node_id root; /* the silo where it began; it uses each stamp only once */
    uint32_t attempt;   /* from 1; a transaction that begins again has a higher one */
    uint32_t step;      /* teffi_step */
    union {
        uint64_t etag; /* COMMIT */
        /* JOIN: the silo where the root's turn runs, as teffi_node_to_word. It differs from `root`
         * if the root's grain has moved since the transaction began. 0: an older silo sent it. */
        uint64_t runs_at;
    };
} teffi_transaction;

_Static_assert(sizeof(teffi_transaction) == 32, "on the wire as it is in memory, without padding");

/* The lock of an activation, on the heap. */
typedef struct teffi_lock {
    teffi_transaction owner;
    uint64_t until_ns; /* the root counts as silent from then on: resolve the lock */
    uint8_t *before;   /* the packed state when the lock was taken; NULL: no state */
    size_t before_len;
    uint32_t turns;          /* number of turns that have begun under this lock */
    uint32_t turns_at_check; /* `turns` when the watch checked the lock last */
    bool writes;        /* the transaction writes the row: the state was saved or cleared, or has a
                         * new answer */
    bool removes;       /* the last save or clear was a clear */
    bool must_abort;    /* never commit: teffi_lock_end_if_due ends the lock when no turn runs */
    bool reloads;       /* roll back, and act ends, as the row may differ from both states */
    teff_err abort_err; /* the error of the turn that set must_abort; TEFF_OK: no turn did */
    bool must_resolve;  /* a life turn must run teffi_lock_resolve, or runs it now */
    bool submitted;     /* of the root: the batch was submitted, so it may be written */
    /* of the turn that runs, or ran last (transaction.c) */
    uint32_t calls_begun;     /* calls of transactional methods */
    uint32_t calls_collected; /* those that succeeded and whose participants are in list */
    teff_err failed;          /* the first error of such a call; TEFF_OK: none */
    bool may_retry;           /* if `failed`: in another attempt the transaction may succeed */
    char *failed_text;        /* failed's text, on the heap; NULL: none */
    uint8_t *list;            /* packed Participants, on the heap */
    size_t list_len, list_room;
    /* the watch, which checks the lock once a second */
    teffi_timer timer;
    teffi_wait wait;
    bool armed;            /* timer is set, or wait is queued */
    teffi_activation *act; /* NULL: the lock was released, and on_watch_timer() frees it */
} teffi_lock;

/* What to do with a request; DIE: end it with teffi_lock_choose_refusal_err. */
typedef enum teffi_verdict { TEFFI_START, TEFFI_SET_ASIDE, TEFFI_DIE } teffi_verdict;

/* teffi_transaction_read_from_msg - copy the transaction that msg carries. out: false: msg carries
 * none, or it does not decode. */
bool teffi_transaction_read_from_msg(const teffi_msg *msg, teffi_transaction *transaction);

/* teffi_transaction_write_to_msg - make msg carry transaction, copied to msg's arena. out: false:
 * no memory. */
TEFF_MUST_USE bool teffi_transaction_write_to_msg(teffi_msg *msg,
                                                  const teffi_transaction *transaction);

/* teffi_transaction_is_same - are a and b the same transaction, in any attempt? */
bool teffi_transaction_is_same(const teffi_transaction *a, const teffi_transaction *b);

/* teffi_transaction_raise_stamp - make this silo's next stamps higher than stamp. Any thread. */
void teffi_transaction_raise_stamp(teffi_grains *grains, uint64_t stamp);

/* teffi_transaction_begin_at_request - make request carry a new transaction, whose root it is. out:
 * false: no memory. */
TEFF_MUST_USE bool teffi_transaction_begin_at_request(teffi_grains *grains, teffi_msg *request);

/* teffi_lock_judge_request - decide by the table above what to do with a request of a transaction.
 * Rolls back an earlier attempt of the same transaction when none of its turns runs any more. in:
 * is_new, the request was not set aside yet. On a worker's own stack. */
teffi_verdict teffi_lock_judge_request(teffi_activation *act, const teffi_transaction *transaction,
                                       bool is_new);

/* teffi_lock_choose_refusal_err - choose the error of a request that the lock refuses (TEFFI_DIE).
 * out:  lock->abort_err if it is set and the request is of the same attempt of the lock's
 *       transaction, as the request would fail in the same way; else TEFF_E_ABORTED. */
teff_err teffi_lock_choose_refusal_err(const teffi_activation *act,
                                       const teffi_transaction *transaction);

/* teffi_lock_judge_wait - may msg wait for the end of act's lock? Also makes the lock abort if it
 * is of an earlier attempt of msg's transaction. For requests of methods that are not
 * transactional, and for requests that need another silo.
 * errs: TEFF_E_INVALID: the lock is of the same attempt, so it would wait for msg. TEFF_E_ABORTED:
 *       the lock is of a later attempt, or of an older transaction, which may wait for a lock of
 *       msg's transaction. A root request has no lock: it may wait for an older transaction. */
TEFF_MUST_USE teff_err teffi_lock_judge_wait(teffi_activation *act, const teffi_msg *msg);

/* teffi_lock_is_held_for - does lock belong to the transaction that msg carries, in any attempt? */
bool teffi_lock_is_held_for(const teffi_lock *lock, const teffi_msg *msg);

/* teffi_lock_update_pending_of_owner - update more->pending_of_owner after msg was added to
 * more->pending (added) or removed from it. */
void teffi_lock_update_pending_of_owner(teffi_activation *act, const teffi_msg *msg, bool added);

/* teffi_lock_take - lock act for the transaction of request; if the transaction has the lock
 * already, begin another turn under it. In the turn, on its fiber.
 * out:  *lock; NULL on an error. errs: those of teffi_state_pack; TEFF_E_NOMEM; text in ctx. */
TEFF_MUST_USE teff_err teffi_lock_take(teff_ctx *ctx, teffi_activation *act,
                                       const teffi_msg *request, teffi_lock **lock);

/* teffi_lock_apply_transaction_end - apply a COMMIT, ABORT, RELOAD or RESOLVE. Ignores that of
 * another transaction or attempt. */
void teffi_lock_apply_transaction_end(teffi_activation *act, const teffi_transaction *end);

/* teffi_lock_end_if_due - end the lock if it must end and no turn runs: roll it back if it must
 * abort, or if act must end and the transaction does not write; after RELOAD, roll it back and let
 * act end. Called after each item, while act is VALID. On a worker's own stack. out: true if the
 * lock stays because only the store knows whether the transaction was written. In this case the
 * caller must start teffi_lock_resolve. */
bool teffi_lock_end_if_due(teffi_activation *act);

/* teffi_lock_resolve - read the row to find out whether the transaction of a silent root was
 * written. If the row has changed, adopt its state and release the lock; act ends. If not, write
 * the row again with the same value, so that its etag changes and a late batch of the root fails;
 * then the lock must abort. After another error of the store, the watch starts this again. The
 * function of a life turn.
 * teffi_lock_retry_resolve_later - let the watch start it again, after its life turn could not
 *       start or did not finish. */
void teffi_lock_resolve(teff_ctx *ctx, teffi_activation *act);
void teffi_lock_retry_resolve_later(teffi_activation *act);

/* teffi_lock_roll_back_and_release - restore the state from before the lock, unless it is broken,
 * and release the lock. in: act is locked, and no turn changes the state. On a worker's own
 * stack. */
void teffi_lock_roll_back_and_release(teffi_activation *act);

/* teffi_lock_release - release act's lock, if it has one; the state stays as it is. */
void teffi_lock_release(teffi_activation *act);
