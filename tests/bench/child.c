/* child.c - starts this program again, by its path, with a pipe to it and one from it.
 * Way:     a row -> [child] -> execv */
#include "child.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ARGS_MAX = 10 };

/* Not /proc/self/exe itself: under callgrind that is valgrind's. */
static const char *own_path(void)
{
    static char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    return n > 0 ? path : "/proc/self/exe";
}

static void become(const int *to, const int *from, const char *const *args)
{
    const char *argv[ARGS_MAX] = {own_path()};
    for (int i = 1; i < ARGS_MAX - 1 && args[i - 1]; i++)
        argv[i] = args[i - 1];
    dup2(to[0], 0);
    dup2(from[1], 1);
    execv(argv[0], (char *const *)argv);
    _exit(127);
}

static bool read_line(int fd, char *line, size_t size)
{
    size_t n = 0;
    char byte = 0;
    while (byte != '\n' && read(fd, &byte, 1) == 1)
        if (n + 1 < size && byte != '\n')
            line[n++] = byte;
    line[n] = '\0';
    return byte == '\n';
}

bool bench_child_start(bench_child *child, const char *const *args)
{
    int to[2], from[2];
    if (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC))
        return false;
    *child = (bench_child){.pid = fork(), .in = to[1]};
    if (child->pid == 0)
        become(to, from, args);
    close(to[0]);
    close(from[1]);
    bool ready = read_line(from[0], child->said, sizeof child->said);
    close(from[0]);
    return ready;
}

void bench_child_stop(bench_child *child)
{
    close(child->in);
    waitpid(child->pid, NULL, 0);
}

void bench_child_ready(const char *line)
{
    char byte;
    printf("%s\n", line);
    fflush(stdout);
    while (read(0, &byte, 1) > 0)
        continue;
}

double bench_child_seconds(const bench_child *child)
{
    clockid_t clock;
    struct timespec t = {0, 0};
    if (clock_getcpuclockid(child->pid, &clock) == 0)
        clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}
