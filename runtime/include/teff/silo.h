/* silo.h - silos, which host grains, and clients, which call grains from other programs.
 * Way:     main -> [silo | client] -> grains/silo -> everything else
 * Threads: any thread may use a silo or client; a context belongs to one thread. The functions new,
 *          host, start, stop and free of one silo must not be called at the same time. "A thread
 *          outside" is one that the program has made, and that runs no turn.
 * Forks:   a child of fork() must not use or free silos and clients of its parent. If the parent
 *          had made none, the child may make its own; otherwise it may only call exec or _exit. */
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

/* The part of teff that reads and writes connections. All transports send the same bytes, so silos
 * and clients of one cluster may use different ones. */
typedef enum teff_transport {
    TEFF_TRANSPORT_DEFAULT = 0, /* nng; without TLS: the build's -Dtransport, nng by default */
    TEFF_TRANSPORT_NNG,         /* nng's own threads read and write; with or without TLS */
    TEFF_TRANSPORT_REACTOR      /* workers that are idle wait on the sockets; without TLS */
} teff_transport;

struct teff_key;
struct teff_filter;

/* A client's call, as teff_silo_options.authorize gets it. Texts, key and certificate are valid
 * until that function returns. */
typedef struct teff_client_call {
    size_t size;     /* of this struct in the library: a newer library may have more members */
    uint64_t client; /* the client's id, which the client draws at random: an id tells clients
                      * apart, but does not prove who a client is (see certificate) */
    int gateway;     /* 1: the silo has a gateway, and the client is connected there */
    int tls;         /* 1: the client has a certificate, at a gateway of tls_client_ca, otherwise
                      * of tls_ca */
    int secret;      /* 1: the client has proved that it knows the secret for clients */
    int one_way;     /* 1: the client does not wait for a response */
    /* type is NULL if this silo does not host the type. method is NULL if type is, or if this silo
     * does not know the method. Such a call may be passed on to another silo, which knows both. A
     * program that does not want this must refuse the call. */
    const char *type, *method; /* full names: "words.Word", "words.Word.Add" */
    uint32_t type_id, method_id;
    const struct teff_key *key; /* teff/generated.h; NULL if type is NULL */
    const void *key_bytes;      /* the key as it is on the wire */
    size_t key_len;
    /* SHA-256 of the public key of the client's certificate, 32 bytes. The client has proved that
     * it owns the private key, so this says who it is. NULL: it has no certificate (no TLS), or is
     * of a build of teff that does not show it. */
    const unsigned char *certificate;
} teff_client_call;

