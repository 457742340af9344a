/* silo.h - processes that host grains, and programs that call them.
 * Way:     main -> [silo | client] -> runtime/silo -> everything else
 * Threads: any thread may use a silo or client; a context belongs to one thread. */
#ifndef TEFF_SILO_H
#define TEFF_SILO_H

#include <stdint.h>
#include <teff/error.h>
#include <teff/grain.h>
#include <teff/process.h>
#include <teff/sched.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct teff_silo teff_silo;
typedef struct teff_client teff_client;

#define TEFF_SEEDS_MAX 8

typedef struct teff_silo_options {
    const char *cluster;   /* cluster id, 1..64 of [A-Za-z0-9._-]; NULL = "dev" */
    const char *listen;    /* "host:port", "[v6]:port", port 0 = any; NULL = "127.0.0.1:0" */
    const char *advertise; /* how others reach it; NULL = the bound listen address */
    const char *store;     /* "memory", "sqlite:FILE"; NULL = "memory" (with seeds: the seed's) */
    const char *seeds[TEFF_SEEDS_MAX]; /* "host:port" of running silos, NULL-ended; may be empty */
    uint32_t workers;                  /* worker threads; 0 = one a core */
    teff_sched_options sched;          /* how they schedule */
    const char *tls_cert;              /* PEM file: certificate and key; NULL = no TLS */
    const char *tls_ca;                /* PEM file: who signs peers' certificates; with tls_cert */
    int insecure;                      /* listen beyond loopback without TLS */
    int silent;                        /* log warnings and errors only */
} teff_silo_options;

/* teff_silo_new - a silo that is not running yet.
 * in:   opt, borrowed, copied; NULL = all defaults.
 * out:  *silo; on an error NULL, and text (when not NULL, of TEFF_TEXT_MAX bytes) says which
 *       option.
 * errs: TEFF_E_INVALID, TEFF_E_NOMEM, TEFF_E_IO. */
TEFF_API TEFF_MUST_USE teff_err teff_silo_new(const teff_silo_options *opt, teff_silo **silo,
                                              char *text);

/* teff_silo_host - host a grain type. Before teff_silo_start.
 * in:   type, owned: moves to the silo on success.
 * errs: TEFF_E_EXISTS (same name, or another name with the same id), TEFF_E_INVALID. */
TEFF_API TEFF_MUST_USE teff_err teff_silo_host(teff_silo *silo, teff_grain_type *type);

/* teff_silo_start - listen, join the cluster, serve. Blocks the thread until the silo is active.
 * errs: TEFF_E_IO (address in use, store), TEFF_E_REFUSED, TEFF_E_TIMEOUT; the silo may be freed.
 *       text as in teff_silo_new. */
TEFF_API TEFF_MUST_USE teff_err teff_silo_start(teff_silo *silo, char *text);

/* teff_silo_stop - leave the cluster cleanly: grains move, running calls end, then it closes.
 * in:   timeout_ms, after which the rest is dropped; 0 = 30 s.
 * out:  TEFF_OK, or TEFF_E_TIMEOUT when something had to be dropped. Stopping twice is allowed. */
TEFF_API teff_err teff_silo_stop(teff_silo *silo, uint32_t timeout_ms);

/* teff_silo_free - stops it first when it runs. in: may be NULL. Free its contexts before. */
TEFF_API void teff_silo_free(teff_silo *silo);

/* teff_silo_address - "host:port" that others reach it by; valid while the silo lives. */
TEFF_API const char *teff_silo_address(const teff_silo *silo);

/* teff_silo_ctx - a context for the calling thread. out: NULL when memory is out. */
TEFF_API teff_ctx *teff_silo_ctx(teff_silo *silo);

/* teff_silo_processes - processes (teff/process.h) on this silo, run by its workers. Their PIDs are
 * good in the whole cluster: teff_process_send and teff_process_cancel of any silo's system reach
 * them; between two processes messages keep their order.
 * in:   silo, serving; opt as for teff_process_system_new, workers and sched do not count.
 * out:  *system, the silo's: stopping the silo stops it first (cancel events, then by force when
 *       half the time is over); never free it. On an error NULL.
 * errs: TEFF_E_CLOSED (not serving), TEFF_E_EXISTS (asked for twice), TEFF_E_INVALID,
 *       TEFF_E_NOMEM. */
TEFF_API TEFF_MUST_USE teff_err teff_silo_processes(teff_silo *silo,
                                                    const teff_process_options *opt,
                                                    teff_process_system **system);

/* teff_silo_members - how many silos its view of the cluster holds, itself included. */
TEFF_API uint32_t teff_silo_members(const teff_silo *silo);

/* teff_silo_scale - run on n workers from now on: 1 .. as many as there were at first, or
 * sched.workers_max. A worker too many ends its turn; what it had queued and its timers move to the
 * others.
 * runs: any thread, but not beside teff_silo_start or _stop.
 * errs: TEFF_E_INVALID, TEFF_E_CLOSED (it does not run), TEFF_E_IO (no thread was to be had). */
TEFF_API teff_err teff_silo_scale(teff_silo *silo, uint32_t n);

/* teff_silo_sched - what its scheduler did since the start.
 * out:  *all, when not NULL; workers[0..max); returns how many were written; 0 and zeroes while the
 *       silo does not run.
 * runs: any thread, but not beside teff_silo_start or _stop. */
TEFF_API size_t teff_silo_sched(teff_silo *silo, teff_sched_metrics *all,
                                teff_sched_worker *workers, size_t max);

/* teff_silo_dump - what the silo does right now, in lines for people: workers and what each runs
 * and for how long, slots, queues, timers, the grains with the longest queues, calls under way.
 * in:   fn(arg, line), for example teff_line_print with a FILE *.
 * runs: any thread, while everything runs; holds nothing up. fn runs on the calling thread. */
TEFF_API void teff_silo_dump(teff_silo *silo, teff_line_fn *fn, void *arg);

/* teff_silo_main - a whole silo program: options, start, wait for SIGTERM or SIGINT, clean leave.
 * in:   argv as given to main (--help lists the options); grain types, NULL-ended.
 * out:  an exit status: 0 stopped cleanly, 1 failed at run time, 2 wrong usage. */
TEFF_API int teff_silo_main(int argc, char **argv, teff_grain_type *type, ...)
    __attribute__((sentinel));

typedef struct teff_client_options {
    const char *cluster;                  /* as for silos */
    const char *gateways[TEFF_SEEDS_MAX]; /* "host:port" of silos, NULL-ended; at least one */
    const char *tls_cert, *tls_ca;        /* as for silos */
} teff_client_options;

/* teff_client_connect - a program that is not a silo becomes able to call grains.
 * runs: blocks until one gateway has taken it or all refused, at most 10 s.
 * errs: TEFF_E_INVALID, TEFF_E_UNREACHABLE, TEFF_E_REFUSED, TEFF_E_NOMEM; text as above. */
TEFF_API TEFF_MUST_USE teff_err teff_client_connect(const teff_client_options *opt,
                                                    teff_client **client, char *text);

/* teff_client_ctx - a context for the calling thread. While a single thread of the client's waits,
 * it reads the answers itself; behind many it leaves what comes next until it waits again, or for
 * three milliseconds. out: NULL when memory is out. */
TEFF_API teff_ctx *teff_client_ctx(teff_client *client);

/* teff_client_free - leaves the cluster. in: may be NULL. Free its contexts before. */
TEFF_API void teff_client_free(teff_client *client);

#ifdef __cplusplus
}
#endif
#endif
