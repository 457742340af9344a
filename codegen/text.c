/* text.c - a text that grows.
 * Way:     emit_*, model -> [text] -> codegen's response */
#include "text.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { COLUMNS = 100 };

static void reserve(teffi_text *text, size_t more)
{
    if (text->size - text->len <= more) {
        size_t size = (text->size + more + 1) * 2;
        char *data = teffi_pool_alloc(text->pool, size);

        if (text->len != 0) {
            memcpy(data, text->data, text->len);
        }
        text->data = data;
        text->size = size;
    }
}

static void add(teffi_text *text, const char *s, size_t n)
{
    reserve(text, n);
    memcpy(text->data + text->len, s, n);
    text->len += n;
    text->data[text->len] = '\0';
}

void teffi_text_printf(teffi_text *text, const char *fmt, ...)
{
    va_list args;
    int n;

    assert(fmt != NULL); /* also tells gcc's sanitized build, which warns otherwise */
    va_start(args, fmt);
    n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    reserve(text, (size_t)n + 1);
    va_start(args, fmt);
    vsnprintf(text->data + text->len, (size_t)n + 1, fmt, args);
    va_end(args);
    text->len += (size_t)n;
}

void teffi_text_expand(teffi_text *text, const char *template, const teffi_values *v)
{
    const char *dollar;

    while ((dollar = strchr(template, '$')) != NULL) {
        const char *value = v->values[(unsigned char)dollar[1] & 127];

        assert(value != NULL);
        add(text, template, (size_t)(dollar - template));
        add(text, value, strlen(value));
        template = dollar + 2;
    }
    add(text, template, strlen(template));
}

/* Where a line of code is broken: behind the last comma before max, else behind the first. */
static size_t break_at(const char *line, size_t n, size_t max)
{
    size_t at = 0;

    for (size_t i = 0; i + 2 < n && (i < max || at == 0); i++) {
        if (line[i] == ',' && line[i + 1] == ' ') {
            at = i + 2;
        }
    }
    return at;
}

static void wrap_line(teffi_text *out, const char *line, size_t n)
{
    const char *paren = memchr(line, '(', n);
    size_t indent = paren != NULL && paren - line < COLUMNS / 2 ? (size_t)(paren - line) + 1 : 8;
    size_t column = 0; /* of what stands before the rest of the line */
    size_t at;

    while (column + n > COLUMNS && (at = break_at(line, n, COLUMNS - column)) != 0) {
        add(out, line, at - 1);
        line += at;
        n -= at;
        column = indent;
        teffi_text_printf(out, "\n%*s", (int)indent, "");
    }
    add(out, line, n);
}

/* Not a comment, nor a part of a macro, where a new line would need a backslash. */
static int is_code(const char *line, size_t n)
{
    const char *s = line + strspn(line, " ");

    return *s != '/' && *s != '*' && *s != '#' && line[n - 1] != '\\' &&
           (n < 2 || memcmp(line + n - 2, "})", 2) != 0);
}

void teffi_text_wrap(teffi_text *text)
{
    teffi_text out = {.pool = text->pool};

    for (const char *line = text->data; line != NULL && *line != '\0';) {
        size_t n = strcspn(line, "\n");

        if (n > COLUMNS && is_code(line, n)) {
            wrap_line(&out, line, n);
        } else {
            add(&out, line, n);
        }
        line += n;
        if (*line == '\n') {
            add(&out, line++, 1);
        }
    }
    *text = out;
}

/* The length of a UTF-8 sequence that may stand in a C comment; 0 for stray bytes and for the
 * marks that change the direction of text, which compilers warn of. */
static size_t utf8_len(const unsigned char *s)
{
    size_t n = s[0] >= 0xf0 && s[0] < 0xf5 ? 4 : s[0] >= 0xe0 ? 3 : 2;

    if (s[0] < 0xc2 || s[0] >= 0xf5) {
        return 0;
    }
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    if (s[0] == 0xe2 && ((s[1] == 0x80 && s[2] >= 0x8e && s[2] <= 0xae) ||
                         (s[1] == 0x81 && s[2] >= 0xa6 && s[2] <= 0xa9))) {
        return 0;
    }
    return n;
}

static int pair(const char *s, char a, char b)
{
    return s[0] == a && s[1] == b;
}

/* One character of a comment; returns where the next one starts. */
static const char *comment_char(teffi_text *text, const char *s)
{
    unsigned char c = (unsigned char)*s;
    size_t n = c >= 0x80 ? utf8_len((const unsigned char *)s) : 1;

    if (n == 0 || (c < 0x20 && c != '\t') || c == 0x7f) {
        add(text, "?", 1);
        return s + 1;
    }
    add(text, s, n);
    if (pair(s, '*', '/') || pair(s, '/', '*') || pair(s, '?', '?')) {
        add(text, " ", 1);
    }
    return s + n;
}

static size_t line_len(const char *s)
{
    size_t n = strcspn(s, "\n");

    while (n > 0 && strchr(" \t\r\\", s[n - 1]) != NULL) {
        n--;
    }
    return n;
}

char *teffi_text_defuse(teffi_pool *pool, const char *comment)
{
    teffi_text text = {.pool = pool};

    add(&text, "", 0);
    while (*comment != '\0') {
        const char *end = comment + line_len(comment);

        while (comment < end) {
            comment = comment_char(&text, comment);
        }
        comment += strcspn(comment, "\n");
        if (*comment == '\n') {
            add(&text, comment++, 1);
        }
    }
    return text.data;
}

static int blank(const char *s)
{
    return s == NULL || s[strspn(s, " \t\r\n\\")] == '\0';
}

void teffi_text_comment(teffi_text *text, const char *indent, const char *comment)
{
    const char *opening = "/*";

    for (const char *line = comment; !blank(line); line += strcspn(line, "\n") + 1) {
        const char *s = line;
        const char *end = s + line_len(s);

        if (s == end && opening[0] == '/') {
            continue; /* blank lines before the text */
        }
        teffi_text_printf(text, "%s%s%s", indent, opening, s == end || *s == ' ' ? "" : " ");
        while (s < end) {
            s = comment_char(text, s);
        }
        add(text, "\n", 1);
        opening = " *";
    }
    if (opening[0] == ' ') {
        text->len--; /* the mark stands on the last line */
        add(text, " */\n", 4);
    }
}
