/* cpus.c - the affinity mask and the cgroup's CPU quota.
 * Source:  cgroups(7); Linux's Documentation/admin-guide/cgroup-v2.rst, scheduler/sched-bwc.rst
 *
 * A cgroup's quota limits all cgroups below it, so the smallest one on the way up to the root
 * counts. A container may show its own cgroup as the root of /sys/fs/cgroup, while
 * /proc/self/cgroup has the host's path of it: so folders that do not exist are skipped. */
#include "os/cpus.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 4096, LINE_BYTES = 4096, CPUS_MASK = 64 * 1024, CPUS_LAST = 1 << 20 };

/* ---- files ---- */

/* Reads the first line of a file. in: line: an empty string. It stays empty if the file
 * does not exist or is empty. */
static void read_first_line(const char *folder, const char *name, char *line, int size)
{
    char path[PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    (void)!fgets(line, size, file);
    fclose(file);
}

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
    read_first_line(folder, "cpu.max", line, sizeof line);
    long long quota_us = strtoll(line, &rest, 10); /* 0 if it is "max": no quota */
    return quota_to_cores(quota_us, strtoll(rest, NULL, 10));
}

/* out: the quota in cores; 0: the cgroup has none. */
static unsigned read_cgroup_v1_quota(const char *folder)
{
    char quota[64] = "", period[64] = "";
    read_first_line(folder, "cpu.cfs_quota_us", quota, sizeof quota);
    read_first_line(folder, "cpu.cfs_period_us", period, sizeof period);
    return quota_to_cores(strtoll(quota, NULL, 10), strtoll(period, NULL, 10)); /* -1: no quota */
}

/* in: a, b: 0 means no limit. out: the smaller limit; 0: there is none. */
static unsigned choose_smaller_limit(unsigned a, unsigned b)
{
    return a && (!b || a < b) ? a : b;
}

/* Reads the quotas of a cgroup and of all cgroups above it.
 * in: folder: the cgroup's path; each iteration cuts it to the path of the next parent.
 * root_bytes: the length of the root's path. read_quota: reads the quota of one cgroup.
 * out: the smallest quota; 0: there is none. */
static unsigned find_smallest_quota(char *folder, size_t root_bytes,
                                    unsigned (*read_quota)(const char *folder))
{
    unsigned n = 0;
    for (;;) {
        n = choose_smaller_limit(n, read_quota(folder));
        char *end = strrchr(folder, '/');
        if (!end || (size_t)(end - folder) < root_bytes)
            return n;
        *end = '\0';
    }
}

/* ---- the quotas of all cgroups ---- */

/* Does the list name the controller "cpu"? in: controllers: the list, separated by commas;
 * strsep() overwrites the commas. */
static bool has_cpu_controller(char *controllers)
{
    char *one;
    while ((one = strsep(&controllers, ",")) != NULL)
        if (strcmp(one, "cpu") == 0)
            return true;
    return false;
}

/* Finds the smallest quota of the cgroup that a line names, and of all cgroups above it.
 * in: root: a prefix of each path. line: a line of /proc/self/cgroup, which is
 * "hierarchy:controllers:path"; in cgroup version 2 the controllers are empty.
 * out: 0: there is no quota. */
static unsigned find_quota_of_cgroup_line(const char *root, char *line)
{
    char folder[PATH_BYTES];
    char *controllers = strchr(line, ':');
    char *path = controllers ? strchr(++controllers, ':') : NULL;
    if (!path)
        return 0;
    *path++ = '\0';
    bool v2 = !*controllers;
    if (!v2 && !has_cpu_controller(controllers))
        return 0;
    int at = snprintf(folder, sizeof folder, "%s/sys/fs/cgroup%s", root, v2 ? "" : "/cpu");
    if (at < 0 || (size_t)at + strlen(path) >= sizeof folder)
        return 0;
    memcpy(folder + at, path, strlen(path) + 1);
    return find_smallest_quota(folder, (size_t)at,
                               v2 ? read_cgroup_v2_quota : read_cgroup_v1_quota);
}

unsigned teffi_cpu_quota(const char *root)
{
    char path[PATH_BYTES], line[LINE_BYTES];
    unsigned n = 0;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        n = choose_smaller_limit(n, find_quota_of_cgroup_line(root, line));
    }
    fclose(file);
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
