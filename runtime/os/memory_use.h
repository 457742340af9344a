/* memory_use.h - how much memory may this process use, and how much is used?
 * Way:     platform's memory_use -> [memory_use] -> cgroup
 * Threads: any. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct teffi_memory_use {
    uint64_t limit_bytes;
    uint64_t used_bytes;      /* without cached files that the kernel can drop at once */
    uint32_t stalled_percent; /* of the last 10 s, in which a thread waited for memory; 0 if the
                               * kernel does not say it (PSI, cgroups of version 2) */
} teffi_memory_use;

/* teffi_memory_use_read - read the limit and the use of this process's cgroup, or of the one above
 * it that is nearest to its limit. Reads a few files, which takes about 0.1 ms.
 * in:   root, a prefix of each path: "", or a test's folder.
 * out:  false: no cgroup has a limit, or it cannot be read. */
bool teffi_memory_use_read(const char *root, teffi_memory_use *use);
