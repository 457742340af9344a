/* growth_memory.c - one random cycle through all lines of a piece of memory, walked along.
 * Way:     growth.c -> [growth_memory]
 * Source:  S. Sattolo, A random cyclic permutation, 1986 */
#include "clock.h"
#include "growth_memory.h"

#include <stddef.h>
#include <sys/mman.h>

enum { LINE = 64, BATCH = 10000 };

typedef struct line {
    _Alignas(LINE) uint64_t next;
} line;

static uint64_t draw(uint64_t *rng, uint64_t below)
{
    *rng ^= *rng << 13;
    *rng ^= *rng >> 7;
    *rng ^= *rng << 17;
    return *rng % below;
}

static void make_cycle(line *lines, uint64_t n)
{
    uint64_t rng = 88172645463325252u;
    for (uint64_t i = 0; i < n; i++)
        lines[i].next = i;
    for (uint64_t i = n - 1; i > 0; i--) {
        uint64_t at = draw(&rng, i), t = lines[i].next;
        lines[i].next = lines[at].next;
        lines[at].next = t;
    }
}

static uint64_t walk(const line *lines, uint64_t from, uint64_t steps)
{
    for (; steps > 0; steps--)
        from = *(const volatile uint64_t *)&lines[from].next;
    return from;
}

/* out: seconds a read. */
static double walk_for(const line *lines, uint64_t *at, double seconds)
{
    double reads = 0, taken = 0;
    uint64_t begin = bench_now_ns();
    while (taken < seconds) {
        *at = walk(lines, *at, BATCH);
        reads += BATCH;
        taken = (double)(bench_now_ns() - begin) / 1e9;
    }
    return taken / reads;
}

bool growth_memory(uint64_t bytes, double seconds, double *read_seconds, int n)
{
    uint64_t count = bytes / LINE, at = 0;
    line *lines =
        mmap(NULL, count * LINE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (lines == MAP_FAILED)
        return false;
    (void)madvise(lines, count * LINE, MADV_NOHUGEPAGE); /* as grains have it */
    make_cycle(lines, count);
    (void)walk_for(lines, &at, seconds); /* warm, where it fits into a cache */
    for (int i = 0; i < n; i++)
        read_seconds[i] = walk_for(lines, &at, seconds);
    munmap(lines, count * LINE);
    return true;
}