typedef struct teff_silo_options { /* zeroed, except size = all defaults */
    size_t size;                   /* sizeof(teff_silo_options) */
    const char *cluster;           /* id: 1 to 64 characters of [A-Za-z0-9._-]; NULL = "dev" */
    /* "host:port", "[v6]:port" (port 0: any free port) or "unix:/path"; NULL = "127.0.0.1:0". If
     * the address means all interfaces (0.0.0.0, [::]), advertise must be set. */
    const char *listen;
    const char *advertise; /* address for other silos and clients; NULL = listen's, as bound */
    /* "memory", "sqlite:FILE", "postgres:DATABASE", "redis:HOST:PORT[/NAME][?OPTIONS]",
     * "etcd://HOST:PORT[,HOST:PORT..][/NAME][?OPTIONS]", options as in README; NULL = "memory".
     * With seeds it must be NULL: the seed's store is used. */
    const char *store;
    /* Addresses of running silos; unused ones are NULL. The silo uses the store of the first one
     * that accepts it. If this seed is restarted at its address, the silo uses its store again; if
     * that takes longer than the lease, or the rows are lost, this silo loses its lease. */
    const char *seeds[TEFF_SEEDS_MAX];
    uint32_t workers;                /* worker threads; 0 = one per core that
                                      * affinity and the cgroup's CPU quota allow */
    const teff_sched_options *sched; /* of the silo's scheduler; borrowed; NULL = all defaults */
    const char *tls_cert;            /* PEM file: certificate and key; NULL = no TLS */
    const char *tls_ca; /* PEM file: the CA of peers' certificates; needed with tls_cert */
    teff_transport transport;
    int insecure; /* allow listening beyond loopback without TLS */
    int silent;   /* log warnings and errors only */
    /* How long the silo serves after its last heartbeat in the store: 500 to 600,000 ms; 0 =
     * 10,000. If its heartbeat has not changed for 1.5 times the lease (1.05 times if its
     * connection broke), the other silos declare the silo dead, and activate its grains. A shorter
     * lease makes this sooner, but then a shorter pause of the silo, or a shorter outage of the
     * store, makes the silo stop serving. */
    uint32_t lease_ms;
    /* How much longer than its lease the silo serves while it cannot reach the store, if a majority
     * of all silos, itself included, cannot reach the store: up to 600,000 ms; 0: no longer.
     * Meanwhile grains respond from memory, and saves fail. All silos must have the same value, and
     * a build that knows this option. The other silos must then agree to a silo's death: it is
     * declared dead after the usual time if at least half of the cluster's silos agree (the silent
     * silo is one of the cluster's, but does not agree), else 1.05 times outage_ms later. Must be 0
     * with seeds. */
    uint32_t outage_ms;
    /* Called at most twice between a start and the end of the next stop, on a thread of the silo.
     * Once when the silo has lost its lease: it could not reach the store or other silos for too
     * long, the cluster has declared it dead, or its workers were stuck for stuck_ms. The silo then
     * sends no responses, saves nothing, and closes its connections. Afterwards the program calls
     * teff_silo_stop (which in this case does not leave the cluster), frees its contexts, and may
     * call teff_silo_start, so that the silo joins again as a new incarnation. Once if a stop has
     * waited for stop_ms; see there. lost must not block or call functions of the silo. NULL: no
     * function is called. teff_silo_main and teff_silo_run do all this by themselves. */
    void (*lost)(void *lost_arg, const char *why);
    void *lost_arg;
    /* Limits in bytes. A call for which there is no room fails with TEFF_E_OVERLOADED at once.
     * message_bytes_max does not apply to responses; for them twice connection_bytes_max is the
     * limit. 0 = the default; with the defaults a silo fits into a container of 1 GiB. */
    uint64_t message_bytes_max;    /* all messages queued or running here; 0 = 256 MiB */
    uint32_t grain_bytes_max;      /* requests queued at one grain; 0 = 16 MiB */
    uint32_t connection_bytes_max; /* waiting to be sent to one peer; 0 = 64 MiB */
    /* An address for clients only, in the form of listen; NULL = none. With it, every peer that
     * connects there is a client, and listen's address accepts silos only. Without it, listen's
     * address accepts both, and a peer says by itself whether it is a silo: SECURITY.md. */
    const char *gateway;
    /* PEM file: the CA of clients' certificates. Must be set if gateway and TLS are used, and only
     * then. This CA must not sign certificates of silos, and tls_ca none of clients. Clients check
     * the silo's certificate with tls_ca. */
    const char *tls_client_ca;
    /* Files with secrets of 16 to 1024 bytes, which are read at each start; NULL = none. Only peers
     * that prove in the handshake that they know the secret are accepted. If client_secret_file is
     * set, clients must know its secret, and silos that of secret_file, which must also be set. A
     * file that everybody may read or write, not only owner and group, is refused. Without TLS,
     * what follows the handshake is not protected. */
    const char *secret_file, *client_secret_file;
    /* Called before a call of a client that is connected to this silo is delivered, also if the
     * grain is on another silo. Not called for calls of grains, processes and threads of silos, nor
     * for a call that is refused because its key is not of its type's kind. out: 0: the call fails
     * with TEFF_E_REFUSED, and nothing is activated; a one-way message is dropped. Any other value
     * allows the call. Runs on threads of the silo, on several at a time: it must not block or call
     * functions of the silo. NULL: clients may call all grains. */
    int (*authorize)(void *authorize_arg, const teff_client_call *call);
    void *authorize_arg;
    /* How many grains may be active on this silo; 0 = no limit. If more are active, the least
     * recently used ones that are idle are deactivated (TEFF_REASON_LIMIT), until a sixteenth less
     * than activations_max is active. A grain is not deactivated while it has a turn or a request,
     * while a transaction has locked it, or during a delay (teff_delay_deactivation). Until others
     * have ended, a quarter more than activations_max may be active, and one: so calls to new
     * grains do not wait for that. Beyond this, a call to a grain that is not active fails with
     * TEFF_E_OVERLOADED at once. */
    uint32_t activations_max;
    /* 10 to 100: if the memory that the silo's cgroup uses reaches this percentage of its limit,
     * the least recently used grains that are idle are deactivated (TEFF_REASON_MEMORY), a part of
     * them each second, until five points less are used. While more than these five points less are
     * used, this also begins if threads of the cgroup have waited for memory for a tenth of the
     * last 10 s (the kernel's PSI). Which grains stay is as for activations_max. No call is
     * refused. If a cgroup above is nearer to its limit, that one counts. If none has a limit,
     * nothing is done. 0: off. */
    uint32_t memory_percent;
    /* If each worker is in a turn that does not end, no other grain of the silo is served. When no
     * worker has taken any work for so long, although work waits, the silo gives its lease up (see
     * lost), so that its grains are activated on other silos. Turns in blocking regions
     * (teff_blocking_begin) do not count, as long as threads_max allows other threads to take their
     * workers' places. Must be longer than 128 turns of one grain, one after the other, that block
     * their thread or compute without calling teff; at least lease_ms; 0 = 3,600,000 (an hour).
     * teff_silo_stop still waits for such turns, see stop_ms; teff_silo_main and teff_silo_run end
     * the process at once, with status 1, without calling stop, unless they had begun to stop
     * before. */
    uint32_t stuck_ms;
    /* The shortest period of a reminder (teff/reminder.h) that grains on this silo may register, in
     * ms: up to a day; 0 = 60,000. Each tick reads and writes a row. */
    uint32_t reminder_period_min_ms;
    /* A stop first takes steps that have time limits (teff_silo_stop's timeout_ms). Then it waits
     * until no turn and no task of the silo runs, the store has ended its operations, and no thread
     * of the program is in a call, because all of them use the silo's memory. If that takes longer
     * than stop_ms (0 = 30,000), the log names the turns, if any run, or counts the tasks and the
     * threads in calls. After that, teff_silo_main and teff_silo_run end the process with status 1.
     * In other programs, `lost` is called, with a text that says what the stop waits for, and
     * teff_silo_stop waits on: only the end of the process ends such turns. The same holds for the
     * stop of a silo whose start has failed. */
    uint32_t stop_ms;
    /* Filters of all calls of grains' methods on this silo, and of the calls that its turns,
     * threads and processes make (teff/filter.h): arrays that end with a filter without functions,
     * of at most TEFF_FILTERS_MAX; borrowed until the silo is freed. NULL: none. */
    const struct teff_filter *incoming, *outgoing;
} teff_silo_options;

