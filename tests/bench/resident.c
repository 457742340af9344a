/* resident.c - how much memory a program has. */
#include "resident.h"

#include <stdio.h>
#include <unistd.h>

double bench_resident_bytes(void)
{
    return bench_resident_bytes_of(getpid());
}

double bench_resident_bytes_of(int pid)
{
    char path[64];
    unsigned long size = 0, resident = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", pid);
    FILE *f = fopen(path, "r");
    if (!f || fscanf(f, "%lu %lu", &size, &resident) != 2)
        resident = 0;
    if (f)
        fclose(f);
    return (double)resident * (double)sysconf(_SC_PAGESIZE);
}
