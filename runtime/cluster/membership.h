/* membership.h - a silo's membership: its state, grouped by the source file that owns it; adopt the
 * views that the table describes, and wait for changes.
 * Way:     silo/lifecycle -> join -> heartbeat, follow -> node->upcalls.view
 * Threads: any. Views are adopted one at a time; versions only rise.
 * Source:  Orleans' src/Orleans.Runtime/MembershipService/MembershipTableManager.cs */
#pragma once

#include "cluster/rows.h"

/* Methods of TEFFI_SLOT_MEMBERSHIP. GO_AWAY is for clients: this silo leaves. */
enum {
    TEFFI_METHOD_VIEW_AT_LEAST = 1,
    TEFFI_METHOD_GO_AWAY = 2,
    TEFFI_METHOD_PROMISE = 3,
    TEFFI_METHOD_CONSENT = 4,
    TEFFI_METHOD_PROBE = 5
};
/* SILENT_MAX: how many silos one change may declare dead, so that its rows fit into one batch of
 * each engine (etcd: 127): three for each of them, the version, and 20 tombstones. It also is the
 * number of bits in teff.cluster.Consented. */
enum { TEFFI_SILENT_MAX = 32, TEFFI_VIEWS_KEPT = 32 };
enum { TEFFI_STUCK_MS = 3600000 }; /* the default; a turn may block its thread for long */
enum { TEFFI_DEPARTED_MAX = 64, TEFFI_OUTSIDERS_MAX = 64 };

typedef struct teffi_changes { /* changes.c's */
    pthread_mutex_t lock;
    LIST_HEAD(, teffi_change_waiter) waiters; /* guarded by lock */
    _Atomic uint64_t count;                   /* written under lock */
} teffi_changes;

typedef struct teffi_departed { /* a silo that has left; its connections are dropped later */
    teffi_node_id node;
    uint64_t since_ns;
} teffi_departed;

typedef struct teffi_follow {                    /* follow.c's */
    pthread_mutex_t lock;                        /* views are adopted under it, one after another */
    teffi_departed departed[TEFFI_DEPARTED_MAX]; /* guarded by lock */
    size_t n_departed;
    _Atomic uint64_t adopted; /* version of the last view whose adoption is complete */
    const teffi_view *before[TEFFI_VIEWS_KEPT]; /* guarded by lock; earlier views, of which */
    unsigned n_before;                          /* so many were kept so far; for promises only */
    teffi_changes changes;
    _Atomic bool looking, reading; /* a refresh task is queued; the rows are being read */
    _Atomic bool doubted;   /* the refresh task shall ask the table whether there is a newer view */
    _Atomic uint64_t heard; /* newest version that a peer knew, not looked for yet; 0: none */
    /* when the last refresh of teffi_membership_refresh_soon() began; 0: never */
    _Atomic uint64_t looked_ns;
    _Atomic uint64_t reads;    /* number of completed reads; written by the reader */
    _Atomic uint32_t read_err; /* of the last read; written by the reader */
    _Atomic size_t junk;       /* unreadable rows at the last read */
} teffi_follow;

/* A connected silo that is no member, or any silo of which messages are held back. */
typedef struct teffi_outsider {
    teffi_node_id node;
    teffi_standing standing;
    uint32_t connections; /* that came up while it was no member */
    uint32_t held;        /* its messages that are held back, or were taken to be delivered */
} teffi_outsider;

typedef struct teffi_outsiders { /* outsiders.c's */
    pthread_mutex_t lock;
    /* guarded by lock */
    teffi_outsider silo[TEFFI_OUTSIDERS_MAX];
    size_t n;
    teffi_queue held; /* messages that are held back, the oldest first */
    bool served;      /* a task, or start_delivering_held_messages(), delivers them */
} teffi_outsiders;

typedef struct teffi_watched_silo { /* another silo's heartbeat, as last read */
    teffi_node_id node;
    uint64_t etag, still_ns, looked_ns;
    bool unconsented; /* it stands still, consents to the silo's death are missing; was logged */
} teffi_watched_silo;

