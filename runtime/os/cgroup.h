/* cgroup.h - the folders of this process's cgroups, and the files in them.
 * Way:     cpus, memory_use -> [cgroup] -> /proc/self/cgroup, /sys/fs/cgroup
 * Threads: any.
 * Source:  Go's src/runtime/cgroup_linux.go */
#pragma once

#include <stdbool.h>

/* teffi_cgroups_walk - visit this process's cgroup of a controller and all cgroups above it: a
 * limit of one of them limits all below it, too.
 * in:   root, a prefix of each path: "", or a test's folder. controller: "cpu", "memory". visit:
 *       folder is valid during the call; v2: the version of the cgroup's files. */
void teffi_cgroups_walk(const char *root, const char *controller,
                        void (*visit)(void *arg, const char *folder, bool v2), void *arg);

/* teffi_cgroup_read_line - read the first line of a file that begins with a prefix; "": the first
 * line. in: line: an empty string. It stays empty if there is no such line or no such file. */
void teffi_cgroup_read_line(const char *folder, const char *name, const char *prefix, char *line,
                            int size);
