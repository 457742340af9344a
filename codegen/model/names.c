/* names.c - how names of a .proto file are written in C: teff's names and protobuf-c's names;
 * the names that C, C++, their headers and the runtime reserve. */
#include "model/names.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- reserved names ---- */

/* Each list is sorted by strcmp. */
/* clang-format off */
/* Keywords and macros that pbc_keywords lacks. */
static const char *const keywords[] = {
    "BUFSIZ", "CHAR_BIT", "CHAR_MAX", "CHAR_MIN", "EDOM", "EILSEQ", "EOF", "ERANGE", "FILENAME_MAX",
    "FOPEN_MAX", "INT_MAX", "INT_MIN", "LONG_MAX", "LONG_MIN", "NAN", "NDEBUG", "NULL", "PATH_MAX",
    "RAND_MAX", "SCHAR_MAX", "SCHAR_MIN", "SEEK_CUR", "SEEK_END", "SEEK_SET", "SHRT_MAX",
    "SHRT_MIN", "SIZE_MAX", "SSIZE_MAX", "UCHAR_MAX", "UINT_MAX", "ULONG_MAX", "USHRT_MAX",
    "alignas", "alignof", "alloca", "assert", "atomic_init", "char16_t", "char32_t", "char8_t",
    "co_await", "co_return", "co_yield", "complex", "concept", "consteval", "constexpr",
    "constinit", "decltype", "errno", "export", "fpclassify", "h_addr", "h_errno", "imaginary",
    "isalnum", "isalpha", "isdigit", "isfinite", "isgreater", "isinf", "isless", "islower", "isnan",
    "isnormal", "isprint", "ispunct", "isspace", "isupper", "kill_dependency", "linux",
    "math_errhandling", "noexcept", "noreturn", "nullptr", "offsetof", "requires", "restrict",
    "sa_handler", "sa_sigaction", "setjmp", "si_pid", "si_uid", "si_value", "sigmask", "signbit",
    "st_atime", "st_ctime", "st_mtime", "static_assert", "stderr", "stdin", "stdout", "strdupa",
    "strndupa", "thread_local", "timeradd", "timerclear", "timercmp", "timerisset", "timersub",
    "toascii", "typeof", "typeof_unqual", "unix", "va_arg", "va_copy", "va_end", "va_start",
};

/* Names reserved at file scope: of the C library, and of parameters and variables in generated
 * functions. */
static const char *const taken[] = {
    "DIR", "FILE", "abort", "abs", "accept", "access", "alarm", "arena", "atexit", "base", "bind",
    "brk", "call", "calloc", "chdir", "clearenv", "clock", "clock_t", "close", "connect", "cos",
    "creat", "ctime", "ctx", "daemon", "dev_t", "div", "dst", "dup", "environ", "err", "error",
    "exit", "exp", "expiry_ms", "fclose", "ffs", "floor", "fork", "free", "gamma", "getenv",
    "getpid", "gid_t", "grain", "how", "hypot", "i", "in", "index", "init", "initial", "int16_t",
    "int32_t", "int64_t", "int8_t", "intmax_t", "intptr_t", "ioctl", "jmp_buf", "key", "key_text",
    "kill", "levels", "link", "listen", "log", "lseek", "main", "malloc", "max_align_t", "memchr",
    "memcmp", "memcpy", "memmove", "memset", "methods", "mmap", "mode_t", "mount", "nice",
    "observer", "off_t", "open", "options", "out", "pause", "pid_t", "pipe", "poll", "pow",
    "printf", "ptrdiff_t", "putenv", "qsort", "raise", "rand", "random", "read", "realloc", "recv",
    "remove", "rename", "response", "round", "select", "self", "send", "shutdown", "sigaction",
    "signal", "sin", "size", "size_t", "sleep", "slots", "socket", "sqrt", "src", "ssize_t", "stat",
    "state", "strcmp", "strdup", "strlen", "swab", "sync", "syscall", "syslog", "system", "tan",
    "tee", "texts", "time", "time_t", "timer_t", "times", "to", "truncate", "types", "uid_t",
    "uint16_t", "uint32_t", "uint64_t", "uint8_t", "uintmax_t", "uintptr_t", "unlink", "user",
    "va_list", "vfork", "wait", "warn", "warnx", "why", "write", "yn",
};
/* Names to which protobuf-c adds an underscore; from protobuf-c 1.4.1, c_helpers.cc. */
static const char *const pbc_keywords[] = {
    "and", "and_eq", "asm", "auto", "bitand", "bitor", "bool", "break", "case", "catch", "char",
    "class", "compl", "const", "const_cast", "continue", "default", "delete", "do", "double",
    "dynamic_cast", "else", "enum", "explicit", "extern", "false", "float", "for", "friend", "goto",
    "if", "inline", "int", "long", "mutable", "namespace", "new", "not", "not_eq", "operator", "or",
    "or_eq", "private", "protected", "public", "register", "reinterpret_cast", "return", "short",
    "signed", "sizeof", "static", "static_cast", "struct", "switch", "template", "this", "throw",
    "true", "try", "typedef", "typeid", "typename", "union", "unsigned", "using", "virtual", "void",
    "volatile", "wchar_t", "while", "xor", "xor_eq",
};
static const char *const pbc_types[] = {
    "int32_t", "int64_t", "protobuf_c_boolean", "size_t", "uint32_t", "uint64_t",
};
/* Names that each grain has already: ends of C names, and slots of its lifecycle. */
static const char *const grain_names[] = {
    "clear", "info", "methods", "on_activate", "on_deactivate", "on_reminder", "save", "type",
};
/* clang-format on */

