/* process.h - processes: state machines and fibers that handle events, addressed by PID.
 * Way:     a program, grains or another process -> [process] -> runtime/process -> sched/group
 * Threads: a process's own functions run one at a time; a system's are called from any thread.
 * Source:  Erlang/OTP's erts/emulator/beam/erl_process.c, lib/stdlib/src/gen_server.erl */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <teff/error.h>
#include <teff/log.h>
#include <teff/sched.h>

/* A process is an object with a table of functions. The system calls its step function with the
 * events that have arrived. A step may issue commands; their results arrive as completion events:
 *
 *     static teff_err step(void *self, const teff_event *events, size_t n, teff_step *out)
 *     {
 *         if (n && events[0].kind == TEFF_EVENT_COMPLETE)
 *             return teff_step_done(out);
 *         return teff_step_command(out, READ_FILE, 1, "/etc/motd", 9);
 *     }
 *
 * Four ways to run one, by TEFF_PROCESS_FIBER in its flags and whether it has a run function:
 *   fiber, run:       run() is called on a fiber; waiting suspends it
 *   fiber, no run:    step() is called on a fiber and may wait inside
 *   no fiber, run:    run() is called on the worker's stack; while it waits, other processes run
 *                     nested on that stack; if none is READY, the processor goes to another thread
 *   no fiber, no run: step() is called on the worker's stack: the cheapest; if it waits, as above
 * A process without a fiber resumes only after everything nested on its stack has returned. So of
 * processes that wait for each other, at most one may lack a fiber. */

TEFF_BEGIN_C

/* ---- names and events ------------------------------------------------------------------- */

/* The address of a process in the cluster. Zeroed = none. Compare with teff_pid_equals. */
typedef struct teff_pid {
    uint32_t silo, incarnation; /* both 0 in a system that belongs to no silo */
    uint32_t slot, generation;  /* a slot is reused with another generation */
} teff_pid;

/* True if a and b are the same PID. */
static inline int teff_pid_equals(teff_pid a, teff_pid b)
{
    return a.silo == b.silo && a.incarnation == b.incarnation && a.slot == b.slot &&
           a.generation == b.generation;
}

typedef enum teff_event_kind {
    TEFF_EVENT_MESSAGE = 1,  /* a message: tag, data and from are set by the sender */
    TEFF_EVENT_COMPLETE = 2, /* a command has ended: tag, err and data */
    TEFF_EVENT_TIMER = 3,    /* a timer of this process has fired: tag */
    TEFF_EVENT_CANCEL = 4,   /* a request to end; the process may clean up first */
    /* A message that this process sent was refused by an evicted receiver, of any silo: its tag and
     * data, err; from is the receiver. Only with teff_sched_options.waiting_max. */
    TEFF_EVENT_RETURNED = 5,
    /* A message whose sender waits for a response (teff_pid_ask): tag and data are set by the
     * sender; from and call name the waiting call, for teff_pid_respond. */
    TEFF_EVENT_REQUEST = 6
} teff_event_kind;

typedef struct teff_event {
    teff_event_kind kind;
    teff_err err; /* TEFF_EVENT_COMPLETE: how the command ended; TEFF_EVENT_RETURNED: why */
    uint64_t tag;
    const void *data; /* len bytes, aligned to 16; NULL if len is 0 */
    size_t len;
    teff_pid from; /* TEFF_EVENT_MESSAGE: where to send a response; zeroed: unknown */
    uint64_t call; /* TEFF_EVENT_REQUEST: with from, the call that waits */
} teff_event;

/* ---- the functions of a process --------------------------------------------------------- */

typedef struct teff_process teff_process;               /* a process, for its own functions */
typedef struct teff_process_system teff_process_system; /* runs processes */
typedef struct teff_step teff_step;                     /* the decision of one step */
typedef struct teff_ctx teff_ctx;                       /* calls grains: teff/grain.h */

