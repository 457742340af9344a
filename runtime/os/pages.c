/* pages.c - private mappings of a memfd, or anonymous ones; MADV_DONTNEED discards what was
 * written. Guards: MADV_GUARD_INSTALL, or mprotect. */
#include "os/pages.h"

#include <malloc.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102 /* kernel 6.13 */
#endif

static bool write_image(int fd, const char *image, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        ssize_t n = write(fd, image + at, bytes - at);
        if (n <= 0)
            return false;
        at += (size_t)n;
    }
    return true;
}

bool teffi_pages_init(teffi_pages *pages, const void *image, size_t bytes)
{
    *pages = (teffi_pages){.fd = image ? memfd_create("teff", MFD_CLOEXEC) : -1, .bytes = bytes};
    return !image || (pages->fd >= 0 && write_image(pages->fd, image, bytes));
}

void teffi_pages_fini(teffi_pages *pages)
{
    if (pages->fd >= 0)
        close(pages->fd);
    *pages = (teffi_pages){.fd = -1};
}

/* If there is no image, the whole reservation is usable at once: it reads as zeros, and a page of
 * it takes no memory until it is written to. If there is an image, teffi_pages_commit() makes the
 * reservation usable. */
void *teffi_pages_reserve(const teffi_pages *pages, size_t bytes)
{
    int protection = pages->bytes ? PROT_NONE : PROT_READ | PROT_WRITE;
    void *at = mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

/* Maps one copy of the image at `to`. out: false: no memory. */
static bool map_image(const teffi_pages *pages, char *to)
{
    return mmap(to, pages->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, pages->fd, 0) !=
           MAP_FAILED;
}

/* Fills the reservation with copies of the image, from byte `at` to byte at + bytes. Maps each copy
 * that begins in this range, even if it ends beyond the range. A copy that begins before the range
 * was mapped by an earlier call. If there is no image, the whole reservation is usable already. */
bool teffi_pages_commit(const teffi_pages *pages, void *reserved, size_t at, size_t bytes)
{
    for (size_t end = at + bytes; pages->bytes && at < end; at += pages->bytes - at % pages->bytes)
        if (at % pages->bytes == 0 && !map_image(pages, (char *)reserved + at))
            return false;
    return true;
}

bool teffi_pages_decommit(void *from, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return bytes % page == 0 && madvise(from, bytes, MADV_DONTNEED) == 0;
}

void teffi_pages_release(void *reserved, size_t bytes)
{
    munmap(reserved, bytes);
}

/* ---- guards ---- */

/* relaxed everywhere: counters, they order nothing */
static _Atomic unsigned mapped_guards;
_Atomic unsigned teffi_guards_simulated;

bool teffi_guard_install(void *at, size_t bytes, bool reserved, unsigned *mapped)
{
    unsigned simulated = atomic_load_explicit(&teffi_guards_simulated, memory_order_relaxed);
    unsigned max = simulated ? simulated : TEFFI_GUARDS_MAX;
    max += reserved ? TEFFI_GUARDS_RESERVED : 0;
    if (!simulated && madvise(at, bytes, MADV_GUARD_INSTALL) == 0)
        return true;
    /* On an old kernel mprotect() makes each guard a separate mapping, and the kernel limits the
     * number of mappings of a process. */
    if (atomic_fetch_add_explicit(&mapped_guards, 1, memory_order_relaxed) >= max ||
        mprotect(at, bytes, PROT_NONE) != 0) {
        teffi_guards_lower_count(1);
        return false;
    }
    ++*mapped;
    return true;
}

void teffi_guards_lower_count(unsigned mapped)
{
    atomic_fetch_sub_explicit(&mapped_guards, mapped, memory_order_relaxed);
}

void teffi_pages_trim_heap(void)
{
#ifdef __GLIBC__
    (void)malloc_trim(0);
#endif
}