/* teff_silo_new - make a silo; teff_silo_start starts it.
 * in:   opt, with its strings and sched: borrowed, copied; NULL = all defaults.
 * out:  *silo; on an error NULL, and text (of TEFF_TEXT_MAX bytes, may be NULL) names the option.
 * runs: any thread.
 * errs: TEFF_E_INVALID, TEFF_E_NOMEM. */
TEFF_API TEFF_MUST_USE teff_err teff_silo_new(const teff_silo_options *opt, teff_silo **silo,
                                              char *text);

/* teff_silo_host - host a grain type. Call it before teff_silo_start. On an error the log says why.
 * in:   type, owned by the silo on success.
 * runs: any thread; one call at a time.
 * errs: TEFF_E_EXISTS (the silo hosts a type with this name, or with the same id), TEFF_E_INVALID
 *       (type is NULL, the silo was started before, or it has too many types), TEFF_E_NOMEM (memory
 *       was out when the type was made). */
TEFF_API TEFF_MUST_USE teff_err teff_silo_host(teff_silo *silo, teff_grain_type *type);

/* teff_silo_start - listen, join the cluster, serve. Blocks the thread until the silo is active.
 * in:   silo, new or stopped; its contexts must have been freed. A silo that was stopped joins
 *       again at the same address, as a new incarnation. text, as in teff_silo_new.
 * runs: a thread outside.
 * errs: the start may be tried again: TEFF_E_IO (the address is in use, or the store failed),
 *       TEFF_E_UNREACHABLE (no seed was reached, or a silo of the cluster is alive, but was not
 *       reached), TEFF_E_REFUSED, TEFF_E_TIMEOUT, other errors of the store. Besides:
 *       TEFF_E_INVALID (the silo runs already, or a file with a certificate or secret cannot be
 *       used), TEFF_E_NOMEM. text says why. */
