/* path.c - records which functions a call enters, from the caller's stub until its response.
 * Way:     path.py -> [path inside|queued|remote] -> two silos, built with a hook in each function
 * Threads: all threads append to one record while it is open.
 * Prints "call", and then "THREAD enter|leave FUNCTION" for each, the function as its address. */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <teff/silo.h>
#include "path.teff.h"

enum { CALLS = 150, WARM = 20, ENTRIES_MAX = 20000, KEYS = 64 };

typedef struct entry {
    void *function;
    pid_t thread;
    bool enters;
} entry;

static entry entries[ENTRIES_MAX];
static atomic_uint entries_used;
static atomic_bool recording;

static void record_entry(void *function, bool enters)
{
    if (!atomic_load(&recording))
        return;
    unsigned at = atomic_fetch_add(&entries_used, 1);
    if (at < ENTRIES_MAX)
        entries[at] = (entry){function, gettid(), enters};
}

void __cyg_profile_func_enter(void *function, void *site);
void __cyg_profile_func_exit(void *function, void *site);

void __cyg_profile_func_enter(void *function, void *site)
{
    (void)site;
    record_entry(function, true);
}

void __cyg_profile_func_exit(void *function, void *site)
{
    (void)site;
    record_entry(function, false);
}

static void exit_if_failed(teff_err err, const char *what, const char *text)
{
    if (!err)
        return;
    fprintf(stderr, "path: %s: %s: %s\n", what, teff_err_name(err), text);
    exit(1);
}

/* A call, recorded if print is set. out: the silo that answered. */
static uint32_t record_call(teff_ctx *ctx, int64_t key, int64_t to, bool print)
{
    path_hop *response;
    atomic_store(&entries_used, 0);
    atomic_store(&recording, print);
    teff_err err = path_walker_go(ctx, key, path_hop(.to = to), &response);
    atomic_store(&recording, false);
    exit_if_failed(err, "call", teff_error(ctx));
    unsigned used = print ? atomic_load(&entries_used) : 0;
    exit_if_failed(used > ENTRIES_MAX ? TEFF_E_TOO_LARGE : TEFF_OK, "record", "too many entries");
    if (print)
        puts("call");
    for (unsigned i = 0; i < used; i++)
        printf("%d %s %" PRIxPTR "\n", (int)entries[i].thread,
               entries[i].enters ? "enter" : "leave", (uintptr_t)entries[i].function);
    return response->silo;
}

static unsigned calls_made;

/* A method that is asked to go on records its own call. */
static teff_err go(path_walker *self, const path_hop *in, path_hop *out)
{
    out->silo = *(uint32_t *)self->user;
    if (in->to)
        out->silo = record_call(self->ctx, in->to, 0, calls_made++ >= WARM);
    return TEFF_OK;
}

static teff_silo *start_silo(const char *seed, uint32_t *number)
{
    static const path_walker_methods methods = {.go = go};
    teff_silo_options options = {
        .size = sizeof options, .silent = 1, .workers = 1, .seeds = {seed}};
    char text[TEFF_TEXT_MAX] = "";
    teff_silo *silo;
    exit_if_failed(teff_silo_new(&options, &silo, text), "silo", text);
    exit_if_failed(teff_silo_host(silo, path_walker_type(&methods, number)), "type", "");
    exit_if_failed(teff_silo_start(silo, text), "start", text);
    return silo;
}

/* out: a key whose grain is on that silo, the n-th of them. */
static int64_t find_key(teff_ctx *ctx, uint32_t silo, int n)
{
    for (int64_t key = 1; key <= KEYS; key++)
        if (record_call(ctx, key, 0, false) == silo && n-- == 0)
            return key;
    fprintf(stderr, "path: no key of %d is on silo %u\n", KEYS, silo);
    exit(1);
}

int main(int argc, char **argv)
{
    static uint32_t numbers[] = {1, 2};
    const char *mode = argc > 1 ? argv[1] : "";
    teff_silo *first = start_silo(NULL, &numbers[0]);
    teff_silo *second = start_silo(teff_silo_address(first), &numbers[1]);
    teff_ctx *ctx = teff_silo_new_ctx(first);
    bool inside = !strcmp(mode, "inside");
    int64_t key = find_key(ctx, strcmp(mode, "remote") ? 1 : 2, 0);
    int64_t to = inside ? find_key(ctx, 1, 1) : 0;
    for (int i = 0; i < WARM + CALLS; i++)
        (void)record_call(ctx, key, to, !inside && i >= WARM);
    teff_ctx_free(ctx);
    teff_silo_free(second);
    teff_silo_free(first);
    return 0;
}
