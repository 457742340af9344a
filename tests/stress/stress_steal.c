/* stress_steal.c - work that has to be stolen: a few roots push leaves on their own workers and
 * keep these busy, so that others must fetch them; more workers than cores. Each leaf runs once a
 * round: none is lost, none doubled, nobody hangs.
 * usage: stress_steal [--seconds S | --minutes M] [--steals N] [--workers W] [--torment]
 * It ends when both the time is over and as many groups were stolen. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/hash.h"
#include "base/queue.h"
#include "os/thread.h"
#include "sched/exec.h"
#include "torment.h"

enum { ROOTS = 2, LEAVES = 4096, WORKERS_MAX = 64, SHARE = 8 };
#define HANG_NS 180000000000u
#define KEPT_BUSY_NS 5000000u

typedef struct root root;

typedef struct leaf {
    teffi_group group;
    teffi_item item;
    root *root;
    uint64_t runs; /* plain on purpose: one worker at a time */
} leaf;

struct root {
    teffi_group group;
    teffi_item item;
    leaf leaves[LEAVES];
    uint64_t rng, expected, n; /* n: leaves of this round, the first ones */
    _Atomic uint64_t left;     /* of them, to run */
    _Atomic uint64_t rounds;
};

static teffi_platform platform;
static teffi_exec *exec;
static root roots[ROOTS];
static _Atomic bool stop;
static _Atomic uint32_t wrong, ended;
static teffi_parker done;

static void on_leaf(teffi_group *group, teffi_item *item)
{
    leaf *l = teffi_container(group, leaf, group);
    root *r = l->root;
    (void)item;
    l->runs++;
    /* acq_rel: the root's next turn sees what all leaves wrote */
    if (atomic_fetch_sub_explicit(&r->left, 1, memory_order_acq_rel) == 1)
        (void)teffi_group_push(&r->group, &r->item);
}

/* Every leaf of the last round ran once, no other did. */
static void check(root *r)
{
    for (uint64_t i = 0; i < LEAVES; i++) {
        if (r->leaves[i].runs != (i < r->n))
            atomic_fetch_add(&wrong, 1);
        r->leaves[i].runs = 0;
    }
}

/* Until most of them were stolen; a while at most, since the others may all stand still. */
static void keep_busy(const root *r)
{
    uint64_t end_ns = teffi_now(&platform) + KEPT_BUSY_NS;
    while (atomic_load_explicit(&r->left, memory_order_relaxed) > r->n / SHARE &&
           teffi_now(&platform) < end_ns)
        teffi_thread_yield();
}

static void on_root(teffi_group *group, teffi_item *item)
{
    root *r = teffi_container(group, root, group);
    (void)item;
    check(r);
    atomic_fetch_add(&r->rounds, 1);
    if (atomic_load(&stop)) {
        atomic_fetch_add(&ended, 1);
        teffi_parker_wake(&done);
        return;
    }
    r->rng = teffi_mix64(r->rng + 1);
    uint64_t n = 1 + r->rng % LEAVES;
    r->n = n;
    /* One more than there are: the last leaf must not push the root before it has let go of it. */
    atomic_store(&r->left, n + 1);
    for (uint64_t i = 0; i < n; i++)
        (void)teffi_group_push(&r->leaves[i].group, &r->leaves[i].item);
    keep_busy(r);
    if (atomic_fetch_sub_explicit(&r->left, 1, memory_order_acq_rel) == 1)
        (void)teffi_group_push(&r->group, &r->item);
}

static const teffi_group_ops leaf_ops = {.handle = on_leaf}, root_ops = {.handle = on_root};

static void plant(root *r, uint64_t seed)
{
    r->rng = seed;
    teffi_group_init(&r->group, exec, &root_ops);
    for (unsigned i = 0; i < LEAVES; i++) {
        r->leaves[i].root = r;
        teffi_group_init(&r->leaves[i].group, exec, &leaf_ops);
    }
    (void)teffi_group_push(&r->group, &r->item);
}

