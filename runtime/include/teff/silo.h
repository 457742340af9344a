/* silo.h - silos, which host grains, and clients, which call grains from other programs.
 * Way:     main -> [silo | client] -> grains/silo -> everything else
 * Threads: any thread may use a silo or client; a context belongs to one thread. New, host, start,
 *          stop and free of one silo: one call at a time.
 * Forks:   a child of fork() must not use or free silos and clients of its parent. It may make its
 *          own only if the parent had made none; otherwise it may only call exec or _exit. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <teff/engine.h>
#include <teff/error.h>
#include <teff/grain.h>
#include <teff/log.h>
#include <teff/process.h>
#include <teff/sched.h>

TEFF_BEGIN_C

typedef struct teff_silo teff_silo;
typedef struct teff_client teff_client;

#define TEFF_SEEDS_MAX 8

/* How bytes travel between nodes. The bytes are the same, so nodes of one cluster may differ. */
typedef enum teff_transport {
    TEFF_TRANSPORT_DEFAULT = 0, /* nng, unless teff was built with -Dtransport=reactor; TLS: nng */
    TEFF_TRANSPORT_NNG,         /* nng's own threads read and write; with or without TLS */
    TEFF_TRANSPORT_REACTOR      /* workers that are idle wait on the sockets; without TLS */
} teff_transport;

struct teff_key;

/* A client's call, for teff_silo_options.authorize. Texts and key are valid during the function. */
typedef struct teff_client_call {
    size_t size;     /* of this struct in the library: newer libraries may add members */
    uint64_t client; /* the id of the client, which draws it at random: it tells clients apart, but
                      * does not prove who they are */
    int gateway;     /* the silo has a gateway, and the client is connected there */
    int tls;         /* it has a certificate: of tls_client_ca at a gateway, otherwise of tls_ca */
    int secret;      /* it knows the secret for clients */
    int one_way;     /* nobody waits for a response */
    /* NULL: this silo does not host the type, or does not know the method. The call may go to a
     * silo that does. A program that does not want that refuses what it does not know. */
    const char *type, *method; /* full names: "words.Word", "words.Word.Add" */
    uint32_t type_id, method_id;
    const struct teff_key *key; /* teff/generated.h; NULL if type is */
    const void *key_bytes;      /* the key as it is on the wire */
    size_t key_len;
} teff_client_call;

typedef struct teff_silo_options { /* zeroed, except size = all defaults */
    size_t size;                   /* sizeof(teff_silo_options) */
    const char *cluster;           /* cluster id, 1..64 of [A-Za-z0-9._-]; NULL = "dev" */
    /* "host:port", "[v6]:port", port 0 = any; or "unix:/path"; NULL = "127.0.0.1:0". With an
     * address of all interfaces (0.0.0.0, [::]), advertise must be set. */
    const char *listen;
    const char *advertise; /* how others reach it; NULL = the bound listen address */
    /* "memory", "sqlite:FILE", "postgres:DATABASE", "redis:HOST:PORT[/NAME][?OPTIONS]",
     * "etcd://HOST:PORT[,HOST:PORT..][/NAME][?OPTIONS]", options as in README; NULL = "memory".
     * With seeds it must be NULL: the seed's store is used. */
    const char *store;
    const char *seeds[TEFF_SEEDS_MAX]; /* addresses of running silos, NULL-ended; may be empty */
    uint32_t workers;                  /* worker threads; 0 = one per core that
                                      * affinity and the cgroup's CPU quota allow */
    const teff_sched_options *sched;   /* of the silo's scheduler; borrowed; NULL = all defaults */
    const char *tls_cert;              /* PEM file: certificate and key; NULL = no TLS */
    const char *tls_ca;                /* PEM file: the CA of peers' certificates; with tls_cert */
    teff_transport transport;
    int insecure; /* allow listening beyond loopback without TLS */
    int silent;   /* log warnings and errors only */
    /* How long a silo serves after its last heartbeat in the store, 500 .. 600,000; 0 = 10,000.
     * The others declare it dead, and activate its grains, when its heartbeat has stood still for
     * 1.5 times that (1.05 times if its connection broke). With a shorter lease they do so sooner,
     * but shorter pauses and outages of the store end a silo. */
    uint32_t lease_ms;
    /* How much longer it serves while it cannot reach the store and a majority of the silos, itself
     * included, cannot either; up to 600,000; 0: no longer. Grains go on in memory, and saves fail.
     * All silos must have the same value, and a build that knows it: a silo is then declared dead
     * only if about half of the others consent, otherwise only when so much more time has passed.
     * Not beside seeds. */
    uint32_t outage_ms;
    /* Called once, on a thread of the silo, when the silo has lost its lease: it could not reach
     * its store for too long, or the cluster has declared it dead. It sends no responses and saves
     * nothing any more; silos and clients lose their connections. lost must not block or call the
     * silo. The program then calls teff_silo_stop (which in this case does not leave the cluster),
     * frees its contexts, and may call teff_silo_start to come back as a new incarnation. NULL:
     * none. teff_silo_main and teff_silo_run do all this by themselves. */
    void (*lost)(void *lost_arg, const char *why);
    void *lost_arg;
    /* Limits in bytes. Over one of them a call fails with TEFF_E_OVERLOADED at once; responses are
     * not refused. 0 = the default; with the defaults a silo fits a container of 1 GiB. */
    uint64_t message_bytes_max;    /* all messages queued or running here; 0 = 256 MiB */
    uint32_t grain_bytes_max;      /* requests queued at one grain; 0 = 16 MiB */
    uint32_t connection_bytes_max; /* unwritten to one peer; 0 = 64 MiB; responses: twice that */
    /* An address of its own for clients, as listen; NULL = none. With it, every peer that connects
     * there is a client, and listen's address accepts silos only. Without it, listen's address
     * accepts both, and a peer is what it says it is: SECURITY.md. */
    const char *gateway;
    /* PEM file: the CA of clients' certificates; must be set with gateway and TLS, and only then.
     * It must not sign silos' certificates, nor tls_ca clients'. Clients trust tls_ca. */
    const char *tls_client_ca;
    /* Files with secrets of 16 to 1024 bytes, read at each start; NULL = none. Only peers that
     * prove in the handshake that they know the secret are accepted. client_secret_file is for
     * clients alone, and needs secret_file, which is then for silos alone. Only owner and group may
     * have access to the files. Without TLS, what follows the handshake is not protected. */
    const char *secret_file, *client_secret_file;
    /* Called before each call of a client that is connected to this silo is delivered, wherever
     * its grain is; not for calls of grains, processes and threads of silos. out: 0: the call fails
     * with TEFF_E_REFUSED, and nothing is activated; a one-way is dropped. Called on threads of the
     * silo, several at a time: it must not block or call the silo. NULL: clients may call all
     * grains. */
    int (*authorize)(void *authorize_arg, const teff_client_call *call);
    void *authorize_arg;
} teff_silo_options;

