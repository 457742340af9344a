/* text.c - a growing string, for generated code and error messages. */
#include "model/text.h"

#include <assert.h>
#include <string.h>

enum { COLUMNS = 100 };

void teffi_text_add(teffi_text *text, const char *s, size_t n)
{
    if (text->size - text->len <= n) {
        text->size = (text->size + n + 1) * 2;
        char *data = teffi_pool_alloc(text->pool, text->size);
        memcpy(data, text->data ? text->data : "", text->len);
        text->data = data;
    }
    memcpy(text->data + text->len, s, n);
    text->len += n;
    text->data[text->len] = '\0';
}

void teffi_text_printf(teffi_text *text, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    const char *s = teffi_pool_vprintf(text->pool, fmt, args);
    va_end(args);
    teffi_text_add(text, s, strlen(s));
}

void teffi_text_expand_template(teffi_text *text, const char *template, const teffi_values *v)
{
    const char *dollar;
    while ((dollar = strchr(template, '$')) != NULL) {
        const char *value = v->values[(unsigned char)dollar[1] & 127];
        assert(value);
        teffi_text_add(text, template, (size_t)(dollar - template));
        teffi_text_add(text, value, strlen(value));
        template = dollar + 2;
    }
    teffi_text_add(text, template, strlen(template));
}

void teffi_text_wrap(teffi_text *text)
{
    teffi_text out = {.pool = text->pool};
    size_t indent = 0; /* number of spaces that `out` already has in front of `line` */
    for (const char *line = text->data; *line;) {
        size_t n = strcspn(line, "\n") + 1;
        bool is_long = indent + n > COLUMNS + 1 && !strchr("/*#(", line[strspn(line, " ")]);
        const char *comma = is_long ? memrchr(line, ',', COLUMNS - indent) : NULL;
        if (is_long && !comma)
            comma = memchr(line, ',', n - 2);
        if (comma)
            n = (size_t)(comma - line) + 1;
        teffi_text_add(&out, line, n);
        /* The rest of the line begins with the space that followed the comma; 7 more spaces in
         * front of it make an indent of 8 columns. */
        indent = comma ? 7 : 0;
        teffi_text_add(&out, "\n       ", comma ? 1 + indent : 0);
        line += n;
    }
    *text = out;
}

/* Do the two bytes at s start an invalid UTF-8 sequence: one that is overlong, or that encodes a
 * surrogate or a number over 0x10ffff? in: s[0] is 0xc2 to 0xf4. */
static bool starts_invalid_utf8_sequence(const unsigned char *s)
{
    return (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] >= 0xa0) ||
           (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] >= 0x90);
}

/* in:  s: begins with a byte of 0x80 or more.
 * out: the length of the UTF-8 sequence at s. 0: the bytes at s are not a UTF-8 sequence, or they
 *      encode a character that compilers warn about: a line separator, or a mark that changes the
 *      direction of text. */
static size_t get_allowed_utf8_length(const unsigned char *s)
{
    size_t n = s[0] >= 0xf0 && s[0] < 0xf5 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] >= 0xf5 || starts_invalid_utf8_sequence(s))
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if (s[0] == 0xe2 && ((s[1] == 0x80 && (s[2] == 0x8e || s[2] == 0x8f)) ||
                         (s[1] == 0x80 && s[2] >= 0xa8 && s[2] <= 0xae) ||
                         (s[1] == 0x81 && s[2] >= 0xa6 && s[2] <= 0xa9)))
        return 0;
    return n;
}

/* Appends the character at s to text. A byte that may not be in a C comment becomes '?'. If two
 * characters would begin or end a comment, or are two '?' (the beginning of a trigraph), puts a
 * space between them. out: the address of the character after the one at s. */
static const char *add_sanitized_char(teffi_text *text, const char *s)
{
    unsigned char c = (unsigned char)*s;
    size_t n = c >= 0x80 ? get_allowed_utf8_length((const unsigned char *)s) : 1;
    bool replace = n == 0 || (c < 0x20 && c != '\t') || c == 0x7f;
    if ((replace || c == '?') && text->len > 0 && text->data[text->len - 1] == '?')
        teffi_text_add(text, " ", 1);
    if (replace) {
        teffi_text_add(text, "?", 1);
        return s + 1;
    }
    teffi_text_add(text, s, n);
    if (strncmp(s, "*/", 2) == 0 || strncmp(s, "/*", 2) == 0)
        teffi_text_add(text, " ", 1);
    return s + n;
}

char *teffi_text_sanitize_comment(teffi_pool *pool, const char *comment)
{
    teffi_text text = {.pool = pool};
    if (!comment)
        return NULL;
    teffi_text_add(&text, "", 0);
    while (*comment) {
        size_t n = strcspn(comment, "\n");
        const char *next = comment + n;
        while (n > 0 && strchr(" \t\r\\", comment[n - 1]) != NULL)
            n--;
        for (const char *end = comment + n; comment < end;)
            comment = add_sanitized_char(&text, comment);
        comment = next;
        if (*comment == '\n')
            teffi_text_add(&text, comment++, 1);
    }
    return text.data;
}

void teffi_text_add_comment(teffi_text *text, const char *indent, const char *comment)
{
    const char *opening = "/*";
    const char *line = comment ? comment : "";
    for (line += strspn(line, "\n"); line[strspn(line, "\n")] != '\0'; line += *line == '\n') {
        int n = (int)strcspn(line, "\n");
        teffi_text_printf(text, "%s%s%s%.*s\n", indent, opening, n == 0 || *line == ' ' ? "" : " ",
                          n, line);
        opening = " *";
        line += n;
    }
    if (opening[0] == ' ') {
        text->len--; /* so that the closing mark is on the last line */
        teffi_text_add(text, " */\n", 4);
    }
}
