/* secrets.c - reads the secrets of a link, and finds the one for a connection. */
#include "link/secrets.h"

#include <string.h>
#include "base/error.h"

static bool secrets_are_equal(const teffi_secret *a, const teffi_secret *b)
{
    return a && b && a->len == b->len && memcmp(a->bytes, b->bytes, a->len) == 0;
}

teff_err teffi_secrets_init(link_secrets *secrets, const char *file, const char *client_file,
                            char *text)
{
    *secrets = (link_secrets){0};
    teff_err err = file ? teffi_secret_read(file, TEFFI_SECRET_MIN, &secrets->own, text) : TEFF_OK;
    if (!err && client_file)
        err = teffi_secret_read(client_file, TEFFI_SECRET_MIN, &secrets->clients, text);
    if (!err && secrets_are_equal(secrets->own, secrets->clients))
        err = teffi_fail(text, TEFF_E_INVALID,
                         "secret file '%.300s': the same secret as in '%.150s'", client_file, file);
    if (err)
        teffi_secrets_fini(secrets);
    return err;
}

void teffi_secrets_fini(link_secrets *secrets)
{
    teffi_secret_free(secrets->own);
    teffi_secret_free(secrets->clients);
    *secrets = (link_secrets){0};
}

const teffi_secret *teffi_secrets_find(const link_secrets *secrets, uint32_t role)
{
    return role == TEFFI_ROLE_CLIENT && secrets->clients ? secrets->clients : secrets->own;
}

const char *teffi_secrets_explain_missing(bool dialler_has, bool acceptor_has)
{
    if (acceptor_has && !dialler_has)
        return "a secret is expected (secret_file), the dialler has none";
    if (dialler_has && !acceptor_has)
        return "the dialler has a secret (secret_file), the silo that it dialled has none";
    return NULL;
}
