/* orders.c - a pipeline of processes that books orders in grains: reader -> parser, booker. The
 * supervisor starts another parser when one has ended; each account asks the auditor. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <teff/pid.h>
#include "orders.teff.h"

enum { PARSE = 1, BOOK, AUDIT, WHO_PARSES }; /* tags of requests */
enum { ENDED = 100, AUDIT_MAX = 1000 };      /* tag of a message; the largest deposit */

#define E_NO_ORDER TEFF_E_USER(1)
#define E_REFUSED TEFF_E_USER(2)

static const char *const lines[] = {"Almaz 100", "Biruk 40", "gold for Chaltu", "Almaz 150",
                                    "Biruk 5000"};
enum { LINES = sizeof lines / sizeof lines[0] };

typedef struct order {
    char name[32];
    int64_t amount;
} order;

typedef struct program { /* who is where; written before the reader starts */
    teff_process_system *system;
    teff_pid supervisor, booker, auditor;
    teff_pid parser;  /* the supervisor's */
    unsigned parsers; /* the supervisor's: how many it has started */
} program;

static teff_err respond(teff_step *out, const teff_event *request, const void *data, size_t len)
{
    return teff_pid_respond(teff_process_system_of(teff_step_process(out)), request, TEFF_OK, data,
                            len);
}

static teff_err respond_error(teff_step *out, const teff_event *request, teff_err err,
                              const char *text)
{
    return teff_pid_respond(teff_process_system_of(teff_step_process(out)), request, err, text,
                            strlen(text));
}

/* ---- the parser: the cheapest process, without a stack of its own; a bad line ends it ---- */

/* "name amount" */
static bool read_order(const char *line, order *o)
{
    const char *space = strchr(line, ' ');
    char *end;
    if (!space || (size_t)(space - line) >= sizeof o->name)
        return false;
    memcpy(o->name, line, (size_t)(space - line));
    o->amount = strtoll(space + 1, &end, 10);
    return end != space + 1 && *end == '\0';
}

static teff_err parse(void *self, const teff_event *events, size_t n, teff_step *out)
{
    order o = {"", 0};
    (void)self;
    if (!n)
        return TEFF_OK;
    if (events[0].kind != TEFF_EVENT_REQUEST)
        return teff_step_done(out);
    if (read_order(events[0].data, &o))
        return respond(out, &events[0], &o, sizeof o);
    (void)respond_error(out, &events[0], E_NO_ORDER, "is no order");
    return E_NO_ORDER;
}

static const teff_process_ops parser = {.name = "parser", .step_max = 1, .step = parse};

/* ---- the supervisor: knows the parser, and starts another when one has ended ---- */

static teff_err start_parser(program *p)
{
    p->parsers++;
    return teff_process_spawn(p->system, &parser, NULL, NULL, NULL, 0, &p->parser);
}

static teff_err supervise(void *self, const teff_event *events, size_t n, teff_step *out)
{
    program *p = self;
    teff_err err = p->parsers ? TEFF_OK : start_parser(p);
    for (size_t i = 0; i < n && !err; i++) {
        if (events[i].kind == TEFF_EVENT_CANCEL)
            return teff_step_done(out);
        if (events[i].kind == TEFF_EVENT_REQUEST)
            err = respond(out, &events[i], &p->parser, sizeof p->parser);
        else if (teff_pid_equals(events[i].from, p->parser))
            err = start_parser(p);
    }
    return err;
}

static const teff_process_ops supervisor = {.name = "supervisor", .step = supervise};

/* Called for each process that has ended. */
static void tell_supervisor(void *arg, teff_pid pid, teff_err err)
{
    const program *p = arg;
    const teff_event ended = {.tag = ENDED, .from = pid};
    if (err && !teff_pid_equals(pid, p->supervisor) &&
        teff_process_send(p->system, p->supervisor, &ended))
        fprintf(stderr, "the supervisor cannot be told\n");
}

/* ---- the auditor, which grains ask ---- */

static teff_err audit(void *self, const teff_event *events, size_t n, teff_step *out)
{
    int64_t amount;
    (void)self;
    for (size_t i = 0; i < n; i++) {
        if (events[i].kind != TEFF_EVENT_REQUEST)
            return teff_step_done(out);
        memcpy(&amount, events[i].data, sizeof amount);
        if (amount > AUDIT_MAX)
            (void)respond_error(out, &events[i], E_REFUSED, "refused by the auditor");
        else
            (void)respond(out, &events[i], NULL, 0);
    }
    return TEFF_OK;
}

