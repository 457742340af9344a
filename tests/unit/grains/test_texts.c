/* test_texts.c - each error of a call names its method and its grain's key, once, wherever the
 * caller and the grain are. */
#include <stdio.h>
#include <string.h>
#include "directory/shard.h"
#include "call/calls.h"
#include "lab.h"
#include "silo/client.h"

typedef struct caller {
    const char *name;
    teff_ctx *ctx;
    teffi_node *node;
    teffi_node_id asks; /* the node that it sends to; none: its own */
} caller;

static lab *l;
static lab_record *record;
static char key[32]; /* of a grain that lives on the second silo, or nowhere */

static int count(const char *text, const char *what)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)); at += strlen(what))
        n++;
    return n;
}

static void names_key(const caller *c, const char *method, const char *of, teff_err err,
                      teff_err expected)
{
    const char *text = teff_error(c->ctx);
    char at[64];
    snprintf(at, sizeof at, " at %.32s", of);
    if (err != expected || count(text, method) != 1 || count(text, at) != 1 ||
        strlen(text) < strlen(method) + strlen(at) + 10)
        fail_msg("%s: %s, \"%s\"; expected %s with '%s' and '%s' once", c->name, teff_err_name(err),
                 text, teff_err_name(expected), method, at);
}

static void names(const caller *c, const char *method, teff_err err, teff_err expected)
{
    names_key(c, method, key, err, expected);
}

/* ---- errors ---- */

static teff_call hold(const caller *c)
{
    teff_call call;
    record->gate = false;
    lab_ok(c->ctx, lab_turns_write_async(c->ctx, key, lab_step(.hold = true), NULL, &call));
    lab_until(record->held == 1);
    return call;
}

static void let_go(void)
{
    record->gate = true;
    lab_until(record->held == 0);
}

static void late(const caller *c)
{
    lab_number *out;
    teff_call call, first = hold(c);
    teff_ctx_set_timeout(c->ctx, 20);
    names(c, "lab.Turns.Write", lab_turns_write(c->ctx, key, lab_step(), &out), TEFF_E_TIMEOUT);
    lab_ok(c->ctx, lab_turns_write_async(c->ctx, key, lab_step(), NULL, &call));
    names(c, "lab.Turns.Write", lab_turns_write_await(c->ctx, call, &out), TEFF_E_TIMEOUT);
    teff_ctx_set_timeout(c->ctx, 0);
    let_go();
    lab_ok(c->ctx, lab_turns_write_await(c->ctx, first, &out));
}

static void lost(const caller *c)
{
    lab_number *out;
    if (teffi_node_is_none(c->asks))
        return;
    teff_call call = hold(c);
    assert_null(teffi_calls_end_sent_to(&c->node->home, c->asks));
    names(c, "lab.Turns.Write", lab_turns_write_await(c->ctx, call, &out), TEFF_E_UNREACHABLE);
    let_go();
}

static void cancelled(const caller *c)
{
    lab_number *out;
    teff_call call = hold(c);
    assert_null(teffi_calls_cancel_all(&c->node->home));
    names(c, "lab.Turns.Write", lab_turns_write_await(c->ctx, call, &out), TEFF_E_CANCELLED);
    let_go();
}

static void overloaded(const caller *c)
{
    enum { CALLS = 10 };
    lab_number *out;
    teff_call calls[CALLS];
    int refused = 0;
    record->gate = false;
    lab_ok(c->ctx, lab_small_write_async(c->ctx, key, lab_step(.hold = true), NULL, &calls[0]));
    lab_until(record->held == 1);
    for (int i = 1; i < CALLS; i++)
        lab_ok(c->ctx, lab_small_write_async(c->ctx, key, lab_step(), NULL, &calls[i]));
    teff_err err = lab_small_write_await(c->ctx, calls[CALLS - 1], &out);
    names(c, "lab.Small.Write", err, TEFF_E_OVERLOADED);
    let_go();
    for (int i = 0; i < CALLS; i++)
        refused += lab_small_write_await(c->ctx, calls[i], &out) == TEFF_E_OVERLOADED;
    assert_int_equal(refused, CALLS - 5);
}

static void not_hosted(const caller *c)
{
    lab_text *out;
    teff_call call;
    names(c, "lab.Rare.Where", lab_rare_where(c->ctx, key, &out), TEFF_E_NOT_FOUND);
    lab_ok(c->ctx, lab_rare_where_async(c->ctx, key, NULL, &call));
    names(c, "lab.Rare.Where", lab_rare_where_await(c->ctx, call, &out), TEFF_E_NOT_FOUND);
}

static void not_implemented(const caller *c)
{
    names(c, "lab.Turns.Nothing", lab_turns_nothing(c->ctx, key), TEFF_E_UNIMPLEMENTED);
}

