/* pages.c - private mappings, of a nameless file or of nothing: what was written to them goes with
 * MADV_DONTNEED.
 * Way:     grains/slab, node/call_space -> [pages] -> the kernel */
#include "platform/pages.h"

#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static bool fill(int fd, const char *image, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        ssize_t n = write(fd, image + at, bytes - at);
        if (n <= 0)
            return false;
        at += (size_t)n;
    }
    return true;
}

static int image_file(const void *image, size_t bytes)
{
    int fd = memfd_create("teff", MFD_CLOEXEC);
    if (fd >= 0 && !fill(fd, image, bytes)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

bool teffi_pages_init(teffi_pages *pages, const void *image, size_t bytes)
{
    *pages = (teffi_pages){.fd = image_file(image, bytes), .bytes = bytes};
    if (pages->fd >= 0)
        return true;
    pages->image = malloc(bytes);
    if (pages->image)
        memcpy(pages->image, image, bytes);
    return pages->image != NULL;
}

void teffi_pages_fini(teffi_pages *pages)
{
    if (pages->bytes && pages->fd >= 0)
        close(pages->fd);
    free(pages->image);
    *pages = (teffi_pages){.fd = -1};
}

void *teffi_pages_map(const teffi_pages *pages)
{
    int how = MAP_PRIVATE | (pages->fd < 0 ? MAP_ANONYMOUS : 0);
    void *at = mmap(NULL, pages->bytes, PROT_READ | PROT_WRITE, how, pages->fd, 0);
    if (at == MAP_FAILED)
        return NULL;
    if (pages->image)
        memcpy(at, pages->image, pages->bytes);
    return at;
}

void teffi_pages_unmap(const teffi_pages *pages, void *at)
{
    munmap(at, pages->bytes);
}

bool teffi_pages_forget(const teffi_pages *pages, void *at, size_t bytes)
{
    return pages->fd >= 0 && madvise(at, bytes, MADV_DONTNEED) == 0;
}

void *teffi_pages_zeros(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

void teffi_pages_zeros_free(void *at, size_t bytes)
{
    munmap(at, bytes);
}

bool teffi_pages_zeros_again(void *at, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (uintptr_t)at % page == 0 && bytes % page == 0 && !madvise(at, bytes, MADV_DONTNEED);
}

void teffi_pages_trim_heap(void)
{
#ifdef __GLIBC__
    (void)malloc_trim(0);
#endif
}
