/* nng.c - the transport over nng: dials, listeners, TLS. Uses only nng's streams, not its
 * protocols. On two cores nng runs 14 threads (tasks, resolver, timers, poll), which all transports
 * of the process share. */
#include "stream/nng.h"

#include <nng/supplemental/tls/tls.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/error.h"

struct nng_transport;

typedef struct nng_door {
    struct nng_transport *transport;
    teffi_door door;
    nng_tls_config *tls;           /* NULL: no TLS */
    nng_stream_listener *listener; /* NULL: none */
    nng_aio *aio;                  /* of the accept */
} nng_door;

typedef struct nng_transport {
    teffi_transport transport; /* first */
    nng_tls_config *tls_dial;
    nng_door doors[TEFFI_DOORS];
} nng_transport;

struct teffi_stream_dial {
    nng_transport *transport;
    nng_stream_dialer *dialer; /* NULL: the address is not valid */
    nng_aio *aio;
    teffi_stream_done *done;
    void *arg;
};

enum { URL_MAX = 320 };

/* Writes the address as a URL of nng. out: false if the address is not valid, or if it is a path
 * and TLS is on: nng offers TLS only over TCP. */
static bool make_url(const nng_transport *t, const char *address, char *url)
{
    const char *path = teffi_address_path(address);
    const char *scheme = path ? "ipc" : t->transport.tls ? "tls+tcp" : "tcp";
    snprintf(url, URL_MAX, "%s://%s", scheme, path ? path : address);
    return teffi_address_is_valid(address) && !(path && t->transport.tls);
}

/* Makes the result of a dial or an accept that has ended. If the dial or accept succeeded, also
 * makes the stream in the result. */
static teffi_stream_result make_nng_stream_result(const nng_transport *t, nng_aio *aio)
{
    teffi_stream_result result = teffi_nng_make_result(aio);
    if (result.end)
        return result;
    result.stream = teffi_nng_stream_new(nng_aio_get_output(aio, 0), !t->transport.tls);
    if (result.stream)
        return result;
    nng_stream_free(nng_aio_get_output(aio, 0));
    return (teffi_stream_result){.end = TEFFI_STREAM_FAILED, .text = "out of memory"};
}

/* ---- dials ---- */

/* nng calls this function when a dial has ended. If new_nng_dial() could not make a dialer for the
 * address, start_nng_dial() starts a sleep of 0 ms instead. Then nng calls this function when the
 * sleep has ended, so the error is reported asynchronously. */
static void on_nng_dialled(void *arg)
{
    teffi_stream_dial *dial = arg;
    teffi_stream_result result = {.end = TEFFI_STREAM_FAILED,
                                  .text = "not an address of the form " TEFFI_ADDRESS_EXPECTED};
    if (dial->dialer)
        result = make_nng_stream_result(dial->transport, dial->aio);
    dial->done(dial->arg, &result);
}

static void free_nng_dial(teffi_stream_dial *dial)
{
    nng_aio_free(dial->aio);
    if (dial->dialer)
        nng_stream_dialer_free(dial->dialer);
    free(dial);
}

static teffi_stream_dial *new_nng_dial(teffi_transport *transport, const char *address,
                                       teffi_stream_done *done, void *arg)
{
    nng_transport *t = (nng_transport *)transport;
    char url[URL_MAX];
    teffi_stream_dial *dial = calloc(1, sizeof *dial);
    if (!dial)
        return NULL;
    *dial = (teffi_stream_dial){.transport = t, .done = done, .arg = arg};
    if (nng_aio_alloc(&dial->aio, on_nng_dialled, dial) != 0) {
        free_nng_dial(dial);
        return NULL;
    }
    int rv =
        make_url(t, address, url) ? nng_stream_dialer_alloc(&dial->dialer, url) : NNG_EADDRINVAL;
    if (rv == NNG_ENOMEM) {
        free_nng_dial(dial);
        return NULL;
    }
    if (rv)
        return dial;
    nng_stream_dialer_set_bool(dial->dialer, NNG_OPT_TCP_NODELAY, true);
    if (t->tls_dial)
        nng_stream_dialer_set_ptr(dial->dialer, NNG_OPT_TLS_CONFIG, t->tls_dial);
    return dial;
}

static void start_nng_dial(teffi_stream_dial *dial)
{
    if (dial->dialer)
        nng_stream_dialer_dial(dial->dialer, dial->aio);
    else
        nng_sleep_aio(0, dial->aio); /* the callback reports that there is no dialer */
}

static void cancel_nng_dial(teffi_stream_dial *dial)
{
    if (dial->dialer)
        nng_stream_dialer_close(dial->dialer);
}

/* ---- the listeners ---- */

static void on_nng_accepted(void *arg)
{
    nng_door *door = arg;
    teffi_transport *transport = &door->transport->transport;
    teffi_stream_result result = make_nng_stream_result(door->transport, door->aio);
    transport->accepted(transport->door_arg[door->door], &result);
}

static teff_err open_nng_listener(teffi_transport *transport, teffi_door which, const char *address,
                                  int *port, const char **why)
{
    nng_transport *t = (nng_transport *)transport;
    nng_door *door = &t->doors[which];
    char url[URL_MAX];
    nng_stream_listener *listener = NULL;
    const char *path = teffi_address_path(address);
    int rv = NNG_EADDRINVAL;
    /* checks the path first, because nng would replace any file there */
    if (make_url(t, address, url))
        rv = path && !teffi_path_is_free(path) ? NNG_EADDRINUSE
                                               : nng_stream_listener_alloc(&listener, url);
    if (rv == 0) {
        nng_stream_listener_set_bool(listener, NNG_OPT_TCP_NODELAY, true);
        if (door->tls)
            nng_stream_listener_set_ptr(listener, NNG_OPT_TLS_CONFIG, door->tls);
        rv = nng_stream_listener_listen(listener);
        if (rv)
            nng_stream_listener_free(listener);
    }
    if (rv) {
        *why = nng_strerror(rv);
        return rv == NNG_EADDRINVAL || rv == NNG_EINVAL ? TEFF_E_INVALID : TEFF_E_IO;
    }
    *port = 0;
    if (!path)
        nng_stream_listener_get_int(listener, NNG_OPT_TCP_BOUND_PORT, port);
    door->listener = listener;
    return TEFF_OK;
}

