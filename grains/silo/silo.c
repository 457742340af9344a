/* silo.c - the public functions of a silo: make, host types, start, stop, free; counters, scaling.
 * Threads: host, start, stop and free are called by one thread at a time; the others by any
 *          thread. */
#include "silo/silo.h"

#include <stdlib.h>
#include "activation/activation.h"
#include "base/error.h"
#include "base/options.h"
#include "call/ctx.h"
#include "cluster/membership.h"
#include "sched/exec.h"
#include "silo/address.h"
#include "store/store.h"
#include "stream/stream.h"

enum { STOP_DEFAULT_MS = 30000, GOODBYE_MS = 5000, LOST_MS = 1000 };

static teff_err check_scheduler_options(const teff_silo_options *opt, char *text)
{
    const char *wrong = teffi_sched_options_check(opt->sched, opt->workers);
    return wrong ? teffi_fail(text, TEFF_E_INVALID, "sched.%s", wrong) : TEFF_OK;
}

/* Refuses an address that other machines can reach, unless TLS protects the traffic or the option
 * `insecure` is set. */
static teff_err check_address_is_protected(const teff_silo_options *opt, const char *option,
                                           const char *address, char *text)
{
    if (teffi_address_is_loopback(address) || opt->tls_cert || opt->insecure)
        return TEFF_OK;
    return teffi_option_refuse(
        text, option, address,
        "a loopback address, or TLS (tls_cert, tls_ca), or the option insecure");
}

/* Checks tls_client_ca: it must be set if there is a gateway with TLS, and only then. It must not
 * be tls_ca; otherwise a client's certificate would be accepted as that of a silo. */
static teff_err check_client_ca(const teff_silo_options *opt, char *text)
{
    const char *ca = opt->tls_client_ca;
    if (!ca && opt->gateway && opt->tls_cert)
        return teffi_option_refuse(text, "gateway", opt->gateway,
                                   "the option tls_client_ca beside it, with TLS");
    if (ca && !(opt->gateway && opt->tls_cert))
        return teffi_option_refuse(text, "tls_client_ca", ca,
                                   "gateway, tls_cert and tls_ca beside it");
    if (ca && strcmp(ca, opt->tls_ca) == 0)
        return teffi_option_refuse(text, "tls_client_ca", ca, "another authority than tls_ca");
    return TEFF_OK;
}

/* Refuses client_secret_file without secret_file. If only client_secret_file were set, clients
 * would need a secret, but silos could connect without one. */
static teff_err check_secret_options(const teff_silo_options *opt, char *text)
{
    if (opt->client_secret_file && !opt->secret_file)
        return teffi_option_refuse(
            text, "client_secret_file", opt->client_secret_file,
            "the option secret_file, the secret of the silos, to be set, too");
    return TEFF_OK;
}

static teff_err check_gateway_options(const teff_silo_options *opt, char *text)
{
    teff_err err = check_client_ca(opt, text);
    if (err || !opt->gateway)
        return err;
    err = teffi_option_check_address(text, "gateway", opt->gateway, opt->tls_cert);
    return err ? err : check_address_is_protected(opt, "gateway", opt->gateway, text);
}

static teff_err check_listen_options(const teff_silo_options *opt, char *text)
{
    const char *listen = opt->listen;
    teff_err err = teffi_option_check_address(text, "listen", listen, opt->tls_cert);
    if (!err && opt->advertise)
        err = teffi_option_check_address(text, "advertise", opt->advertise, opt->tls_cert);
    if (err)
        return err;
    if (!opt->advertise && teffi_address_is_wildcard(listen))
        return teffi_option_refuse(
            text, "listen", listen,
            "the option advertise beside it: how do others reach this silo?");
    return check_address_is_protected(opt, "listen", listen, text);
}