typedef struct teffi_beat { /* heartbeat.c's */
    pthread_mutex_t lock;
    /* guarded by lock */
    bool stopped; /* start no more heartbeats and looks */
    bool failed;  /* the last heartbeat could not be written: declare nobody dead */
    bool looks;   /* the look at other silos is a task now; its timer is not set */
    bool hurry;   /* a connection has broken meanwhile: begin the next look at once */
    teffi_timer timer, look, expiry; /* of the next heartbeat; of the next look; of the lease */
    teffi_timer promise;             /* of the next round of promises */
    teffi_node_id broken[TEFFI_WATCHED_MAX];       /* silos whose connection broke; none: free */
    teffi_watched_silo watched[TEFFI_WATCHED_MAX]; /* owner: the running look; see watch.h */
} teffi_beat;

typedef struct teffi_promised { /* what this silo has promised to another, and consented to */
    teffi_node_id silo;         /* none: unused */
    uint64_t until_ns;          /* it does not consent to its death before; 0: no promise */
    uint64_t denied_beat;       /* it has consented for this heartbeat; 0: never */
} teffi_promised;

typedef struct teffi_promises { /* promise.c's */
    pthread_mutex_t lock;
    /* guarded by lock */
    uint64_t beats;           /* sent so far */
    teffi_own_beat confirmed; /* the last one that was confirmed; number 0: none */
    bool view_changed;        /* a later one, or the one confirmed before, had another view */
    bool extended;            /* the lease was extended since */
    teffi_promised of[TEFFI_WATCHED_MAX];
} teffi_promises;

typedef struct teffi_unreached { /* a silo that the last probe did not reach */
    teffi_node_id node;          /* none: unused */
    uint64_t since_ns;           /* no probe has reached it since then */
    uint64_t judge_ns;           /* after so long it is judged who must go */
} teffi_unreached;

typedef struct teffi_reach { /* reach.c's */
    pthread_mutex_t lock;
    teffi_unreached of[TEFFI_WATCHED_MAX]; /* guarded by lock */
    _Atomic bool probing;                  /* the task that probes is queued or runs */
    teffi_node_id to[TEFFI_WATCHED_MAX];   /* owner: the look that sets probing, then the task */
    size_t n_to;
} teffi_reach;

typedef struct teffi_stuck { /* lease.c's */
    teffi_group group;       /* of the probe; an ordinary group */
    teffi_item probe;
    _Atomic bool queued, found; /* the probe waits for a worker; the workers are stuck */
    uint64_t limit_ns;          /* immutable after start; 0: never stuck */
    /* owner: the running heartbeat */
    uint64_t runs, checked_ns; /* at the last check */
    uint64_t still_ns;         /* the probe waits, and no run has begun */
} teffi_stuck;

typedef struct teffi_silent { /* a silo whose heartbeat stood still */
    teffi_node_id node;
    const char *address;       /* borrowed from the view */
    uint64_t etag, beat, view; /* of the heartbeat, see teffi_alive */
    bool needs_consent;        /* its lease may have been extended */
    /* out of teffi_promise_ask_consents; consents_needed 0: it is not known whose are needed */
    size_t consents, consents_needed;
} teffi_silent;

typedef struct teffi_membership {
    teffi_node *node;
    _Atomic bool listed; /* the table may list this silo; set before joined */
    _Atomic bool joined, left;
    bool had_lost_lease; /* in an earlier start, and has not joined since; set before it joins */
    teffi_follow follow;
    teffi_outsiders outsiders;
    teffi_beat beat;
    teffi_promises promises;
    teffi_reach reach;
    teffi_stuck stuck;
    size_t n_types, n_versions;
    uint32_t types[]; /* ids of the types that the silo hosts; then their versions */
} teffi_membership;

/* teffi_membership_new - create it, set the node's membership, check_silo and hold, and register
 * the system target. in: types, ids of the types the silo hosts; versions, as many, NULL: all 0;
 * both copied. out: NULL: no memory. */
teffi_membership *teffi_membership_new(teffi_node *node, const uint32_t *types,
                                       const uint32_t *versions, size_t n);

/* teffi_membership_free - free it, and drop the node's view, after the node's tasks have ended.
 * in: may be NULL. node->membership is left to the caller. */
void teffi_membership_free(teffi_membership *membership);

/* teffi_membership_refresh - adopt the table's view, of at least this version; 0: its present one.
 * errs: as teffi_rows_read(); TEFF_E_TIMEOUT also if the table has no such version yet. */
