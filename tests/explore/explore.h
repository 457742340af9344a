/* explore.h - many schedules of real code in one thread: virtual threads that change places before
 * every atomic operation, lock and wake-up, as a seed says.
 * Way:     explore_main -> a scene -> [explore] -> runtime/sched, compiled with explore_atomic.h
 * Threads: one. A virtual thread is a fiber; between two points it runs undisturbed.
 * Source:  Burckhardt et al. 2010 (PCT); x86-TSO (Sewell et al. 2010) for the store buffers */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { EXPLORE_THREADS_MAX = 16, EXPLORE_BUFFER_MAX = 16 };

typedef enum explore_state {
    EXPLORE_READY = 0,
    EXPLORE_WAITS, /* until somebody calls explore_notify with what it waits on */
    EXPLORE_ENDED
} explore_state;

typedef struct explore_store { /* made, not yet seen by others */
    void *at;
    uint64_t value;
    unsigned size;
} explore_store;

/* A stack that explored code switches to: a turn's. Fibers cannot nest here, since a virtual thread
 * is left and resumed by explore_run only: so it resumes the topmost stack of the thread. */
typedef struct explore_stack {
    struct teffi_fiber *fiber;
    void (*fn)(void *arg);
    void *arg;
    struct explore_stack *outer; /* while it runs: who resumed it; NULL: the thread's own stack */
    void *local;                 /* as teffi_fiber_local */
    bool ended;
} explore_stack;

typedef struct explore_thread {
    struct teffi_fiber *fiber;
    explore_stack *top; /* what it runs on; NULL: its own stack */
    char name[16];
    void (*fn)(void *arg);
    void *arg;
    explore_state state;
    const void *on;    /* WAITS: on what */
    uint64_t due_ns;   /* WAITS: until when at most, UINT64_MAX = for ever */
    uint64_t since_ns; /* WAITS: since when */
    bool timed_out;    /* how the last wait ended */
    uint32_t priority; /* the highest runs, unless this schedule is a random walk */
    unsigned n_locks;  /* that it holds */
    unsigned n_stores; /* of its store buffer, oldest first */
    explore_store store[EXPLORE_BUFFER_MAX];
    char locals[64]; /* what the sources call thread-local, while another thread runs */
} explore_thread;

/* How this schedule is drawn, from its seed. */
typedef struct explore_manner {
    bool priorities;    /* PCT: priorities that change at some steps; else a random walk */
    uint32_t stay;      /* of 256: how likely a walk stays with its thread */
    uint32_t change[8]; /* steps at which the running thread becomes the last */
    unsigned n_changes;
    bool buffers;      /* stores that are not seq_cst become visible late */
    uint32_t drain;    /* of 256: how likely a buffered store becomes visible at a point */
    uint32_t timeout;  /* of 65,536: how likely a timed wait ends early at a point */
    uint32_t spurious; /* of 256: how likely a weak CAS fails for nothing */
    bool after;        /* a point also after each read-modify-write, before plain stores */
} explore_manner;

typedef struct explore {
    uint64_t seed, rng, now_ns, steps;
    uint64_t hash; /* of who ran when: the same seed gives the same */
    const char *scene;
    explore_manner manner;
    explore_thread thread[EXPLORE_THREADS_MAX];
    unsigned n_threads;
    explore_thread *current;         /* NULL: set-up and end; then nothing is explored */
    uint32_t ready, buffered, timed; /* bits by thread */
    uint32_t lowest;                 /* priorities given out downwards */
    uint32_t refuse;             /* of 16: how likely the system has no thread more; the scene's */
    void (*when_all_wait)(void); /* the scene's: called when only time could go on */
    bool trace, planted;
    uint64_t switches, late_stores, timeouts; /* over all schedules */
} explore;

extern explore ex;

/* ---- explore.c: one schedule ---- */

/* explore_begin - forget all threads, draw the manner. in: steps, about how many there will be. */
void explore_begin(uint64_t seed, uint32_t steps);

/* explore_start - a virtual thread; may be called before explore_run and from inside.
 * out: its number, -1: there are EXPLORE_THREADS_MAX already. */