TEFF_API TEFF_MUST_USE teff_err teff_silo_start(teff_silo *silo, char *text);

/* teff_silo_stop - leave the cluster cleanly: grains move to other silos, pending calls end, then
 * the silo closes. If other silos use this silo's store (their option seeds), it serves until they
 * have left, and leaves then. A second stop does nothing.
 * in:   timeout_ms: for the wait for these silos; then again: calls and grains that are left after
 *       this time are dropped: the silo ends its lease, so that the turns that still run send no
 *       responses and save nothing. 0 = 30 s.
 * runs: a thread outside; blocks it. If it is called in a turn of the same silo, the process
 *       aborts.
 * errs: only TEFF_E_TIMEOUT: calls or grains were dropped, processes or components were ended by
 *       force, the table of silos could not be written, other silos still used this silo's store,
 *       or the silo had lost its lease. */
TEFF_API teff_err teff_silo_stop(teff_silo *silo, uint32_t timeout_ms);

/* teff_silo_free - free a silo. A silo that runs is stopped first.
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

/* teff_silo_new_ctx - a context for the calling thread; teff_ctx_free frees it.
 * in:   silo, serving; it must outlive the context.
 * out:  NULL: the silo does not serve, or memory is out.
 * runs: any thread; the context is for one thread at a time. */
TEFF_API teff_ctx *teff_silo_new_ctx(teff_silo *silo);

/* teff_silo_processes - make a process system (teff/process.h) that runs on this silo's workers.
 * Its PIDs are valid in the whole cluster: teff_process_send and teff_process_cancel of every silo
 * reach them. Messages between two processes keep their order.
 * in:   silo, serving; opt as for teff_process_system_new, but its workers and sched are ignored.
 * out:  *system, owned by the silo: do not free it. A silo that stops ends the system first: its
 *       processes get cancel events, and after half of the timeout they are ended by force. On an
 *       error *system is NULL.
 * runs: any thread.
 * errs: TEFF_E_CLOSED (not serving, or stopping), TEFF_E_EXISTS (the silo has one), TEFF_E_INVALID,
 *       TEFF_E_NOMEM. */
TEFF_API TEFF_MUST_USE teff_err teff_silo_processes(teff_silo *silo,
                                                    const teff_process_options *opt,
                                                    teff_process_system **system);

/* teff_silo_make_engine - make an engine (teff/engine.h) whose components run on this silo's
 * workers and may call grains (teff_component_ctx). A silo may have several.
 * in:   silo, serving; opt as for teff_engine_new, but its threads and sched are ignored.
 * out:  *engine, owned by the silo: do not free it. You may call teff_engine_stop; otherwise a silo
 *       that stops also stops the engine, before it leaves. On an error *engine is NULL.
 * runs: a thread outside, but not concurrently with teff_silo_start or _stop.
 * errs: TEFF_E_CLOSED (not serving), TEFF_E_INVALID, TEFF_E_NOMEM. */
