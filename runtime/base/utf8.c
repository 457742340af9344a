/* utf8.c - UTF-8 by the table of well-formed sequences in the Unicode standard. */
#include "base/utf8.h"

/* The length of a well-formed sequence at p, 0 when there is none. */
static size_t sequence(const uint8_t *p, size_t left)
{
    uint8_t low = 0x80, high = 0xbf;
    size_t n = p[0] < 0x80 ? 1 : p[0] >= 0xc2 && p[0] < 0xe0 ? 2 : (p[0] & 0xf0) == 0xe0 ? 3 : 4;
    if (n == 1)
        return 1;
    if (n == 4 && (p[0] < 0xf0 || p[0] > 0xf4))
        return 0;
    if (n > left)
        return 0;
    if (p[0] == 0xe0)
        low = 0xa0;
    else if (p[0] == 0xed)
        high = 0x9f;
    else if (p[0] == 0xf0)
        low = 0x90;
    else if (p[0] == 0xf4)
        high = 0x8f;
    if (p[1] < low || p[1] > high)
        return 0;
    for (size_t i = 2; i < n; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    return n;
}

bool teffi_utf8_valid(const uint8_t *text, size_t len)
{
    for (size_t at = 0, n; at < len; at += n)
        if ((n = sequence(text + at, len - at)) == 0)
            return false;
    return true;
}