int explore_start(const char *name, void (*fn)(void *arg), void *arg);

/* explore_run - until all threads have ended; fails when all wait and nothing can wake them. */
void explore_run(void);

/* explore_point - others may run now. in: at, file and line for traces. */
void explore_point(const char *at, const char *what);

/* explore_wait, _notify - sleep until notified, or due_ns. out: false: it was time. */
bool explore_wait(const void *on, uint64_t due_ns);
void explore_notify(const void *on);

/* explore_back_off - the current thread lets all others go first. */
void explore_back_off(const char *at);

/* explore_stack_new, _resume, _suspend, _current - what fiber.h offers, for explored code. */
explore_stack *explore_stack_new(void (*fn)(void *arg), void *arg);
bool explore_stack_resume(explore_stack *stack);
void explore_stack_suspend(explore_stack *stack);
explore_stack *explore_stack_current(void);

/* explore_may_suspend - fails when the current thread holds a lock. */
void explore_may_suspend(const char *at);

/* explore_draw - 0 .. below - 1, from the schedule's seed. */
uint32_t explore_draw(uint32_t below);

/* explore_fail - this schedule showed a bug: say so, with its seed, and end the process. */
_Noreturn void explore_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* explore_note - a line of the trace. */
void explore_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* ---- explore_memory.c: what atomic operations do ---- */

/* explore_flush - all stores of the thread become visible. */
void explore_flush(explore_thread *thread);
void explore_drain_one(explore_thread *thread);

void explore_load(const volatile void *at, void *out, size_t size, int order, const char *where);
void explore_store_to(volatile void *at, const void *in, size_t size, int order, const char *where);
void explore_exchange(volatile void *at, const void *in, void *old, size_t size, int order,
                      const char *where);
bool explore_cas(volatile void *at, void *expected, const void *want, size_t size, int order,
                 int failed_order, bool weak, const char *where);
typedef enum explore_op { EXPLORE_ADD, EXPLORE_SUB, EXPLORE_AND, EXPLORE_OR } explore_op;
void explore_fetch(volatile void *at, explore_op op, const void *by, void *old, size_t size,
                   int order, const char *where);
void explore_fence(int order, const char *where);
void explore_plain(volatile void *at, const void *in, size_t size);
void explore_free(void *memory);

struct teffi_slab;

/* explore_slab_put - as teffi_slab_put: slabs are not explored, and all virtual threads share one
 * list of free entries. An entry passes as through a lock: its next owner sees the stores. */
void explore_slab_put(struct teffi_slab *slab, void *entry);

/* ---- explore_world.c: locks, and what os/thread.h and fiber/fiber.h offer ---- */

typedef struct explore_lock {
    _Atomic uint32_t holder; /* thread number + 1 */
} explore_lock;

void explore_lock_init(void *mutex);
int explore_lock_take(void *mutex, const char *at);
int explore_lock_give(void *mutex, const char *at);

/* The clock is ex.now_ns; a line to the log under a lock fails the schedule. */
extern const struct teffi_platform explore_platform;

/* ---- explore_limit.c: the limit of running workers ---- */

struct teffi_sched;

/* explore_limit_begin - in a part of the schedules this scheduler, which has just been started, has
 * a limit, or a trial of one. */
void explore_limit_begin(struct teffi_sched *sched);

/* explore_limit_is_reached - do so many workers run that, because of a limit, work may wait beside
 * a worker that sleeps? A worker does not count once the monitor should know that it is in a long
 * run. A processor without a worker counts until the monitor should know. Called when all threads
 * wait. */
bool explore_limit_is_reached(const struct teffi_sched *sched);

/* ---- scenes ---- */

typedef struct explore_scene {
    const char *name;
    uint32_t steps;     /* about how many in one schedule */
    void (*play)(void); /* one whole schedule, between explore_begin and its checks */
} explore_scene;

extern const explore_scene explore_client, explore_deque, explore_group, explore_exec,
    explore_timer, explore_process, explore_poll, explore_stop;
