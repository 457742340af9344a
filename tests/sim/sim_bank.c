/* sim_bank.c - the ledger of the transactions of a run; at its end: which of them count, and is all
 * that was seen and stored theirs?
 * Way:     bank callers, bank grains -> [bank] -> bank order; the store's rows */
#include "sim_bank.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/bug.h"
#include "call/wait.h"
#include "message/codec.h"
#include "store/engine.h"

/* ---- while the world runs ---- */

static void *make_room(void *list, uint64_t n, uint64_t *max, size_t size)
{
    if (n < *max)
        return list;
    *max = *max ? 2 * *max : 64;
    list = realloc(list, *max * size);
    teffi_bug_if(!list);
    return list;
}

uint64_t sim_bank_call(sim_world *w)
{
    sim_bank *bank = w->bank;
    uint64_t call = ++bank->n_calls;
    bank->calls = make_room(bank->calls, call, &bank->calls_max, sizeof *bank->calls);
    bank->calls[call] = (sim_deal){.outcome = SIM_OUTCOME_OPEN};
    return call;
}

uint64_t sim_bank_calls(const sim_world *w)
{
    return w->bank ? w->bank->n_calls : 0;
}

uint64_t sim_bank_run(sim_world *w, uint64_t call, unsigned expected)
{
    sim_bank *bank = w->bank;
    uint64_t run = ++bank->n_runs;
    teffi_bug_if(call == 0 || call > bank->n_calls);
    bank->runs = make_room(bank->runs, run, &bank->runs_max, sizeof *bank->runs);
    bank->runs[run] = (sim_run){.call = call, .begin_ns = w->s.now_ns, .expected = expected};
    sim_trace_add(&w->s.trace, w->s.now_ns, "bank", "run", call, run);
    return run;
}

void sim_bank_note(sim_world *w, uint64_t run, const sim_access *access)
{
    sim_run *r = &w->bank->runs[run];
    teffi_bug_if(run == 0 || run > w->bank->n_runs);
    sim_trace_add(&w->s.trace, w->s.now_ns, "bank", access->writes ? "writes" : "reads",
                  run * 10 + access->account, access->version);
    if (r->n < SIM_ACCESSES)
        r->access[r->n] = *access;
    r->n++;
}

void sim_bank_ended(sim_world *w, uint64_t call, teff_err err, uint64_t run)
{
    sim_bank *bank = w->bank;
    sim_deal *deal = &bank->calls[call];
    bank->answered += !err;
    bank->unknown += err && teff_call_may_have_run(err);
    bank->failed += err && !teff_call_may_have_run(err);
    deal->outcome = !err                          ? SIM_OUTCOME_ANSWERED
                    : teff_call_may_have_run(err) ? SIM_OUTCOME_OPEN
                                                  : SIM_OUTCOME_FAILED;
    deal->end_ns = w->s.now_ns;
    deal->run = run;
    if (!err && (!run || run > bank->n_runs || bank->runs[run].call != call))
        sim_fail(&w->s, "call %" PRIu64 " is answered by run %" PRIu64 ", which is not its own",
                 call, run);
}

void sim_bank_saw(sim_world *w, uint64_t begin_ns, unsigned account, const world_seen *seen)
{
    uint64_t call = sim_bank_call(w), run = sim_bank_run(w, call, 1);
    const sim_access access = {
        .version = seen->version, .writer = seen->writer, .account = account};
    w->bank->runs[run].begin_ns = begin_ns;
    sim_bank_note(w, run, &access);
    sim_bank_ended(w, call, TEFF_OK, run);
}

/* No more faults occur: a read may still fail for a while, but not for ever. */
void sim_bank_ask(sim_world *w, teff_ctx *ctx)
{
    enum { TRIES = 10, PAUSE_MS = 500 };
    for (unsigned account = 0; w->bank && account < SIM_KEYS; account++) {
        teff_err err = sim_bank_look(w, ctx, account);
        for (int i = 1; i < TRIES && err; i++) {
            teffi_ctx_sleep(ctx, PAUSE_MS);
            err = sim_bank_look(w, ctx, account);
        }
        if (err)
            sim_fail(&w->s, "account %u cannot be asked: %s: %s", account, teff_err_name(err),
                     teff_error(ctx));
    }
}

/* ---- the rows ---- */

static void read_is_done(teffi_store_op *op)
{
    (void)op;
}

static void read_purse(sim_world *w, unsigned account, world_purse *purse)
{
    char key[64];
    teff_arena arena;
    ProtobufCMessage *msg = NULL;
    size_t len = (size_t)sprintf(key, "dev%cworld.Account%ck%u", 0, 0, account);
    teffi_row row = {.table = "state", .key = {key, len}};
    teffi_store_op op = {
        .kind = TEFFI_STORE_READ, .rows = &row, .n_rows = 1, .arena = &arena, .done = read_is_done};
    teffi_arena_init(&arena, NULL, 0, 0);
    teffi_store_submit(w->s.rows, &op);
    *purse = (world_purse)WORLD__PURSE__INIT;
    if (op.err ||
        teffi_unpack(&world__purse__descriptor, row.value.data, row.value.len, &arena, &msg)) {
        sim_fail(&w->s, "the row of account %u cannot be read", account);
    } else {
        purse->balance = ((world_purse *)msg)->balance;
        purse->version = ((world_purse *)msg)->version;
        purse->writer = ((world_purse *)msg)->writer;
    }
    teffi_arena_fini(&arena);
}

/* ---- which runs count ---- */

