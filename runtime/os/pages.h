/* pages.h - memory that begins as a copy of an image, or as zeros. A decommit restores this content
 * and frees the memory. Guard pages, which fault when touched.
 * Way:     memory/slab, fiber/stack -> [pages] -> the kernel
 * Threads: any. During a decommit no thread may write to that memory; readers see the old bytes or
 *          the image. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

typedef struct teffi_pages {
    int fd;       /* a file with the image, of which each mapping is a private copy; -1: none */
    size_t bytes; /* of the image; 0: zeros */
} teffi_pages;

/* teffi_pages_init - in: image, copied; bytes, a multiple of the page size; NULL, 0: zeros.
 * out: false, with errno: no memory, or no memfd; teffi_pages_fini() is allowed. */
bool teffi_pages_init(teffi_pages *pages, const void *image, size_t bytes);
void teffi_pages_fini(teffi_pages *pages); /* existing mappings stay */

/* teffi_pages_reserve - reserve address space. out: NULL: there is none.
 * teffi_pages_commit - make a part usable, `at` bytes from the start of the reservation. Parts are
 *       committed in order, without gaps. out: false: no memory.
 * teffi_pages_decommit - restore the image in whole pages and free their memory.
 *       out: false: not possible; nothing was changed.
 * teffi_pages_release - unmap the whole reservation. */
void *teffi_pages_reserve(const teffi_pages *pages, size_t bytes);
bool teffi_pages_commit(const teffi_pages *pages, void *reserved, size_t at, size_t bytes);
bool teffi_pages_decommit(void *from, size_t bytes);
void teffi_pages_release(void *reserved, size_t bytes);

/* Before kernel 6.13 each guard is a separate mapping and splits the one around it. A process may
 * have 65,530 mappings (vm.max_map_count), of which these guards take about half. The reserved ones
 * come on top, for stacks that must be available when all others are in use. */
enum { TEFFI_GUARDS_MAX = 16000, TEFFI_GUARDS_RESERVED = 4000 };

/* teffi_guard_install - make these whole pages, a part of a mapping, fault when touched.
 * in:   reserved: the guard may also be one of TEFFI_GUARDS_RESERVED.
 * out:  false: the limit of guards in this process is reached, or no memory. *mapped grows by 1 if
 *       this guard counts against the limit; see teffi_guards_lower_count(). */
bool teffi_guard_install(void *at, size_t bytes, bool reserved, unsigned *mapped);

/* teffi_guards_lower_count - lower the number that counts against the limit, since that many
 * guards were unmapped. */
void teffi_guards_lower_count(unsigned mapped);

/* For tests: if it is not 0, behave as on a kernel before 6.13, with at most so many guards besides
 * the reserved ones. relaxed. */
extern _Atomic unsigned teffi_guards_simulated;

/* teffi_pages_trim_heap - return the heap's free pages to the system. Other threads that allocate
 * from the heap may be delayed by some milliseconds. */
void teffi_pages_trim_heap(void);