enum { TEFF_PROCESS_FIBER = 1 /* the process runs on a fiber */ };

/* Constant; must outlive the process. Each function runs inside a turn of the process. C++: no
 * exception may leave a function, as for methods of grains (teff/generated.h). */
typedef struct teff_process_ops {
    const char *name;  /* for listings and reports */
    uint32_t flags;    /* TEFF_PROCESS_FIBER */
    uint32_t step_max; /* maximum number of events per step, up to 64; 0 = 64 */
    /* With TEFF_SCHED_PRIORITY: a higher priority runs earlier. Over waiting_max, processes of the
     * lowest priority are evicted: their queued messages go back (TEFF_EVENT_RETURNED), and a
     * process whose first init was not called yet ends with TEFF_E_OVERLOADED; other events are
     * kept. */
    int8_t priority;
    /* Called first, once, with the method and input of teff_process_spawn. NULL: they are ignored.
     * out:  an error ends the process. me stays valid; input is valid until the return. */
    teff_err (*init)(void *self, teff_process *me, const char *method, const void *input,
                     size_t len);
    /* Handle n events, oldest first: completions, timers and cancel before messages. Called once
     * after init, with n = 0 if no event is there; later only with events, or after
     * teff_step_continue.
     * out:  an error ends the process. Without a decision: teff_step_block if commands were issued,
     *       else teff_step_idle. events and their data are valid until the return. */
    teff_err (*step)(void *self, const teff_event *events, size_t n, teff_step *out);
    /* Called last, exactly once, however the process ends. It must not wait. NULL: nothing to
     * release. */
    void (*close)(void *self);
    /* If not NULL: called once instead of step; the process ends when it returns. */
    teff_err (*run)(void *self, teff_process *me);
} teff_process_ops;

/* ---- decisions of a step; the last one counts ------------------------------------------- */

/* teff_step_done - end the process. Pending commands are abandoned.
 * teff_step_continue - step again, also without an event, after other READY groups have run.
 * teff_step_block - wait for a completion, a timer or a cancel; messages stay in the mailbox. If no
 * command or timer is pending: as teff_step_idle.
 * teff_step_idle - wait for any event.
 * in:   out, the step's argument.
 * out:  TEFF_OK, for a return statement.
 * runs: inside the step.
 * errs: none. */
TEFF_API teff_err teff_step_done(teff_step *out);
TEFF_API teff_err teff_step_continue(teff_step *out);
TEFF_API teff_err teff_step_block(teff_step *out);
TEFF_API teff_err teff_step_idle(teff_step *out);

/* teff_step_upgrade - replace the process's functions and object in place: the PID, the mailbox,
 * timers and pending commands stay. After the step the old close(self) is called, then the new
 * init.
 * in:   ops and self as for teff_process_spawn; either may be unchanged, and TEFF_PROCESS_FIBER or
 *       run may differ. method, input, copied.
 * runs: inside the step.
 * errs: TEFF_E_NOMEM; TEFF_E_INVALID: neither step nor run. On an error nothing was decided. */
TEFF_API teff_err teff_step_upgrade(teff_step *out, const teff_process_ops *ops, void *self,
                                    const char *method, const void *input, size_t len);

/* teff_step_command - issue a command; its handler is called after the step has returned TEFF_OK.
 * in:   command, a number with a handler in the system; tag, returned with the completion; data,
 *       copied.
 * runs: inside the step.
 * errs: TEFF_E_NOMEM; TEFF_E_OVERLOADED: too many commands are pending. The command is dropped. */
TEFF_API teff_err teff_step_command(teff_step *out, uint32_t command, uint64_t tag,
                                    const void *data, size_t len);

/* teff_step_process - the process that the step belongs to.
 * in:   out, the step's argument.
 * out:  borrowed, valid while the process lives.
 * runs: inside the step. */
TEFF_API teff_process *teff_step_process(teff_step *out);

