/* cpus.h - the number of cores that this process may use.
 * Way:     sched/exec -> [cpus] -> the affinity mask, cgroup
 * Threads: any.
 * Source:  Go's src/runtime/cgroup_linux.go */
#pragma once

/* teffi_cpu_count - the smaller of the affinity mask's cores and the CPU quota, at least 1. */
unsigned teffi_cpu_count(void);

/* teffi_cpu_quota - the smallest CPU quota of this process's cgroup and those above it, in cores,
 * rounded up. in: root, a prefix of each path: "", or a test's folder. out: 0: there is none. */
unsigned teffi_cpu_quota(const char *root);