static void too_large(const caller *c)
{
    static char letters[200];
    lab_text *out;
    teff_call call;
    memset(letters, 'x', sizeof letters - 1);
    names(c, "lab.Small.Echo", lab_small_echo(c->ctx, key, lab_text(.text = letters), &out),
          TEFF_E_TOO_LARGE);
    names(c, "lab.Small.Blow", lab_small_blow(c->ctx, key, lab_number(.n = 200), &out),
          TEFF_E_TOO_LARGE);
    lab_ok(c->ctx, lab_small_blow_async(c->ctx, key, lab_number(.n = 200), NULL, &call));
    names(c, "lab.Small.Blow", lab_small_blow_await(c->ctx, call, &out), TEFF_E_TOO_LARGE);
}

static void malformed(const caller *c)
{
    lab_text *out;
    teff_call call;
    names(c, "lab.Small.Echo", lab_small_echo(c->ctx, key, lab_text(.text = "\xff\xfe"), &out),
          TEFF_E_MALFORMED);
    names(c, "lab.Small.Echo",
          lab_small_echo_async(c->ctx, key, lab_text(.text = "\xff\xfe"), NULL, &call),
          TEFF_E_MALFORMED);
}

static void invalid(const caller *c)
{
    char longest[TEFF_KEY_MAX + 2] = "";
    lab_text *out;
    memset(longest, 'k', sizeof longest - 1);
    names(c, "lab.Small.Echo", lab_small_echo(c->ctx, key, NULL, &out), TEFF_E_INVALID);
    names_key(c, "lab.Small.Echo", "kkk", lab_small_echo(c->ctx, longest, lab_text(), &out),
              TEFF_E_INVALID);
}

static void bare_code(const caller *c)
{
    names(c, "lab.Moody.Bare", lab_moody_bare(c->ctx, key, lab_number(.n = TEFF_E_USER(2))),
          TEFF_E_USER(2));
}

/* The text is that of the call that failed, inside: a grain that is asked by the one that it asked.
 * It gets no other in front where a method hands it on. */
static void forwarded(const caller *c)
{
    const char *keys[] = {"between", "outer"};
    lab_number *out;
    lab_path *path = lab_path(.keys = keys, .n_keys = 2, .timeout_ms = 20);
    names_key(c, "lab.Relay.Go", "between", lab_relay_go(c->ctx, "outer", path, &out),
              TEFF_E_TIMEOUT);
}

static void not_unnamed(const caller *c)
{
    lab_number *out;
    record->moody_failures = 1;
    lab_fails(c->ctx, lab_moody_ask(c->ctx, "grumpy", &out), TEFF_E_USER + 7);
    assert_string_equal(teff_error(c->ctx), "not in the mood, says grumpy");
}

static void not_without_a_text(const caller *c)
{
    lab_number *out;
    record->moody_failures = 1;
    lab_fails(c->ctx, lab_moody_ask(c->ctx, "silent", &out), TEFF_E_USER + 7);
    assert_ptr_equal(strstr(teff_error(c->ctx), "on_activate of lab.Moody at silent returned"),
                     teff_error(c->ctx));
}

static void (*const errors[])(const caller *c) = {
    late,      lost,    cancelled, overloaded,  not_hosted,         not_implemented, too_large,
    malformed, invalid, bare_code, not_unnamed, not_without_a_text, forwarded};

/* ---- from everywhere ---- */

static uint64_t held_by(int i)
{
    return atomic_load(&l->silos[i]->node.grains->shards->activations);
}

/* A key whose grains of Turns, Small and Moody are on the second silo. */
static void find_key(void)
{
    lab_number *out;
    for (int i = 0;; i++) {
        uint64_t before = held_by(1);
        snprintf(key, sizeof key, "k-%d.", i);
        lab_ok(l->ctx[1], lab_turns_write(l->ctx[1], key, lab_step(), &out));
        lab_ok(l->ctx[1], lab_small_write(l->ctx[1], key, lab_step(), &out));
        lab_ok(l->ctx[1], lab_moody_ask(l->ctx[1], key, &out));
        if (held_by(1) == before + 3)
            return;
    }
}

static void from(const caller *c)
{
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        errors[i](c);
}

static void each_error_names_its_call(void **state)
{
    l = lab_open(2);
    record = &l->record;
    find_key();
    teffi_node *first = &l->silos[0]->node, *second = &l->silos[1]->node;
    from(&(caller){"local", l->ctx[1], second, {0}});
    from(&(caller){"remote", l->ctx[0], first, second->id});
    teff_client *client = lab_client(l, (const int[]){0, -1});
    teff_ctx *ctx = teff_client_new_ctx(client);
    from(&(caller){"client", ctx, &client->node, first->id});
    teff_ctx_free(ctx);
    teff_client_free(client);
    lab_close(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_error_names_its_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