static teff_err check_silo_options(const teff_silo_options *opt, char *text)
{
    teff_err err = teffi_options_check(opt->cluster, "seed", opt->seeds, opt->transport,
                                       opt->tls_cert, opt->tls_ca, opt->connection_bytes_max, text);
    if (err)
        return err;
    const char *expected = opt->store ? teffi_store_check_address(opt->store) : NULL;
    if (opt->store && opt->seeds[0] && !expected)
        expected = "no store beside a seed: the seed's is used";
    if (expected) {
        char shown[TEFFI_STORE_SHOWN_MAX];
        return teffi_option_refuse(text, "store", teffi_store_mask_address(opt->store, shown),
                                   expected);
    }
    if (opt->workers > 1024)
        return teffi_option_refuse(text, "workers", "over 1024", "0 to 1024");
    if (opt->lease_ms && (opt->lease_ms < TEFFI_LEASE_MIN_MS || opt->lease_ms > TEFFI_LEASE_MAX_MS))
        return teffi_option_refuse(text, "lease_ms", "out of range", "500 to 600000");
    if (opt->stuck_ms && opt->stuck_ms < teffi_or_default(opt->lease_ms, TEFFI_LEASE_MS))
        return teffi_option_refuse(text, "stuck_ms", "below lease_ms", "at least lease_ms");
    if (opt->outage_ms > TEFFI_LEASE_MAX_MS)
        return teffi_option_refuse(text, "outage_ms", "over 600000", "0 to 600000");
    if (opt->outage_ms && opt->seeds[0])
        return teffi_option_refuse(text, "outage_ms", "beside a seed", "a store of its own");
    if (opt->grain_bytes_max > TEFFI_QUEUE_BYTES_MAX)
        return teffi_option_refuse(text, "grain_bytes_max", "too large", "at most 2047 MiB");
    if (opt->memory_percent > 100 || (opt->memory_percent && opt->memory_percent < 10))
        return teffi_option_refuse(text, "memory_percent", "out of range", "0, or 10 to 100");
    if (opt->reminder_period_min_ms > TEFFI_REMINDER_PERIOD_MIN_MAX_MS)
        return teffi_option_refuse(text, "reminder_period_min_ms", "over a day", "0 to 86400000");
    err = check_scheduler_options(opt, text);
    if (!err)
        err = check_listen_options(opt, text);
    if (!err)
        err = check_secret_options(opt, text);
    return err ? err : check_gateway_options(opt, text);
}

/* Replaces *option by a copy in silo's arena. out: false if memory is exhausted; *option is NULL
 * in this case, and the caller must fail; otherwise the silo would run without that option, perhaps
 * without TLS. */
static bool copy_option(teff_silo *silo, const char **option)
{
    const char *copy = *option ? teff_arena_copy(&silo->arena, *option, strlen(*option)) : NULL;
    bool copied = copy || !*option;
    *option = copy;
    return copied;
}

/* Copies the strings of all options, because the program may free its own after teff_silo_new().
 * out: false if memory is exhausted. */
static bool copy_option_strings(teff_silo *silo)
{
    teff_silo_options *opt = &silo->opt;
    const char **texts[] = {&opt->cluster,       &opt->listen,
                            &opt->advertise,     &opt->store,
                            &opt->tls_cert,      &opt->tls_ca,
                            &opt->tls_client_ca, &opt->gateway,
                            &opt->secret_file,   &opt->client_secret_file};
    bool copied = true;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0] && copied; i++)
        copied = copy_option(silo, texts[i]);
    for (int i = 0; i < TEFF_SEEDS_MAX && copied; i++)
        copied = copy_option(silo, &opt->seeds[i]);
    return copied;
}

/* Copies the program's options to the silo (but not their strings: see copy_option_strings()), sets
 * defaults, and checks the result. */
static teff_err copy_and_check_silo_options(teff_silo *silo, const teff_silo_options *given,
                                            char *text)
{
    teff_silo_options *opt = &silo->opt;
    if (!teffi_options_check_and_copy(opt, sizeof *opt, given, "teff_silo_options", text) ||
        !teffi_sched_options_check_and_copy(&silo->sched, &silo->hooks, opt->sched, text))
        return TEFF_E_INVALID;
    opt->sched = &silo->sched;
    opt->cluster = opt->cluster ? opt->cluster : "dev";
    opt->listen = opt->listen ? opt->listen : "127.0.0.1:0";
    if (!teffi_filters_add(&silo->outgoing, opt->outgoing))
        return teffi_fail(text, TEFF_E_INVALID, "outgoing: more than %d filters", TEFF_FILTERS_MAX);
    return check_silo_options(opt, text);
}

teff_err teffi_silo_new_on_platform(const teffi_platform *platform, const teff_silo_options *given,
                                    teff_silo **out, char *text)
{
    teff_silo *silo = calloc(1, sizeof *silo);
    *out = NULL;
    if (!silo)
        return teffi_fail(text, TEFF_E_NOMEM, "out of memory");
    teff_err err = copy_and_check_silo_options(silo, given, text);
    if (err) {
        free(silo);
        return err;
    }
    teffi_arena_init(&silo->arena, NULL, 0, 0);
    pthread_mutex_init(&silo->lock, NULL);
    pthread_mutex_init(&silo->borrowers.lock, NULL);
    silo->platform = *platform;
    if (silo->opt.silent && silo->platform.log.level > TEFF_LOG_WARN)
        silo->platform.log.level = TEFF_LOG_WARN;
    if (!copy_option_strings(silo)) {
        teff_silo_free(silo);
        return teffi_fail(text, TEFF_E_NOMEM, "out of memory");
    }
    *out = silo;
    return TEFF_OK;
}

