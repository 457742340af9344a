/* process.h - processes: state machines and fibers that live on events, addressed by PID.
 * Way:     a program, grains or another process -> [process] -> runtime/process -> sched/group
 * Threads: a process's own functions run one at a time; those of a system from any thread.
 * Source:  the "Scheduler" seed document (init, step, close); Erlang's processes */
#ifndef TEFF_PROCESS_H
#define TEFF_PROCESS_H

#include <stddef.h>
#include <stdint.h>
#include <teff/error.h>
#include <teff/sched.h>

/* A process is an object with a table of functions. It sleeps until events come, is stepped with
 * them, and asks for work by yielding commands that come back as completions:
 *
 *     static teff_err step(void *self, const teff_event *events, size_t n, teff_step *out)
 *     {
 *         if (n && events[0].kind == TEFF_EVENT_COMPLETE)
 *             return teff_step_done(out);
 *         return teff_step_yield(out, READ_FILE, 1, "/etc/motd", 9);
 *     }
 *
 * Four ways to run one, by TEFF_PROCESS_FIBER in its flags and a run function of its own:
 *   fiber, run:       run() lives on a stack of its own; waiting suspends it
 *   fiber, no run:    step() is called on a stack of its own and may wait in its middle
 *   no fiber, run:    run() holds its worker; when it waits, other processes run nested on top of
 *                     it, and when there are none the worker's place goes to another thread
 *   no fiber, no run: step() on the worker's stack: the cheapest; should it wait, as above
 * Who waits without a fiber goes on when those nested on top of it have returned: of processes that
 * wait for each other at most one may do without. */

