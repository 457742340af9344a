/* test_conformance.c - the suite, for each engine that needs no server. */
#include "conformance.h"
#include "scratch.h"

#include <string.h>

static void memory_fresh(char *address)
{
    strcpy(address, "memory");
}

int main(int argc, char **argv)
{
    static const conf_engine engines[] = {
        {.name = "memory", .fresh = memory_fresh},
        {.name = "sqlite", .fresh = scratch_fresh, .shared = true},
        {.name = "sqlite, reopened", .fresh = scratch_fresh, .shared = true, .reopens = true},
    };
    int failed = conf_child(argc, argv);
    if (failed >= 0)
        return failed;
    failed = scratch_open() == 0 ? 0 : 1;
    for (size_t i = 0; i < sizeof engines / sizeof engines[0] && failed == 0; i++)
        failed += conf_run(&engines[i]);
    scratch_close();
    return failed;
}
