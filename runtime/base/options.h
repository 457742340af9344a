/* options.h - options structs that can grow: each begins with the size known to its caller. New
 * members go to the end, but not into padding, which older callers may leave uninitialized.
 * Way:     public functions that take options -> [options]
 * Threads: pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* teffi_options_check_and_copy - copy a caller's options to this library's struct. Members that the
 * caller's headers lack become 0, which stands for the default.
 * in:   from, whose first member is size_t size; NULL: all defaults. to, of size bytes. name, of
 *       the type. text, of TEFF_TEXT_MAX bytes, may be NULL.
 * out:  *to, with this library's size. false, with text: from->size is not set or not plausible, or
 *       a member unknown to this library is set. */
bool teffi_options_check_and_copy(void *to, size_t size, const void *from, const char *name,
                                  char *text);

/* teffi_or_default - out: the value `given` if it is not 0, else the value `otherwise`. */
static inline uint32_t teffi_or_default(uint32_t given, uint32_t otherwise)
{
    return given ? given : otherwise;
}
