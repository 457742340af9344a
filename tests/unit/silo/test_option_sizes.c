/* test_option_sizes.c - options structs of callers that were compiled with older or newer headers,
 * and of those that did not set size. */
#include <stdio.h>
#include <string.h>
#include <teff/engine.h>
#include <teff/log.h>
#include "lab.h"
#include "silo/client.h"
#include "silo/silo.h"

enum { NEWER = 16 }; /* bytes that newer headers add */

static char said[TEFF_TEXT_MAX]; /* where there is no text, the log says why */

static void log_line(void *arg, teff_log_level level, const char *line)
{
    snprintf(said, sizeof said, "%s", line);
}

static teff_err make_silo(void *opt)
{
    teff_silo *silo = opt;
    teff_err err = teff_silo_new(opt, &silo, said);
    teff_silo_free(silo);
    return err;
}

static teff_err make_client(void *opt)
{
    teffi_platform platform;
    teff_client *client = opt;
    ((teff_client_options *)opt)->gateways[0] = "127.0.0.1:1";
    teffi_silo_init_platform(&platform, TEFF_LOG_ERROR);
    teff_err err = teffi_client_new_unconnected(&platform, opt, &client, said);
    teff_client_free(client);
    return err;
}

static teff_err make_process_system(void *opt)
{
    teff_process_system *system = opt; /* must become NULL on an error */
    teff_err err = teff_process_system_new(opt, &system);
    teff_process_system_free(system);
    return err;
}

static teff_err make_engine(void *opt)
{
    teff_engine *engine = opt;
    teff_err err = teff_engine_new(opt, &engine);
    teff_engine_free(engine);
    return err;
}

static teff_err make_scheduler(void *opt)
{
    teff_silo_options silo = {.size = sizeof silo, .sched = opt};
    teff_process_options processes = {.size = sizeof processes, .sched = opt};
    teff_engine_options engine = {.size = sizeof engine, .sched = opt};
    teff_err err = make_silo(&silo);
    assert_int_equal(make_process_system(&processes), err);
    assert_int_equal(make_engine(&engine), err);
    return err;
}

static teff_err make_hooks(void *opt)
{
    teff_sched_options sched = {.size = sizeof sched, .hooks = opt};
    return make_scheduler(&sched);
}

static const struct subject {
    const char *name;
    teff_err (*make)(void *opt);
    size_t size;
    size_t limited; /* offset of a uint32_t member that must not be UINT32_MAX; 0: none */
} subjects[] = {
#define SUBJECT(type, make, member)                                                                \
    {                                                                                              \
#type, make, sizeof(type), offsetof(type, member)                                          \
    }
    SUBJECT(teff_silo_options, make_silo, connection_bytes_max),
    SUBJECT(teff_client_options, make_client, connection_bytes_max),
    SUBJECT(teff_process_options, make_process_system, mailbox_max),
    SUBJECT(teff_engine_options, make_engine, schedulers),
    SUBJECT(teff_sched_options, make_scheduler, delay_warn_ms),
    SUBJECT(teff_sched_hooks, make_hooks, size),
};

static union {
    size_t size;
    char bytes[1024];
} opt;

static void make(const struct subject *s, size_t size, teff_err expected, const char *says)
{
    opt.size = size;
    said[0] = '\0';
    teff_err err = s->make(&opt);
    if (err != expected || !strstr(said, says) || (says[0] && !strstr(said, s->name)))
        fail_msg("%s of %zu bytes: %s, '%s'; expected %s, '%s'", s->name, size, teff_err_name(err),
                 said, teff_err_name(expected), says);
}

static void clear(const struct subject *s)
{
    memset(&opt, 0, sizeof opt);
    assert_true(s->size + NEWER <= sizeof opt);
}

#define FOR_EACH(s)                                                                                \
    for (const struct subject *s = subjects; s < subjects + sizeof subjects / sizeof *s; s++)

static void the_size_must_be_set(void **state)
{
    FOR_EACH(s)
    {
        clear(s);
        make(s, 0, TEFF_E_INVALID, "size is 0: set it to sizeof(teff_");
        make(s, s->size, TEFF_OK, "");
    }
}

/* What lies behind an older caller's struct is not read: a wrong value there does not matter. */
static void members_that_older_callers_lack_have_their_defaults(void **state)
{
    FOR_EACH(s)
    if (s->limited) {
        clear(s);
        memset(opt.bytes + s->limited, 0xff, sizeof(uint32_t));
        make(s, s->size, TEFF_E_INVALID, "");
        make(s, s->limited, TEFF_OK, "");
    }
}

static void newer_callers_may_not_set_what_is_unknown(void **state)
{
    FOR_EACH(s)
    {
        clear(s);
        make(s, s->size + NEWER, TEFF_OK, "");
        opt.bytes[s->size + NEWER - 1] = 1;
        make(s, s->size + NEWER, TEFF_E_INVALID, "is set that this library does not have");
        make(s, s->size, TEFF_OK, "");
    }
}

/* The scheduler's options and hooks are copied: the caller may reuse them at once. */
static void the_scheduler_options_are_copied(void **state)
{
    lab_record record = {0};
    teff_sched_metrics all;
    teff_sched_hooks hooks = {.size = sizeof hooks};
    teff_sched_options sched = {.size = sizeof sched, .workers_max = 2, .hooks = &hooks};
    teff_silo_options silo_opt = {
        .size = sizeof silo_opt, .silent = 1, .workers = 1, .sched = &sched};
    teff_silo *silo = lab_silo(&record, &silo_opt);
    memset(&hooks, 0xff, sizeof hooks);
    memset(&sched, 0xff, sizeof sched);
    memset(&silo_opt, 0xff, sizeof silo_opt);
    assert_int_equal(teff_silo_start(silo, NULL), TEFF_OK);
    assert_int_equal(teff_silo_scale(silo, 2), TEFF_OK);
    (void)teff_silo_sched_metrics(silo, &all, NULL, 0);
    assert_int_equal(all.workers, 2);
    assert_int_equal(teff_silo_stop(silo, 0), TEFF_OK);
    teff_silo_free(silo);
}

int main(void)
{
    static const teff_log_handler handler = {log_line, NULL};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_size_must_be_set),
        cmocka_unit_test(members_that_older_callers_lack_have_their_defaults),
        cmocka_unit_test(newer_callers_may_not_set_what_is_unknown),
        cmocka_unit_test(the_scheduler_options_are_copied),
    };
    teff_log_to(&handler);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
