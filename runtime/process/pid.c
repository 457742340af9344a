/* pid.c - slots of processes: entries of a slab, which never move and are kept until the system is
 * freed. A slot's generation only rises; it is odd while a process lives in the slot, and even
 * before and after. So a PID with a smaller odd generation names a process that has ended, and any
 * other PID with a wrong generation was never given out. */
#include "process/pid.h"

/* out: the lock of a process's slot. All slots share TEFFI_STRIPES locks. */
pthread_mutex_t *teffi_stripe_lock_of(const teff_process *p)
{
    return &p->system->stripes[p->slot % TEFFI_STRIPES];
}

/* A slot's generation only rises, and is odd while a process lives there. So a smaller odd
 * generation is that of a process that has ended. */
teff_err teffi_process_missing_err(teff_process_system *system, teff_pid pid)
{
    teff_process *p = teffi_process_at(system, pid.slot);
    if (!p || pid.generation % 2 == 0)
        return TEFF_E_NOT_FOUND;
    /* relaxed: the caller's teffi_process_find has already loaded this generation */
    uint32_t now = atomic_load_explicit(&p->generation, memory_order_relaxed);
    return (int32_t)(now - pid.generation) > 0 ? TEFF_E_CLOSED : TEFF_E_NOT_FOUND;
}

/* ---- slots ---- */

/* The slab's begin(): sets the system and the number of a slot that has never been used. */
static void init_new_slot(void *entry, uint32_t slot, uint32_t generation, void *owner)
{
    teff_process *p = entry;
    (void)generation; /* always 0, as slots are never decommitted */
    p->system = owner;
    p->slot = slot | TEFFI_PROCESS_BIT;
}

/* The slab's last_use(): returns the index of the slot, and 0 as its generation, since the slab
 * needs a generation only to decommit a block. Slots are never decommitted, because a free slot is
 * still read: its generation distinguishes an ended process from an unknown PID, and its group
 * refuses late items. */
static teffi_slab_use get_slot_index_and_no_generation(const void *entry)
{
    const teff_process *p = entry;
    return (teffi_slab_use){p->slot & ~TEFFI_PROCESS_BIT, 0};
}

static const teffi_slab_type process_type = {.bytes = sizeof(teff_process),
                                             .link = offsetof(teff_process, free),
                                             .entries_max = TEFFI_PROCESS_BIT / 2,
                                             .stays = true,
                                             .begin = init_new_slot,
                                             .last_use = get_slot_index_and_no_generation};

bool teffi_slots_init(teff_process_system *system)
{
    return teffi_slab_init(&system->slab, &process_type, system, NULL, 0);
}

/* Counts a spawn if there is room for one more process. Holds the lock, so that only one of two
 * spawns gets the last place. Processes that end meanwhile only make more room. */
static bool count_spawn_if_room(teff_process_system *system, _Atomic uint64_t *spawned)
{
    pthread_mutex_lock(&system->lock);
    bool has_room = teffi_processes_count_alive(system) < system->opt.processes_max;
    if (has_room)
        atomic_fetch_add_explicit(spawned, TEFFI_SPAWNED, memory_order_relaxed);
    pthread_mutex_unlock(&system->lock);
    return has_room;
}

teff_err teffi_slot_alloc_and_count_spawn(teff_process_system *system, _Atomic uint64_t *spawned,
                                          teff_process **process)
{
    /* The lock is needed only near the limit. If processes_max has room for one more whole block,
     * this spawn takes no lock: to exceed the limit, other threads would have to spawn a whole
     * block of processes between this check and the addition. relaxed: the push in publish_process
     * orders the addition before the process's end. */
    if ((teffi_slab_block_count(&system->slab) + 1) * TEFFI_SLAB_BLOCK <= system->opt.processes_max)
        atomic_fetch_add_explicit(spawned, TEFFI_SPAWNED, memory_order_relaxed);
    else if (!count_spawn_if_room(system, spawned))
        return TEFF_E_OVERLOADED;
    *process = teffi_slab_take(&system->slab);
    if (*process)
        return TEFF_OK;
    atomic_fetch_sub_explicit(spawned, TEFFI_SPAWNED, memory_order_relaxed);
    return TEFF_E_NOMEM;
}

uint32_t teffi_processes_count_alive(teff_process_system *system)
{
    uint64_t ended = 0, spawned = 0;
    /* All loads are seq_cst, and those of `ended` come first, so that the result is never too
     * small. Each spawn adds TEFFI_SPAWNED to `spawned`; while it is in progress, it adds 1 more,
     * which the division drops. */
    for (uint32_t i = 0; i < system->n_cells; i++)
        ended += atomic_load_explicit(&system->cells[i].ended, memory_order_seq_cst);
    for (uint32_t i = 0; i < system->n_cells; i++)
        spawned +=
            atomic_load_explicit(&system->cells[i].spawned, memory_order_seq_cst) / TEFFI_SPAWNED;
    return (uint32_t)(spawned - ended);
}

teff_pid teff_process_pid(const teff_process *me)
{
    return teffi_process_pid_of(me, atomic_load_explicit(&me->generation, memory_order_relaxed));
}

teff_process_system *teff_process_system_of(const teff_process *me)
{
    return me->system;
}
