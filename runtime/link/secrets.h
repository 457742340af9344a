/* secrets.h - which shared secret proves a connection. Clients may have a secret of their own: a
 * node that knows only that one cannot connect as a silo.
 * Way:     handshake -> [secrets] -> message/proof
 * Threads: immutable after init. */
#pragma once

#include <stdbool.h>
#include "message/proof.h"

typedef struct link_secrets { /* NULL: none */
    teffi_secret *own;        /* of a silo: the silos' secret; of a client: the clients' */
    teffi_secret *clients;    /* of a silo: the clients', if they have another */
} link_secrets;

/* teffi_secrets_init - read the files. in: file, client_file, may be NULL: no secret.
 * errs: as teffi_secret_read(); TEFF_E_INVALID also if both files hold the same secret. On an error
 * *secrets is empty.
 * teffi_secrets_fini - accepts zeroed memory. */
TEFF_MUST_USE teff_err teffi_secrets_init(link_secrets *secrets, const char *file,
                                          const char *client_file, char *text);
void teffi_secrets_fini(link_secrets *secrets);

/* teffi_secrets_find - find the secret that proves a connection.
 * in:   role of the dialler. out: NULL: none. */
const teffi_secret *teffi_secrets_find(const link_secrets *secrets, uint32_t role);

/* teffi_secrets_explain_missing - does only one side have a secret?
 * out:  why they do not connect, a text for the logs of both; NULL: both have one, or neither. */
const char *teffi_secrets_explain_missing(bool dialler_has, bool acceptor_has);
