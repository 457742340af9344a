/* sum.c - README's fork: a sum whose halves run on several workers. */
#include <stddef.h>
#include <stdint.h>
#include <teff/fork.h>

typedef struct part {
    const int32_t *at;
    size_t n;
    int64_t sum;
} part;

int64_t readme_sum(const int32_t *at, size_t n);

static int64_t sum_all(const part *p)
{
    int64_t sum = 0;
    for (size_t i = 0; i < p->n; i++)
        sum += p->at[i];
    return sum;
}

static void sum_part(void *arg)
{
    part *p = arg;
    if (p->n < 4096) {
        p->sum = sum_all(p);
        return;
    }
    part left = {p->at, p->n / 2, 0}, right = {p->at + left.n, p->n - left.n, 0};
    teff_join join = {0};
    teff_fork(&join, TEFF_STEAL_CONTINUATION, sum_part, &left);
    sum_part(&right);
    teff_join_wait(&join);
    p->sum = left.sum + right.sum;
}

int64_t readme_sum(const int32_t *at, size_t n)
{
    part whole = {at, n, 0};
    sum_part(&whole);
    return whole.sum;
}
