/* crash_silo.c - a silo that saves rising numbers through grains, and prints each one that was
 * acknowledged, until it is killed. Half of the savers' calls have idempotency keys. With
 * --transfers, each number is that of a transfer between accounts (crash_bank.h); with --reminders,
 * that of a reminder (crash_alarm.h), and no call has a key.
 * Way:     crash.c -> silo_child -> [crash_silo]: prints a line at each step, "has KEY N" when
 *          it has read a grain, "acked KEY N" when a save has succeeded, "failed KEY N TEXT",
 *          "again KEY N" when the call that has saved N, made again, got N for the second time,
 *          "repeats KEY N TEXT" when it makes a call again whose outcome is unknown, "audited KEY
 *          N ..." when the accounts agree with the tellers, whose numbers follow the KEY, "ticked
 *          KEY N" when all reminders up to N, the number at the start, have ticked, and the one
 *          with a period has ticked again.
 * Threads: one a key, each with a context of its own. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "crash_alarm.h"
#include "crash_bank.h"
#ifdef SCARCE /* --fail N --fail-in PHASE: the N-th request for memory or a thread there fails */
#include "../unit/faults.h"
#else
static long faults_left;
#endif

/* 1: most saves are acknowledged and not made, which crash.c must find. */
#ifndef PLANT_UNSAVED
#define PLANT_UNSAVED 0
#endif
/* 1: calls that are made again have no key, and run again. */
#ifndef PLANT_KEYLESS
#define PLANT_KEYLESS 0
#endif

enum {
    KEYS = 4,
    FILL_MAX = 3000,
    FILL_STEP = 37,
    LINE_BYTES = 400,
    PAUSE_US = 10000,
    AUDIT_PAUSE_US = 50000,
    SAVED_EVERY = 3, /* with the planted bug */
    MOVE_EVERY = 8   /* calls with a key */
};

typedef struct saver {
    char key[32];
    bool keyed; /* its calls have idempotency keys */
    /* with --reminders: the number and the rounds that were there; ticked: they have ticked */
    int64_t n, rounds;
    bool ticked;
    teff_ctx *ctx;
    pthread_t thread;
} saver;

static const char *name = "a"; /* --name: the first letters of its keys */
static bool transfers;         /* --transfers: the savers call tellers, not ledgers */
static bool reminders;         /* --reminders: the savers call alarms */
static saver savers[KEYS];
static saver auditor;       /* with transfers only */
static long failing;        /* which request fails; 0: none */
static uint32_t timeout_ms; /* of the calls of the savers and the auditor */
static const char *fails_in = "";
static atomic_bool ends;

/* ---- the grain ---- */

static size_t fill_len(int64_t n)
{
    return (size_t)n * FILL_STEP % FILL_MAX;
}

static bool page_is_whole(const crash_page *page)
{
    if (page->fill.len != fill_len(page->n))
        return false;
    for (size_t i = 0; i < page->fill.len; i++)
        if (page->fill.data[i] != (uint8_t)page->n)
            return false;
    return true;
}

static teff_err put(crash_ledger *self, const crash_number *in)
{
    size_t len = fill_len(in->n);
    if (!page_is_whole(self->state))
        return teff_fail(self->ctx, TEFF_E_FAILED, "damaged");
    self->state->n = in->n;
    self->state->fill.len = len;
    self->state->fill.data = teff_state_alloc(self->ctx, len + 1);
    memset(self->state->fill.data, (uint8_t)in->n, len);
    return PLANT_UNSAVED && in->n % SAVED_EVERY != 0 ? TEFF_OK : crash_ledger_save(self);
}

/* If a call runs twice, the second run finds its own number. The grain moves now and then, so that
 * some calls are to a silo that is killed, and made again to another. */
static teff_err add(crash_ledger *self, const crash_number *in, crash_number *out)
{
    if (self->state->n + 1 != in->n)
        return teff_fail(self->ctx, TEFF_E_FAILED, "damaged: it runs when %lld is there",
                         (long long)self->state->n);
    out->n = in->n;
    if (in->n % MOVE_EVERY == 0)
        teff_deactivate(self->ctx);
    return put(self, in);
}

static teff_err get(crash_ledger *self, crash_number *out)
{
    out->n = self->state->n;
    return page_is_whole(self->state) ? TEFF_OK : teff_fail(self->ctx, TEFF_E_FAILED, "damaged");
}

/* ---- the savers ---- */

