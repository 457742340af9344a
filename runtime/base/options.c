/* options.c - options structs that can grow. */
#include "base/options.h"

#include <stdio.h>
#include <string.h>
#include <teff/error.h>

enum { SIZE_LIMIT = 65536 }; /* a larger size is invalid: the member was not set */

static bool bytes_are_zero(const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i])
            return false;
    return true;
}

bool teffi_options_take(void *to, size_t size, const void *from, const char *name, char *text)
{
    size_t given = size;
    char unused[TEFF_TEXT_MAX];
    text = text ? text : unused;
    memset(to, 0, size);
    if (from)
        memcpy(&given, from, sizeof given);
    if (given < sizeof given || given > SIZE_LIMIT) {
        snprintf(text, TEFF_TEXT_MAX, "%s.size is %zu: set it to sizeof(%s)", name, given, name);
        return false;
    }
    if (given > size && !bytes_are_zero((const char *)from + size, given - size)) {
        snprintf(text, TEFF_TEXT_MAX, "a member of %s is set that this library does not have",
                 name);
        return false;
    }
    if (from)
        memcpy(to, from, given < size ? given : size);
    memcpy(to, &size, sizeof size);
    return true;
}
