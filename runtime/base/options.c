/* options.c - options structs that can grow. */
#include "base/options.h"

#include <string.h>
#include "base/error.h"

enum { SIZE_LIMIT = 65536 }; /* if size is larger, the caller has not set it */

static bool bytes_are_zero(const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i])
            return false;
    return true;
}

bool teffi_options_check_and_copy(void *to, size_t size, const void *from, const char *name,
                                  char *text)
{
    size_t given = size;
    memset(to, 0, size);
    if (from)
        memcpy(&given, from, sizeof given); /* size is the first member of each struct */
    if (given < sizeof given || given > SIZE_LIMIT) {
        (void)teffi_fail(text, TEFF_E_INVALID, "%s.size is %zu: set it to sizeof(%s)", name, given,
                         name);
        return false;
    }
    if (given > size && !bytes_are_zero((const char *)from + size, given - size)) {
        (void)teffi_fail(text, TEFF_E_INVALID,
                         "a member of %s is set that this library does not have", name);
        return false;
    }
    if (from)
        memcpy(to, from, given < size ? given : size);
    memcpy(to, &size, sizeof size);
    return true;
}