/* ---- inside any function of a process --------------------------------------------------- */

/* teff_process_pid - the process's own PID. teff_process_system_of - the system that runs it.
 * in:   me, the calling process; also in all functions below.
 * out:  a value; borrowed.
 * runs: inside any function of the process. */
TEFF_API teff_pid teff_process_pid(const teff_process *me);
TEFF_API teff_process_system *teff_process_system_of(const teff_process *me);

/* teff_process_set_timer - send this process one TEFF_EVENT_TIMER after ms milliseconds.
 * in:   ms, milliseconds. tag, returned with the event.
 * runs: inside any function of the process.
 * errs: TEFF_E_NOMEM. */
TEFF_API TEFF_MUST_USE teff_err teff_process_set_timer(teff_process *me, uint32_t ms, uint64_t tag);

/* teff_process_command - issue a command at once.
 * in, errs: as teff_step_command. runs: inside any function of the process. */
TEFF_API TEFF_MUST_USE teff_err teff_process_command(teff_process *me, uint32_t command,
                                                     uint64_t tag, const void *data, size_t len);

/* teff_process_receive - wait for the next event and take it.
 * in:   me.
 * out:  *event; its data is valid until the next receive or ask.
 * runs: as teff_process_ask.
 * errs: TEFF_E_CLOSED: the system is stopped by force: return from the function. */
TEFF_API TEFF_MUST_USE teff_err teff_process_receive(teff_process *me, teff_event *event);

/* teff_process_ask - issue a command and wait for its completion; other events stay queued.
 * in:   as teff_step_command.
 * out:  *completion, if not NULL: the completion; its data is valid as for receive.
 * runs: inside any function of the process: suspends a process with a fiber, otherwise blocks the
 *       worker's stack.
 * errs: the command's own error; as teff_process_command; TEFF_E_CLOSED as teff_process_receive. */
TEFF_API TEFF_MUST_USE teff_err teff_process_ask(teff_process *me, uint32_t command,
                                                 const void *data, size_t len,
                                                 teff_event *completion);

/* teff_process_sleep - wait for ms milliseconds.
 * in:   ms, milliseconds.
 * runs: as teff_process_ask.
 * errs: TEFF_E_CANCELLED: the sleep ended early, because a cancel event is queued; TEFF_E_NOMEM;
 *       TEFF_E_CLOSED as teff_process_receive. */
TEFF_API TEFF_MUST_USE teff_err teff_process_sleep(teff_process *me, uint32_t ms);

/* teff_process_yield - let other READY groups run first.
 * in:   me. runs, errs: as teff_process_receive. */
TEFF_API TEFF_MUST_USE teff_err teff_process_yield(teff_process *me);

/* teff_process_ctx - the context with which this process calls grains. A call suspends the process;
 * its thread runs other groups, and the process's own events stay queued. Responses and teff_alloc
 * of the context are kept until teff_ctx_reset or the end of the process.
 * in:   me, of a silo's system (teff_silo_processes), with TEFF_PROCESS_FIBER.
 * out:  borrowed, always the same one, valid until the process ends. NULL: no fiber, a system
 *       without a silo, or out of memory.
 * runs: inside any function of the process but close. When the system is stopped by force, calls
 *       end as TEFF_E_CANCELLED. */
TEFF_API teff_ctx *teff_process_ctx(teff_process *me);

/* ---- commands --------------------------------------------------------------------------- */

enum { TEFF_COMMANDS_MAX = 256 };

/* Identifies a command's completion; a handler may copy and keep it. The generation makes it
 * invalid when the process has ended, even if the slot is reused. */
typedef struct teff_completion {
    teff_process_system *system;
    uint32_t slot, generation;
    uint64_t serial;
} teff_completion;

typedef struct teff_command {
    uint32_t command;
    uint64_t tag;
    const void *data; /* valid until the handler returns */
    size_t len;
    teff_pid from;
    teff_completion completion;
} teff_command;

