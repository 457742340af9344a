/* testing.h - a cluster inside a test: silos and clients in one thread, on a clock of its own.
 * Way:     test -> [testing] -> grains/testing/ (clock, executor, net, store) -> the product
 * Threads: all functions, and all code of grains, run on the thread that made the cluster.
 * Link:    with the library teff-testing (pkg-config teff-testing) instead of teff, of which it has
 *          a copy. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <teff/silo.h>

TEFF_BEGIN_C

/* A test makes a cluster, calls its grains by the generated functions, and checks the responses:
 *
 *     static teff_err host(void *arg, teff_silo *silo, unsigned no)
 *     {
 *         return teff_silo_host(silo, counter_counter_type(&methods, NULL));
 *     }
 *
 *     teff_testing_options options = {.size = sizeof options, .silos = 3, .host = host};
 *     assert_int_equal(teff_testing_new(&options, &cluster, text), TEFF_OK);
 *     teff_ctx *ctx = teff_testing_ctx(cluster);
 *     assert_int_equal(counter_counter_add(ctx, "apples", counter_amount(.amount = 3), &value), 0);
 *     teff_testing_kill(cluster, 0);
 *
 * The silos and clients are those of the product. Only what is below them is replaced: the clock,
 * the workers, the network, and the store, which all silos share.
 *   - Time is virtual. It moves while the test waits: in a call, in teff_sleep, in functions of
 *     this header. An hour in which nothing happens takes far less than a second. Code of grains
 *     takes no time, unless it waits.
 *   - The seed decides all that is random: which group runs next, how long a message or an
 *     operation of the store takes, which fault happens. Two runs of a test with one seed are the
 *     same, if the test and its grains read no clock, no random numbers and no addresses of memory.
 *     So a failed run can be replayed: print teff_testing_seed().
 *   - A fake of a grain needs no generated code: the test hosts the type with methods of its own,
 *     and user points to what they record: bank_bank_type(&fake_methods, &fake).
 *   - Code of grains must not leave its turn by longjmp, as failed assertions of cmocka do: let it
 *     record what it sees, and check that in the test.
 *   - The cluster checks itself, too. If it finds a defect of teff, or if the test waits for what
 *     cannot happen, it prints its last events and its seed, and aborts.
 *   - What silos and clients log is among the events (teff_testing_print, and the option print). It
 *     goes neither to standard error nor to a handler of teff_log_to.
 * Code that computes for long, blocks its thread, or makes threads is not simulated: all parts of
 * teff_fork run on the one thread, and teff_yield returns at once. A process may have several
 * clusters, on one thread or on several, and silos with worker threads, too. */

enum { TEFF_TESTING_SILOS_MAX = 8, TEFF_TESTING_CLIENTS_MAX = 64 };

typedef struct teff_testing teff_testing;

typedef struct teff_testing_options { /* zeroed, except size and host = all defaults */
    size_t size;                      /* sizeof(teff_testing_options) */
    uint64_t seed;                    /* of the run; 0: 1 */
    unsigned silos;                   /* that start at once, at most TEFF_TESTING_SILOS_MAX; 0: 1 */
    /* Gives a silo its grain types (teff_silo_host), before it starts. no: from 0. Called at each
     * start of each silo. An error ends the start with this error. */
    teff_err (*host)(void *arg, teff_silo *silo, unsigned no);
    void *arg; /* passed to host; used as long as the cluster lives, as authorize_arg of silo */
    /* Options of each silo, copied; NULL: all defaults. Addresses, store, seeds, sched, lost,
     * transport, certificates and secrets must be zero: the cluster has its own. Several silos keep
     * their states in one store, which lives as long as the cluster. */
    const teff_silo_options *silo;
    int print; /* 1: print each event as a line on standard output */
} teff_testing_options;