TEFF_MUST_USE teff_err teffi_membership_refresh(teff_ctx *ctx, uint64_t version);

/* teffi_membership_refresh_soon - refresh the view in a task, because a silo could not be reached,
 * or the store has refused a write. Refreshes begin at least 100 ms apart; one serves all calls
 * before it begins. Does not wait. Without memory for the task, does nothing. */
void teffi_membership_refresh_soon(teffi_membership *membership);

/* teffi_membership_hear_view - see node->hear_view: refreshes the view soon if version is newer. */
void teffi_membership_hear_view(teffi_node *node, uint64_t version);

/* Changes are: a view is adopted, a read of the table has ended, a silo is connected, a part of the
 * directory is served, the lease is lost, this silo closes.
 * teffi_membership_signal_change - count a change and wake all waiters. in: may be NULL.
 * teffi_membership_await_change - wait until follow.changes.count differs from seen, which the
 *       caller read before its try, or until this try's back-off has passed: 2 ms, doubled with
 *       each try up to 1 s; the second half of it is random. */
void teffi_membership_signal_change(teffi_membership *membership);
void teffi_membership_await_change(teff_ctx *ctx, uint64_t seen, unsigned tries);

/* teffi_membership_read_table - read the table's rows; logs how many are unreadable, if that number
 * has changed. errs: as teffi_rows_read(). */
TEFF_MUST_USE teff_err teffi_membership_read_table(teff_ctx *ctx, teffi_rows *rows);

/* teffi_membership_adopt_rows - adopt the view that rows describe, unless it is no newer than the
 * adopted one. errs: TEFF_E_NOMEM. */
TEFF_MUST_USE teff_err teffi_membership_adopt_rows(teff_ctx *ctx, const teffi_rows *rows);

/* teffi_membership_version - the adopted view's version; 0: none. No request for a grain is sent
 * any more to a silo that this view lacks. in: a silo's node, which has a membership. */
uint64_t teffi_membership_version(teffi_node *node);

/* A silo that is no member may connect, to join, or to pass on what it received before it left. A
 * stranger's responses and cancels are handled as a member's. Its messages to the system targets of
 * membership, directory and store are delivered, too: the first one makes this silo read the table,
 * the second one checks the view, and the third one allows what a silo without a store of its own
 * needs to join. Its other messages are held back until the table has been read: it may have
 * joined. A dead silo may not connect at all.
 * teffi_outsiders_check_may_connect - may a silo connect? out: NULL: yes; otherwise why not.
 * teffi_outsiders_add_connection - count a connection of the silo that has come up, if the silo is
 *       an outsider. out: its standing; DEAD: it must be disconnected (also when
 *       TEFFI_OUTSIDERS_MAX others are connected).
 * teffi_outsiders_remove_connection - stop counting a connection of the silo that has ended.
 * teffi_outsiders_apply_view_and_drop_dead - apply an adopted view: remove members, unless messages
 *       of them are held back, and disconnect dead outsiders. in: follow.lock held.
 * teffi_outsiders_list - list them. in: to, with room for TEFFI_OUTSIDERS_MAX. out: how many.
 * teffi_outsiders_have_stranger - is there an outsider that is a stranger? in: silo: only this one
 *       is checked; zero: all are.
 * teffi_outsiders_have_undelivered - are there held messages that are not delivered yet?
 * teffi_outsiders_hold_msg_if_needed - hold back the message of a stranger, or of a silo with
 *       undelivered held messages. in: msg, owned by the callee on TEFF_OK only. out: *first, set
 *       on TEFF_OK only: true: the caller must see to it that the held messages are delivered.
 *       errs: TEFF_E_NOT_FOUND: not held back: deliver it; TEFF_E_OVERLOADED.
 * teffi_outsiders_take_held_messages - take the messages that are held back now, to deliver them.
 *       Repeat it until the queue is empty: then the next teffi_outsiders_hold_msg_if_needed() sets
 *       *first. One caller at a time.
 * teffi_outsiders_decrement_held_count - lower the number of held messages of this silo by one.
 *       Call it once for each message that was taken, when it has been delivered or refused: until
 *       then later messages of the silo are held back, too. */
