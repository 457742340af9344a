/* system.c - systems of processes: options, memory, spawn. */
#include "process/process.h"

#include <stdlib.h>
#include <string.h>
#include "base/options.h"
#include "process/count.h"
#include "process/send.h"
#include "process/turn.h"
#include "sched/exec.h"
#include "sched/policy/level.h"

enum {
    PROCESSES_MAX = 1000000,
    MAILBOX_MAX = 10000,
    MAILBOX_LIMIT = 1 << 22, /* send.h counts to 1 << 24: many senders may exceed it at once */
    COMMANDS_MAX = 1024
};

static const uint64_t mailbox_bytes = 64ull << 20, mailbox_bytes_limit = 1ull << 38;

/* Checks the program's options and copies them. out: false: they are invalid; text says why. */
static bool check_and_copy_process_options(teff_process_options *to,
                                           const teff_process_options *from, char *text)
{
    return teffi_options_check_and_copy(to, sizeof *to, from, "teff_process_options", text);
}

/* Logs why options are refused. out: always TEFF_E_INVALID. */
static teff_err refuse_options(const teffi_platform *platform, const char *text)
{
    teffi_logf(&platform->log, TEFF_LOG_ERROR, "%s", text);
    return TEFF_E_INVALID;
}

/* Replaces each option that is 0 by its default. */
static void fill_in_default_options(teff_process_options *opt)
{
    opt->processes_max = teffi_or_default(opt->processes_max, PROCESSES_MAX);
    opt->mailbox_max = teffi_or_default(opt->mailbox_max, MAILBOX_MAX);
    opt->mailbox_bytes = opt->mailbox_bytes ? opt->mailbox_bytes : mailbox_bytes;
    opt->commands_max = teffi_or_default(opt->commands_max, COMMANDS_MAX);
}

static bool options_are_in_range(const teff_process_options *opt)
{
    return opt->processes_max < TEFFI_PROCESS_BIT && opt->mailbox_max <= MAILBOX_LIMIT &&
           opt->mailbox_bytes <= mailbox_bytes_limit;
}

static const teffi_process_words process_words = {"process", "processes", false};

/* out: NULL: no memory. */
static teff_process_system *system_new(teffi_exec *exec, const teff_process_options *opt)
{
    teff_process_system *system = calloc(1, sizeof *system);
    if (!system)
        return NULL;
    system->opt = *opt;
    system->exec = exec;
    system->words = &process_words;
    system->n_cells = exec->workers + 1;
    size_t cells_bytes = system->n_cells * sizeof *system->cells;
    system->cells = aligned_alloc(_Alignof(teffi_cell), cells_bytes);
    if (!system->cells || !teffi_slots_init(system)) {
        free(system->cells);
        free(system);
        return NULL;
    }
    memset(system->cells, 0, cells_bytes);
    pthread_mutex_init(&system->lock, NULL);
    for (unsigned i = 0; i < TEFFI_STRIPES; i++)
        pthread_mutex_init(&system->stripes[i], NULL);
    return system;
}

teff_err teffi_process_system_new_on(teffi_exec *exec, const teff_process_options *opt,
                                     teff_process_system **system)
{
    teff_process_options filled;
    char text[TEFF_TEXT_MAX];
    if (!check_and_copy_process_options(&filled, opt, text))
        return refuse_options(exec->platform, text);
    filled.sched = NULL; /* the caller's memory; only make_executor() uses it */
    fill_in_default_options(&filled);
    if (!options_are_in_range(&filled))
        return TEFF_E_INVALID;
    *system = system_new(exec, &filled);
    return *system ? TEFF_OK : TEFF_E_NOMEM;
}

static teff_err make_executor(const teffi_platform *platform, const teff_process_options *given,
                              teffi_exec **exec)
{
    char text[TEFF_TEXT_MAX];
    teff_process_options opt;
    teff_sched_options sched;
    teff_sched_hooks hooks;
    if (!check_and_copy_process_options(&opt, given, text) ||
        !teffi_sched_options_check_and_copy(&sched, &hooks, opt.sched, text))
        return refuse_options(platform, text);
    return teffi_exec_real_new(platform, opt.workers, &sched, exec);
}

teff_err teff_process_system_new(const teff_process_options *opt, teff_process_system **system)
{
    teffi_exec *exec;
    teffi_platform *platform = calloc(1, sizeof *platform);
    *system = NULL;
    if (!platform)
        return TEFF_E_NOMEM;
    teffi_platform_init_real(platform, TEFF_LOG_WARN);
    teff_err err = make_executor(platform, opt, &exec);
    if (!err && (err = teffi_process_system_new_on(exec, opt, system)))
        exec->ops->free(exec);
    if (err) {
        free(platform);
        return err;
    }
    (*system)->own_platform = platform;
    return TEFF_OK;
}