/* Faults that happen at random, by the seed. Zeroed, except size: none. Rates are per mille. */
typedef struct teff_testing_faults {
    size_t size; /* sizeof(teff_testing_faults) */
    /* How long a message is under way; both 0: 0.02 to 2 ms, now and then up to 80 ms. */
    uint32_t delay_min_us, delay_max_us;
    /* Messages with which their connection breaks. This message, and others that are under way on
     * the connection, may be lost, as when a TCP connection breaks. Nodes connect again. */
    unsigned breaks;
    unsigned store_failed;  /* operations of the store that are not done, with TEFF_E_IO */
    unsigned store_unknown; /* writes that end with TEFF_E_UNKNOWN; half of them are done */
    unsigned store_slow;    /* operations of the store that take up to 500 ms */
} teff_testing_faults;

/* teff_testing_new - make a cluster, start its silos, and connect a client to them.
 * in:   options, copied; host must be set. text, of TEFF_TEXT_MAX bytes, may be NULL.
 * out:  *cluster, owned; on an error NULL, and text says why.
 * runs: a thread outside; not in a turn.
 * errs: TEFF_E_INVALID, TEFF_E_NOMEM; those of host, teff_silo_new and teff_silo_start.
 * from: Orleans TestCluster; the simulator of FoundationDB. */
TEFF_API TEFF_MUST_USE teff_err teff_testing_new(const teff_testing_options *options,
                                                 teff_testing **cluster, char *text);

/* teff_testing_free - stop the silos that run, and free the cluster.
 * in:   cluster, may be NULL. The test's clients, and its contexts of silos, must have been freed.
 * runs: as teff_testing_new. */
TEFF_API void teff_testing_free(teff_testing *cluster);

/* teff_testing_ctx - the context of the cluster's own client, which is connected to all silos with
 * which the cluster began, and connects to them again when they are back.
 * in:   cluster.
 * out:  owned by the cluster: do not free it. teff_ctx_reset frees its responses.
 * runs: the cluster's thread. */
TEFF_API teff_ctx *teff_testing_ctx(teff_testing *cluster);

/* teff_testing_connect - make one more client.
 * in:   silo: the number of the silo that is its gateway; -1: all silos of the cluster. text, as in
 *       teff_testing_new.
 * out:  *client, owned: free it with teff_client_free before the cluster; on an error NULL.
 * runs: the cluster's thread; not in a turn.
 * errs: as teff_client_connect; TEFF_E_OVERLOADED: the cluster has had
 *       TEFF_TESTING_CLIENTS_MAX clients, its own included. */
TEFF_API TEFF_MUST_USE teff_err teff_testing_connect(teff_testing *cluster, int silo,
                                                     teff_client **client, char *text);

/* teff_testing_silo - a silo of the cluster, for teff_silo_new_ctx and others.
 * in:   no, from 0.
 * out:  owned by the cluster: do not start, stop or free it. NULL: it does not serve: it has not
 *       been started, was stopped or killed, or has lost its lease.
 * runs: the cluster's thread. */
TEFF_API teff_silo *teff_testing_silo(teff_testing *cluster, unsigned no);

/* teff_testing_start - start a silo that does not serve, at the address that it had before, or one
 * more silo. What is left of a silo that has lost its lease is freed first.
 * in:   no, below TEFF_TESTING_SILOS_MAX. text, as in teff_testing_new.
 * runs: as teff_testing_new.
 * errs: as teff_testing_new; TEFF_E_INVALID: the silo serves, or there is no such number. */
TEFF_API TEFF_MUST_USE teff_err teff_testing_start(teff_testing *cluster, unsigned no, char *text);

/* teff_testing_stop - stop a silo in order, as teff_silo_stop, and free it.
 * in:   no. timeout_ms, as in teff_silo_stop. The test's contexts of the silo must have been freed.
 * runs: as teff_testing_new.
 * errs: those of teff_silo_stop. */
TEFF_API teff_err teff_testing_stop(teff_testing *cluster, unsigned no, uint32_t timeout_ms);

/* teff_testing_kill - end a silo as a crash does: no code of its grains runs any more, its
 * connections break, and it does not leave the cluster. The other silos declare it dead after their
 * lease (10 s, teff_silo_options.lease_ms). Its processes and engines are not cut off but stopped:
 * they get a cancel event, and are closed by force 1 ms later, so their code may run meanwhile.
 * in:   no; nothing happens if the silo does not run. The test's contexts of the silo must have
 *       been freed.
 * runs: as teff_testing_new. */
