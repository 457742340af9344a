/* sim_bank_caller.c - in some of the worlds: callers of accounts and tellers, with drawn plans.
 * Way:     world -> [bank caller] -> generated stubs -> the cluster -> the bank's ledger */
#include <stdlib.h>
#include <string.h>
#include "base/bug.h"
#include "call/task.h"
#include "call/wait.h"
#include "sim_bank.h"

/* The stream is chosen so that no seed of seeds.txt that is older draws a bank. */
enum { STREAM_BANK = 59094, TRIES = 6, ANSWERS = 1000 };

typedef enum way { WAY_TELLER, WAY_ACCOUNT, WAY_CHANGE, WAY_READ } way;

/* One call, however often it is made. */
typedef struct task {
    way way;
    char to[16];
    world_plan plan;
    world_deed deeds[SIM_DEEDS], *list[SIM_DEEDS];
    teff_uuid id;
    bool once;
} task;

/* ---- plans ---- */

static bool drawn(sim_world *w, unsigned per_mille)
{
    return sim_draw_chance(&w->bank->draw, per_mille);
}

static uint64_t below(sim_world *w, uint64_t n)
{
    return sim_draw_below(&w->bank->draw, n);
}

static uint32_t draw_pause(sim_world *w)
{
    if (!drawn(w, 150))
        return 0;
    return (uint32_t)below(w, drawn(w, 100) ? 2000 : 30);
}

static void draw_deed(sim_world *w, world_deed *deed, int own)
{
    *deed = *world_deed(.account = (uint32_t)below(w, SIM_KEYS), .writes = drawn(w, 600),
                        .pause_ms = draw_pause(w), .fails = drawn(w, 20), .ends = drawn(w, 60));
    if ((int)deed->account != own && drawn(w, w->s.faults.late_outcomes ? 600 : 250))
        deed->via = 1 + (uint32_t)below(w, 2);
}

/* What is taken is given, so that the sum of all balances stays 0. */
static void draw_amounts(sim_world *w, task *t)
{
    world_deed *last = NULL;
    int64_t sum = 0;
    for (size_t i = 0; i < t->plan.n_deeds; i++) {
        if (!t->deeds[i].writes)
            continue;
        t->deeds[i].by = (int64_t)below(w, 19) - 9;
        sum += t->deeds[i].by;
        last = &t->deeds[i];
    }
    if (last)
        last->by -= sum;
}

/* in: own, the account that is the root; -1: a teller is. */
static void draw_plan(sim_world *w, task *t, int own)
{
    t->plan = *world_plan(.n_deeds = 1 + below(w, 4), .deeds = t->list, .at_once = drawn(w, 350),
                          .drops = drawn(w, 200), .shrugs = drawn(w, 200), .fails = drawn(w, 40));
    for (size_t i = 0; i < t->plan.n_deeds; i++) {
        draw_deed(w, &t->deeds[i], own);
        t->list[i] = &t->deeds[i];
    }
    for (size_t i = 0; i + 1 < t->plan.n_deeds; i++)
        t->deeds[i].with_next = t->deeds[i].via && !(i > 0 && t->deeds[i - 1].with_next) &&
                                (int)t->deeds[i + 1].account != own && drawn(w, 500);
    draw_amounts(w, t);
}

static void draw_task(sim_world *w, task *t)
{
    uint64_t which = below(w, 14);
    unsigned key = (unsigned)below(w, SIM_KEYS);
    memset(t, 0, sizeof *t);
    t->way = which < 6 ? WAY_TELLER : which < 12 ? WAY_ACCOUNT : which < 13 ? WAY_CHANGE : WAY_READ;
    sim_key_name(t->way == WAY_TELLER ? key % 2 : key, t->to);
    if (t->way == WAY_TELLER || t->way == WAY_ACCOUNT) {
        draw_plan(w, t, t->way == WAY_ACCOUNT ? (int)key : -1);
        t->once = t->way == WAY_ACCOUNT && drawn(w, 400);
    } else {
        draw_deed(w, &t->deeds[0], (int)key);
        t->deeds[0].writes = t->way == WAY_CHANGE;
        t->once = drawn(w, 300);
    }
    uint64_t id[2] = {sim_draw_next(&w->bank->draw), sim_draw_next(&w->bank->draw)};
    memcpy(t->id.bytes, id, sizeof id);
}

/* ---- calls ---- */