/* A command's handler. Runs in the process's turn and must not block. The handler, or any thread
 * later, calls teff_command_complete once. */
typedef void teff_command_fn(void *arg, const teff_command *command);

/* teff_command_complete - report that a command has ended.
 * in:   err and data of the completion event; data, copied (out of memory: err becomes
 *       TEFF_E_NOMEM).
 * runs: any thread, also inside the handler; not after the system was freed. Never blocks.
 * errs: TEFF_E_CLOSED: the process has ended; TEFF_E_NOT_FOUND: the command was completed before.
 *       Both may be ignored. */
TEFF_API teff_err teff_command_complete(teff_completion completion, teff_err err, const void *data,
                                        size_t len);

/* ---- a system of processes -------------------------------------------------------------- */

typedef struct teff_process_options { /* zeroed, except size = all defaults */
    size_t size;                      /* sizeof(teff_process_options) */
    uint32_t workers;                 /* worker threads; 0 = one per core that
                                      * affinity and the cgroup's CPU quota allow */
    const teff_sched_options *sched;  /* of the scheduler; borrowed; NULL = all defaults */
    uint32_t processes_max;           /* alive at once; 0 = 1,000,000 */
    uint32_t mailbox_max;             /* messages queued at one process; 0 = 10,000 */
    uint64_t mailbox_bytes;           /* and their bytes; 0 = 64 MiB */
    uint32_t commands_max;            /* pending commands of one process; 0 = 1,024 */
    int measure;                      /* measure the time of each step (costs about 80 ns) */
    /* Called after a process's close, on a worker; must not block. May be NULL. */
    void (*ended)(void *arg, teff_pid pid, teff_err err);
    void *arg;
} teff_process_options;

/* teff_process_system_new - start a scheduler whose workers run processes.
 * in:   opt and opt->sched, borrowed, copied; NULL = all defaults.
 * out:  *system, owned; NULL on an error.
 * runs: a thread outside.
 * errs: TEFF_E_NOMEM, TEFF_E_IO (a thread could not start), TEFF_E_INVALID (an option is out of
 *       range; a size is not set, or a member is set that this library does not have: the log names
 *       it). */
TEFF_API TEFF_MUST_USE teff_err teff_process_system_new(const teff_process_options *opt,
                                                        teff_process_system **system);

/* teff_process_set_handler - install the handler of a command, before the first spawn.
 * in:   command, below TEFF_COMMANDS_MAX; fn and arg, borrowed for the system's life.
 * runs: any thread; one call at a time.
 * errs: TEFF_E_INVALID: command is too large, or fn is NULL; TEFF_E_EXISTS: it has a handler. A
 *       command without a handler completes as TEFF_E_UNIMPLEMENTED. */
TEFF_API TEFF_MUST_USE teff_err teff_process_set_handler(teff_process_system *system,
                                                         uint32_t command, teff_command_fn *fn,
                                                         void *arg);

/* teff_process_spawn - start a process; a worker runs its init later.
 * in:   ops, constant; self, owned by the process on success (ops->close releases it). method may
 *       be NULL (""); method and input are copied.
 * out:  *pid, if not NULL; written before the process runs.
 * runs: any thread. Inside a turn the caller continues; teff_yield after the spawn lets the new
 *       process run first, unless another worker takes it.
 * errs: TEFF_E_OVERLOADED (processes_max are alive), TEFF_E_CLOSED (stopping), TEFF_E_NOMEM,
 *       TEFF_E_INVALID (neither step nor run). */
TEFF_API TEFF_MUST_USE teff_err teff_process_spawn(teff_process_system *system,
                                                   const teff_process_ops *ops, void *self,
                                                   const char *method, const void *input,
                                                   size_t len, teff_pid *pid);

