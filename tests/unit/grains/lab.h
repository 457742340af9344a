/* lab.h - real silos in one process, with grain types that tell a record what happens to them.
 * Way:     tests of grains, clusters and silos -> [lab] -> teff_silo_*, teff_client_*
 * Threads: grains write the record's atomics; a test waits for them with lab_until and asserts. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include "test.h"
#include "call/call.h"
#include "lab.teff.h"
#include "silo/silo.h"

static inline bool lab_pending(const teffi_call *call)
{
    return teffi_call_is_pending(call->home, call->slot, call->generation);
}

enum { LAB_SILOS_MAX = 4, LAB_CALLERS = 8, LAB_SINGLES = 4096 };

typedef struct lab_record {       /* atomic, all of it */
    _Atomic bool gate;            /* open: held turns go on */
    _Atomic bool writer_gate;     /* open: held writers of Turns go on */
    _Atomic int held;             /* turns that wait for the gate */
    _Atomic uint32_t held_due_ms; /* ctx.due_ms of the newest of them */
    _Atomic int started;          /* turns of Turns, Small and Free */
    _Atomic int went; /* turns of Relay.Go; went_err: how the newest call in one ended */
    _Atomic int went_err;
    _Atomic int writing, reading, peeking;
    _Atomic int most_readers, most_peekers, most_writers;
    _Atomic int collisions; /* a writer met another writer or a reader */
    _Atomic int64_t last_seq[LAB_CALLERS];
    _Atomic int disorder; /* a caller's message overtook an earlier one of its own */
    _Atomic int notes;
    _Atomic int activated, deactivated, last_reason;
    _Atomic int moody_failures;           /* so many activations of Moody fail */
    _Atomic int single_live[LAB_SINGLES]; /* activations of Single now, by key */
    _Atomic int duplicates;               /* two at once */
    _Atomic int64_t single_sum;
} lab_record;

typedef struct lab {
    lab_record record;
    char store[512]; /* its address; removed by lab_close */
    teff_silo *silos[LAB_SILOS_MAX];
    teff_ctx *ctx[LAB_SILOS_MAX]; /* this thread's, one a silo */
    int n;
    bool mixes;                    /* silos 1, 3 and clients of silos 0, 2 use the reactor, the
                                    * others nng */
    void (*more)(teff_silo *silo); /* hosts more types; may be NULL */
} lab;

/* lab_open - n silos around one store: in memory for one, else an SQLite file.
 * lab_open_more - the same; more hosts the test's own types.
 * lab_open_mixed - the same; neighbours, and clients and their gateways, use different transports.
 * lab_open_seeded - the first keeps rows in memory, the others join through it. */
lab *lab_open(int n);
lab *lab_open_mixed(int n);
lab *lab_open_more(int n, void (*more)(teff_silo *silo));
lab *lab_open_seeded(int n);
void lab_close(lab *l);

/* lab_add - one more silo on the lab's store. out: its index. */
int lab_add(lab *l);

/* lab_add_evicting - one more with one worker, a run queue by priority, and four groups that may
 * wait. out: its index; all silos see it. */
int lab_add_evicting(lab *l);

/* lab_remove - contexts freed, left and freed. out: what teff_silo_stop said. */
teff_err lab_remove(lab *l, int i);

/* lab_silo - a silo with all types but Rare. It is not started. */
teff_silo *lab_silo(lab_record *record, const teff_silo_options *opt);

/* lab_client - connected to the silos whose indexes are given, -1 ends them. */
teff_client *lab_client(lab *l, const int *gateways);

/* lab_host_all, lab_host_rare - give a silo its types. */
void lab_host_all(teff_silo *silo, lab_record *record);
void lab_host_rare(teff_silo *silo, lab_record *record);

/* lab_fresh_store - an address of an SQLite file that is not there. in: 512 bytes. */
void lab_fresh_store(char *address);
void lab_drop_store(const char *address);

/* lab_beat - write the heartbeat of ctx's silo. lab_read_alive - out: *etag, of a silo's. */
teff_err lab_beat(teff_ctx *ctx);
teff_err lab_read_alive(teff_ctx *ctx, teffi_node_id silo, uint64_t *etag);

/* lab_pause - wait a little; false: it took too long already. in: *spent, 0 at first. */
bool lab_pause(uint64_t *spent);

/* lab_until - wait for a condition, a minute at the most. */
#define lab_until(cond)                                                                            \
    do {                                                                                           \
        uint64_t spent_ = 0;                                                                       \
        while (!(cond) && lab_pause(&spent_))                                                      \
            ;                                                                                      \
        if (!(cond))                                                                               \
            fail_msg("waited in vain for: %s", #cond);                                             \
    } while (0)

/* lab_ok - the call must end well; its text is in the message when it did not. */
#define lab_ok(ctx, call)                                                                          \
    do {                                                                                           \
        teff_err err_ = (call);                                                                    \
        if (err_)                                                                                  \
            fail_msg("%s: %s: %s", #call, teff_err_name(err_), teff_error(ctx));                   \
    } while (0)

/* lab_fails - the call must end with this error. */
#define lab_fails(ctx, call, expected)                                                             \
    do {                                                                                           \
        teff_err err_ = (call);                                                                    \
        if (err_ != (expected))                                                                    \
            fail_msg("%s: %s (%s), expected %s", #call, teff_err_name(err_), teff_error(ctx),      \
                     teff_err_name(expected));                                                     \
    } while (0)
