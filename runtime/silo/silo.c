/* silo.c - the public face of a silo: made, hosting, started, stopped, freed.
 * Way:     user's main -> [silo] -> lifecycle
 * Threads: start, stop and free by one thread at a time; contexts from any. */
#include "silo/silo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "silo/address.h"
#include "silo/layer.h"

enum { STOP_DEFAULT_MS = 30000 };

static teff_err refuse(char *text, const char *option, const char *value, const char *expected)
{
    if (text)
        snprintf(text, TEFF_TEXT_MAX, "%s: '%.100s'; expected %s", option, value, expected);
    return TEFF_E_INVALID;
}

static teff_err check_sched(const teff_silo_options *opt, char *text)
{
    const char *wrong = teffi_sched_check(&opt->sched, opt->workers);
    if (wrong && text)
        snprintf(text, TEFF_TEXT_MAX, "sched.%s", wrong);
    return wrong ? TEFF_E_INVALID : TEFF_OK;
}

static teff_err check_listen(const teff_silo_options *opt, char *text)
{
    const char *listen = opt->listen;
    if (!teffi_address_ok(listen))
        return refuse(text, "listen", listen, "host:port or [v6]:port");
    if (opt->advertise && !teffi_address_ok(opt->advertise))
        return refuse(text, "advertise", opt->advertise, "host:port or [v6]:port");
    if (!opt->advertise && teffi_address_any(listen))
        return refuse(text, "listen", listen,
                      "the option advertise beside it: how do others reach this silo?");
    if (!teffi_address_loopback(listen) && !opt->tls_cert && !opt->insecure)
        return refuse(text, "listen", listen,
                      "a loopback address, or TLS (tls_cert, tls_ca), or the option insecure");
    return TEFF_OK;
}

static teff_err check(const teff_silo_options *opt, char *text)
{
    if (!teffi_cluster_ok(opt->cluster))
        return refuse(text, "cluster", opt->cluster, "1 to 64 of A-Z a-z 0-9 . _ -");
    for (int i = 0; i < TEFF_SEEDS_MAX && opt->seeds[i]; i++)
        if (!teffi_address_ok(opt->seeds[i]))
            return refuse(text, "seed", opt->seeds[i], "host:port or [v6]:port");
    if (opt->store && strcmp(opt->store, "memory") != 0 && strncmp(opt->store, "sqlite:", 7) != 0)
        return refuse(text, "store", opt->store, "memory or sqlite:FILE");
    if (opt->store && opt->seeds[0])
        return refuse(text, "store", opt->store, "no store beside a seed: the seed's is used");
    if (!opt->tls_cert != !opt->tls_ca)
        return refuse(text, "tls_cert, tls_ca", opt->tls_cert ? opt->tls_cert : opt->tls_ca,
                      "both or neither");
    if (opt->workers > 1024)
        return refuse(text, "workers", "over 1024", "0 to 1024");
    teff_err err = check_sched(opt, text);
    return err ? err : check_listen(opt, text);
}

static const char *keep(teff_silo *silo, const char *s)
{
    return s ? teff_arena_copy(&silo->arena, s, strlen(s)) : NULL;
}

static void copy_options(teff_silo *silo, const teff_silo_options *opt)
{
    teff_silo_options *to = &silo->opt;
    *to = *opt;
    to->cluster = keep(silo, opt->cluster);
    to->listen = keep(silo, opt->listen);
    to->advertise = keep(silo, opt->advertise);
    to->store = keep(silo, opt->store);
    to->tls_cert = keep(silo, opt->tls_cert);
    to->tls_ca = keep(silo, opt->tls_ca);
    for (int i = 0; i < TEFF_SEEDS_MAX; i++)
        to->seeds[i] = keep(silo, opt->seeds[i]);
}

