/* pages.h - memory that begins as an image, or as zeros, and can be made that again: its pages are
 * given back.
 * Way:     grains/slab, node/call_space -> [pages] -> the kernel
 * Threads: any; forget, zeros_again only while nobody else writes there. Readers may: they see what
 *          was, or the image. */
#ifndef TEFFI_PLATFORM_PAGES_H
#define TEFFI_PLATFORM_PAGES_H

#include <stdbool.h>
#include <stddef.h>

typedef struct teffi_pages {
    int fd; /* holds the image; each mapping is a private copy of it */
    size_t bytes;
    void *image; /* where there are no such files: mappings are filled from it, and stay */
} teffi_pages;

/* teffi_pages_init - in: image, copied; bytes, a multiple of the page size. out: false: no memory.
 */
bool teffi_pages_init(teffi_pages *pages, const void *image, size_t bytes);
void teffi_pages_fini(teffi_pages *pages); /* what is mapped stays */

/* teffi_pages_map - one more copy. out: NULL: memory is out. */
void *teffi_pages_map(const teffi_pages *pages);
void teffi_pages_unmap(const teffi_pages *pages, void *at);

/* teffi_pages_forget - a part of a mapping, whole pages, is the image again and holds no memory.
 * out: false: it cannot be; nothing was changed. */
bool teffi_pages_forget(const teffi_pages *pages, void *at, size_t bytes);

/* teffi_pages_zeros - memory of its own: zeros, which hold no pages until they are written.
 * out: NULL: memory is out. */
void *teffi_pages_zeros(size_t bytes);
void teffi_pages_zeros_free(void *at, size_t bytes);

/* teffi_pages_zeros_again - a part of it is zeros again and holds no memory.
 * out: false: it is not of whole pages; nothing was changed. */
bool teffi_pages_zeros_again(void *at, size_t bytes);

/* teffi_pages_trim_heap - what the heap has in free pages goes back to the system. Others that need
 * memory from the heap meanwhile may wait for it some milliseconds. */
void teffi_pages_trim_heap(void);

#endif