TEFF_API TEFF_MUST_USE teff_err teff_silo_make_engine(teff_silo *silo,
                                                      const teff_engine_options *opt,
                                                      teff_engine **engine);

/* teff_silo_members - the number of active silos in this silo's view of the cluster. Silos that are
 * leaving are not counted.
 * in:   silo, borrowed.
 * out:  0: the silo does not serve.
 * runs: any thread, but not concurrently with teff_silo_start. */
TEFF_API uint32_t teff_silo_members(const teff_silo *silo);

/* teff_silo_scale - change the number of workers.
 * in:   as teff_process_system_scale.
 * runs: any thread, but not concurrently with teff_silo_start or _stop.
 * errs: as teff_process_system_scale; TEFF_E_CLOSED (not running). */
TEFF_API teff_err teff_silo_scale(teff_silo *silo, uint32_t n);

/* teff_silo_sched_metrics - the scheduler's counters since the start.
 * in, out: as teff_process_sched_metrics. While the silo does not serve: returns 0, and zeroes
 * *all.
 * runs: any thread, but not concurrently with teff_silo_start or _stop. */
TEFF_API size_t teff_silo_sched_metrics(teff_silo *silo, teff_sched_metrics *all,
                                        teff_sched_worker *workers, size_t max);

/* teff_silo_dump - write the silo's status line by line, as teff_process_system_dump, with pending
 * calls, the grains with the longest queues, the silo's processes, its engines and their
 * components.
 * in, runs: as teff_process_system_dump, but not concurrently with teff_silo_start. */
TEFF_API void teff_silo_dump(teff_silo *silo, teff_line_fn *fn, void *arg);

/* teff_silo_main - run a whole silo program: parse the options, start the silo, wait for SIGTERM or
 * SIGINT, leave the cluster.
 * in:   argv as given to main (--help lists the options); one or more grain types, then NULL.
 * out:  an exit status: 0 stopped cleanly, 1 failed at run time, 2 wrong usage. Does not return if
 *       the silo's workers are stuck (stuck_ms): the process ends with status 1.
 * runs: main's thread, until the silo has left. */
TEFF_API int teff_silo_main(int argc, char **argv, teff_grain_type *type, ...)
    __attribute__((sentinel));

/* A program's own command-line option, in addition to those of teff_silo_main. */
typedef struct teff_silo_option {
    const char *name;  /* "port" for --port; not the name of an option of teff_silo_main */
    const char *value; /* its value's name in --help: "N" for --port N; NULL: it has no value */
    const char *help;  /* its line in --help */
    /* Called for each occurrence of the option, in the order of the command line. value stays
     * valid; it is NULL if the option takes no value. If take returns an error, the program ends
     * with status 2 (wrong usage); take should write the reason to text, of TEFF_TEXT_MAX bytes. */
    teff_err (*take)(void *arg, const char *value, char *text);
} teff_silo_option;

/* What a silo program has besides its grains; each pointer may be NULL. All functions are called on
 * main's thread. SIGTERM, SIGINT and SIGUSR1 are blocked there before start is called, and
 * therefore also in threads that start creates: teff_silo_run() handles these signals. If the silo
 * has lost its lease, it joins again as a new incarnation: stop is called, then start, and "ready"
 * is printed again. */