/* teff_process_spawn_on_account - as teff_process_spawn, for many processes that do one job. With
 * TEFF_SCHED_MULTILEVEL the processes of an account have their run time in common, and so go down
 * and up the levels together; other policies ignore it.
 * in:   account, any number, of this scheduler; 0: none. Two numbers that differ by a multiple of
 *       1,021 are one account. The rest as teff_process_spawn.
 * runs, errs: as teff_process_spawn.
 * from: yatp's task id. */
TEFF_API TEFF_MUST_USE teff_err teff_process_spawn_on_account(teff_process_system *system,
                                                              const teff_process_ops *ops,
                                                              void *self, const char *method,
                                                              const void *input, size_t len,
                                                              uint64_t account, teff_pid *pid);

/* teff_process_send - put a message into a process's mailbox. Messages of one sender arrive in
 * order.
 * in:   message: tag, data (copied), from; its kind and err are ignored.
 * runs: any thread. Never blocks.
 * errs: TEFF_E_NOT_FOUND: there never was such a process; TEFF_E_CLOSED: it has ended;
 *       TEFF_E_OVERLOADED: its mailbox, or the queue to its silo, is full; TEFF_E_NOMEM.
 *       To another silo also TEFF_E_UNAVAILABLE: it is not connected now; TEFF_E_TOO_LARGE: over a
 *       frame's size. Errors found on the other silo (no process, full mailbox) are not reported.
 *       */
TEFF_API TEFF_MUST_USE teff_err teff_process_send(teff_process_system *system, teff_pid to,
                                                  const teff_event *message);

/* teff_process_cancel - send a process its TEFF_EVENT_CANCEL, at most once in its life.
 * in:   pid, of any silo of the cluster.
 * runs: any thread. Never blocks.
 * errs: TEFF_E_NOT_FOUND, TEFF_E_CLOSED; to another silo all errors of teff_process_send. */
TEFF_API teff_err teff_process_cancel(teff_process_system *system, teff_pid pid);

/* teff_pid_respond - respond to a request, once; a second response, or one after the deadline, is
 * dropped. A request that its process does not respond to ends at its deadline, even if the process
 * ends in the step that got it. A request that is still queued when the process ends gets
 * TEFF_E_CLOSED.
 * in:   system, of the process. request, its from and call: a copy may be kept. err, TEFF_OK or the
 *       request's error; data, copied: the response's, or with err its text (UTF-8, cut at 511
 *       bytes).
 * runs: any thread. Never blocks.
 * errs: TEFF_E_UNAVAILABLE: the caller's silo is not connected; TEFF_E_TOO_LARGE: over a frame's
 *       size; TEFF_E_OVERLOADED; TEFF_E_NOMEM; TEFF_E_INVALID: not a request. */
TEFF_API teff_err teff_pid_respond(teff_process_system *system, const teff_event *request,
                                   teff_err err, const void *data, size_t len);

/* ---- inspection ------------------------------------------------------------------------- */

typedef enum teff_process_state {
    TEFF_PROCESS_IDLE = 0,    /* waits for any event */
    TEFF_PROCESS_READY = 1,   /* queued to run */
    TEFF_PROCESS_RUNNING = 2, /* a worker runs it */
    TEFF_PROCESS_BLOCKED = 3, /* waits for a completion, timer or cancel */
    TEFF_PROCESS_COMPLETE = 4 /* has ended */
} teff_process_state;

typedef struct teff_process_info {
    teff_pid pid;
    const char *name;
    teff_process_state state;
    uint32_t waiting; /* messages in its mailbox */
    uint64_t waiting_bytes;
    uint64_t turns;  /* steps, or resumptions of its run function */
    uint64_t events; /* given to it */
    uint64_t run_ns; /* with options.measure */
} teff_process_info;

typedef struct teff_process_count { /* of one worker */
    uint64_t turns, events, run_ns;
} teff_process_count;

