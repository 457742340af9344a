/* idle.c - what silos cost that nobody calls: processor time of one, and of three around a file.
 * Way:     bench.c -> [idle] -> silos in processes of their own -> their processor time */
#include "idle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <teff/silo.h>
#include <time.h>
#include <unistd.h>

enum { SILOS = 3, SETTLE_SECONDS = 3 };

typedef struct idler {
    pid_t pid;
    int in;
} idler;

int bench_idle_silo(const char *store)
{
    teff_silo_options opt = {.silent = 1, .store = store};
    char text[TEFF_TEXT_MAX] = "", byte;
    teff_silo *silo;
    teff_err err = teff_silo_new(&opt, &silo, text);
    if (!err)
        err = teff_silo_start(silo, text);
    if (err) {
        fprintf(stderr, "bench: a silo cannot start: %s\n", text);
        return 1;
    }
    printf("r");
    fflush(stdout);
    while (read(0, &byte, 1) > 0)
        continue;
    teff_silo_free(silo);
    return 0;
}

static bool start(idler *silo, const char *store)
{
    int to[2], from[2];
    char byte;
    if (pipe(to) || pipe(from))
        return false;
    *silo = (idler){.pid = fork(), .in = to[1]};
    if (silo->pid == 0) {
        dup2(to[0], 0);
        dup2(from[1], 1);
        close(to[0]);
        close(to[1]);
        close(from[0]);
        close(from[1]);
        execl("/proc/self/exe", "bench", "--idle", store, (char *)NULL);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    bool ready = read(from[0], &byte, 1) == 1;
    close(from[0]);
    return ready;
}

static double seconds_of(pid_t pid)
{
    clockid_t clock;
    struct timespec t = {0, 0};
    if (clock_getcpuclockid(pid, &clock) == 0)
        clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void pass(double seconds)
{
    struct timespec t = {(time_t)seconds, 0};
    nanosleep(&t, NULL);
}

static void remove_store(const char *folder)
{
    static const char *const names[] = {"store.db", "store.db-wal", "store.db-shm"};
    char path[300];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

static void stop(idler *silos, int n)
{
    for (int i = n - 1; i >= 0; i--) {
        close(silos[i].in);
        waitpid(silos[i].pid, NULL, 0);
    }
}

bool bench_idle(int n, double seconds, double *percent)
{
    idler silos[SILOS] = {{0}};
    double before = 0, after = 0;
    char folder[200], store[sizeof folder + 20];
    int started = 0;
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.150s/teff-idle-XXXXXX", tmp ? tmp : P_tmpdir);
    if (n > SILOS || !mkdtemp(folder))
        return false;
    snprintf(store, sizeof store, "sqlite:%s/store.db", folder);
    while (started < n && start(&silos[started], store))
        started++;
    pass(SETTLE_SECONDS);
    for (int i = 0; i < started; i++)
        before += seconds_of(silos[i].pid);
    pass(seconds);
    for (int i = 0; i < started; i++)
        after += seconds_of(silos[i].pid);
    *percent = (after - before) / seconds / n * 100;
    stop(silos, started);
    remove_store(folder);
    return started == n;
}
