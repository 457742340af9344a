/* turn.h - turns of a process: what starts them, steps, and waits in the middle of a function.
 * Way:     the group -> turn -> init, step | receive, ask, sleep, yield -> wait -> suspend | run
 *          other groups nested | sleep
 * Threads: the process's turn, on the worker's stack or the process's fiber; start: any. */
#pragma once

#include "process/process.h"

extern const teffi_group_ops teffi_process_group_ops, teffi_process_kept_group_ops;

typedef struct teffi_start {
    const void *input;
    size_t len, bytes_len;
    _Alignas(16) char bytes[]; /* method, its zero byte, input */
} teffi_start;

/* teffi_start_args_new - copy the arguments of init. in: method, may be NULL. out: *start: the
 * copy; NULL if there is neither a method nor an input. errs: TEFF_E_NOMEM. */
TEFF_MUST_USE teff_err teffi_start_args_new(const char *method, const void *input, size_t len,
                                            teffi_start **start);

/* teffi_start_args_free - in: may be NULL. */
void teffi_start_args_free(teffi_start *start);

struct teff_step {
    teff_process *process;
    teffi_process_status status;
    bool decided, done;
    struct teffi_command *first, *last; /* issued; NULL: none */
    const teff_process_ops *upgrade;    /* NULL: no */
    void *upgrade_self;
    struct teffi_start *upgrade_start;
};

/* teffi_process_run_step - run one step with events from the process's lists; sets status and
 * over. */
void teffi_process_run_step(teff_process *p);

/* teffi_step_end - after ops->step: free its events (RETRY: put the event back), apply its
 * decision, dispatch its commands.
 * in:   given: the step's events. err: what ops->step returned; on an error, the commands are freed
 *       instead. */
void teffi_step_end(teff_process *p, teffi_events given, teff_step *out, teff_err err);

/* teffi_step_set_retry - a decision: run the step again with the same event, after a poke, or with
 * a cancel alone. For processes with step_max 1. */
teff_err teffi_step_set_retry(teff_step *out);

/* teffi_process_has_work_slow - slow path of teffi_process_has_work. */
bool teffi_process_has_work_slow(const teff_process *p);

/* teffi_process_has_work - does the process have an event that it may handle in its present status,
 * or another reason to run a turn? */
static inline bool teffi_process_has_work(const teff_process *p)
{
    bool awaits_any = p->status == TEFFI_STATUS_IDLE && !p->forced && !p->cancel;
    return awaits_any ? p->urgent.head || p->mail.head : teffi_process_has_work_slow(p);
}

/* What a process waits for; on the stack of the function that waits. */
typedef struct teffi_waiting {
    /* Is the wait over? Runs in the process's turn, also on the worker's stack; must not wait. */
    bool (*ready)(teff_process *p, struct teffi_waiting *waiting);
    void *arg;
    bool blocked;              /* the group rests as BLOCKED, since messages do not end the wait */
    const teffi_event *awaits; /* the event that is stored in arrived, not in the lists; or NULL */
    teffi_event *arrived;      /* that event once it has arrived; else NULL */
} teffi_waiting;

/* teffi_process_wait - wait until waiting->ready() is true. ready() is called again after items
 * were taken off the group. runs: inside the process's own functions, without locks.
 * errs: TEFF_E_CLOSED: the process is being forced to end, and ready() is false. */
TEFF_MUST_USE teff_err teffi_process_wait(teff_process *p, teffi_waiting *waiting);

/* teffi_process_requeue - push the item that makes the group run again, unless it is queued. */
void teffi_process_requeue(teff_process *p);