const char *teffi_outsiders_check_may_connect(teffi_membership *membership, teffi_node_id silo);
teffi_standing teffi_outsiders_add_connection(teffi_membership *membership, teffi_node_id silo);
void teffi_outsiders_remove_connection(teffi_membership *membership, teffi_node_id silo);
void teffi_outsiders_apply_view_and_drop_dead(teffi_membership *membership, const teffi_view *view);
size_t teffi_outsiders_list(teffi_membership *membership, teffi_node_id *to);
bool teffi_outsiders_have_stranger(teffi_membership *membership, teffi_node_id silo);
bool teffi_outsiders_have_undelivered(teffi_membership *membership);
TEFF_MUST_USE teff_err teffi_outsiders_hold_msg_if_needed(teffi_membership *membership,
                                                          teffi_msg *msg, bool *first);
teffi_queue teffi_outsiders_take_held_messages(teffi_membership *membership);
void teffi_outsiders_decrement_held_count(teffi_membership *membership, teffi_node_id silo);

/* teffi_outsiders_check_store_op - may another silo request this operation on this silo's store? A
 * member may request any; a dead silo none; a stranger, or a silo that has left, reads of this
 * cluster's members and heartbeats, the batch by which it joins, or by which it leaves after
 * a join that has failed, and its own heartbeat. After an error the caller must refresh the view:
 * the silo may be a member by now.
 * in:   op, not checked yet; what the check unpacks is put into its arena.
 * errs: TEFF_E_REFUSED, with text (TEFF_TEXT_MAX bytes); TEFF_E_CONFLICT: the table has changed
 *       since this silo's view, or since the batch's sender has read the table: it must read it
 *       again. */
TEFF_MUST_USE teff_err teffi_outsiders_check_store_op(teffi_node *node, teffi_node_id from,
                                                      const teffi_store_op *op, char *text);

/* teffi_membership_hold_msg_if_needed - see node->hold. */
bool teffi_membership_hold_msg_if_needed(teffi_node *node, teffi_msg *msg);

/* teffi_membership_record_connection_state - record that a connection with a silo has come up (up),
 * or that one has broken or could not be made (!up). In the second case the silo's heartbeat is
 * watched at once, and may stand still for a shorter time. in: membership may be NULL. */
void teffi_membership_record_connection_state(teffi_membership *membership, teffi_node_id silo,
                                              bool up);

/* teffi_membership_is_connection_broken - has a connection with the silo broken, and none come up
 * since? */
bool teffi_membership_is_connection_broken(teffi_membership *membership, teffi_node_id silo);

/* teffi_membership_prune_broken_connections - forget the broken connections of silos that view
 * lacks. */
void teffi_membership_prune_broken_connections(teffi_membership *membership,
                                               const teffi_view *view);

/* teffi_membership_set_timer - set one of beat's timers, unless heartbeats have stopped or the
 * lease is over. in: beat.lock held. */
void teffi_membership_set_timer(teffi_membership *membership, teffi_timer *timer, uint64_t due_ns);

/* teffi_membership_start_lease_timer - set the timer that ends the lease when it has run out.
 * in: the lease has begun. */
void teffi_membership_start_lease_timer(teffi_membership *membership);

/* teffi_membership_lose_lease - end this silo's lease for good, log why, report a change, and call
 * node->lost; once. Does nothing after teffi_membership_leave() has begun. runs: without a lock. */
void teffi_membership_lose_lease(teffi_membership *membership, const char *why);

/* teffi_stuck_init - before the first check.
 * teffi_stuck_end_lease_if_stuck - one check: end the lease if no worker has taken work for
 *       stuck.limit_ns. in: called at each heartbeat. out: true: it has, write no heartbeat.
 * teffi_stuck_was_found - was that why the lease has ended? Then threads of the silo may never end.
 */
void teffi_stuck_init(teffi_membership *membership);
bool teffi_stuck_end_lease_if_stuck(teffi_membership *membership);
bool teffi_stuck_was_found(const teffi_membership *membership);

/* teffi_membership_disconnect_departed - drop the connections to silos that left at least 10 s
 * ago. */
void teffi_membership_disconnect_departed(teffi_membership *membership);

/* teffi_membership_find_view - the adopted view of this version, or an earlier one that is kept.
 * out: with a reference; NULL: not known. */
const teffi_view *teffi_membership_find_view(teffi_membership *membership, uint64_t version);