/* In one piece: a pipe takes lines of up to PIPE_BUF bytes whole. */
static void print_line(const char *what, const char *key, int64_t n, const char *text)
{
    char line[LINE_BYTES];
    int len = snprintf(line, sizeof line, "%s %s %lld %.300s\n", what, key, (long long)n, text);
    if (write(STDOUT_FILENO, line, (size_t)len) != len)
        ends = true;
}

static bool read_number(saver *s, int64_t *n)
{
    crash_number *out = NULL;
    teff_err err = (reminders   ? crash_alarm_get
                    : transfers ? crash_teller_get
                                : crash_ledger_get)(s->ctx, s->key, &out);
    if (err)
        print_line("failed", s->key, -1, teff_error(s->ctx));
    else
        print_line("has", s->key, *n = out->n, "");
    teff_ctx_reset(s->ctx);
    return err == TEFF_OK;
}

static bool save_number(saver *s, int64_t n)
{
    crash_number *out = NULL;
    const crash_number *in = crash_number(.n = n);
    teff_err err = reminders   ? crash_alarm_set(s->ctx, s->key, in)
                   : transfers ? crash_teller_transfer(s->ctx, s->key, in, &out)
                               : crash_ledger_put(s->ctx, s->key, in);
    print_line(err ? "failed" : "acked", s->key, n, err ? teff_error(s->ctx) : "");
    teff_ctx_reset(s->ctx);
    return err == TEFF_OK;
}

/* The number is the key: keys are compared per grain. */
static teff_err call_once(const saver *s, int64_t n, bool again, crash_number **out)
{
    teff_uuid id = {{0}};
    const teff_call_options options = {.size = sizeof options,
                                       .once = PLANT_KEYLESS && again ? NULL : &id};
    teff_call call;
    memcpy(id.bytes, &n, sizeof n);
    teff_err err = (transfers ? crash_teller_transfer_async : crash_ledger_add_async)(
        s->ctx, s->key, crash_number(.n = n), &options, &call);
    if (err)
        return err;
    return transfers ? crash_teller_transfer_await(s->ctx, call, out)
                     : crash_ledger_add_await(s->ctx, call, out);
}

/* Until the outcome is known. in: again: the number was read, so its call has counted. */
static bool add_number(saver *s, int64_t n, bool again)
{
    crash_number *out = NULL;
    teff_err err = call_once(s, n, again, &out);
    while (teff_call_may_have_run(err) && !ends) {
        print_line("repeats", s->key, n, teff_error(s->ctx));
        teff_ctx_reset(s->ctx);
        usleep(PAUSE_US);
        err = call_once(s, n, true, &out);
    }
    if (!err && out->n != n)
        print_line("failed", s->key, out->n, "damaged: another call's answer");
    else
        print_line(err     ? "failed"
                   : again ? "again"
                           : "acked",
                   s->key, n, err ? teff_error(s->ctx) : "");
    teff_ctx_reset(s->ctx);
    return err == TEFF_OK;
}

static bool save_next(saver *s, int64_t n)
{
    return s->keyed ? add_number(s, n, false) : save_number(s, n);
}

/* Prints once that the reminders that were there at the first call have ticked. */
static void follow_ticks(saver *s)
{
    crash_ticks *ticks;
    if (!reminders || s->ticked)
        return;
    if (crash_alarm_get_ticks(s->ctx, s->key, &ticks) == TEFF_OK) {
        if (s->n < 0) {
            s->n = ticks->n;
            s->rounds = ticks->rounds;
        }
        s->ticked = ticks->next > s->n && ticks->rounds > s->rounds;
        if (s->ticked)
            print_line("ticked", s->key, s->n, "");
    }
    teff_ctx_reset(s->ctx);
}

static void *save_numbers(void *arg)
{
    saver *s = arg;
    while (!ends) {
        int64_t n;
        if (!read_number(s, &n) || (s->keyed && n > 0 && !add_number(s, n, true))) {
            usleep(PAUSE_US);
            continue;
        }
        follow_ticks(s);
        while (!ends && save_next(s, n + 1)) {
            n++;
            follow_ticks(s);
        }
    }
    return NULL;
}

/* ---- the auditor ---- */

static void print_audit(const char *key, const crash_books *books)
{
    char text[LINE_BYTES] = "";
    size_t len = 0;
    for (unsigned i = 1; i < BANK_TELLERS; i++)
        len +=
            (size_t)snprintf(text + len, sizeof text - len, "%lld ", (long long)books->tellers[i]);
    print_line("audited", key, books->tellers[0], text);
}