teff_err teffi_silo_new_on(const teffi_platform *platform, const teff_silo_options *given,
                           teff_silo **out, char *text)
{
    teff_silo_options opt = given ? *given : (teff_silo_options){0};
    *out = NULL;
    opt.cluster = opt.cluster ? opt.cluster : "dev";
    opt.listen = opt.listen ? opt.listen : "127.0.0.1:0";
    teff_err err = check(&opt, text);
    if (err)
        return err;
    teff_silo *silo = calloc(1, sizeof *silo);
    if (!silo) {
        if (text)
            snprintf(text, TEFF_TEXT_MAX, "out of memory");
        return TEFF_E_NOMEM;
    }
    teffi_arena_init(&silo->arena, NULL, 0, 0);
    pthread_mutex_init(&silo->lock, NULL);
    silo->platform = *platform;
    copy_options(silo, &opt);
    *out = silo;
    return TEFF_OK;
}

teff_err teff_silo_new(const teff_silo_options *opt, teff_silo **silo, char *text)
{
    teffi_platform platform;
    teffi_platform_real(&platform, opt && opt->silent ? TEFFI_WARN : TEFFI_INFO);
    return teffi_silo_new_on(&platform, opt, silo, text);
}

teff_err teff_silo_host(teff_silo *silo, teff_grain_type *type)
{
    if (!type || silo->phase != TEFFI_SILO_NEW || silo->n_types == TEFFI_TYPES_MAX)
        return TEFF_E_INVALID;
    for (size_t i = 0; i < silo->n_types; i++)
        if (teffi_grains_layer.info(silo->types[i])->id == teffi_grains_layer.info(type)->id)
            return TEFF_E_EXISTS;
    silo->types[silo->n_types++] = type;
    return TEFF_OK;
}

/* ---- start and stop by a thread ---- */

static teff_err join_here(teff_silo *silo, char *text)
{
    teff_ctx *ctx = teffi_ctx_new(&silo->node);
    if (!ctx)
        return TEFF_E_NOMEM;
    teff_err err = teffi_silo_join(ctx, silo);
    if (err && text)
        snprintf(text, TEFF_TEXT_MAX, "%s", teff_error(ctx));
    teff_ctx_free(ctx);
    return err;
}

teff_err teff_silo_start(teff_silo *silo, char *text)
{
    if (silo->phase != TEFFI_SILO_NEW) {
        if (text)
            snprintf(text, TEFF_TEXT_MAX, "a silo is started once");
        return TEFF_E_INVALID;
    }
    silo->phase = TEFFI_SILO_STARTED;
    teff_err err = teffi_silo_open(silo, text);
    if (!err)
        err = join_here(silo, text);
    if (err)
        (void)teffi_silo_close(silo, 0);
    return err;
}

static teff_err leave_here(teff_silo *silo, uint32_t timeout_ms)
{
    teff_ctx *ctx = teffi_ctx_new(&silo->node);
    uint64_t deadline = teffi_now(&silo->platform) + timeout_ms * 1000000ull;
    teff_err err = ctx ? teffi_silo_leave(ctx, silo, deadline) : TEFF_E_NOMEM;
    if (err)
        teffi_logf(&silo->platform.log, TEFFI_WARN, "silo %s: leaving: %s", silo->node.address,
                   ctx ? teff_error(ctx) : "out of memory");
    teff_ctx_free(ctx);
    return err;
}

teff_err teff_silo_stop(teff_silo *silo, uint32_t timeout_ms)
{
    uint32_t ms = timeout_ms ? timeout_ms : STOP_DEFAULT_MS;
    if (silo->phase != TEFFI_SILO_SERVING)
        return TEFF_OK;
    teff_err forced = teffi_silo_stop_processes(silo, ms / 2 + 1);
    teff_err left = leave_here(silo, ms);
    teff_err closed = teffi_silo_close(silo, ms);
    return left || forced ? TEFF_E_TIMEOUT : closed;
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
    teffi_arena_fini(&silo->arena);
    free(silo);
}

const char *teff_silo_address(const teff_silo *silo)
{
    return silo->node.address;
}

teff_ctx *teff_silo_ctx(teff_silo *silo)
{
    return silo->phase == TEFFI_SILO_SERVING ? teffi_ctx_new(&silo->node) : NULL;
}