static uint32_t draw_timeout(sim_world *w)
{
    static const uint32_t timeouts_ms[] = {0, 0, 1500, 6000};
    bool hurried = drawn(w, w->s.faults.timeouts) && !w->s.left_out.timeouts;
    uint32_t usual = timeouts_ms[below(w, 4)];
    if (usual == timeouts_ms[2] && w->s.faults.late_batches)
        usual /= 3; /* so that locks time out before late batches are written */
    if (sim_calm(w))
        return 0;
    return hurried ? 1 + (uint32_t)below(w, 60) : usual;
}

static teff_err begin_task(teff_ctx *ctx, const task *t, const teff_call_options *opt,
                           teff_call *call)
{
    switch (t->way) {
    case WAY_TELLER:
        return world_teller_run_async(ctx, t->to, &t->plan, opt, call);
    case WAY_ACCOUNT:
        return world_account_run_async(ctx, t->to, &t->plan, opt, call);
    case WAY_CHANGE:
        return world_account_change_async(ctx, t->to, &t->deeds[0], opt, call);
    case WAY_READ:
        break;
    }
    return world_account_read_async(ctx, t->to, &t->deeds[0], opt, call);
}

static teff_err end_task(teff_ctx *ctx, const task *t, teff_call call, world_seen **seen)
{
    return t->way == WAY_TELLER    ? world_teller_run_await(ctx, call, seen)
           : t->way == WAY_ACCOUNT ? world_account_run_await(ctx, call, seen)
           : t->way == WAY_CHANGE  ? world_account_change_await(ctx, call, seen)
                                   : world_account_read_await(ctx, call, seen);
}

/* Is it the method's own error? */
static bool error_is_own(teff_err err)
{
    return err == TEFF_E_USER(1) || err == TEFF_E_USER(2);
}

/* Makes the call. in: cancels, a while after, if it has not ended. out: *run, which answered. */
static teff_err ask_bank(sim_world *w, teff_ctx *ctx, const task *t, bool cancels, uint64_t *run)
{
    teff_cancel *cancel = cancels ? teff_cancel_new() : NULL;
    const teff_call_options opt = {.size = sizeof opt,
                                   .timeout_ms = draw_timeout(w),
                                   .cancel = cancel,
                                   .once = t->once ? &t->id : NULL};
    teff_call call;
    world_seen *seen;
    teff_err err = begin_task(ctx, t, &opt, &call);
    if (!err && cancel) {
        teffi_ctx_sleep(ctx, (uint32_t)below(w, 40));
        teff_cancel_fire(cancel);
    }
    if (!err)
        err = end_task(ctx, t, call, &seen);
    *run = err ? 0 : seen->run;
    teff_cancel_free(cancel);
    sim_trace_text(&w->s.trace, w->s.now_ns, "bank", teff_err_name(err),
                   err ? teff_error(ctx) : t->to);
    if (sim_calm(w) && err && !error_is_own(err) && !(cancels && err == TEFF_E_CANCELLED))
        sim_fail(&w->s, "nothing is wrong, but a transaction ended as %s: %s", teff_err_name(err),
                 teff_error(ctx));
    return err;
}

/* A call with a key that was answered gets the same answer when it is made again. */
static void ask_again(const sim_guest *p, teff_ctx *ctx, const task *t, uint64_t call, uint64_t run)
{
    sim_world *w = p->world;
    uint64_t second;
    if (drawn(w, 300)) /* the grain may move or rest */
        teffi_ctx_sleep(ctx, (uint32_t)below(w, 3000));
    if (!sim_guest_stays(p))
        return;
    teff_err err = ask_bank(w, ctx, t, false, &second);
    if (!err && second != run)
        sim_fail(&w->s, "call %llu: run %llu answers, and run %llu the second time",
                 (unsigned long long)call, (unsigned long long)run, (unsigned long long)second);
}

/* The error counts that says what became of all tries: the first one that is unknown, unless the
 * method itself has answered. */
static teff_err join_errors(teff_err before, teff_err err)
{
    return teff_call_may_have_run(before) && !error_is_own(err) ? before : err;
}

static bool may_ask_again(const sim_guest *p, const task *t, teff_err err)
{
    return t->once && err && !error_is_own(err) && !sim_calm(p->world) && sim_guest_stays(p);
}