typedef struct teff_process_stats {
    uint32_t alive;
    uint64_t spawned, ended;
    uint64_t refused; /* messages over a mailbox's limit */
    uint64_t evicted; /* messages returned and processes ended over waiting_max */
    uint64_t dropped; /* events after the end of their process; second completions of a command */
    uint32_t workers; /* number of elements of teff_process_worker_counts */
} teff_process_stats;

/* teff_process_list - the processes that are alive, by slot; each is read at another moment.
 * in:   infos, of max elements.
 * out:  infos[0..max); returns the number of elements written.
 * runs: any thread. */
TEFF_API size_t teff_process_list(teff_process_system *system, teff_process_info *infos,
                                  size_t max);

/* teff_process_stats_get - the system's counters since its start.
 * in:   stats, filled in.
 * runs: any thread. */
TEFF_API void teff_process_stats_get(teff_process_system *system, teff_process_stats *stats);

/* teff_process_worker_counts - each worker's counters. [0] counts threads that are not workers.
 * in:   counts, of max elements.
 * out:  counts[0..max); returns the number of elements written.
 * runs: any thread. */
TEFF_API size_t teff_process_worker_counts(teff_process_system *system, teff_process_count *counts,
                                           size_t max);

/* teff_process_system_scale - change the number of workers. A removed worker ends its current turn;
 * its queue and timers move to the others.
 * in:   n, 1 to teff_sched_options.workers_max (default: the number at the start).
 * runs: any thread.
 * errs: TEFF_E_INVALID, TEFF_E_IO (a thread could not start). */
TEFF_API teff_err teff_process_system_scale(teff_process_system *system, uint32_t n);

/* teff_process_sched_metrics - the counters of the system's scheduler; for a silo's system: the
 * silo's.
 * in:   all, may be NULL; workers, of max elements.
 * out:  *all, if not NULL; workers[0..max); returns the number of elements written.
 * runs: any thread; takes no lock. */
TEFF_API size_t teff_process_sched_metrics(teff_process_system *system, teff_sched_metrics *all,
                                           teff_sched_worker *workers, size_t max);

/* teff_process_system_dump - report the system's current activity as lines of text: workers, their
 * turns and run times, processors, queues, timers, the processes with the fullest mailboxes.
 * in:   fn(arg, line), for example teff_line_print with a FILE *.
 * runs: any thread, without stopping workers. fn runs on the calling thread. */
TEFF_API void teff_process_system_dump(teff_process_system *system, teff_line_fn *fn, void *arg);

/* ---- the end ---------------------------------------------------------------------------- */

enum { TEFF_STOP_NAMED = 8 };

typedef struct teff_stop_report {
    uint32_t cancelled; /* processes that were alive and got a cancel event */
    uint32_t forced;    /* of these: alive at the deadline and closed by force */
    uint32_t stuck;     /* of these: not closed, because one of their functions does not return */
    uint32_t n_named;
    teff_process_info named[TEFF_STOP_NAMED]; /* the first of those forced */
} teff_stop_report;

/* teff_process_system_stop - send every process a cancel event. Until the deadline processes may
 * clean up with commands, messages and timers. Then the rest is closed by force: waits end as
 * TEFF_E_CLOSED and close is called. Spawns are refused from the call on.
 * in:   timeout_ms, 0 = 10 s. report, may be NULL.
 * runs: a thread outside; blocks it. Called in a turn of the same system it aborts the process.
 * errs: only TEFF_E_TIMEOUT: *report says what was forced. */
TEFF_API teff_err teff_process_system_stop(teff_process_system *system, uint32_t timeout_ms,
                                           teff_stop_report *report);

/* teff_process_system_free - free a system; stop it first if it runs.
 * in:   system, may be NULL. No thread may use it or complete one of its commands any more.
 * runs: a thread outside; blocks it while it stops. */
TEFF_API void teff_process_system_free(teff_process_system *system);

TEFF_END_C