#ifdef __cplusplus
extern "C" {
#endif

/* ---- names and events ------------------------------------------------------------------- */

/* A process anywhere in the cluster. Zeroed = nobody. A value: compare with teff_pid_is. */
typedef struct teff_pid {
    uint32_t silo, incarnation; /* both 0 in a system that belongs to no silo */
    uint32_t slot, generation;  /* a slot is used again under another generation */
} teff_pid;

static inline int teff_pid_is(teff_pid a, teff_pid b)
{
    return a.silo == b.silo && a.incarnation == b.incarnation && a.slot == b.slot &&
           a.generation == b.generation;
}

typedef enum teff_event_kind {
    TEFF_EVENT_MESSAGE = 1,  /* somebody sent: tag, data, from are the sender's */
    TEFF_EVENT_COMPLETE = 2, /* a yielded command ended: its tag, its err, its data */
    TEFF_EVENT_TIMER = 3,    /* a timer of this process ran out: its tag */
    TEFF_EVENT_CANCEL = 4,   /* the process is asked to end; it may clean up first */
    /* What it sent comes back untaken: its tag and data, err, and from, who it was for. Only where
     * the scheduler limits what waits (teff_sched_options.waiting_max). */
    TEFF_EVENT_RETURNED = 5
} teff_event_kind;

typedef struct teff_event {
    teff_event_kind kind;
    teff_err err; /* TEFF_EVENT_COMPLETE: how the command ended; TEFF_EVENT_RETURNED: why */
    uint64_t tag;
    const void *data; /* len bytes, aligned to 16; NULL when there are none */
    size_t len;
    teff_pid from; /* TEFF_EVENT_MESSAGE: who answers go to; nobody when not told */
} teff_event;

/* ---- what a process is made of ---------------------------------------------------------- */

typedef struct teff_process teff_process;               /* seen from inside its own functions */
typedef struct teff_process_system teff_process_system; /* what runs processes */
typedef struct teff_step teff_step;                     /* what one step decides */

enum { TEFF_PROCESS_FIBER = 1 /* has a stack of its own */ };

/* Constant, outlives the process. Each function runs inside a turn of the process. */
typedef struct teff_process_ops {
    const char *name;  /* for listings and reports */
    uint32_t flags;    /* TEFF_PROCESS_FIBER */
    uint32_t step_max; /* events given to one step; 0 = 64, which is also the most */
    /* The higher the earlier, with TEFF_SCHED_PRIORITY. Where the scheduler limits what waits,
     * those of the lowest are evicted: their messages go back (TEFF_EVENT_RETURNED), and one that
     * was not started yet ends with TEFF_E_OVERLOADED; the rest of their events is handled. */
    int8_t priority;
    /* First of all, once: which entry is meant, with what. NULL: any method, input ignored.
     * out:  an error ends the process. me may be kept in self. input is gone after the return. */
    teff_err (*init)(void *self, teff_process *me, const char *method, const void *input,
                     size_t len);
    /* Go on with n events, oldest first: completions, timers and cancel before messages. Called
     * once with n = 0 after init, later only with events or after teff_step_continue.
     * out:  an error ends the process. Nothing decided = teff_step_block when commands were
     *       yielded, else teff_step_idle. events and their data are gone after the return. */
    teff_err (*step)(void *self, const teff_event *events, size_t n, teff_step *out);
    /* Last of all, exactly once, however the process ends. NULL: nothing to release. */
    void (*close)(void *self);
    /* Not NULL: called once in the place of all steps; the process ends when it returns. */
    teff_err (*run)(void *self, teff_process *me);
} teff_process_ops;

/* ---- inside step: what it decides. The last decision counts. ---------------------------- */

/* teff_step_done - the process has ended. Yields still under way are given up.
 * out:  TEFF_OK, as the next five: for a return statement. */
TEFF_API teff_err teff_step_done(teff_step *out);

/* teff_step_continue - step again without waiting, after the others had their turn. */
TEFF_API teff_err teff_step_continue(teff_step *out);

/* teff_step_block - sleep until a completion, a timer or a cancel comes; messages stay in the
 * mailbox meanwhile. With no yield or timer under way the same as teff_step_idle. */
TEFF_API teff_err teff_step_block(teff_step *out);

/* teff_step_idle - sleep until any event comes, also the completion of a yield under way. */
TEFF_API teff_err teff_step_idle(teff_step *out);

/* teff_step_upgrade - become another process in place: the PID, the mailbox, timers and outstanding
 * yields stay. After the step close(self) of the old one is called, then init of the new one.
 * in:   ops as for teff_process_spawn; both may be the same as now. method, input, copied.
 * errs: TEFF_E_NOMEM; TEFF_E_INVALID when one has a fiber or a run function and the other has not:
 *       nothing was decided. */
TEFF_API teff_err teff_step_upgrade(teff_step *out, const teff_process_ops *ops, void *self,
                                    const char *method, const void *input, size_t len);

/* teff_step_yield - hand a command to the system's handler once the step has returned.
 * in:   command, a number that the system has a handler for; tag, comes back with the completion;
 *       data, copied.
 * errs: TEFF_E_NOMEM; TEFF_E_OVERLOADED: too many are under way. Nothing was yielded. */
TEFF_API teff_err teff_step_yield(teff_step *out, uint32_t command, uint64_t tag, const void *data,
                                  size_t len);

/* teff_step_process - whose step it is. */
TEFF_API teff_process *teff_step_process(teff_step *out);

/* ---- inside any function of a process --------------------------------------------------- */

TEFF_API teff_pid teff_process_pid(const teff_process *me);
TEFF_API teff_process_system *teff_process_system_of(const teff_process *me);

/* teff_process_timer - a TEFF_EVENT_TIMER with this tag after ms milliseconds, once.
 * errs: TEFF_E_NOMEM. */
TEFF_API TEFF_MUST_USE teff_err teff_process_timer(teff_process *me, uint32_t ms, uint64_t tag);

/* teff_process_start - as teff_step_yield, at once. errs: the same. */
TEFF_API TEFF_MUST_USE teff_err teff_process_start(teff_process *me, uint32_t command, uint64_t tag,
                                                   const void *data, size_t len);

/* teff_process_receive - the next event, waiting for it.
 * out:  *event; its data is good until the next receive or ask.
 * errs: TEFF_E_CLOSED: the system's stop ran out of patience: return. */
TEFF_API TEFF_MUST_USE teff_err teff_process_receive(teff_process *me, teff_event *event);

/* teff_process_ask - yield a command and wait for its completion; other events wait meanwhile.
 * out:  *reply, when not NULL: data as for receive. Returns the command's own error.
 * errs: what the handler gave; as teff_process_start; TEFF_E_CLOSED as above. */
TEFF_API TEFF_MUST_USE teff_err teff_process_ask(teff_process *me, uint32_t command,
                                                 const void *data, size_t len, teff_event *reply);

/* teff_process_sleep - let ms milliseconds pass.
 * errs: TEFF_E_CANCELLED: a cancel is waiting to be received, the time is not over; TEFF_E_NOMEM;
 *       TEFF_E_CLOSED as above. */
TEFF_API TEFF_MUST_USE teff_err teff_process_sleep(teff_process *me, uint32_t ms);

/* teff_process_pause - let the others have a turn. errs: TEFF_E_CLOSED as above. */
TEFF_API TEFF_MUST_USE teff_err teff_process_pause(teff_process *me);

/* ---- commands --------------------------------------------------------------------------- */

enum { TEFF_COMMANDS_MAX = 256 };

/* Whose completion: a value that a handler copies and keeps. It names one life of one process: when
 * that has ended, completing reaches nobody, however often its slot was used again since. */
typedef struct teff_yield {
    teff_process_system *system;
    uint32_t slot, generation;
    uint64_t serial;
} teff_yield;

typedef struct teff_command {
    uint32_t command;
    uint64_t tag;
    const void *data; /* gone when the handler returns */
    size_t len;
    teff_pid from;
    teff_yield yield;
} teff_command;

/* Runs in the process's turn: it starts the work and must not block. It, or somebody later, calls
 * teff_yield_complete once. */
typedef void teff_command_fn(void *arg, const teff_command *command);

/* teff_yield_complete - a command has ended.
 * in:   data, copied (if memory is out: err becomes TEFF_E_NOMEM).
 * runs: any thread, also inside the handler; not after the system was freed. Never blocks.
 * errs: TEFF_E_CLOSED: the process has ended; TEFF_E_NOT_FOUND: completed before. Both harmless. */
TEFF_API teff_err teff_yield_complete(teff_yield yield, teff_err err, const void *data, size_t len);

/* ---- a system of processes -------------------------------------------------------------- */

typedef struct teff_process_options { /* zeroed = all defaults */
    uint32_t workers;                 /* worker threads; 0 = one a core */
    teff_sched_options sched;         /* how they schedule */
    uint32_t processes_max;           /* alive at once; 0 = 1,000,000 */
    uint32_t mailbox_max;             /* messages waiting at one process; 0 = 10,000 */
    uint64_t mailbox_bytes;           /* and their bytes; 0 = 64 MiB */
    uint32_t yields_max;              /* commands under way at one process; 0 = 1,024 */
    int measure;                      /* take the time of each step (about 80 ns each) */
    /* After a process has ended (its close has run). On a worker; must not block. May be NULL. */
    void (*ended)(void *arg, teff_pid pid, teff_err err);
    void *arg;
} teff_process_options;

/* teff_process_system_new - worker threads that run processes.
 * in:   opt, borrowed, may be NULL.
 * errs: TEFF_E_NOMEM, TEFF_E_IO (a thread could not start), TEFF_E_INVALID (a limit is
 *       too high). */
TEFF_API TEFF_MUST_USE teff_err teff_process_system_new(const teff_process_options *opt,
                                                        teff_process_system **system);

/* teff_process_handler - who does a command. Before the first spawn.
 * in:   command, below TEFF_COMMANDS_MAX; fn and arg, borrowed for the system's life.
 * errs: TEFF_E_INVALID, TEFF_E_EXISTS. A command without handler completes as
 *       TEFF_E_UNIMPLEMENTED. */
TEFF_API TEFF_MUST_USE teff_err teff_process_handler(teff_process_system *system, uint32_t command,
                                                     teff_command_fn *fn, void *arg);

/* teff_process_spawn - start a process; its init runs soon, on a worker.
 * in:   ops, constant; self, moves to the process on success (ops->close releases it). method may
 *       be NULL (""); method and input are copied.
 * out:  *pid, when not NULL; written before the process runs.
 * runs: any thread, also inside a process.
 * errs: TEFF_E_OVERLOADED (as many are alive as may be), TEFF_E_CLOSED (stopping), TEFF_E_NOMEM,
 *       TEFF_E_INVALID (neither step nor run). */
TEFF_API TEFF_MUST_USE teff_err teff_process_spawn(teff_process_system *system,
                                                   const teff_process_ops *ops, void *self,
                                                   const char *method, const void *input,
                                                   size_t len, teff_pid *pid);

/* teff_process_send - put a message into a process's mailbox. Messages of one sender arrive in
 * their order.
 * in:   message: tag, data (copied), from; its kind and err do not count.
 * runs: any thread. Never blocks.
 * errs: TEFF_E_NOT_FOUND: there never was such a process; TEFF_E_CLOSED: it has ended;
 *       TEFF_E_OVERLOADED: its mailbox, or the queue to its silo, is full; TEFF_E_NOMEM.
 *       To another silo also TEFF_E_UNAVAILABLE: there is no way there now; TEFF_E_TOO_LARGE: more
 *       than a frame. What that silo finds (no such process, a full mailbox) nobody is told. */
TEFF_API TEFF_MUST_USE teff_err teff_process_send(teff_process_system *system, teff_pid to,
                                                  const teff_event *message);

/* teff_process_cancel - ask one process to end: it gets a TEFF_EVENT_CANCEL, once in its life.
 * errs: TEFF_E_NOT_FOUND, TEFF_E_CLOSED, to another silo the others too, as for send. */
TEFF_API teff_err teff_process_cancel(teff_process_system *system, teff_pid pid);

/* ---- looking inside --------------------------------------------------------------------- */

typedef enum teff_process_state {
    TEFF_PROCESS_IDLE = 0,    /* waits for any event */
    TEFF_PROCESS_READY = 1,   /* queued to run */
    TEFF_PROCESS_RUNNING = 2, /* a worker runs it */
    TEFF_PROCESS_BLOCKED = 3, /* waits for what it yielded */
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
    uint64_t evicted; /* messages that went back, processes that were not started */
    uint64_t dropped; /* events that arrived after their process had ended */
    uint32_t workers; /* how many of teff_process_workers */
} teff_process_stats;

/* teff_process_list - the processes alive, by slot; each line is a moment's reading.
 * out:  infos[0..max); returns how many were written. */
TEFF_API size_t teff_process_list(teff_process_system *system, teff_process_info *infos,
                                  size_t max);

TEFF_API void teff_process_stats_get(teff_process_system *system, teff_process_stats *stats);

/* teff_process_workers - what each worker did for processes. [0] counts threads that are none.
 * out:  counts[0..max); returns how many were written. */
TEFF_API size_t teff_process_workers(teff_process_system *system, teff_process_count *counts,
                                     size_t max);

/* teff_process_system_scale - run on n workers from now on: 1 .. as many as there were at first, or
 * sched.workers_max. A worker too many ends its turn; what it had queued and its timers move to
 * the others.
 * runs: any thread.
 * errs: TEFF_E_INVALID, TEFF_E_IO (the system refused a thread). */
TEFF_API teff_err teff_process_system_scale(teff_process_system *system, uint32_t n);

/* teff_process_sched - what the system's scheduler did; of a silo's processes: the silo's.
 * out:  *all, when not NULL; workers[0..max); returns how many were written.
 * runs: any thread; takes no lock. */
TEFF_API size_t teff_process_sched(teff_process_system *system, teff_sched_metrics *all,
                                   teff_sched_worker *workers, size_t max);

/* teff_process_system_dump - what the system does right now, in lines for people: workers and what
 * each runs and for how long, slots, queues, timers, the processes with the fullest mailboxes.
 * in:   fn(arg, line), for example teff_line_print with a FILE *.
 * runs: any thread, while everything runs; holds nothing up. fn runs on the calling thread. */
TEFF_API void teff_process_system_dump(teff_process_system *system, teff_line_fn *fn, void *arg);

/* ---- the end ---------------------------------------------------------------------------- */

enum { TEFF_STOP_NAMED = 8 };

typedef struct teff_stop_report {
    uint32_t told;   /* processes that were alive and got a cancel */
    uint32_t forced; /* of them: still there at the deadline, closed without their consent */
    uint32_t stuck;  /* of them: did not even let go then: a function of theirs does not return */
    uint32_t n_named;
    teff_process_info named[TEFF_STOP_NAMED]; /* the first of those forced */
} teff_stop_report;

/* teff_process_system_stop - every process gets a cancel event and may clean up, also by yields,
 * messages and timers, until the deadline; then the rest is forced: waits end as TEFF_E_CLOSED,
 * close is called. No spawns from the call on.
 * in:   timeout_ms, 0 = 10 s. report, may be NULL.
 * out:  TEFF_OK: all ended by themselves; TEFF_E_TIMEOUT: the report says what was forced.
 * runs: a thread outside; blocks it. */
TEFF_API teff_err teff_process_system_stop(teff_process_system *system, uint32_t timeout_ms,
                                           teff_stop_report *report);

/* teff_process_system_free - stops it first when that was not done. in: may be NULL. Nobody may use
 * the system or complete a yield of it any more. */
TEFF_API void teff_process_system_free(teff_process_system *system);

#ifdef __cplusplus
}
#endif
#endif