/* teff_silo_new - make a silo; teff_silo_start starts it.
 * in:   opt, its strings and sched, borrowed, copied; NULL = all defaults.
 * out:  *silo; on an error NULL, and text (of TEFF_TEXT_MAX bytes, may be NULL) names the option.
 * runs: any thread.
 * errs: TEFF_E_INVALID, TEFF_E_NOMEM. */
TEFF_API TEFF_MUST_USE teff_err teff_silo_new(const teff_silo_options *opt, teff_silo **silo,
                                              char *text);

/* teff_silo_host - host a grain type. Before teff_silo_start. On an error the log says why.
 * in:   type, owned by the silo on success.
 * runs: any thread; one call at a time.
 * errs: TEFF_E_EXISTS (same name, or another name with the same id), TEFF_E_INVALID (NULL, the silo
 *       was started, too many types), TEFF_E_NOMEM (memory was out when the type was made). */
TEFF_API TEFF_MUST_USE teff_err teff_silo_host(teff_silo *silo, teff_grain_type *type);

/* teff_silo_start - listen, join the cluster, serve. Blocks the thread until the silo is active.
 * in:   silo, new or stopped, without contexts; one that was stopped comes back at the same
 *       address as a new incarnation. text, as in teff_silo_new.
 * runs: a thread outside.
 * errs: TEFF_E_IO (address in use, store), TEFF_E_UNREACHABLE (the seeds), TEFF_E_REFUSED,
 *       TEFF_E_TIMEOUT; other errors of the store; it may be tried again. TEFF_E_INVALID (it runs
 *       already; a file with a certificate or secret), TEFF_E_NOMEM. text says why. */
TEFF_API TEFF_MUST_USE teff_err teff_silo_start(teff_silo *silo, char *text);

/* teff_silo_stop - leave the cluster cleanly: grains move to other silos, pending calls end, then
 * the silo closes. A second stop does nothing.
 * in:   timeout_ms, after which calls and grains that are left are dropped; 0 = 30 s.
 * runs: a thread outside; blocks it. Called in a turn of the same silo it aborts the process.
 * errs: only TEFF_E_TIMEOUT: calls or grains were dropped, processes or components were forced to
 *       end, or the table of silos could not be written; always if the lease is lost. */
TEFF_API teff_err teff_silo_stop(teff_silo *silo, uint32_t timeout_ms);

