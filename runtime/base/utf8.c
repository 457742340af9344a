/* utf8.c - UTF-8 by the table of well-formed sequences in the Unicode standard. */
#include "base/utf8.h"

#include "base/load.h"

/* out: length of the well-formed sequence at p; 0: there is none. */
static size_t sequence_length(const uint8_t *p, size_t left)
{
    uint8_t low = 0x80, high = 0xbf; /* limits of the second byte */
    size_t n = p[0] < 0x80 ? 1 : p[0] >= 0xc2 && p[0] < 0xe0 ? 2 : (p[0] & 0xf0) == 0xe0 ? 3 : 4;
    if (n == 1)
        return 1;
    if (n == 4 && (p[0] < 0xf0 || p[0] > 0xf4)) /* these bytes begin no sequence */
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

/* Tests 8 bytes at a time: first the last 8, then the others from the beginning. Bytes may be
 * tested twice. If there are 4 to 7 bytes, the first 4 and the last 4 are tested; if there are 1 to
 * 3, the first, the middle and the last byte. */
static inline bool is_ascii(const uint8_t *p, size_t n)
{
    static const uint64_t tops = 0x8080808080808080u;
    uint64_t all;
    if (n >= 8) {
        all = teffi_load64(p + n - 8);
        for (size_t at = 0; at + 8 < n; at += 8)
            all |= teffi_load64(p + at);
    } else if (n >= 4) {
        all = teffi_load32(p) | teffi_load32(p + n - 4);
    } else {
        all = n ? p[0] | p[n / 2] | p[n - 1] : 0;
    }
    return !(all & tops);
}

bool teffi_utf8_valid(const uint8_t *text, size_t len)
{
    if (is_ascii(text, len))
        return true;
    for (size_t at = 0, n; at < len; at += n)
        if ((n = sequence_length(text + at, len - at)) == 0)
            return false;
    return true;
}