void teffi_process_system_free_memory(teff_process_system *system)
{
    if (!system)
        return;
    teffi_slab_fini(&system->slab, NULL);
    for (unsigned i = 0; i < TEFFI_STRIPES; i++)
        pthread_mutex_destroy(&system->stripes[i]);
    pthread_mutex_destroy(&system->lock);
    free(system->cells);
    free(system->own_platform);
    free(system);
}

void teff_process_system_free(teff_process_system *system)
{
    if (!system)
        return;
    if (system->own_platform) /* else the executor may be freed already */
        teffi_exec_abort_if_in_turn(system->exec, "teff_process_system_free");
    if (teffi_processes_count_alive(system))
        (void)teff_process_system_stop(system, 0, NULL);
    if (system->own_platform)
        system->exec->ops->free(system->exec);
    teffi_process_system_free_memory(system);
}

/* Sets the fields of a slot for a new process. Leaves out the fields that late senders to the
 * previous process in this slot may still use: `sent` and `taken` are kept, and publish_process
 * reopens the group and changes the generation. */
static void init_process_in_slot(teff_process *p, const teff_process_ops *ops, void *self,
                                 teffi_start *start, uint64_t account)
{
    if (teffi_group_state_of(&p->group) != TEFFI_GROUP_COMPLETE) /* the first life in this slot */
        teffi_group_init(&p->group, p->system->exec,
                         ops->flags & TEFFI_PROCESS_KEPT ? &teffi_process_kept_group_ops
                                                         : &teffi_process_group_ops);
    atomic_store_explicit(&p->ops, ops, memory_order_relaxed);
    atomic_store_explicit(&p->turns, 0, memory_order_relaxed);
    atomic_store_explicit(&p->events, 0, memory_order_relaxed);
    atomic_store_explicit(&p->run_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&p->group.priority, ops->priority, memory_order_relaxed);
    p->group.used = (uint32_t)(account % TEFFI_ACCOUNTS); /* if shares is set: the account */
    p->group.shares = account != 0;
    p->self = self;
    p->held = start;
    p->fiber = NULL;
    p->wait = NULL;
    p->again.kind = TEFFI_ITEM_AGAIN;
    p->signal.kind = TEFFI_ITEM_SIGNAL;
    p->n_commands = 0;
    p->err = TEFF_OK;
    p->status = TEFFI_STATUS_START;
    p->n_uncounted = 0;
    p->gathered = 0;
    p->retry_n = 0;
    p->again_queued = true;
    p->cancel = p->poked = p->forced = p->over = p->gone = p->started = false;
}

/* Starts a new process: reopens its group, stores its generation, then pushes its first item.
 * Senders can find the process once the generation is stored, so all else is set before that. The
 * group must be open before that, too. Otherwise a sender could find the process while its group is
 * still closed. The sender would set p->signals, which marks the signal item as queued, but the
 * closed group would refuse the item. Later senders would see the mark and never push the item.
 * Late senders to the previous process in this slot may push items into the open group; such items
 * are dropped, and start no turn. */
static void publish_process(teff_process *p, teff_pid *pid)
{
    p->signals = 0; /* without the lock: no other thread uses it before the generation is stored */
    if (teffi_group_state_of(&p->group) == TEFFI_GROUP_COMPLETE)
        teffi_group_reuse(&p->group);
    uint32_t generation = atomic_load_explicit(&p->generation, memory_order_relaxed) + 1;
    /* release: pairs with teffi_process_find */
    atomic_store_explicit(&p->generation, generation, memory_order_release);
    if (pid) /* stored before the process runs, since its functions may read *pid */
        *pid = teffi_process_pid_of(p, generation);
    (void)teffi_group_push(&p->group, &p->again);
}

teff_err teff_process_spawn(teff_process_system *system, const teff_process_ops *ops, void *self,
                            const char *method, const void *input, size_t len, teff_pid *pid)
{
    return teff_process_spawn_on_account(system, ops, self, method, input, len, 0, pid);
}

teff_err teff_process_spawn_on_account(teff_process_system *system, const teff_process_ops *ops,
                                       void *self, const char *method, const void *input,
                                       size_t len, uint64_t account, teff_pid *pid)
{
    if (!ops->step && !ops->run)
        return TEFF_E_INVALID;
    teffi_start *start;
    teff_process *p;
    teff_err err = teffi_start_args_new(method, input, len, &start);
    if (err)
        return err;
    _Atomic uint64_t *spawned = &system->cells[teffi_own_cell_index(system)].spawned;
    /* seq_cst: if the load of `stopping` returns false, wait_for_spawns waits for this spawn */
    atomic_fetch_add_explicit(spawned, 1, memory_order_seq_cst);
    err = atomic_load_explicit(&system->stopping, memory_order_seq_cst)
              ? TEFF_E_CLOSED
              : teffi_slot_alloc_and_count_spawn(system, spawned, &p);
    if (!err) {
        init_process_in_slot(p, ops, self, start, account);
        publish_process(p, pid);
    }
    atomic_fetch_sub_explicit(spawned, 1, memory_order_seq_cst);
    if (err)
        teffi_start_args_free(start);
    return err;
}
