/* silo.h - the parts of a silo and the steps of its life. The simulator makes silos on its own
 * platform and runs the same steps in tasks; else a thread runs them.
 * Way:     teff_silo_* (threads), tests/sim (tasks) -> [silo] -> node, store, membership, grains */
#pragma once

#include <teff/silo.h>
#include "activation/filter.h"
#include "base/log.h"
#include "call/ctx.h"
#include "node/deliver.h"

enum { TEFFI_QUEUE_BYTES_MAX = 2047 * 1024 * 1024, TEFFI_TYPES_MAX = 1024 };
enum { TEFFI_REMINDER_PERIOD_MIN_MAX_MS = 24 * 60 * 60 * 1000 };

typedef enum teffi_silo_phase {
    TEFFI_SILO_NEW = 0,
    TEFFI_SILO_STARTED, /* start has begun: some parts may exist */
    TEFFI_SILO_SERVING, /* it has joined the cluster */
    TEFFI_SILO_STOPPED  /* its parts are being freed, or are freed; it may be started again */
} teffi_silo_phase;

typedef struct teffi_seed { /* the silo whose store is used, see seed.c; its id: node.seed */
    const char *address;    /* an entry of opt.seeds; NULL: none has accepted this silo yet */
    _Atomic bool dialling;  /* a task dials the address again */
    _Atomic bool closed;    /* dial no more: this silo closes */
} teffi_seed;

enum { TEFFI_BORROWERS_MAX = 512 };

typedef struct teffi_borrower { /* a silo that has requested a write to this silo's store */
    teffi_node_id node;
    uint64_t wrote_ns; /* when it requested the last one; 0: unused */
} teffi_borrower;

typedef struct teffi_borrowers { /* borrowers.c's */
    pthread_mutex_t lock;
    teffi_borrower of[TEFFI_BORROWERS_MAX]; /* guarded by lock */
} teffi_borrowers;

struct teff_silo {
    teffi_node node;
    teffi_platform platform;
    teff_silo_options opt; /* its strings are copies in arena; opt.sched points to sched */
    teff_sched_options sched;
    teff_sched_hooks hooks; /* of sched */
    teffi_filters outgoing;
    teff_arena arena;
    teff_grain_type *types[TEFFI_TYPES_MAX];
    size_t n_types;
    teffi_seed seed;
    teffi_borrowers borrowers;           /* also node.borrowers */
    teffi_store *store;                  /* its own or a remote store; also node.store */
    teff_process_system *processes;      /* guarded by lock, except in a stop; NULL: none */
    bool refuses_processes;              /* guarded by lock; from the beginning of a stop on */
    struct teff_engine *engines;         /* guarded as processes; a list, through engine->next */
    char bound[TEFFI_ADDRESS_MAX + 1];   /* address that it listens on */
    char gateway[TEFFI_ADDRESS_MAX + 1]; /* address that its gateway listens on; "": none */
    pthread_mutex_t lock;                /* node.leaving is set under it, too */
    _Atomic teffi_silo_phase phase;      /* written by the thread that starts or stops the silo */
    teffi_node_id *clients;              /* connected clients, guarded by lock as the next two */
    size_t n_clients, clients_max;       /* the link limits the number of clients */
    _Atomic bool lost_lease;             /* since it last joined, also in an earlier start */
    struct teffi_stop_watch *watch;      /* stop_watch.c's; NULL: no stop is watched */
    /* called by the watch, instead of opt.lost; set before the start; NULL: none */
    void (*stop_hangs)(teff_silo *silo, const char *why);
    _Atomic uint32_t links; /* connections to silos that are up; exact until the first goodbye */
};

/* teffi_silo_init_platform - the platform of a silo or client on this machine:
 * teffi_platform_init_real with worker threads, nng links, store engines. */
void teffi_silo_init_platform(teffi_platform *platform, teff_log_level log_level);

/* teffi_silo_new_on_platform - as teff_silo_new, on the given platform, which is copied. */
TEFF_MUST_USE teff_err teffi_silo_new_on_platform(const teffi_platform *platform,
                                                  const teff_silo_options *opt, teff_silo **silo,
                                                  char *text);

/* teffi_silo_open - make the node and its net, listen, install the grain types. Contacts no
 * other silo.
 * errs: with text: TEFF_E_NOMEM, TEFF_E_IO, TEFF_E_INVALID (an address, certificate or secret).
 *       teffi_silo_close must follow also after an error. */
TEFF_MUST_USE teff_err teffi_silo_open(teff_silo *silo, char *text);

/* teffi_silo_join - open the store, get an identity, join the membership. out: TEFF_OK: the silo
 * serves. On an error it has left the table again, if that was possible; call teffi_silo_close. */
TEFF_MUST_USE teff_err teffi_silo_join(teff_ctx *ctx, teff_silo *silo);

/* teffi_silo_await_borrowers - wait until no member of the view uses this silo's store. Logs how
 * many do, whenever their number changes. Ends early, without an error, if this silo loses its
 * lease. errs: TEFF_E_TIMEOUT. */
TEFF_MUST_USE teff_err teffi_silo_await_borrowers(teff_ctx *ctx, teff_silo *silo,
                                                  uint64_t deadline_ns);

