/* idle.c - what silos cost that nobody calls: processor time of one, and of three around a file.
 * Way:     bench.c -> [idle] -> silos in processes of their own -> their processor time */
#include "idle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <teff/silo.h>
#include <time.h>
#include <unistd.h>
#include "child.h"

enum { SILOS = 3, SETTLE_SECONDS = 3 };

int bench_idle_silo(const char *store)
{
    teff_silo_options opt = {.size = sizeof opt, .silent = 1, .store = store};
    char text[TEFF_TEXT_MAX] = "";
    teff_silo *silo;
    teff_err err = teff_silo_new(&opt, &silo, text);
    if (!err)
        err = teff_silo_start(silo, text);
    if (err) {
        fprintf(stderr, "bench: a silo cannot start: %s\n", text);
        return 1;
    }
    bench_child_ready("ready");
    teff_silo_free(silo);
    return 0;
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

bool bench_idle(int n, double seconds, double *percent)
{
    bench_child silos[SILOS];
    double before = 0, after = 0;
    char folder[200], store[sizeof folder + 20];
    int started = 0;
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.150s/teff-idle-XXXXXX", tmp ? tmp : P_tmpdir);
    if (n > SILOS || !mkdtemp(folder))
        return false;
    snprintf(store, sizeof store, "sqlite:%s/store.db", folder);
    const char *args[] = {"--idle", store, NULL};
    while (started < n && bench_child_start(&silos[started], args))
        started++;
    pass(SETTLE_SECONDS);
    for (int i = 0; i < started; i++)
        before += bench_child_seconds(&silos[i]);
    pass(seconds);
    for (int i = 0; i < started; i++)
        after += bench_child_seconds(&silos[i]);
    *percent = (after - before) / seconds / n * 100;
    for (int i = started - 1; i >= 0; i--)
        bench_child_stop(&silos[i]);
    remove_store(folder);
    return started == n;
}
