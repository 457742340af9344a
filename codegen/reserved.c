/* reserved.c - the names that C, C++, their headers and the runtime keep for themselves.
 * Way:     check -> [reserved]; part of names.h */
#include "names.h"

#include <stdlib.h>
#include <string.h>

/* Both lists are sorted by strcmp. */
/* clang-format off */
static const char *const keywords[] = {
    "BUFSIZ", "CHAR_BIT", "CHAR_MAX", "CHAR_MIN", "EDOM", "EILSEQ", "EOF", "ERANGE", "FILENAME_MAX",
    "FOPEN_MAX", "INT_MAX", "INT_MIN", "LONG_MAX", "LONG_MIN", "NAN", "NDEBUG", "NULL", "PATH_MAX",
    "RAND_MAX", "SCHAR_MAX", "SCHAR_MIN", "SEEK_CUR", "SEEK_END", "SEEK_SET", "SHRT_MAX",
    "SHRT_MIN", "SIZE_MAX", "SSIZE_MAX", "UCHAR_MAX", "UINT_MAX", "ULONG_MAX", "USHRT_MAX",
    "alignas", "alignof", "alloca", "and", "and_eq", "asm", "assert", "atomic_init", "auto",
    "bitand", "bitor", "bool", "break", "case", "catch", "char", "char16_t", "char32_t", "char8_t",
    "class", "co_await", "co_return", "co_yield", "compl", "complex", "concept", "const",
    "const_cast", "consteval", "constexpr", "constinit", "continue", "decltype", "default",
    "delete", "do", "double", "dynamic_cast", "else", "enum", "errno", "explicit", "export",
    "extern", "false", "float", "for", "fpclassify", "friend", "goto", "h_addr", "h_errno", "if",
    "imaginary", "inline", "int", "isalnum", "isalpha", "isdigit", "isfinite", "isgreater", "isinf",
    "isless", "islower", "isnan", "isnormal", "isprint", "ispunct", "isspace", "isupper",
    "kill_dependency", "linux", "long", "math_errhandling", "mutable", "namespace", "new",
    "noexcept", "noreturn", "not", "not_eq", "nullptr", "offsetof", "operator", "or", "or_eq",
    "private", "protected", "public", "register", "reinterpret_cast", "requires", "restrict",
    "return", "sa_handler", "sa_sigaction", "setjmp", "short", "si_pid", "si_uid", "si_value",
    "sigmask", "signbit", "signed", "sizeof", "st_atime", "st_ctime", "st_mtime", "static",
    "static_assert", "static_cast", "stderr", "stdin", "stdout", "strdupa", "strndupa", "struct",
    "switch", "template", "this", "thread_local", "throw", "timeradd", "timerclear", "timercmp",
    "timerisset", "timersub", "toascii", "true", "try", "typedef", "typeid", "typename", "typeof",
    "typeof_unqual", "union", "unix", "unsigned", "using", "va_arg", "va_copy", "va_end",
    "va_start", "virtual", "void", "volatile", "wchar_t", "while", "xor", "xor_eq",
};

static const char *const taken[] = {
    "DIR", "FILE", "abort", "abs", "accept", "access", "alarm", "arena", "atexit", "base", "bind",
    "brk", "call", "calloc", "chdir", "clearenv", "clock", "clock_t", "close", "connect", "cos",
    "creat", "ctime", "ctx", "daemon", "dev_t", "div", "dst", "dup", "environ", "err", "error",
    "exit", "exp", "fclose", "ffs", "floor", "fork", "free", "gamma", "getenv", "getpid", "gid_t",
    "grain", "hypot", "i", "in", "index", "init", "int16_t", "int32_t", "int64_t", "int8_t",
    "intmax_t", "intptr_t", "ioctl", "jmp_buf", "key", "key_text", "kill", "levels", "link",
    "listen", "log", "lseek", "main", "malloc", "max_align_t", "memchr", "memcmp", "memcpy",
    "memmove", "memset", "methods", "mmap", "mode_t", "mount", "nice", "off_t", "open", "out",
    "pause", "pid_t", "pipe", "poll", "pow", "printf", "ptrdiff_t", "putenv", "qsort", "raise",
    "rand", "random", "read", "realloc", "recv", "remove", "rename", "reply", "round", "select",
    "self", "send", "shutdown", "sigaction", "signal", "sin", "size_t", "sleep", "socket", "sqrt",
    "src", "ssize_t", "stat", "state", "strcmp", "strdup", "strlen", "swab", "sync", "syscall",
    "syslog", "system", "tan", "tee", "time", "time_t", "timer_t", "times", "truncate", "types",
    "uid_t", "uint16_t", "uint32_t", "uint64_t", "uint8_t", "uintmax_t", "uintptr_t", "unlink",
    "user", "va_list", "vfork", "wait", "warn", "warnx", "why", "write", "yn",
};
/* clang-format on */

static int compare(const void *name, const void *at)
{
    return strcmp(name, *(const char *const *)at);
}

static bool in(const char *const *list, size_t n, const char *name)
{
    return bsearch(name, list, n, sizeof *list, compare) != NULL;
}

/* EIO, SIGINT, UINT8_MAX: what <errno.h>, <signal.h> and <stdint.h> keep for themselves. */
static bool reserved_family(const char *name)
{
    size_t n = strlen(name);
    size_t capitals = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");

    if (capitals != n || n < 2 || strstr(name, "__") != NULL) {
        return false;
    }
    return (name[0] == 'E' && name[1] != '_') || strncmp(name, "SIG", 3) == 0 ||
           ((strncmp(name, "INT", 3) == 0 || strncmp(name, "UINT", 4) == 0) &&
            (strcmp(name + n - 3, "MAX") == 0 || strcmp(name + n - 3, "MIN") == 0));
}

bool teffi_is_keyword(const char *name)
{
    return in(keywords, sizeof keywords / sizeof *keywords, name) || reserved_family(name);
}

bool teffi_is_taken(const char *name)
{
    static const char *const prefixes[] = {"_",      "teff_",       "teffi_",    "TEFF_",
                                           "Teff__", "protobuf_c_", "ProtobufC", "PROTOBUF_C_"};

    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0) {
            return true;
        }
    }
    return in(taken, sizeof taken / sizeof *taken, name);
}
