/* scratch_run.c - run protoc, the plugin and compilers in a scratch folder of their own.
 * Way:     meson's environment -> [scratch_run] -> test_*.c */
#include "scratch_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

char run_output[65536];

static char folder[256];

int run_setup(void **state)
{
    const char *base = getenv("TMPDIR") != NULL ? getenv("TMPDIR") : P_tmpdir;
    char out[300];

    snprintf(folder, sizeof folder, "%s/teff-codegen-XXXXXX", base);
    assert_non_null(mkdtemp(folder));
    snprintf(out, sizeof out, "%s/out", folder);
    assert_int_equal(mkdir(out, 0777), 0);
    return 0;
}

int run_teardown(void **state)
{
    return run("rm -rf \"$PWD\"");
}

static FILE *open_in(const char *name, const char *mode)
{
    char path[1024];

    snprintf(path, sizeof path, "%s%s%s", name[0] == '/' ? "" : folder, name[0] == '/' ? "" : "/",
             name);
    return fopen(path, mode);
}

void run_write_bytes(const char *name, const void *data, size_t n)
{
    FILE *f = open_in(name, "we");

    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

void run_write(const char *name, const char *text)
{
    run_write_bytes(name, text, strlen(text));
}

static char *read_stream(FILE *f, size_t *n)
{
    size_t size = 1 << 16;
    char *data = malloc(size);
    size_t got;

    *n = 0;
    while (data != NULL && (got = fread(data + *n, 1, size - *n - 1, f)) > 0) {
        *n += got;
        if (*n + 1 == size) {
            size *= 2;
            data = realloc(data, size);
        }
    }
    assert_non_null(data);
    data[*n] = '\0';
    return data;
}

char *run_read(const char *name, size_t *n)
{
    FILE *f = open_in(name, "re");
    size_t ignored;
    char *data;

    if (f == NULL) {
        return NULL;
    }
    data = read_stream(f, n != NULL ? n : &ignored);
    fclose(f);
    return data;
}

int run(const char *fmt, ...)
{
    char command[4096];
    char line[8192];
    va_list args;
    char *output;
    size_t n;
    FILE *f;

    va_start(args, fmt);
    vsnprintf(command, sizeof command, fmt, args);
    va_end(args);
    snprintf(line, sizeof line, "cd '%s' && exec 2>&1\n%s", folder, command);
    f = popen(line, "re");
    assert_non_null(f);
    output = read_stream(f, &n);
    snprintf(run_output, sizeof run_output, "%s", output);
    free(output);
    n = (size_t)pclose(f);
    return WIFEXITED((int)n) ? WEXITSTATUS((int)n) : 128 + WTERMSIG((int)n);
}

int run_protoc(const char *parameter, const char *files)
{
    return run("\"$PROTOC\" --plugin=protoc-gen-teff=\"$PLUGIN\" -I. -I\"$PROTO\" "
               "--teff_out=%s%sout %s",
               parameter, *parameter != '\0' ? ":" : "", files);
}

bool run_out_empty(void)
{
    return run("test -z \"$(ls -A out)\"") == 0;
}

void run_refused(const char *proto, const char *where, const char *what)
{
    run_write("x.proto", proto);
    assert_int_not_equal(run_protoc("", "x.proto"), 0);
    if (strstr(run_output, where) == NULL || strstr(run_output, what) == NULL) {
        fail_msg("expected \"%s\" and \"%s\" in: %s", where, what, run_output);
    }
    assert_true(run_out_empty());
}

void run_compiles(const char *stem)
{
    static const char strict[] = "-Wall -Wextra -Wpedantic -Wconversion -Wshadow "
                                 "-Wstrict-prototypes -Wmissing-prototypes -Wwrite-strings "
                                 "-Wcast-qual -Werror";
    static const char strict_cxx[] = "-Wall -Wextra -Wpedantic -Werror";

    if (run("cd out && case $CC in *clang*) O=;; *) O=-Woverride-init;; esac && "
            "$CC -std=c11 $O %s -I. -I\"$INCLUDE\" -fsyntax-only %s.teff.c",
            strict, stem) != 0) {
        fail_msg("as C11: %s", run_output);
    }
    if (run("test -z \"$CXX\" || cd out && $CXX -x c++ -std=c++17 %s -I. -I\"$INCLUDE\" "
            "-fsyntax-only %s.teff.c",
            strict_cxx, stem) != 0) {
        fail_msg("as C++17: %s", run_output);
    }
}

void run_accepted(const char *proto)
{
    run_write("x.proto", proto);
    if (run_protoc("", "x.proto") != 0) {
        fail_msg("refused: %s", run_output);
    }
    run_compiles("x");
}

uint8_t *run_request(const char *files, size_t *n)
{
    uint8_t *data;

    run_write("dump", "#!/bin/sh\nexec cat > request\n");
    assert_int_equal(run("chmod +x dump && \"$PROTOC\" --plugin=protoc-gen-dump=dump -I. "
                         "-I\"$PROTO\" --dump_out=. %s",
                         files),
                     0);
    data = (uint8_t *)run_read("request", n);
    assert_non_null(data);
    return data;
}