typedef struct teff_silo_program {
    size_t size;                     /* sizeof(teff_silo_program) */
    const teff_silo_option *options; /* ended by one without a name */
    /* Called when the silo serves, before "ready" is printed. It may make threads with contexts
     * (teff_silo_new_ctx) and call grains; it must not stop or free the silo. A signal that arrives
     * while it runs is handled after it. If it returns an error, the silo leaves, and text, of
     * TEFF_TEXT_MAX bytes, is printed on standard error. stop is not called then, so start must
     * itself undo what it has done. */
    teff_err (*start)(void *arg, teff_silo *silo, char *text);
    /* Called once for each start that succeeded, before the silo leaves. It must join the program's
     * threads and free their contexts. The silo still serves, unless it has lost its lease: then
     * calls fail. */
    void (*stop)(void *arg, teff_silo *silo);
    void *arg; /* passed to take, start and stop */
    /* The silo's options, also those of its scheduler and the hooks; borrowed. Options on the
     * command line replace these; one --seed replaces all seeds. NULL: all defaults. */
    const teff_silo_options *silo;
} teff_silo_program;

/* teff_silo_run - teff_silo_main with the program's own options, threads and contexts. A program
 * that wants to end by itself sends itself SIGTERM: kill(getpid(), SIGTERM).
 * in:   program, borrowed; NULL: as teff_silo_main.
 * out:  as teff_silo_main; 2 also if take fails or a size is not set, 1 also if start fails.
 * runs: main's thread, until the silo has left.
 * from: Orleans' UseOrleans, in a host that has services of its own. */
TEFF_API int teff_silo_run(int argc, char **argv, const teff_silo_program *program,
                           teff_grain_type *type, ...) __attribute__((sentinel));

typedef struct teff_client_options { /* zeroed, except size and gateways = all defaults */
    size_t size;                     /* sizeof(teff_client_options) */
    const char *cluster;             /* as for silos */
    /* Addresses of silos, at least one; unused ones are NULL. The client connects to all of them.
     * The calls of one grain all take the same gateway, until the set of connected gateways
     * changes. */
    const char *gateways[TEFF_SEEDS_MAX];
    const char *tls_cert, *tls_ca; /* as for silos */
    teff_transport transport;
    /* Limits, as for silos: over one of them a call fails with TEFF_E_OVERLOADED at once. */
    uint64_t message_bytes_max;         /* messages that are queued or not freed yet; 0 = 256 MiB */
    uint32_t connection_bytes_max;      /* waiting to be sent to a gateway; 0 = 64 MiB */
    const char *secret_file;            /* as the silos' client_secret_file, else as secret_file */
    const struct teff_filter *outgoing; /* as for silos */
} teff_client_options;

/* teff_client_connect - connect a program that is not a silo to a cluster, so that it can call
 * grains.
 * in:   opt and its strings, borrowed, copied. text, of TEFF_TEXT_MAX bytes, may be NULL.
 * out:  *client, owned; on an error NULL, and text says why.
 * runs: a thread outside; blocks it until one gateway has accepted the client, or all have failed.
 *       The gateways are dialled one after another, for at most 10 s each. The remaining ones are
 *       connected later, while the client is used. A connection that breaks is made again.
 * errs: TEFF_E_INVALID, TEFF_E_UNREACHABLE, TEFF_E_REFUSED, TEFF_E_NOMEM, TEFF_E_IO (no thread). */
TEFF_API TEFF_MUST_USE teff_err teff_client_connect(const teff_client_options *opt,
                                                    teff_client **client, char *text);

/* teff_client_new_ctx - make a context for the calling thread, as teff_silo_new_ctx. If only one
 * thread of the client waits for responses, that thread reads the connection itself. After a large
 * read, the next read is deferred until the thread waits again, for at most three milliseconds.
 * in:   client, connected; it must outlive the context.
 * out, runs: as teff_silo_new_ctx. */
TEFF_API teff_ctx *teff_client_new_ctx(teff_client *client);

/* teff_client_free - disconnect and free a client.
 * in:   client, may be NULL. Its contexts must have been freed.
 * runs: a thread outside; waits until its connections are closed, and until the callbacks of its
 *       observers have returned: their calls may take until their time-outs. */
TEFF_API void teff_client_free(teff_client *client);

TEFF_END_C