static teff_err open_store(const teffi_platform *platform, const char *address,
                           struct teffi_store **store, char *text)
{
    (void)platform;
    return teffi_store_open(address, store, text);
}

void teffi_silo_init_platform(teffi_platform *platform, teff_log_level log_level)
{
    teffi_platform_init_real(platform, log_level);
    platform->exec_new = teffi_exec_real_new;
    platform->net_new = teffi_net_link_new;
    platform->store_open = open_store;
}

teff_err teff_silo_new(const teff_silo_options *opt, teff_silo **silo, char *text)
{
    teffi_platform platform;
    teffi_silo_init_platform(&platform, TEFF_LOG_INFO);
    return teffi_silo_new_on_platform(&platform, opt, silo, text);
}

static teff_err check_new_type(const teff_silo *silo, const teff_grain_type *type, char *text)
{
    if (!type)
        return teffi_fail(text, TEFF_E_INVALID, "a grain type is NULL");
    const teff_type_info *info = type->info;
    if (!info)
        return teffi_fail(text, TEFF_E_NOMEM, "out of memory when a grain type was made");
    if (silo->phase != TEFFI_SILO_NEW)
        return teffi_fail(text, TEFF_E_INVALID,
                          "grain type %.100s comes too late: the silo has been started",
                          info->name);
    if (silo->n_types == TEFFI_TYPES_MAX)
        return teffi_fail(text, TEFF_E_INVALID, "grain type %.100s is one too many; at most %d",
                          info->name, TEFFI_TYPES_MAX);
    for (size_t i = 0; i < silo->n_types; i++) {
        const teff_type_info *other = silo->types[i]->info;
        if (other->id != info->id)
            continue;
        if (strcmp(other->name, info->name) == 0)
            return teffi_fail(text, TEFF_E_EXISTS, "grain type %.100s is hosted already",
                              info->name);
        return teffi_fail(text, TEFF_E_EXISTS,
                          "grain type %.100s has the same id as %.100s, 0x%08x; rename one",
                          info->name, other->name, (unsigned)info->id);
    }
    return TEFF_OK;
}

teff_err teffi_silo_host_type(teff_silo *silo, teff_grain_type *type, char *text)
{
    teff_err err = check_new_type(silo, type, text);
    if (err)
        return err;
    err = teffi_type_add_filters(type, silo->opt.incoming);
    if (err)
        return err == TEFF_E_NOMEM
                   ? teffi_fail(text, err, "out of memory for the filters of %.100s",
                                type->info->name)
                   : teffi_fail(text, err, "%.100s has more than %d filters, with the silo's",
                                type->info->name, TEFF_FILTERS_MAX);
    silo->types[silo->n_types++] = type;
    return TEFF_OK;
}

teff_err teff_silo_host(teff_silo *silo, teff_grain_type *type)
{
    char text[TEFF_TEXT_MAX];
    teff_err err = teffi_silo_host_type(silo, type, text);
    if (err)
        teffi_logf(&silo->platform.log, TEFF_LOG_ERROR, "%s", text);
    return err;
}

/* ---- start and stop ---- */

/* Runs teffi_silo_join() on the calling thread, with a context made for it. */
static teff_err join_cluster_on_calling_thread(teff_silo *silo, char *text)
{
    teff_ctx *ctx = teffi_ctx_new(&silo->node.home);
    if (!ctx)
        return teffi_fail(text, TEFF_E_NOMEM, "out of memory");
    teff_err err = teffi_silo_join(ctx, silo);
    if (err)
        (void)teffi_fail(text, err, "%s", teff_error(ctx));
    teff_ctx_free(ctx);
    return err;
}

/* Sets *option to `bound`, the address that the silo listened on before it stopped, because other
 * silos and clients know that address. Does nothing if `bound` is empty. out: false if memory is
 * exhausted; *option is as it was. */
static bool set_option_to_bound_address(teff_silo *silo, const char **option, const char *bound)
{
    if (!bound[0] || strcmp(bound, *option) == 0)
        return true;
    const char *kept = bound;
    if (!copy_option(silo, &kept))
        return false;
    *option = kept;
    return true;
}

/* Prepares a stopped silo for its next start: sets its options to the addresses that it listened
 * on, and clears its node. out: false if memory is exhausted; the node is as it was. */
static bool prepare_next_start(teff_silo *silo)
{
    if (!set_option_to_bound_address(silo, &silo->opt.listen, silo->bound) ||
        !set_option_to_bound_address(silo, &silo->opt.gateway, silo->gateway))
        return false;
    teffi_node_fini(&silo->node);
    memset(&silo->node, 0, sizeof silo->node);
    silo->n_clients = 0;
    memset(silo->borrowers.of, 0, sizeof silo->borrowers.of);
    silo->seed.address = NULL;
    silo->seed.closed = false;
    atomic_store(&silo->links, 0);
    return true;
}

