/* cpus.c - the affinity mask and the cgroup's CPU quota.
 * Source:  cgroups(7); Linux's Documentation/admin-guide/cgroup-v2.rst, scheduler/sched-bwc.rst
 *
 * A cgroup's quota limits all cgroups below it, so the smallest one on the way up to the root
 * counts. */
#include "os/cpus.h"

#include <sched.h>
#include <stdlib.h>
#include <unistd.h>
#include "os/cgroup.h"

enum { CPUS_MASK = 64 * 1024, CPUS_LAST = 1 << 20 };

/* out: the quota in cores, rounded up; 0: no quota. */
static unsigned quota_to_cores(long long quota_us, long long period_us)
{
    if (quota_us <= 0 || period_us <= 0)
        return 0;
    long long n = quota_us / period_us + (quota_us % period_us != 0);
    return n < CPUS_LAST ? (unsigned)n : CPUS_LAST;
}

/* ---- the quota of one cgroup; 0: it has none ---- */

/* out: the quota in cores; 0: the cgroup has none. */
static unsigned read_cgroup_v2_quota(const char *folder)
{
    char line[64] = "", *rest;
    teffi_cgroup_read_line(folder, "cpu.max", "", line, sizeof line);
    long long quota_us = strtoll(line, &rest, 10); /* 0 if it is "max": no quota */
    return quota_to_cores(quota_us, strtoll(rest, NULL, 10));
}

/* out: the quota in cores; 0: the cgroup has none. */
static unsigned read_cgroup_v1_quota(const char *folder)
{
    char quota[64] = "", period[64] = "";
    teffi_cgroup_read_line(folder, "cpu.cfs_quota_us", "", quota, sizeof quota);
    teffi_cgroup_read_line(folder, "cpu.cfs_period_us", "", period, sizeof period);
    return quota_to_cores(strtoll(quota, NULL, 10), strtoll(period, NULL, 10)); /* -1: no quota */
}

/* in: a, b: 0 means no limit. out: the smaller limit; 0: there is none. */
static unsigned choose_smaller_limit(unsigned a, unsigned b)
{
    return a && (!b || a < b) ? a : b;
}

/* Called for each cgroup: lowers *n to its quota. in: *n: 0: there is no quota so far. */
static void choose_smallest_quota(void *n, const char *folder, bool v2)
{
    unsigned *smallest = n;
    *smallest = choose_smaller_limit(*smallest, v2 ? read_cgroup_v2_quota(folder)
                                                   : read_cgroup_v1_quota(folder));
}

unsigned teffi_cpu_quota(const char *root)
{
    unsigned n = 0;
    teffi_cgroups_walk(root, "cpu", choose_smallest_quota, &n);
    return n;
}

unsigned teffi_cpu_count(void)
{
    /* sched_getaffinity() fails if the kernel's mask is longer than `sets`. */
    cpu_set_t sets[CPUS_MASK / CPU_SETSIZE];
    int n = sched_getaffinity(0, sizeof sets, sets) == 0 ? CPU_COUNT_S(sizeof sets, sets) : 0;
    long online = n ? n : sysconf(_SC_NPROCESSORS_ONLN);
    return choose_smaller_limit(teffi_cpu_quota(""), online > 0 ? (unsigned)online : 1);
}