static int compare_name_to_entry(const void *name, const void *at)
{
    return strcmp(name, *(const char *const *)at);
}

#define LIST_HAS(list, name)                                                                       \
    (bsearch(name, list, sizeof(list) / sizeof *(list), sizeof *(list), compare_name_to_entry) !=  \
     NULL)

/* Does the name have a form that a standard header reserves for macros: the form of EIO
 * (<errno.h>), of SIGINT (<signal.h>), or of UINT8_MAX (<stdint.h>)? */
static bool has_reserved_macro_form(const char *name)
{
    size_t n = strlen(name);
    size_t capitals = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    if (capitals != n || n < 2 || strstr(name, "__") != NULL)
        return false;
    return (name[0] == 'E' && name[1] != '_') || strncmp(name, "SIG", 3) == 0 ||
           ((strncmp(name, "INT", 3) == 0 || strncmp(name, "UINT", 4) == 0) &&
            (strcmp(name + n - 3, "MAX") == 0 || strcmp(name + n - 3, "MIN") == 0));
}

bool teffi_is_keyword_or_macro(const char *name)
{
    return LIST_HAS(pbc_keywords, name) || LIST_HAS(keywords, name) ||
           has_reserved_macro_form(name);
}

bool teffi_is_pbc_member_type(const char *name)
{
    return LIST_HAS(pbc_types, name);
}

bool teffi_is_reserved_at_file_scope(const char *name)
{
    static const char *const prefixes[] = {"_",      "teff_",       "teffi_",    "TEFF_",
                                           "Teff__", "protobuf_c_", "ProtobufC", "PROTOBUF_C_",
                                           "n_"}; /* n_FIELD: variables in generated functions */
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return LIST_HAS(taken, name);
}

/* ---- names in C ---- */

/* Must an underscore separate s[i] from the character before it? Yes at U in "getURL", at R
 * in "HTTPReply" and at N in "Add2Numbers". */
static bool needs_underscore(const unsigned char *s, size_t i)
{
    if (i == 0 || !isupper(s[i]))
        return false;
    return islower(s[i - 1]) || isdigit(s[i - 1]) || (isupper(s[i - 1]) && islower(s[i + 1]));
}

char *teffi_to_snake_case(teffi_pool *pool, const char *full)
{
    const unsigned char *s = (const unsigned char *)full;
    char *out = teffi_pool_alloc(pool, strlen(full) * 2 + 1);
    size_t n = 0;
    for (size_t i = 0; s[i]; i++) {
        char c = s[i] == '.' ? '_' : (char)tolower(s[i]);
        if (needs_underscore(s, i) && n > 0 && out[n - 1] != '_')
            out[n++] = '_';
        if (c != '_' || n == 0 || out[n - 1] != '_')
            out[n++] = c;
    }
    return out;
}

/* Appends two underscores to a name of n characters: protobuf-c writes them in place of a dot.
 * out: the new length. */
static size_t append_dot_as_underscores(char *out, size_t n)
{
    out[n++] = '_';
    out[n++] = '_';
    return n;
}

char *teffi_pbc_type_name(teffi_pool *pool, const char *full)
{
    const unsigned char *s = (const unsigned char *)full;
    char *out = teffi_pool_alloc(pool, strlen(full) * 2 + 1);
    size_t n = 0;
    for (size_t i = 0; s[i]; i++) {
        bool begins = i == 0 || s[i - 1] == '.' || s[i - 1] == '_';
        if (s[i] == '.')
            n = append_dot_as_underscores(out, n);
        else if (s[i] != '_')
            out[n++] = (char)(begins ? toupper(s[i]) : s[i]);
    }
    return out;
}

char *teffi_pbc_lowercase_name(teffi_pool *pool, const char *full)
{
    const unsigned char *s = (const unsigned char *)full;
    char *out = teffi_pool_alloc(pool, strlen(full) * 2 + 1);
    size_t n = 0;
    for (size_t i = 0; s[i]; i++) {
        if (i > 0 && s[i - 1] != '.' && isupper(s[i]) && !isupper(s[i - 1]))
            out[n++] = '_';
        if (s[i] == '.')
            n = append_dot_as_underscores(out, n);
        else
            out[n++] = (char)tolower(s[i]);
    }
    return out;
}

char *teffi_pbc_uppercase_name(teffi_pool *pool, const char *full)
{
    char *out = teffi_pbc_lowercase_name(pool, full);
    for (char *s = out; *s; s++)
        *s = (char)toupper((unsigned char)*s);
    return out;
}

char *teffi_method_slot_name(teffi_pool *pool, const char *name)
{
    char *snake = teffi_to_snake_case(pool, name);
    bool reserved = teffi_is_keyword_or_macro(snake) || LIST_HAS(grain_names, snake);
    return reserved ? teffi_pool_printf(pool, "%s_", snake) : snake;
}

char *teffi_pbc_field_name(teffi_pool *pool, const char *name)
{
    char *out = teffi_pool_printf(pool, "%s", name);
    for (char *s = out; *s; s++)
        *s = (char)tolower((unsigned char)*s);
    return LIST_HAS(pbc_keywords, out) ? teffi_pool_printf(pool, "%s_", out) : out;
}

bool teffi_is_identifier(const char *name)
{
    return name && *name && !isdigit((unsigned char)*name) &&
           name[strspn(name, TEFFI_WORD_CHARS)] == '\0';
}