teff_err teff_silo_start(teff_silo *silo, char *text)
{
    if (silo->phase != TEFFI_SILO_STOPPED && silo->phase != TEFFI_SILO_NEW)
        return teffi_fail(text, TEFF_E_INVALID, "the silo runs already");
    if (silo->phase == TEFFI_SILO_STOPPED && !prepare_next_start(silo))
        return teffi_fail(text, TEFF_E_NOMEM, "out of memory");
    silo->phase = TEFFI_SILO_STARTED;
    teff_err err = teffi_silo_open(silo, text);
    if (!err)
        err = join_cluster_on_calling_thread(silo, text);
    if (err) {
        /* If this silo was listed in the table of silos, others may be connected to it and must get
         * a goodbye. */
        const teffi_membership *m = silo->node.membership;
        (void)teffi_silo_close(silo, m && m->listed ? GOODBYE_MS : 0);
    }
    return err;
}

/* Runs one step of a stop on the calling thread, with a context made for it: the wait for the silos
 * that use this silo's store, or teffi_silo_leave(). */
static teff_err run_step_on_calling_thread(teff_silo *silo,
                                           teff_err (*step)(teff_ctx *ctx, teff_silo *silo,
                                                            uint64_t deadline_ns),
                                           uint32_t timeout_ms)
{
    teff_ctx *ctx = teffi_ctx_new(&silo->node.home);
    uint64_t deadline = teffi_now(&silo->platform) + timeout_ms * 1000000ull;
    teff_err err = ctx ? step(ctx, silo, deadline) : TEFF_E_NOMEM;
    if (err)
        teffi_logf(&silo->platform.log, TEFF_LOG_WARN, "silo %s: leaving: %s", silo->node.address,
                   ctx ? teff_error(ctx) : "out of memory");
    teff_ctx_free(ctx);
    return err;
}

teff_err teff_silo_stop(teff_silo *silo, uint32_t timeout_ms)
{
    uint32_t ms = timeout_ms ? timeout_ms : STOP_DEFAULT_MS;
    if (silo->phase != TEFFI_SILO_SERVING)
        return TEFF_OK;
    teffi_exec_abort_if_in_turn(silo->node.home.exec, "teff_silo_stop");
    teff_err waited = run_step_on_calling_thread(silo, teffi_silo_await_borrowers, ms);
    bool lost = teffi_lease_is_over(&silo->node.home.lease);
    if (lost && ms > LOST_MS)
        ms = LOST_MS;
    teff_err forced = teffi_silo_stop_engines_and_processes(silo, ms / 2 + 1);
    teff_err left =
        lost ? TEFF_E_UNAVAILABLE : run_step_on_calling_thread(silo, teffi_silo_leave, ms);
    lost = teffi_lease_is_over(&silo->node.home.lease); /* the lease may have ended meanwhile */
    teff_err closed = teffi_silo_close(silo, lost ? 0 : ms);
    return waited || left || forced ? TEFF_E_TIMEOUT : closed;
}

void teff_silo_free(teff_silo *silo)
{
    if (!silo)
        return;
    (void)teff_silo_stop(silo, 0);
    for (size_t i = 0; i < silo->n_types; i++)
        teff_grain_type_free(silo->types[i]);
    teffi_node_fini(&silo->node);
    free(silo->clients);
    pthread_mutex_destroy(&silo->lock);
    pthread_mutex_destroy(&silo->borrowers.lock);
    teffi_arena_fini(&silo->arena);
    free(silo);
}

const char *teff_silo_address(const teff_silo *silo)
{
    return silo->node.address;
}

const char *teff_silo_gateway(const teff_silo *silo)
{
    return silo->gateway;
}

teff_ctx *teff_silo_new_ctx(teff_silo *silo)
{
    return silo->phase == TEFFI_SILO_SERVING ? teffi_ctx_new(&silo->node.home) : NULL;
}

/* ---- counters and scaling; not during start and stop, which make and free the executor ---- */

size_t teff_silo_sched_metrics(teff_silo *silo, teff_sched_metrics *all, teff_sched_worker *workers,
                               size_t max)
{
    if (silo->phase == TEFFI_SILO_SERVING)
        return teffi_exec_metrics(silo->node.home.exec, all, workers, max);
    if (all)
        *all = (teff_sched_metrics){0};
    return 0;
}

teff_err teff_silo_scale(teff_silo *silo, uint32_t n)
{
    return silo->phase == TEFFI_SILO_SERVING ? teffi_exec_scale(silo->node.home.exec, n)
                                             : TEFF_E_CLOSED;
}