static uint64_t rounds_made(void)
{
    uint64_t n = 0;
    for (unsigned i = 0; i < ROOTS; i++)
        n += atomic_load(&roots[i].rounds);
    return n;
}

static uint64_t stolen(void)
{
    teff_sched_metrics all;
    teff_sched_worker workers[WORKERS_MAX];
    uint64_t sum = 0;
    size_t n = teffi_exec_metrics(exec, &all, workers, WORKERS_MAX);
    for (size_t i = 0; i < n && i < WORKERS_MAX; i++)
        sum += workers[i].steals;
    return sum;
}

/* Until cond; progress is rounds. A hang leaves its state to look at. */
static void wait_while_it_moves(bool (*over)(void))
{
    uint64_t seen = rounds_made(), since_ns = teffi_now(&platform);
    while (!over()) {
        teffi_parker_wait(&done, 100000000);
        uint64_t now = teffi_now(&platform), rounds = rounds_made();
        if (rounds != seen) {
            seen = rounds;
            since_ns = now;
        }
        if (now - since_ns > HANG_NS) {
            printf("stress_steal: FAILED: hangs after %llu rounds\n", (unsigned long long)seen);
            fflush(stdout);
            abort();
        }
    }
}

static uint64_t end_ns, steals_wanted;

static bool enough(void)
{
    return atomic_load(&wrong) || (teffi_now(&platform) >= end_ns && stolen() >= steals_wanted);
}

static bool all_ended(void)
{
    return atomic_load(&ended) == ROOTS;
}

static int usage(void)
{
    fprintf(stderr, "usage: stress_steal [--seconds S | --minutes M] [--steals N] [--workers W] "
                    "[--torment]\n");
    return 2;
}

int main(int argc, char **argv)
{
    double seconds = 2;
    unsigned workers = 7;
    bool tormented = false;
    uint64_t shuffles = 0, holds = 0;
    for (int i = 1; i < argc; i++) {
        bool more = i + 1 < argc;
        if (strcmp(argv[i], "--torment") == 0)
            tormented = true;
        else if (more && strcmp(argv[i], "--seconds") == 0)
            seconds = atof(argv[++i]);
        else if (more && strcmp(argv[i], "--minutes") == 0)
            seconds = atof(argv[++i]) * 60;
        else if (more && strcmp(argv[i], "--steals") == 0)
            steals_wanted = (uint64_t)atof(argv[++i]);
        else if (more && strcmp(argv[i], "--workers") == 0)
            workers = (unsigned)atoi(argv[++i]);
        else
            return usage();
    }
    teffi_platform_init_real(&platform, TEFF_LOG_INFO);
    uint64_t seed = platform.random(NULL), begin_ns = teffi_now(&platform);
    if (workers > WORKERS_MAX || teffi_exec_real_new(&platform, workers, NULL, &exec))
        return usage();
    end_ns = begin_ns + (uint64_t)(seconds * 1e9);
    for (unsigned i = 0; i < ROOTS; i++)
        plant(&roots[i], seed + i);
    if (tormented)
        torment_start("teff-w", seed, 2000);
    wait_while_it_moves(enough);
    if (tormented)
        torment_stop(&shuffles, &holds);
    atomic_store(&stop, true);
    wait_while_it_moves(all_ended);
    bool ok = atomic_load(&wrong) == 0;
    printf("stress_steal: %s: seed %llu, %u workers, %.0f s, %llu rounds, %llu groups stolen, "
           "%u lost or doubled, priorities shuffled %llu times, threads held %llu times\n",
           ok ? "ok" : "FAILED", (unsigned long long)seed, workers,
           (double)(teffi_now(&platform) - begin_ns) / 1e9, (unsigned long long)rounds_made(),
           (unsigned long long)stolen(), atomic_load(&wrong), (unsigned long long)shuffles,
           (unsigned long long)holds);
    exec->ops->free(exec);
    return ok ? 0 : 1;
}
