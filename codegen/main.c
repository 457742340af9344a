/* main.c - protoc-gen-teff, a protoc plugin: reads a request from stdin, writes a response.
 * Way:     protoc -> [main] -> codegen -> protoc-gen-c (a process) -> protoc
 * Exit:    0: a response was written (also for errors in .proto files: they are in the response,
 *          protoc prints them and fails), or the text of --help or --version; 1: the output is
 *          missing or incomplete; 2: wrong usage. */
#include "codegen.h"

#include "model/text.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
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

/* Reads a stream to its end. Sets *out to the bytes read, in memory of the pool; a zero byte
 * follows them. out: false if a read failed; *out then has only the bytes before the failure. */
static bool read_stream(teffi_pool *pool, FILE *in, teffi_bytes *out)
{
    char part[64 * 1024];
    teffi_text text = {.pool = pool};
    size_t n;
    teffi_text_add(&text, "", 0); /* so that data is not NULL if the stream is empty */
    while ((n = fread(part, 1, sizeof part, in)) > 0)
        teffi_text_add(&text, part, n);
    *out = (teffi_bytes){(uint8_t *)text.data, text.len};
    return !ferror(in);
}

static char *read_file(teffi_pool *pool, const char *path)
{
    FILE *f = fopen(path, "re");
    teffi_bytes bytes;
    if (!f)
        return NULL;
    bool ok = read_stream(pool, f, &bytes);
    fclose(f);
    return ok ? (char *)(uintptr_t)bytes.data : NULL; /* read_stream() has added a zero byte */
}

/* Starts protoc-gen-c with these files as its stdin and stdout. out: 0 if *pid is set; otherwise
 * an errno value. */
static int spawn_generator(FILE *to_stdin, FILE *to_stdout, pid_t *pid)
{
    char name[] = "protoc-gen-c";
    char *argv[] = {name, NULL};
    posix_spawn_file_actions_t actions;
    int err = posix_spawn_file_actions_init(&actions);
    if (err == 0) {
        err = posix_spawn_file_actions_adddup2(&actions, fileno(to_stdin), STDIN_FILENO);
        if (err == 0)
            err = posix_spawn_file_actions_adddup2(&actions, fileno(to_stdout), STDOUT_FILENO);
        if (err == 0)
            err = posix_spawnp(pid, name, &actions, NULL, argv, environ);
        posix_spawn_file_actions_destroy(&actions);
    }
    return err;
}

/* Runs protoc-gen-c and waits until it exits. in: to_stdin: a file that contains the request.
 * to_stdout: an empty file. out: NULL if *response is set; otherwise an error text. */
static const char *run_generator(teffi_pool *pool, FILE *to_stdin, FILE *to_stdout,
                                 teffi_bytes *response)
{
    int status = -1;
    pid_t pid;
    rewind(to_stdin);
    /* If this program's parent ignores SIGCHLD, this program inherits that, and waitpid() would
     * fail instead of returning the exit status. */
    signal(SIGCHLD, SIG_DFL);
    int err = spawn_generator(to_stdin, to_stdout, &pid);
    if (err != 0) {
        return teffi_pool_printf(pool,
                                 "protoc-gen-c cannot be run: %s; expected it on PATH (Debian: "
                                 "protobuf-c-compiler)",
                                 strerror(err));
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    rewind(to_stdout);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || !read_stream(pool, to_stdout, response))
        return "protoc-gen-c failed";
    return NULL;
}

/* Opens an empty file in memory. The request and the response are passed in such files, because
 * pipes would have to be written and read at the same time. out: NULL on error; errno is set. */
static FILE *open_memory_file(const char *name)
{
    int fd = memfd_create(name, MFD_CLOEXEC);
    return fd >= 0 ? fdopen(fd, "w+") : NULL;
}

static const char *generate_message_code(teffi_pool *pool, teffi_bytes request,
                                         teffi_bytes *response)
{
    const char *wrong;
    FILE *in = open_memory_file("request");
    FILE *out = open_memory_file("response");
    if (!in || !out || fwrite(request.data, 1, request.n, in) != request.n || fflush(in) != 0)
        wrong = teffi_pool_printf(pool, "no memory for protoc-gen-c: %s", strerror(errno));
    else
        wrong = run_generator(pool, in, out, response);
    if (in)
        fclose(in);
    if (out)
        fclose(out);
    return wrong;
}

/* Prints an error. out: the exit status, 1. */
static int print_failure(const char *what)
{
    fprintf(stderr, "protoc-gen-teff: %s\n", what);
    return 1;
}

/* Responds to the request on stdin. out: the exit status. */
static int respond_to_request(teffi_pool *pool)
{
    static const teffi_codegen_env env = {read_file, generate_message_code};
    teffi_bytes request;
    teffi_bytes response;
    if (!read_stream(pool, stdin, &request))
        return print_failure("the request cannot be read");
    const char *wrong = teffi_codegen_run(pool, &env, request, &response);
    if (wrong)
        return print_failure(wrong);
    if (fwrite(response.data, 1, response.n, stdout) != response.n || fflush(stdout) != 0)
        return print_failure("the response cannot be written");
    return 0;
}

int main(int argc, char **argv)
{
    teffi_pool pool;
    if (argc == 2 && strcmp(argv[1], "--version") == 0)
        return puts("protoc-gen-teff " TEFF_VERSION) < 0 || fflush(stdout) != 0;
    if (argc == 2 && strcmp(argv[1], "--help") == 0)
        return fputs(usage, stdout) < 0 || fflush(stdout) != 0;
    if (argc != 1 || isatty(STDIN_FILENO)) {
        fputs(usage, stderr);
        return 2;
    }
    teffi_pool_init(&pool);
    int rc = respond_to_request(&pool);
    teffi_pool_fini(&pool);
    return rc;
}
