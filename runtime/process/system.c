/* system.c - a system of processes: its making, and how processes come into it.
 * Way:     a program | a silo -> [new, spawn] -> pid -> the process's group
 * Threads: new, handler, route before anything runs; spawn from anywhere. */
#include <stdlib.h>
#include <string.h>
#include "base/pool.h"
#include "process/process.h"

enum {
    PROCESSES_MAX = 1000000,
    MAILBOX_MAX = 10000,
    MAILBOX_LIMIT = 1 << 22, /* what the load word can count, with room for many senders at once */
    YIELDS_MAX = 1024
};

static const uint64_t mailbox_bytes = 64ull << 20, mailbox_bytes_limit = 1ull << 38;

teffi_start *teffi_start_new(const char *method, const void *input, size_t len)
{
    size_t name = method ? strlen(method) : 0;
    size_t at = (name + 1 + 15) / 16 * 16;
    size_t bytes_len = at + len;
    teffi_start *start = teffi_pool_get(sizeof *start + bytes_len);
    if (!start)
        return NULL;
    start->bytes_len = bytes_len;
    if (name)
        memcpy(start->bytes, method, name);
    start->bytes[name] = 0;
    if (len)
        memcpy(start->bytes + at, input, len);
    start->input = len ? start->bytes + at : NULL;
    start->len = len;
    return start;
}

void teffi_start_free(teffi_start *start)
{
    if (start)
        teffi_pool_put(start, sizeof *start + start->bytes_len);
}

static void set_defaults(teff_process_options *opt)
{
    if (!opt->processes_max)
        opt->processes_max = PROCESSES_MAX;
    if (!opt->mailbox_max)
        opt->mailbox_max = MAILBOX_MAX;
    if (!opt->mailbox_bytes)
        opt->mailbox_bytes = mailbox_bytes;
    if (!opt->yields_max)
        opt->yields_max = YIELDS_MAX;
}

static bool in_range(const teff_process_options *opt)
{
    return opt->processes_max < TEFFI_PROCESS_BIT && opt->mailbox_max <= MAILBOX_LIMIT &&
           opt->mailbox_bytes <= mailbox_bytes_limit;
}

static teff_process_system *system_new(teffi_exec *exec, const teff_process_options *opt)
{
    teff_process_system *system = calloc(1, sizeof *system);
    if (!system)
        return NULL;
    system->opt = *opt;
    system->exec = exec;
    size_t n_chunks = (opt->processes_max + TEFFI_PROCESS_CHUNK - 1) / TEFFI_PROCESS_CHUNK;
    system->chunks = calloc(n_chunks, sizeof *system->chunks);
    system->n_cells = exec->workers + 1;
    size_t cells_bytes = system->n_cells * sizeof *system->cells;
    system->cells = aligned_alloc(_Alignof(teffi_cell), cells_bytes);
    if (!system->chunks || !system->cells) {
        free(system->chunks);
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

teff_err teffi_process_system_on(teffi_exec *exec, const teff_process_options *opt,
                                 teff_process_system **system)
{
    teff_process_options filled = opt ? *opt : (teff_process_options){0};
    set_defaults(&filled);
    if (!in_range(&filled))
        return TEFF_E_INVALID;
    *system = system_new(exec, &filled);
    return *system ? TEFF_OK : TEFF_E_NOMEM;
}

teff_err teff_process_system_new(const teff_process_options *opt, teff_process_system **system)
{
    teffi_exec *exec;
    teffi_platform *platform = calloc(1, sizeof *platform);
    if (!platform)
        return TEFF_E_NOMEM;
    teffi_platform_real(platform, TEFFI_WARN);
    teff_err err =
        teffi_exec_real_new(platform, opt ? opt->workers : 0, opt ? &opt->sched : NULL, &exec);
    if (!err && (err = teffi_process_system_on(exec, opt, system)))
        exec->ops->free(exec);
    if (err) {
        free(platform);
        return err;
    }
    (*system)->own_platform = platform;
    return TEFF_OK;
}

void teffi_process_route(teff_process_system *system, const teffi_pid_route *route)
{
    system->route = *route;
}

/* Everything that a life begins with; the slot's memory keeps the group, the generation and the
 * mailbox's load, which late senders may hold. */
static void fill(teff_process *p, const teff_process_ops *ops, void *self, teffi_start *start)
{
    atomic_store_explicit(&p->ops, ops, memory_order_relaxed);
    atomic_store_explicit(&p->turns, 0, memory_order_relaxed);
    atomic_store_explicit(&p->events, 0, memory_order_relaxed);
    atomic_store_explicit(&p->run_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&p->group.priority, ops->priority, memory_order_relaxed);
    p->group.used = 0;
    p->self = self;
    p->held = start;
    p->fiber = NULL;
    p->wait = NULL;
    p->again.kind = TEFFI_ITEM_AGAIN;
    p->signal.kind = TEFFI_ITEM_SIGNAL;
    p->n_yields = 0;
    p->err = TEFF_OK;
    p->status = TEFFI_STATUS_START;
    p->gathered = p->retry_n = p->given = 0;
    p->again_queued = true;
    p->cancel = p->poked = p->forced = p->over = p->gone = false;
}

/* From the new generation on the process can be found, so all of it is there before. Its group
 * takes items from the reuse on; init waits for the again item. */
static void publish(teff_process *p, teff_pid *pid)
{
    p->signals = 0; /* nobody else looks before the generation says so */
    uint32_t generation = atomic_load_explicit(&p->generation, memory_order_relaxed) + 1;
    /* release: pairs with teffi_process_find */
    atomic_store_explicit(&p->generation, generation, memory_order_release);
    if (pid) /* before it runs: its own functions may read it there */
        *pid = teffi_process_pid_of(p, generation);
    if (teffi_group_state_of(&p->group) == TEFFI_GROUP_COMPLETE)
        teffi_group_reuse(&p->group);
    (void)teffi_group_push(&p->group, &p->again);
}

teff_err teff_process_spawn(teff_process_system *system, const teff_process_ops *ops, void *self,
                            const char *method, const void *input, size_t len, teff_pid *pid)
{
    if (!ops->step && !ops->run)
        return TEFF_E_INVALID;
    teffi_start *start = teffi_start_new(method, input, len);
    if (!start)
        return TEFF_E_NOMEM;
    teff_process *p;
    _Atomic uint64_t *spawned = &teffi_own_cell(system)->spawned;
    /* seq_cst: either stop sees this one and waits for it, or it sees that stop has begun */
    atomic_fetch_add_explicit(spawned, TEFFI_SPAWNING + 1, memory_order_seq_cst);
    teff_err err = atomic_load_explicit(&system->stopping, memory_order_seq_cst)
                       ? TEFF_E_CLOSED
                       : teffi_slot_take(system, &p);
    if (!err) {
        fill(p, ops, self, start);
        publish(p, pid);
    }
    atomic_fetch_sub_explicit(spawned, TEFFI_SPAWNING + (err ? 1 : 0), memory_order_seq_cst);
    if (err)
        teffi_start_free(start);
    if (err == TEFF_E_CLOSED)
        teffi_parker_wake(&system->stopper); /* it may have counted this one */
    return err;
}