static void do_task(const sim_guest *p, teff_ctx *ctx)
{
    sim_world *w = p->world;
    task t;
    uint64_t run;
    draw_task(w, &t);
    uint64_t call = sim_bank_call(w);
    t.plan.call = t.deeds[0].call = call;
    teff_err err = ask_bank(w, ctx, &t, drawn(w, 30), &run);
    for (int i = 1; i < TRIES && may_ask_again(p, &t, err); i++) {
        teffi_ctx_sleep(ctx, (uint32_t)below(w, 500));
        teff_err next = ask_bank(w, ctx, &t, false, &run);
        err = next ? join_errors(err, next) : TEFF_OK;
    }
    sim_bank_ended(w, call, err, run);
    if (!err && t.once && drawn(w, 300))
        ask_again(p, ctx, &t, call, run);
}

/* ---- plain reads ---- */

static teff_err peek(teff_ctx *ctx, unsigned account, world_seen **seen)
{
    return world_teller_peek(ctx, account % 2 ? "k0" : "k1", world_deed(.account = account), seen);
}

static teff_err read_plainly(sim_world *w, teff_ctx *ctx, unsigned account, bool peeks)
{
    world_seen *seen;
    char name[16];
    uint64_t begin_ns = w->s.now_ns;
    sim_key_name(account, name);
    teff_err err = peeks ? peek(ctx, account, &seen) : world_account_look(ctx, name, &seen);
    sim_trace_text(&w->s.trace, w->s.now_ns, "bank", teff_err_name(err),
                   err ? teff_error(ctx) : "looked");
    if (sim_calm(w) && err)
        sim_fail(&w->s, "nothing is wrong, but a plain read ended as %s: %s", teff_err_name(err),
                 teff_error(ctx));
    if (!err)
        sim_bank_saw(w, begin_ns, account, seen);
    return err;
}

teff_err sim_bank_look(sim_world *w, teff_ctx *ctx, unsigned account)
{
    return read_plainly(w, ctx, account, false);
}

/* ---- callers ---- */

static void call_bank(teff_ctx *ctx, void *arg)
{
    sim_guest p = *(sim_guest *)arg;
    free(arg);
    sim_world *w = p.world;
    while (p.n_calls-- && sim_guest_stays(&p)) {
        if (drawn(w, 700)) {
            do_task(&p, ctx);
        } else {
            teff_ctx_set_timeout(ctx, draw_timeout(w));
            (void)!read_plainly(w, ctx, (unsigned)below(w, SIM_KEYS), drawn(w, 300));
            teff_ctx_set_timeout(ctx, 0);
        }
        if (drawn(w, 500))
            teffi_ctx_sleep(ctx, (uint32_t)below(w, 60));
    }
    w->callers--;
}

/* Starts a caller, and draws when to start the next one. */
static void draw_patron(sim *s, void *arg, bool run)
{
    sim_world *w = arg;
    if (!run || w->stage != SIM_RUNS)
        return;
    sim_guest_start(w, &w->bank->draw, call_bank, "patron");
    sim_at(s, below(w, (w->s.faults.late_outcomes ? 120 : 400) * SIM_MS), draw_patron, w);
}

/* ---- a run ---- */

void sim_bank_init(sim_world *w)
{
    static const uint32_t idles_ms[] = {40, 300, 2000, 900000};
    sim_draw draw = sim_draw_of(w->s.seed, STREAM_BANK);
    bool has_bank = sim_draw_chance(&draw, 350) || w->s.faults.late_batches;
    if (!has_bank || !sim_has_faults(w))
        return;
    w->bank = calloc(1, sizeof *w->bank);
    teffi_bug_if(!w->bank);
    w->bank->draw = draw;
    w->bank->account = world_account_info;
    w->bank->account.idle_ms = idles_ms[below(w, 4)];
    w->bank->account.answers_max = ANSWERS;
    w->bank->teller = world_teller_info;
    w->bank->teller.idle_ms = idles_ms[below(w, 4)];
    if (w->s.faults.late_outcomes)
        w->bank->teller.idle_ms = idles_ms[3]; /* so that most stay on another silo than the root */
}

void sim_bank_plan(sim_world *w)
{
    if (w->bank)
        sim_at(&w->s, 100 * SIM_MS, draw_patron, w);
}

void sim_bank_fini(sim_world *w)
{
    if (!w->bank)
        return;
    free(w->bank->calls);
    free(w->bank->runs);
    free(w->bank);
    w->bank = NULL;
}
