/* names.c - how names of a .proto file are written in C: ours, and protobuf-c's.
 * Way:     model -> [names] -> check, emit_* */
#include "names.h"

#include <string.h>

static bool upper(char c)
{
    return c >= 'A' && c <= 'Z';
}

static bool lower(char c)
{
    return c >= 'a' && c <= 'z';
}

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

static char to_lower(char c)
{
    return upper(c) ? (char)(c - 'A' + 'a') : c;
}

static char to_upper(char c)
{
    return lower(c) ? (char)(c - 'a' + 'A') : c;
}

/* Does a word begin at s[i]? "getURL", "HTTPReply", "Add2Numbers". */
static bool word_begins(const char *s, size_t i)
{
    if (i == 0 || !upper(s[i])) {
        return false;
    }
    return lower(s[i - 1]) || digit(s[i - 1]) || (upper(s[i - 1]) && lower(s[i + 1]));
}

char *teffi_snake(teffi_pool *pool, const char *full)
{
    char *out = teffi_pool_alloc(pool, strlen(full) * 2 + 1);
    size_t n = 0;

    for (size_t i = 0; full[i] != '\0'; i++) {
        char c = full[i] == '.' ? '_' : to_lower(full[i]);

        if (word_begins(full, i) && n > 0 && out[n - 1] != '_') {
            out[n++] = '_';
        }
        if (c != '_' || n == 0 || out[n - 1] != '_') {
            out[n++] = c;
        }
    }
    return out;
}

char *teffi_pbc_type(teffi_pool *pool, const char *full)
{
    char *out = teffi_pool_alloc(pool, strlen(full) * 2 + 1);
    size_t n = 0;
    bool begins = true;

    for (; *full != '\0'; full++) {
        if (*full == '.') {
            out[n++] = '_';
            out[n++] = '_';
            begins = true;
        } else if (*full == '_') {
            begins = true;
        } else {
            out[n++] = begins ? to_upper(*full) : *full;
            begins = false;
        }
    }
    return out;
}

char *teffi_pbc_lower(teffi_pool *pool, const char *full)
{
    char *out = teffi_pool_alloc(pool, strlen(full) * 2 + 1);
    size_t n = 0;
    bool was_upper = true;

    for (; *full != '\0'; full++) {
        if (*full == '.') {
            out[n++] = '_';
            out[n++] = '_';
            was_upper = true;
            continue;
        }
        if (upper(*full) && !was_upper) {
            out[n++] = '_';
        }
        out[n++] = to_lower(*full);
        was_upper = upper(*full);
    }
    return out;
}

char *teffi_pbc_upper(teffi_pool *pool, const char *full)
{
    char *out = teffi_pbc_lower(pool, full);

    for (char *s = out; *s != '\0'; s++) {
        *s = to_upper(*s);
    }
    return out;
}

char *teffi_lower(teffi_pool *pool, const char *name)
{
    char *out = teffi_pool_printf(pool, "%s", name);

    for (char *s = out; *s != '\0'; s++) {
        *s = to_lower(*s);
    }
    return out;
}

bool teffi_is_identifier(const char *name)
{
    const char *s = name;

    if (s == NULL || !(upper(*s) || lower(*s) || *s == '_')) {
        return false;
    }
    while (upper(*s) || lower(*s) || digit(*s) || *s == '_') {
        s++;
    }
    return *s == '\0';
}