/* teffi_silo_leave - send clients away, end grains, leave the membership; connections stay up.
 * Takes all steps, also after an error.
 * errs: the first one, but ctx has the text of the last one; TEFF_E_TIMEOUT: some grains or calls
 *       did not end in time. */
TEFF_MUST_USE teff_err teffi_silo_leave(teff_ctx *ctx, teff_silo *silo, uint64_t deadline_ns);

/* teffi_silo_host_type - as teff_silo_host, but an error's text goes to text, of TEFF_TEXT_MAX
 * bytes. */
TEFF_MUST_USE teff_err teffi_silo_host_type(teff_silo *silo, teff_grain_type *type, char *text);

/* teffi_silo_stop_engines_and_processes - stop engines and the process system, before the silo
 * leaves. Blocks; not on a worker.
 * in:   timeout_ms, not 0: for all engines together, and again for the process system. After that
 *       each scheduler of an engine, and the process system, may take a second to end by force.
 * errs: TEFF_E_TIMEOUT: some components or processes were forced to end; the log names the first of
 *       each engine and of the process system. */
teff_err teffi_silo_stop_engines_and_processes(teff_silo *silo, uint32_t timeout_ms);

/* teffi_silo_print_engines_and_processes - report processes, engines and their components as lines.
 * runs: any thread between teffi_home_enter and _exit. */
void teffi_silo_print_engines_and_processes(teff_silo *silo, const teffi_lines *to);

/* teffi_silo_free_engines_and_processes - free engines and the process system. Call it after they
 * were stopped and the executor was freed. After the next start, the program may make new ones. */
void teffi_silo_free_engines_and_processes(teff_silo *silo);

/* teffi_silo_close - send goodbye, stop every part, free the executor; a watch measures what
 * follows the goodbye. Not on a worker. in: timeout_ms, for the goodbye; 0: none is sent. errs: of
 * the goodbye. */
teff_err teffi_silo_close(teff_silo *silo, uint32_t timeout_ms);

/* teffi_stop_watch_begin - from now on, measure the time of a stop: after opt.stop_ms, log which
 * turns run, and call stop_hangs or opt.lost once, on a thread of the watch. No-op if the executor
 * lacks the op turns.
 * teffi_stop_watch_end - end this, and wait for the functions called. No-op without a watch. */
void teffi_stop_watch_begin(teff_silo *silo);
void teffi_stop_watch_end(teff_silo *silo);

/* teffi_silo_set_authorize - make the node ask the program's function, if there is one, before it
 * delivers a client's call (authorize.c). in: the silo's node was initialized. */
void teffi_silo_set_authorize(teff_silo *silo);

/* For silos and clients:
 * teffi_node_net_new - make the node's net. in: opt, with the user's options; the members
 * that depend on the node are set here. errs: with text.
 * teffi_node_wait_for_tasks - wait until all tasks of a closing silo or client have
 * ended, also those of transactions. */
TEFF_MUST_USE teff_err teffi_node_net_new(teffi_node *node, const teffi_net_options *opt,
                                          char *text);
void teffi_node_wait_for_tasks(teffi_node *node);

/* teffi_borrowers_record_write - record that another silo has requested a write to this silo's
 * store. The silo may be a stranger: with the write, it joins. If more than TEFFI_BORROWERS_MAX
 * silos write, those whose last writes are the oldest are forgotten.
 * teffi_borrowers_count - how many members of the view use this silo's store? Those that have
 * requested a write in the time of their lease. */
void teffi_borrowers_record_write(teffi_node *node, teffi_node_id silo);
size_t teffi_borrowers_count(teffi_node *node);

/* teffi_seed_dial - dial the seeds of the options in order until one accepts. out: *peer, its
 * hello; silo->seed.address and node.seed are set. errs: of the last dial; text in ctx.
 * teffi_seed_dial_again - dial the seed's address in a task, until it accepts; node->seed becomes
 * the incarnation that has accepted. Does nothing if the task runs already, or if
 * !teffi_seed_may_return().
 * teffi_seed_may_return - is it useful to wait for the seed? No if this silo closes, or has lost
 * its lease. */
TEFF_MUST_USE teff_err teffi_seed_dial(teff_ctx *ctx, teff_silo *silo, teffi_hello *peer);
void teffi_seed_dial_again(teffi_node *node, teffi_seed *seed);
bool teffi_seed_may_return(const teffi_node *node, const teffi_seed *seed);

/* The seed's store, used by a silo that joined through the seed (remote_store.c). Each operation is
 * one request, which is sent again if it certainly has not run, and reads if the request of a write
 * gets no response; nothing is cached.
 * teffi_remote_store_set_handler - the server: from now on, node handles requests to
 * TEFFI_SLOT_STORE, by operations on node->store. It refuses what the sender may not request, see
 * teffi_outsiders_check_store_op(). in: node has a membership; borrowers, borrowed: where the
 * senders of writes are recorded.
 * teffi_remote_store_new - the client: a store whose operations are requests to node->seed. in:
 * seed, borrowed. out: NULL: out of memory. */
void teffi_remote_store_set_handler(teffi_node *node, teffi_borrowers *borrowers);
teffi_store *teffi_remote_store_new(teffi_node *node, teffi_seed *seed);
