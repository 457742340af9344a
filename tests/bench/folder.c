/* folder.c - see folder.h. */
#include "folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "bench.h"

bench_folder bench_folder_new(void)
{
    const char *tmp = getenv("TMPDIR");
    bench_folder f;
    snprintf(f.path, sizeof f.path, "%.150s/teff-store-XXXXXX", tmp ? tmp : P_tmpdir);
    if (!mkdtemp(f.path))
        bench_fatal(NULL, TEFF_E_IO);
    return f;
}

void bench_folder_remove(const bench_folder *f)
{
    static const char *const names[] = {"grains.db",   "loop.db",       "grains.db-wal",
                                        "loop.db-wal", "grains.db-shm", "loop.db-shm"};
    char path[300];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", f->path, names[i]);
        unlink(path);
    }
    rmdir(f->path);
}