/* teff_silo_free - free a silo; stop it first if it runs.
 * in:   silo, may be NULL. Its contexts must have been freed.
 * runs: a thread outside; blocks it while it stops. */
TEFF_API void teff_silo_free(teff_silo *silo);

/* teff_silo_address - the silo's address for other silos and clients.
 * in:   silo, started.
 * out:  borrowed, valid until the silo is freed.
 * runs: any thread. */
TEFF_API const char *teff_silo_address(const teff_silo *silo);

/* teff_silo_gateway - the address that the silo's gateway listens on.
 * in:   silo, started.
 * out:  borrowed, valid until the silo is freed; "": the silo has no gateway of its own.
 * runs: any thread. */
TEFF_API const char *teff_silo_gateway(const teff_silo *silo);

/* teff_silo_ctx - a context for the calling thread; teff_ctx_free frees it.
 * in:   silo, serving; it must outlive the context.
 * out:  NULL: it does not serve, or out of memory.
 * runs: any thread; the context is for one thread at a time. */
TEFF_API teff_ctx *teff_silo_ctx(teff_silo *silo);

/* teff_silo_processes - make a process system (teff/process.h) that runs on this silo's workers.
 * Its PIDs are valid in the whole cluster: teff_process_send and teff_process_cancel of every silo
 * reach them. Messages between two processes keep their order.
 * in:   silo, serving; opt as for teff_process_system_new; workers and sched are ignored.
 * out:  *system, owned by the silo: do not free it. Stopping the silo stops it first (cancel
 *       events, then by force after half of the timeout). On an error NULL.
 * runs: any thread.
 * errs: TEFF_E_CLOSED (not serving, or stopping), TEFF_E_EXISTS (the silo has one), TEFF_E_INVALID,
 *       TEFF_E_NOMEM. */
TEFF_API TEFF_MUST_USE teff_err teff_silo_processes(teff_silo *silo,
                                                    const teff_process_options *opt,
                                                    teff_process_system **system);

/* teff_silo_engine - make an engine (teff/engine.h) whose components run on this silo's workers and
 * may call grains (teff_component_ctx). A silo may have several.
 * in:   silo, serving; opt as for teff_engine_new; threads and sched are ignored.
 * out:  *engine, owned by the silo: do not free it; teff_engine_stop may be called. Stopping the
 *       silo stops it first. On an error NULL.
 * runs: a thread outside, but not concurrently with teff_silo_start or _stop.
 * errs: TEFF_E_CLOSED (not serving), TEFF_E_INVALID, TEFF_E_NOMEM. */
TEFF_API TEFF_MUST_USE teff_err teff_silo_engine(teff_silo *silo, const teff_engine_options *opt,
                                                 teff_engine **engine);

/* teff_silo_members - the number of silos in this silo's view of the cluster, including itself.
 * in:   silo, borrowed.
 * out:  0: the silo does not serve.
 * runs: any thread, but not concurrently with teff_silo_start. */
TEFF_API uint32_t teff_silo_members(const teff_silo *silo);

/* teff_silo_scale - change the number of workers.
 * in:   as teff_process_system_scale.
 * runs: any thread, but not concurrently with teff_silo_start or _stop.
 * errs: as teff_process_system_scale; TEFF_E_CLOSED (not running). */
TEFF_API teff_err teff_silo_scale(teff_silo *silo, uint32_t n);

/* teff_silo_sched - the scheduler's counters since the start.
 * in, out: as teff_process_sched. While the silo does not run: 0 and zeroes.
 * runs: any thread, but not concurrently with teff_silo_start or _stop. */
TEFF_API size_t teff_silo_sched(teff_silo *silo, teff_sched_metrics *all,
                                teff_sched_worker *workers, size_t max);

/* teff_silo_dump - as teff_process_system_dump, with pending calls, the grains with the longest
 * queues, the silo's processes, its engines and their components.
 * in, runs: as teff_process_system_dump, but not concurrently with teff_silo_start. */
TEFF_API void teff_silo_dump(teff_silo *silo, teff_line_fn *fn, void *arg);

/* teff_silo_main - a whole silo program: options, start, wait for SIGTERM or SIGINT, clean leave.
 * in:   argv as given to main (--help lists the options); one or more grain types, NULL-ended.
 * out:  an exit status: 0 stopped cleanly, 1 failed at run time, 2 wrong usage.
 * runs: main's thread, until the silo has left. */
TEFF_API int teff_silo_main(int argc, char **argv, teff_grain_type *type, ...)
    __attribute__((sentinel));

