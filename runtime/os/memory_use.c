/* memory_use.c - the memory limits of the cgroups, their use, and the time that threads wait for
 * memory.
 * Source:  Linux's Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst,
 *          accounting/psi.rst */
#include "os/memory_use.h"

#include <stdlib.h>
#include <string.h>
#include "os/cgroup.h"

enum { LINE_BYTES = 256 };

/* Version 1 shows "no limit" as the largest multiple of the page size. */
static const uint64_t no_limit = 1ull << 60;

/* Reads the number that follows `prefix` in a file. out: `otherwise` if there is none. */
static uint64_t read_file_number(const char *folder, const char *name, const char *prefix,
                                 uint64_t otherwise)
{
    char line[LINE_BYTES] = "", *end;
    teffi_cgroup_read_line(folder, name, prefix, line, sizeof line);
    if (!line[0])
        return otherwise;
    const char *number = line + strlen(prefix);
    unsigned long long n = strtoull(number, &end, 10);
    return end == number ? otherwise : n; /* "max": no number */
}

/* Reads the use of a cgroup, without the cached files that were not used lately. in: version 2:
 * memory.current; version 1: memory.usage_in_bytes. */
static uint64_t read_used_bytes(const char *folder, const char *name, const char *inactive_file)
{
    uint64_t used = read_file_number(folder, name, "", 0);
    uint64_t cached = read_file_number(folder, "memory.stat", inactive_file, 0);
    return used > cached ? used - cached : 0;
}

/* The kernel slows a cgroup down from memory.high on, and kills processes at memory.max. */
static teffi_memory_use read_cgroup_v2(const char *folder)
{
    uint64_t high = read_file_number(folder, "memory.high", "", no_limit),
             max = read_file_number(folder, "memory.max", "", no_limit);
    return (teffi_memory_use){
        .limit_bytes = high < max ? high : max,
        .used_bytes = read_used_bytes(folder, "memory.current", "inactive_file "),
        .stalled_percent = (uint32_t)read_file_number(folder, "memory.pressure", "some avg10=", 0)};
}

static teffi_memory_use read_cgroup_v1(const char *folder)
{
    return (teffi_memory_use){
        .limit_bytes = read_file_number(folder, "memory.limit_in_bytes", "", no_limit),
        .used_bytes = read_used_bytes(folder, "memory.usage_in_bytes", "total_inactive_file ")};
}

/* Is a nearer to its limit than b? in: b: a limit of 0: there is none. */
static bool is_nearer_to_limit(const teffi_memory_use *a, const teffi_memory_use *b)
{
    return !b->limit_bytes || (double)a->used_bytes / (double)a->limit_bytes >
                                  (double)b->used_bytes / (double)b->limit_bytes;
}

/* Called for each cgroup: keeps the one that is nearest to its limit. */
static void choose_nearest_to_limit(void *arg, const char *folder, bool v2)
{
    teffi_memory_use *nearest = arg, use = v2 ? read_cgroup_v2(folder) : read_cgroup_v1(folder);
    if (use.limit_bytes && use.limit_bytes < no_limit && is_nearer_to_limit(&use, nearest))
        *nearest = use;
}

bool teffi_memory_use_read(const char *root, teffi_memory_use *use)
{
    *use = (teffi_memory_use){0};
    teffi_cgroups_walk(root, "memory", choose_nearest_to_limit, use);
    return use->limit_bytes > 0;
}
