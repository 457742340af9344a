/* main.c - protoc-gen-teff, a protoc plugin: stdin, stdout, and protobuf-c's generator beside it.
 * Way:     protoc -> [main] -> codegen -> protoc-gen-c (a process) -> protoc
 * Exit:    0 answered (errors in .proto files are part of the answer: protoc prints them and
 * fails), 1 no answer, 2 wrong usage. */
#include "codegen.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#ifndef TEFF_VERSION
#define TEFF_VERSION "unknown"
#endif

static const char usage[] =
    "protoc-gen-teff " TEFF_VERSION ": typed C for grains from .proto files.\n"
    "It is run by protoc:\n"
    "\n"
    "  protoc -I. -I$(pkg-config --variable=protodir teff) --teff_out=DIR words.proto\n"
    "\n"
    "writes words.pb-c.h, words.pb-c.c (by protoc-gen-c, found on PATH), words.teff.h and\n"
    "words.teff.c. If protoc-gen-teff is not on PATH, add\n"
    "--plugin=$(pkg-config --variable=protoc_plugin teff).\n"
    "\n"
    "Parameters, before the folder as in --teff_out=lock=words.teff.lock:DIR, with commas "
    "between:\n"
    "  lock=FILE  check one .proto file against FILE, the list of the methods once published: it\n"
    "             is an error when a method is gone or has another id\n"
    "  emit_lock  write that list too, as words.teff.lock, to be committed\n";

static bool read_all(teffi_pool *pool, FILE *in, teffi_bytes *out)
{
    size_t size = 64 * 1024;
    uint8_t *data = teffi_pool_alloc(pool, size + 1);
    size_t n = 0;
    size_t got;

    while ((got = fread(data + n, 1, size - n, in)) > 0) {
        n += got;
        if (n == size) {
            uint8_t *bigger = teffi_pool_alloc(pool, size * 2 + 1);

            memcpy(bigger, data, n);
            data = bigger;
            size *= 2;
        }
    }
    *out = (teffi_bytes){data, n};
    return !ferror(in);
}

static const char *read_file(teffi_pool *pool, const char *path)
{
    FILE *f = fopen(path, "re");
    teffi_bytes bytes;
    bool ok;

    if (f == NULL) {
        return NULL;
    }
    ok = read_all(pool, f, &bytes);
    fclose(f);
    return ok ? (const char *)bytes.data : NULL; /* the pool's memory is zeroed: it ends with 0 */
}

/* A file in memory with these bytes, read from its start: a pipe would need somebody to fill it. */
static int memory_file(teffi_bytes bytes)
{
    int fd = memfd_create("request", MFD_CLOEXEC);
    size_t done = 0;

    while (fd >= 0 && done < bytes.n) {
        ssize_t n = write(fd, bytes.data + done, bytes.n - done);

        if (n < 0 && errno != EINTR) {
            close(fd);
            return -1;
        }
        done += n > 0 ? (size_t)n : 0;
    }
    if (fd >= 0) {
        lseek(fd, 0, SEEK_SET);
    }
    return fd;
}

static int spawn_generator(int in, int out, pid_t *pid)
{
    char name[] = "protoc-gen-c";
    char *argv[] = {name, NULL};
    posix_spawn_file_actions_t actions;
    int err = posix_spawn_file_actions_init(&actions);

    if (err == 0) {
        posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
        posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
        err = posix_spawnp(pid, name, &actions, NULL, argv, environ);
        posix_spawn_file_actions_destroy(&actions);
    }
    return err;
}

static bool read_fd(teffi_pool *pool, int fd, teffi_bytes *out)
{
    FILE *f = fdopen(fd, "r");
    bool ok;

    if (f == NULL) {
        close(fd);
        return false;
    }
    ok = read_all(pool, f, out);
    fclose(f);
    return ok;
}

static const char *run_generator(teffi_pool *pool, int in, teffi_bytes *response)
{
    int status = -1;
    int ends[2];
    pid_t pid;
    int err;
    bool ok;

    if (pipe2(ends, O_CLOEXEC) != 0) {
        return teffi_pool_printf(pool, "no pipe to protoc-gen-c: %s", strerror(errno));
    }
    err = spawn_generator(in, ends[1], &pid);
    close(ends[1]);
    ok = read_fd(pool, ends[0], response);
    if (err != 0) {
        return teffi_pool_printf(pool,
                                 "protoc-gen-c cannot be run: %s; expected it on PATH (Debian: "
                                 "protobuf-c-compiler)",
                                 strerror(err));
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (!ok || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        return "protoc-gen-c failed";
    }
    return NULL;
}

static const char *messages(teffi_pool *pool, teffi_bytes request, teffi_bytes *response)
{
    int in = memory_file(request);
    const char *wrong;

    if (in < 0) {
        return teffi_pool_printf(pool, "no memory for protoc-gen-c: %s", strerror(errno));
    }
    wrong = run_generator(pool, in, response);
    close(in);
    return wrong;
}

static int fail(const char *what)
{
    fprintf(stderr, "protoc-gen-teff: %s\n", what);
    return 1;
}

static int answer(teffi_pool *pool)
{
    static const teffi_codegen_env env = {read_file, messages};
    teffi_bytes request;
    teffi_bytes response;
    const char *wrong;

    if (!read_all(pool, stdin, &request)) {
        return fail("the request cannot be read");
    }
    wrong = teffi_codegen(pool, &env, request, &response);
    if (wrong != NULL) {
        return fail(wrong);
    }
    if (fwrite(response.data, 1, response.n, stdout) != response.n || fflush(stdout) != 0) {
        return fail("the response cannot be written");
    }
    return 0;
}

int main(int argc, char **argv)
{
    teffi_pool pool;
    int rc;

    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        return puts("protoc-gen-teff " TEFF_VERSION) < 0 || fflush(stdout) != 0;
    }
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        return fputs(usage, stdout) < 0 || fflush(stdout) != 0;
    }
    if (argc != 1 || isatty(STDIN_FILENO)) {
        fputs(usage, stderr);
        return 2;
    }
    teffi_pool_init(&pool);
    rc = answer(&pool);
    teffi_pool_fini(&pool);
    return rc;
}
