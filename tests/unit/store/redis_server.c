/* redis_server.c - a Redis server of a test's own. */
#include "redis_server.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "scratch.h"

enum { TRIES = 10, NOT_INSTALLED = 127 };

static pid_t server;
static unsigned port, stores;
static FILE *output; /* the server's log; open while it runs */

static void free_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &len) != 0)
        abort();
    close(fd);
    port = ntohs(at.sin_port);
}

static void become_server(const char *appendonly, int log)
{
    char number[8], path[SCRATCH_PATH_MAX];
    snprintf(number, sizeof number, "%u", port);
    scratch_path(path, "");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(log, STDOUT_FILENO);
    execlp("redis-server", "redis-server", "--bind", "127.0.0.1", "--port", number, "--dir", path,
           "--save", "", "--appendonly", appendonly, "--appendfsync", "always", (char *)NULL);
    _exit(NOT_INSTALLED);
}

static void spawn_server(const char *appendonly)
{
    int ends[2];
    if (pipe(ends) != 0)
        abort();
    server = fork();
    if (server == 0)
        become_server(appendonly, ends[1]);
    close(ends[1]);
    output = fdopen(ends[0], "r");
    if (server < 0 || !output)
        abort();
}

static bool is_serving(void)
{
    char line[512];
    while (fgets(line, sizeof line, output))
        if (strstr(line, "Ready to accept connections"))
            return true;
    return false;
}

static int wait_server(void)
{
    int status = 0;
    waitpid(server, &status, 0);
    fclose(output);
    output = NULL;
    return status;
}

bool redis_server_start(const char *appendonly)
{
    for (int i = 0; i < TRIES; i++) {
        if (port == 0)
            free_port();
        spawn_server(appendonly);
        if (is_serving())
            return true;
        int status = wait_server();
        if (WIFEXITED(status) && WEXITSTATUS(status) == NOT_INSTALLED)
            return false;
        port = 0; /* somebody else has taken it */
    }
    abort();
}

void redis_server_kill(void)
{
    kill(server, SIGKILL);
    wait_server();
}

void redis_server_stop(void)
{
    char folder[SCRATCH_PATH_MAX], path[SCRATCH_PATH_MAX * 2];
    if (output)
        redis_server_kill();
    scratch_path(folder, "appendonlydir");
    DIR *dir = opendir(folder);
    for (struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir)) {
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (e->d_name[0] != '.')
            unlink(path);
    }
    if (dir)
        closedir(dir);
    rmdir(folder);
}

unsigned redis_server_port(void)
{
    return port;
}

void redis_server_fresh(char *address)
{
    snprintf(address, 512, "redis:127.0.0.1:%u/test-%u", port, stores++);
}

static double run_benchmark(unsigned clients, unsigned long requests)
{
    char command[300], line[300];
    double per_second = 0;
    snprintf(command, sizeof command,
             "redis-benchmark -h 127.0.0.1 -p %u -c %u -n %lu -r 1024 --csv "
             "SET loop:__rand_int__ twelve-bytes",
             port, clients, requests);
    FILE *file = popen(command, "r");
    while (file && fgets(line, sizeof line, file)) {
        const char *comma = strstr(line, "\",\"");
        if (comma && strncmp(line, "\"SET", 4) == 0)
            per_second = strtod(comma + 3, NULL);
    }
    if (!file || pclose(file) != 0 || per_second <= 0)
        abort();
    return per_second;
}

double redis_server_bench(unsigned clients, double seconds)
{
    double first = run_benchmark(clients, 10ul * clients);
    return run_benchmark(clients, (unsigned long)(first * seconds) + clients);
}