/* A program's own command-line option, in addition to those of teff_silo_main. */
typedef struct teff_silo_option {
    const char *name;  /* "port" for --port; not the name of an option of teff_silo_main */
    const char *value; /* its value's name in --help, "N" for --port N; NULL: it takes no value */
    const char *help;  /* its line in --help */
    /* Called for each occurrence, in the order of the command line. value stays valid; NULL: the
     * option takes none. Not TEFF_OK: wrong usage; write the reason to text, of TEFF_TEXT_MAX
     * bytes. */
    teff_err (*take)(void *arg, const char *value, char *text);
} teff_silo_option;

/* The part of a silo program besides its grains; its pointers may be NULL. All functions are called
 * on main's thread. SIGTERM, SIGINT and SIGUSR1 are blocked there before start is called, and
 * therefore also in threads that start creates: teff_silo_run() handles these signals. A silo that
 * has lost its lease comes back as a new incarnation: then stop is called, and start and "ready"
 * again. */
typedef struct teff_silo_program {
    size_t size;                     /* sizeof(teff_silo_program) */
    const teff_silo_option *options; /* ended by one without a name */
    /* Called when the silo serves, before "ready" is printed. It may make threads with contexts
     * (teff_silo_ctx) and call grains; it must not stop or free the silo. A signal that arrives
     * meanwhile is handled after start. Not TEFF_OK: the silo leaves, and text, of TEFF_TEXT_MAX
     * bytes, is printed on standard error; start must clean up, since stop is not called. */
    teff_err (*start)(void *arg, teff_silo *silo, char *text);
    /* Called once for each start that succeeded, before the silo leaves and while it still serves:
     * joins the program's threads and frees their contexts. If the silo has lost its lease, calls
     * fail here. */
    void (*stop)(void *arg, teff_silo *silo);
    void *arg; /* passed to take, start and stop */
    /* The silo's options, with its scheduler's and their hooks; borrowed. The command line changes
     * those that it names; a --seed replaces all seeds. NULL: all defaults. */
    const teff_silo_options *silo;
} teff_silo_program;

/* teff_silo_run - teff_silo_main with the program's own options, threads and contexts. To end by
 * itself, the program sends itself SIGTERM: kill(getpid(), SIGTERM).
 * in:   program, borrowed; NULL: as teff_silo_main.
 * out:  as teff_silo_main; 2 also when take fails or a size is not set, 1 when start fails.
 * runs: main's thread, until the silo has left.
 * from: Orleans' UseOrleans beside the host's own services. */
TEFF_API int teff_silo_run(int argc, char **argv, const teff_silo_program *program,
                           teff_grain_type *type, ...) __attribute__((sentinel));

typedef struct teff_client_options { /* zeroed, except size and gateways = all defaults */
    size_t size;                     /* sizeof(teff_client_options) */
    const char *cluster;             /* as for silos */
    /* Addresses of silos, NULL-ended; at least one. The client connects to all of them; a grain's
     * calls take the same one as long as the same ones are connected. */
    const char *gateways[TEFF_SEEDS_MAX];
    const char *tls_cert, *tls_ca; /* as for silos */
    teff_transport transport;
    /* Limits, as for silos: over one of them a call fails with TEFF_E_OVERLOADED at once. */
    uint64_t message_bytes_max;    /* all queued messages, and responses held; 0 = 256 MiB */
    uint32_t connection_bytes_max; /* unwritten to a gateway; 0 = 64 MiB */
    const char *secret_file;       /* the silos' client_secret_file, or secret_file if none */
} teff_client_options;

/* teff_client_connect - connect a program that is not a silo to a cluster, so that it can call
 * grains.
 * in:   opt and its strings, borrowed, copied. text, of TEFF_TEXT_MAX bytes, may be NULL.
 * out:  *client, owned; on an error NULL, and text says why.
 * runs: a thread outside; blocks it until one gateway has accepted or all have refused. They are
 *       dialled one after another, each for at most 10 s. The others are connected later, and again
 *       when they break.
 * errs: TEFF_E_INVALID, TEFF_E_UNREACHABLE, TEFF_E_REFUSED, TEFF_E_NOMEM, TEFF_E_IO (no thread). */
TEFF_API TEFF_MUST_USE teff_err teff_client_connect(const teff_client_options *opt,
                                                    teff_client **client, char *text);

/* teff_client_ctx - as teff_silo_ctx. If only one thread of the client waits, it reads the
 * connection itself; after a large read it defers the next read until it waits again, for at most
 * three milliseconds.
 * in:   client, connected; it must outlive the context.
 * out, runs: as teff_silo_ctx. */
TEFF_API teff_ctx *teff_client_ctx(teff_client *client);

/* teff_client_free - disconnect and free a client.
 * in:   client, may be NULL. Its contexts must have been freed.
 * runs: a thread outside; waits until its connections are closed. */
TEFF_API void teff_client_free(teff_client *client);

TEFF_END_C
