/* upgrade_client.c - calls ledgers, built twice as upgrade_silo.c.
 * usage: upgrade_client load|sign|read KEYS GATEWAY...
 *   load: adds 1 to each key in turn, each at least once, until standard input ends; then prints
 *         for each key how many were acknowledged and how many have an unknown outcome, and how
 *         often each error came
 *   sign: signs each key, as soon as a silo can, at most 20 s; prints how many calls found none
 *   read: prints sum, lines and notes of each key
 * It ends with 1 after an outcome that no caller need expect. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "ledger.teff.h"

enum { KEYS_MAX = 64, PAUSE_MS = 5, PATIENCE_MS = 20000 };

static teff_ctx *ctx;
static int keys;

static const char *name_key(int i)
{
    static char key[16];
    snprintf(key, sizeof key, "k%d", i);
    return key;
}

/* ---- load ---- */

typedef struct count {
    int acked, unknown;
} count;

static int errors[TEFF_E_VERSION + 1];

/* What a call may meet while silos leave: it did not run, or its outcome is unknown. */
static bool may_happen(teff_err err)
{
    return teff_call_may_have_run(err) || err == TEFF_E_UNAVAILABLE || err == TEFF_E_VERSION;
}

static bool add_one(int i, count *c)
{
    upgrade_total *total;
    teff_err err = upgrade_ledger_add(ctx, name_key(i), upgrade_amount(.n = 1), &total);
    bool known = err && may_happen(err);
    if (err)
        fprintf(stderr, "%s: %s\n", teff_err_name(err), teff_error(ctx));
    c->acked += !err;
    c->unknown += teff_call_may_have_run(err);
    errors[known ? err : TEFF_OK]++;
    teff_ctx_reset(ctx);
    return !err || known;
}

static int run_load(void)
{
    static count counts[KEYS_MAX];
    struct pollfd in = {.fd = 0, .events = POLLIN};
    for (int i = 0; i < keys || i % keys || poll(&in, 1, 0) == 0; i++)
        if (!add_one(i % keys, &counts[i % keys]))
            return 1;
    for (int i = 0; i < keys; i++)
        printf("k%d %d %d\n", i, counts[i].acked, counts[i].unknown);
    for (int err = 1; err <= TEFF_E_VERSION; err++)
        if (errors[err])
            printf("%s %d\n", teff_err_name((teff_err)err), errors[err]);
    return 0;
}

/* ---- what only the new build can ---- */

#ifdef NEW
static teff_err sign_one(int i)
{
    const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000};
    upgrade_total *total;
    teff_err err = TEFF_E_VERSION;
    for (int ms = 0; ms < PATIENCE_MS; ms += PAUSE_MS) {
        err = upgrade_ledger_sign(ctx, name_key(i), upgrade_name(.text = name_key(i)), &total);
        if (!err || !may_happen(err))
            return err;
        errors[err]++;
        nanosleep(&pause, NULL);
    }
    return err;
}

static int run_sign(void)
{
    for (int i = 0; i < keys; i++) {
        teff_err err = sign_one(i);
        if (err)
            fprintf(stderr, "%s: %s\n", teff_err_name(err), teff_error(ctx));
        if (err)
            return 1;
    }
    printf("%d %d\n", errors[TEFF_E_VERSION], errors[TEFF_E_UNAVAILABLE]);
    return 0;
}

static int run_read(void)
{
    for (int i = 0; i < keys; i++) {
        upgrade_book *book;
        teff_err err = upgrade_ledger_read(ctx, name_key(i), &book);
        if (err)
            fprintf(stderr, "%s: %s\n", teff_err_name(err), teff_error(ctx));
        if (err)
            return 1;
        printf("k%d %lld [%s] [%s] [%s]", i, (long long)book->sum, book->owner,
               book->seal ? book->seal->note : "", book->last ? book->last->note : "");
        for (size_t k = 0; k < book->n_lines; k++)
            printf(" [%s]", book->lines[k]->note);
        printf("\n");
    }
    return 0;
}
#endif

static int run_mode(const char *mode)
{
    if (strcmp(mode, "load") == 0)
        return run_load();
#ifdef NEW
    if (strcmp(mode, "sign") == 0)
        return run_sign();
    if (strcmp(mode, "read") == 0)
        return run_read();
#endif
    return 2;
}

int main(int argc, char **argv)
{
    char text[TEFF_TEXT_MAX] = "";
    teff_client_options options = {.size = sizeof options};
    teff_client *client;
    if (argc < 4 || argc > 3 + TEFF_SEEDS_MAX)
        return 2;
    keys = atoi(argv[2]) < KEYS_MAX ? atoi(argv[2]) : KEYS_MAX;
    for (int i = 3; i < argc; i++)
        options.gateways[i - 3] = argv[i];
    if (teff_client_connect(&options, &client, text)) {
        fprintf(stderr, "no gateway: %s\n", text);
        return 1;
    }
    ctx = teff_client_new_ctx(client);
    int status = ctx ? run_mode(argv[1]) : 1;
    teff_ctx_free(ctx);
    teff_client_free(client);
    return status;
}