static void start_nng_accept(teffi_transport *transport, teffi_door which)
{
    nng_door *door = &((nng_transport *)transport)->doors[which];
    nng_stream_listener_accept(door->listener, door->aio);
}

static void close_nng_listeners(teffi_transport *transport)
{
    nng_transport *t = (nng_transport *)transport;
    for (int i = 0; i < TEFFI_DOORS; i++)
        if (t->doors[i].listener)
            nng_stream_listener_close(t->doors[i].listener);
}

static void stop_nng_listeners(teffi_transport *transport)
{
    nng_transport *t = (nng_transport *)transport;
    close_nng_listeners(transport);
    for (int i = 0; i < TEFFI_DOORS; i++)
        nng_aio_stop(t->doors[i].aio); /* waits for on_nng_accepted() */
}

/* ---- TLS ---- */

/* Makes a TLS configuration. Both sides must present a certificate, and the peer's must be signed
 * by `authority`. Host names are not checked, because silos move between addresses.
 * errs: TEFF_E_INVALID; text begins with the name of the file that failed, or with "tls" if nng has
 * no TLS or no memory. */
static teff_err make_tls_config(const char *certificate, const char *authority, nng_tls_mode mode,
                                nng_tls_config **out, char *text)
{
    nng_tls_config *config;
    const char *what = "tls";
    int rv = nng_tls_config_alloc(&config, mode);
    if (rv == 0) {
        what = certificate;
        rv = nng_tls_config_cert_key_file(config, certificate, NULL);
        if (rv == 0) {
            what = authority;
            rv = nng_tls_config_ca_file(config, authority);
        }
        if (rv == 0)
            rv = nng_tls_config_auth_mode(config, NNG_TLS_AUTH_MODE_REQUIRED);
        if (rv)
            nng_tls_config_free(config);
    }
    if (rv)
        return teffi_fail(text, TEFF_E_INVALID, "%.300s: %s", what, nng_strerror(rv));
    *out = config;
    return TEFF_OK;
}

/* Makes the TLS configurations of dials and listeners. Makes none if no files are given, and none
 * for the gateway if files->client_authority is NULL. On an error the caller frees those made so
 * far. */
static teff_err make_all_tls_configs(nng_transport *t, const teffi_tls_files *files, char *text)
{
    const char *certificate = files->certificate, *authority = files->authority;
    if (!certificate && !authority && !files->client_authority)
        return TEFF_OK;
    if (!certificate || !authority)
        return teffi_fail(text, TEFF_E_INVALID, "tls takes both a certificate and an authority");
    t->transport.tls = true;
    teff_err err = make_tls_config(certificate, authority, NNG_TLS_MODE_CLIENT, &t->tls_dial, text);
    if (!err)
        err = make_tls_config(certificate, authority, NNG_TLS_MODE_SERVER,
                              &t->doors[TEFFI_DOOR_SILOS].tls, text);
    if (!err && files->client_authority)
        err = make_tls_config(certificate, files->client_authority, NNG_TLS_MODE_SERVER,
                              &t->doors[TEFFI_DOOR_GATEWAY].tls, text);
    return err;
}

/* ---- the transport ---- */

static void fini_nng_door(nng_door *door)
{
    nng_aio_free(door->aio);
    if (door->listener)
        nng_stream_listener_free(door->listener);
    if (door->tls)
        nng_tls_config_free(door->tls);
}

static void free_nng_transport(teffi_transport *transport)
{
    nng_transport *t = (nng_transport *)transport;
    for (int i = 0; i < TEFFI_DOORS; i++)
        fini_nng_door(&t->doors[i]);
    if (t->tls_dial)
        nng_tls_config_free(t->tls_dial);
    free(t);
}

static const teffi_transport_ops transport_ops = {
    .dial_new = new_nng_dial,
    .dial_start = start_nng_dial,
    .dial_cancel = cancel_nng_dial,
    .dial_free = free_nng_dial,
    .listen = open_nng_listener,
    .accept = start_nng_accept,
    .close_listeners = close_nng_listeners,
    .stop_listeners = stop_nng_listeners,
    .free = free_nng_transport,
};

/* errs: TEFF_E_NOMEM. */
static teff_err init_nng_doors(nng_transport *t, char *text)
{
    for (int i = 0; i < TEFFI_DOORS; i++) {
        nng_door *door = &t->doors[i];
        door->transport = t;
        door->door = (teffi_door)i;
        if (nng_aio_alloc(&door->aio, on_nng_accepted, door) != 0)
            return teffi_fail(text, TEFF_E_NOMEM, "link: out of memory");
    }
    return TEFF_OK;
}

teff_err teffi_nng_transport_new(const teffi_tls_files *files, teffi_transport **transport,
                                 char *text)
{
    nng_transport *t = calloc(1, sizeof *t);
    *transport = NULL;
    if (!t)
        return teffi_fail(text, TEFF_E_NOMEM, "link: out of memory");
    t->transport.ops = &transport_ops;
    teff_err err = init_nng_doors(t, text);
    if (!err)
        err = make_all_tls_configs(t, files, text);
    if (err)
        free_nng_transport(&t->transport);
    else
        *transport = &t->transport;
    return err;
}