static const teff_process_ops auditor = {.name = "auditor", .step = audit};

static teff_err deposit(orders_account *self, const orders_amount *in, orders_balance *out)
{
    const program *p = self->user;
    teff_err err = teff_pid_ask(self->ctx, p->auditor, AUDIT, &in->amount, sizeof in->amount, NULL);
    if (err)
        return err;
    self->state->balance += in->amount;
    out->balance = self->state->balance;
    return TEFF_OK;
}

/* ---- the booker: a process with a stack, which calls grains ---- */

static teff_err book(void *self, teff_process *me)
{
    teff_ctx *ctx = teff_process_ctx(me);
    teff_event event;
    (void)self;
    while (ctx && !teff_process_receive(me, &event) && event.kind == TEFF_EVENT_REQUEST) {
        const order *o = event.data;
        orders_balance *balance;
        teff_err err =
            orders_account_deposit(ctx, o->name, orders_amount(.amount = o->amount), &balance);
        const char *text = err ? teff_error(ctx) : "";
        (void)teff_pid_respond(teff_process_system_of(me), &event, err,
                               err ? (const void *)text : &balance->balance,
                               err ? strlen(text) : sizeof balance->balance);
        teff_ctx_reset(ctx);
    }
    return TEFF_OK;
}

static const teff_process_ops booker = {.name = "booker", .flags = TEFF_PROCESS_FIBER, .run = book};

/* ---- the reader: here main's thread, which may ask processes, too ---- */

/* A parser that has ended did nothing (TEFF_E_CLOSED): ask its successor. */
static teff_err ask_parser(teff_ctx *ctx, const program *p, const char *line, teff_event *parsed)
{
    teff_event who;
    teff_err err;
    do {
        err = teff_pid_ask(ctx, p->supervisor, WHO_PARSES, NULL, 0, &who);
        if (!err)
            err = teff_pid_ask(ctx, *(const teff_pid *)who.data, PARSE, line, strlen(line) + 1,
                               parsed);
    } while (err == TEFF_E_CLOSED);
    return err;
}

static void read_line(teff_ctx *ctx, const program *p, const char *line)
{
    teff_event parsed, booked;
    teff_err err = ask_parser(ctx, p, line, &parsed);
    if (!err)
        err = teff_pid_ask(ctx, p->booker, BOOK, parsed.data, parsed.len, &booked);
    if (err)
        printf("%s: %s\n", line, teff_error(ctx));
    else
        printf("%s: the balance is %ld\n", line, *(const int64_t *)booked.data);
    teff_ctx_reset(ctx);
}

static teff_err run_all(teff_silo *silo, program *p)
{
    teff_process_options options = {.size = sizeof options, .ended = tell_supervisor, .arg = p};
    teff_err err = teff_silo_processes(silo, &options, &p->system);
    if (!err)
        err = teff_process_spawn(p->system, &auditor, NULL, NULL, NULL, 0, &p->auditor);
    if (!err)
        err = teff_process_spawn(p->system, &booker, NULL, NULL, NULL, 0, &p->booker);
    if (!err)
        err = teff_process_spawn(p->system, &supervisor, p, NULL, NULL, 0, &p->supervisor);
    teff_ctx *ctx = err ? NULL : teff_silo_new_ctx(silo);
    if (!ctx)
        return err ? err : TEFF_E_NOMEM;
    for (int i = 0; i < LINES; i++)
        read_line(ctx, p, lines[i]);
    teff_ctx_free(ctx);
    return teff_silo_stop(silo, 0);
}

int main(void)
{
    static const orders_account_methods methods = {.deposit = deposit};
    static program p;
    teff_silo_options options = {.size = sizeof options, .silent = 1};
    char text[TEFF_TEXT_MAX] = "";
    teff_silo *silo;
    teff_err err = teff_silo_new(&options, &silo, text);
    if (!err)
        err = teff_silo_host(silo, orders_account_type(&methods, &p));
    if (!err)
        err = teff_silo_start(silo, text);
    if (!err)
        err = run_all(silo, &p);
    if (err)
        fprintf(stderr, "%s: %s\n", teff_err_name(err), text);
    else
        printf("%u parsers were started\n", p.parsers);
    teff_silo_free(silo);
    return err ? 1 : 0;
}