/* A run was answered, or something that counts has seen what it wrote. */
static void let_count(sim_world *w, uint64_t run, const char *who)
{
    sim_bank *bank = w->bank;
    if (run == 0 || w->s.broken)
        return;
    if (run > bank->n_runs) {
        sim_fail(&w->s, "%s has seen run %" PRIu64 ", which never was", who, run);
        return;
    }
    sim_run *r = &bank->runs[run];
    sim_deal *deal = &bank->calls[r->call];
    if (r->counts)
        return;
    if (deal->outcome == SIM_OUTCOME_FAILED)
        sim_fail(&w->s, "%s has seen run %" PRIu64 " of call %" PRIu64 ", which had failed", who,
                 run, r->call);
    else if (deal->run && deal->run != run)
        sim_fail(&w->s,
                 "%s has seen run %" PRIu64 " of call %" PRIu64 ", of which run %" PRIu64 " counts",
                 who, run, r->call, deal->run);
    deal->run = run;
    r->counts = true;
}

/* What a run that counts has seen counts. out: has anything changed? */
static bool let_seen_count(sim_world *w, uint64_t run)
{
    const sim_run *r = &w->bank->runs[run];
    bool more = false;
    char who[64];
    snprintf(who, sizeof who, "run %" PRIu64 " of call %" PRIu64, run, r->call);
    for (unsigned i = 0; i < r->n && i < SIM_ACCESSES && !w->s.broken; i++) {
        uint64_t writer = r->access[i].writer;
        if (writer == run)
            continue;
        more |= writer && writer <= w->bank->n_runs && !w->bank->runs[writer].counts;
        let_count(w, writer, who);
    }
    return more;
}

static void find_what_counts(sim_world *w, const world_purse *purses)
{
    sim_bank *bank = w->bank;
    for (unsigned i = 0; i < SIM_KEYS; i++)
        let_count(w, purses[i].writer, "a row");
    for (uint64_t call = 1; call <= bank->n_calls; call++)
        if (bank->calls[call].outcome == SIM_OUTCOME_ANSWERED)
            let_count(w, bank->calls[call].run, "a caller");
    for (bool more = true; more && !w->s.broken;) {
        more = false;
        for (uint64_t run = 1; run <= bank->n_runs; run++)
            more |= bank->runs[run].counts && let_seen_count(w, run);
    }
}

/* ---- each run by itself ---- */

/* Has the run seen each account as it was, or as it had left it itself? */
static void check_run(sim_world *w, uint64_t run)
{
    const sim_run *r = &w->bank->runs[run];
    if (r->n != r->expected)
        sim_fail(&w->s, "run %" PRIu64 " of call %" PRIu64 " counts with %u steps out of %u", run,
                 r->call, r->n, r->expected);
    for (unsigned i = 0; i < r->n && !w->s.broken; i++)
        for (unsigned j = i; j-- > 0;) {
            const sim_access *a = &r->access[i], *before = &r->access[j];
            if (before->account != a->account)
                continue;
            if (a->version != before->version + before->writes ||
                a->writer != (before->writes ? run : before->writer))
                sim_fail(&w->s,
                         "run %" PRIu64 " of call %" PRIu64 " counts, though it saw account %u at "
                         "%" PRIu64 " of run %" PRIu64 " and then at %" PRIu64 " of run %" PRIu64,
                         run, r->call, a->account, before->version, before->writer, a->version,
                         a->writer);
            break;
        }
}

static void check_balances(sim_world *w, const world_purse *purses)
{
    int64_t sum = 0, of[SIM_KEYS] = {0};
    for (uint64_t run = 1; run <= w->bank->n_runs; run++)
        for (unsigned i = 0; w->bank->runs[run].counts && i < w->bank->runs[run].n; i++)
            of[w->bank->runs[run].access[i].account] += w->bank->runs[run].access[i].by;
    for (unsigned i = 0; i < SIM_KEYS; i++) {
        sum += purses[i].balance;
        if (purses[i].balance != of[i])
            sim_fail(&w->s, "account %u holds %" PRId64 ", expected %" PRId64, i, purses[i].balance,
                     of[i]);
    }
    if (sum)
        sim_fail(&w->s, "the sum of all balances is %" PRId64 ", expected 0", sum);
}

/* The version of a row is the number of writes that count. */
static void check_versions(sim_world *w, const world_purse *purses)
{
    uint64_t of[SIM_KEYS] = {0};
    for (uint64_t run = 1; run <= w->bank->n_runs; run++)
        for (unsigned i = 0; w->bank->runs[run].counts && i < w->bank->runs[run].n; i++)
            of[w->bank->runs[run].access[i].account] += w->bank->runs[run].access[i].writes;
    for (unsigned i = 0; i < SIM_KEYS; i++)
        if (purses[i].version != of[i])
            sim_fail(&w->s, "account %u has version %" PRIu64 ", expected %" PRIu64, i,
                     purses[i].version, of[i]);
}

void sim_bank_check(sim_world *w)
{
    world_purse purses[SIM_KEYS];
    if (!w->bank)
        return;
    for (unsigned i = 0; i < SIM_KEYS; i++)
        read_purse(w, i, &purses[i]);
    if (!w->s.broken)
        find_what_counts(w, purses);
    for (uint64_t run = 1; run <= w->bank->n_runs && !w->s.broken; run++)
        if (w->bank->runs[run].counts)
            check_run(w, run);
    if (!w->s.broken)
        sim_bank_order_check(w);
    if (!w->s.broken)
        check_versions(w, purses);
    if (!w->s.broken)
        check_balances(w, purses);
}
