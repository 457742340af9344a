/* names.c - how names of a .proto file are written in C: ours, and protobuf-c's. */
#include "model/names.h"

#include <ctype.h>
#include <string.h>

/* Does a word begin at s[i]? "getURL", "HTTPReply", "Add2Numbers". */
static bool word_begins(const unsigned char *s, size_t i)
{
    if (i == 0 || !isupper(s[i]))
        return false;
    return islower(s[i - 1]) || isdigit(s[i - 1]) || (isupper(s[i - 1]) && islower(s[i + 1]));
}

char *teffi_snake(teffi_pool *pool, const char *full)
{
    const unsigned char *s = (const unsigned char *)full;
    char *out = teffi_pool_alloc(pool, strlen(full) * 2 + 1);
    size_t n = 0;
    for (size_t i = 0; s[i]; i++) {
        char c = s[i] == '.' ? '_' : (char)tolower(s[i]);
        if (word_begins(s, i) && n > 0 && out[n - 1] != '_')
            out[n++] = '_';
        if (c != '_' || n == 0 || out[n - 1] != '_')
            out[n++] = c;
    }
    return out;
}

/* protobuf-c writes a dot as two underscores. */
static size_t add_dot(char *out, size_t n)
{
    out[n++] = '_';
    out[n++] = '_';
    return n;
}

char *teffi_pbc_type(teffi_pool *pool, const char *full)
{
    const unsigned char *s = (const unsigned char *)full;
    char *out = teffi_pool_alloc(pool, strlen(full) * 2 + 1);
    size_t n = 0;
    for (size_t i = 0; s[i]; i++) {
        bool begins = i == 0 || s[i - 1] == '.' || s[i - 1] == '_';
        if (s[i] == '.')
            n = add_dot(out, n);
        else if (s[i] != '_')
            out[n++] = (char)(begins ? toupper(s[i]) : s[i]);
    }
    return out;
}

char *teffi_pbc_lower(teffi_pool *pool, const char *full)
{
    const unsigned char *s = (const unsigned char *)full;
    char *out = teffi_pool_alloc(pool, strlen(full) * 2 + 1);
    size_t n = 0;
    for (size_t i = 0; s[i]; i++) {
        if (i > 0 && s[i - 1] != '.' && isupper(s[i]) && !isupper(s[i - 1]))
            out[n++] = '_';
        if (s[i] == '.')
            n = add_dot(out, n);
        else
            out[n++] = (char)tolower(s[i]);
    }
    return out;
}

char *teffi_pbc_upper(teffi_pool *pool, const char *full)
{
    char *out = teffi_pbc_lower(pool, full);
    for (char *s = out; *s; s++)
        *s = (char)toupper((unsigned char)*s);
    return out;
}

char *teffi_pbc_field(teffi_pool *pool, const char *name)
{
    char *out = teffi_pool_printf(pool, "%s", name);
    for (char *s = out; *s; s++)
        *s = (char)tolower((unsigned char)*s);
    return teffi_is_pbc_keyword(out) ? teffi_pool_printf(pool, "%s_", out) : out;
}

bool teffi_is_identifier(const char *name)
{
    return name && *name && !isdigit((unsigned char)*name) &&
           name[strspn(name, TEFFI_WORD_CHARS)] == '\0';
}