TEFF_API void teff_testing_kill(teff_testing *cluster, unsigned no);

/* teff_testing_pause - a silo stands still for a time, as when its process is stopped; the others
 * break their connections to it after 5 s. Its lease may run out meanwhile.
 * in:   no; nothing happens if the silo does not run.
 * runs: the cluster's thread; does not wait. */
TEFF_API void teff_testing_pause(teff_testing *cluster, unsigned no, uint32_t ms);

/* teff_testing_cut - two silos do not reach each other any more: their connections break, and new
 * ones are refused, until teff_testing_heal. Clients still reach both.
 * in:   a, b: numbers of silos, which need not run. Cut several pairs to make a partition.
 * runs: the cluster's thread; does not wait. */
TEFF_API void teff_testing_cut(teff_testing *cluster, unsigned a, unsigned b);

/* teff_testing_cut_store - a silo does not reach the store any more, until teff_testing_heal.
 * in:   no.
 * runs: the cluster's thread; does not wait. */
TEFF_API void teff_testing_cut_store(teff_testing *cluster, unsigned no);

/* teff_testing_set_faults - from now on, faults happen at these rates.
 * in:   faults, borrowed; NULL: none.
 * runs: the cluster's thread; does not wait.
 * errs: TEFF_E_INVALID: the size is not set, a rate is over 1000, or delay_min_us is over
 *       delay_max_us. */
TEFF_API TEFF_MUST_USE teff_err teff_testing_set_faults(teff_testing *cluster,
                                                        const teff_testing_faults *faults);

/* teff_testing_heal - end what teff_testing_cut, _cut_store and _set_faults began. A silo
 * that has lost its lease meanwhile stays so: start it again.
 * in:   cluster.
 * runs: the cluster's thread; does not wait. */
TEFF_API void teff_testing_heal(teff_testing *cluster);

/* teff_testing_advance - let the cluster run for a time.
 * in:   ms, of its clock.
 * runs: as teff_testing_new. */
TEFF_API void teff_testing_advance(teff_testing *cluster, uint64_t ms);

/* teff_testing_run_until - let the cluster run until fn(arg) returns true. fn is called after each
 * step: it must not call grains or functions of this header that let the cluster run; it may be
 * left by longjmp.
 * in:   timeout_ms, of the cluster's clock; more than 146 years count as 146 years.
 * out:  false: the time is over, and fn(arg) is still false.
 * runs: as teff_testing_new. */
TEFF_API TEFF_MUST_USE bool teff_testing_run_until(teff_testing *cluster, bool (*fn)(void *arg),
                                                   void *arg, uint64_t timeout_ms);

/* teff_testing_run_until_idle - let the cluster run until no turn can run, and no message or
 * operation of the store is under way. Turns that sleep, and timers, are not waited for.
 * in:   timeout_ms, as in teff_testing_run_until.
 * out:  false: the time is over.
 * runs: as teff_testing_new. */
TEFF_API TEFF_MUST_USE bool teff_testing_run_until_idle(teff_testing *cluster, uint64_t timeout_ms);

/* teff_testing_now_ms - how long the cluster has existed, by its clock.
 * in:   cluster.
 * out:  milliseconds.
 * runs: the cluster's thread; also in code of its grains. */
TEFF_API uint64_t teff_testing_now_ms(const teff_testing *cluster);

/* teff_testing_seed - the seed of the run, to be printed when a test fails.
 * in:   cluster. out: never 0.
 * runs: the cluster's thread. */
TEFF_API uint64_t teff_testing_seed(const teff_testing *cluster);

/* teff_testing_hash - a hash of all events so far. Two runs are the same if their hashes are equal
 * at the end.
 * in:   cluster. out: any number.
 * runs: the cluster's thread. */
TEFF_API uint64_t teff_testing_hash(const teff_testing *cluster);

/* teff_testing_print - print the last 160 events to standard error, to see how a test failed.
 * in:   cluster.
 * runs: the cluster's thread. */
TEFF_API void teff_testing_print(const teff_testing *cluster);

TEFF_END_C