static void *audit_accounts(void *arg)
{
    saver *s = arg;
    char text[TEFF_TEXT_MAX];
    while (!ends) {
        crash_books *books;
        if (bank_audit(s->ctx, s->key, &books, text))
            print_line("failed", s->key, -1, text);
        else
            print_audit(s->key, books);
        teff_ctx_reset(s->ctx);
        usleep(AUDIT_PAUSE_US);
    }
    return NULL;
}

/* ---- requests that fail ---- */

static void begin_phase(const char *phase)
{
    if (failing && strcmp(phase, fails_in) == 0)
        faults_left = failing;
}

/* Prints how many requests the phase made. */
static void end_phase(const char *phase)
{
    char key[32];
    if (!failing || strcmp(phase, fails_in) != 0)
        return;
    long made = failing - faults_left;
    faults_left = 0;
    snprintf(key, sizeof key, "%.20s0", name);
    print_line("requests", key, made, phase);
}

static teff_err start_thread(saver *s, unsigned i, teff_silo *silo, void *(*run)(void *arg))
{
    snprintf(s->key, sizeof s->key, "%.20s%u", name, i);
    s->keyed = i % 2 != 0 && !reminders;
    s->n = -1;
    s->ticked = false;
    s->ctx = teff_silo_new_ctx(silo);
    if (s->ctx && timeout_ms)
        teff_ctx_set_timeout(s->ctx, timeout_ms);
    return !s->ctx || pthread_create(&s->thread, NULL, run, s) ? TEFF_E_NOMEM : TEFF_OK;
}

/* Called again if the silo has lost its lease and has joined again. */
static teff_err start_savers(void *arg, teff_silo *silo, char *text)
{
    teff_err err = TEFF_OK;
    (void)arg;
    end_phase("join");
    ends = false;
    for (unsigned i = 0; i < KEYS && !err; i++)
        err = start_thread(&savers[i], i, silo, save_numbers);
    if (!err && transfers)
        err = start_thread(&auditor, 0, silo, audit_accounts);
    if (err)
        snprintf(text, TEFF_TEXT_MAX, "no thread");
    else
        begin_phase("save");
    return err;
}

static void join_thread(saver *s)
{
    pthread_join(s->thread, NULL);
    teff_ctx_free(s->ctx);
}

static void stop_savers(void *arg, teff_silo *silo)
{
    (void)arg;
    (void)silo;
    ends = true;
    for (unsigned i = 0; i < KEYS; i++)
        join_thread(&savers[i]);
    if (transfers)
        join_thread(&auditor);
    end_phase("save");
    begin_phase("leave");
}

static teff_err take_name(void *arg, const char *value, char *text)
{
    (void)arg;
    (void)text;
    name = value;
    return TEFF_OK;
}

static teff_err take_transfers(void *arg, const char *value, char *text)
{
    (void)arg;
    (void)value;
    (void)text;
    transfers = true;
    return TEFF_OK;
}

static teff_err take_reminders(void *arg, const char *value, char *text)
{
    (void)arg;
    (void)value;
    (void)text;
    reminders = true;
    return TEFF_OK;
}

static teff_err take_timeout(void *arg, const char *value, char *text)
{
    (void)arg;
    (void)text;
    timeout_ms = (uint32_t)strtoul(value, NULL, 10);
    return TEFF_OK;
}

static teff_err take_failing(void *arg, const char *value, char *text)
{
    (void)arg;
    (void)text;
    failing = strtol(value, NULL, 10);
    return TEFF_OK;
}

static teff_err take_phase(void *arg, const char *value, char *text)
{
    (void)arg;
    (void)text;
    fails_in = value;
    begin_phase("join");
    return TEFF_OK;
}

int main(int argc, char **argv)
{
    static const crash_ledger_methods methods = {.put = put, .add = add, .get = get};
    static const teff_silo_option options[] = {{"name", "NAME", "of its grains", take_name},
                                               {"transfers", NULL, "not saves", take_transfers},
                                               {"reminders", NULL, "not saves", take_reminders},
                                               {"call-timeout", "MS", "of calls", take_timeout},
                                               {"fail", "N", "the request", take_failing},
                                               {"fail-in", "PHASE", "of this", take_phase},
                                               {NULL, NULL, NULL, NULL}};
    const teff_silo_options silo = {.size = sizeof silo, .reminder_period_min_ms = 1};
    const teff_silo_program program = {.size = sizeof program,
                                       .options = options,
                                       .silo = &silo,
                                       .start = start_savers,
                                       .stop = stop_savers};
    int status =
        teff_silo_run(argc, argv, &program, crash_ledger_type(&methods, NULL), bank_teller_type(),
                      bank_account_type(), bank_auditor_type(), alarm_type(), NULL);
    end_phase("leave");
    return status;
}
