/* secrets.h - which secret a connection is proved with: clients may have another than silos, and
 * then a client's never makes its peer a silo.
 * Way:     handshake -> [secrets] -> message/proof
 * Threads: immutable after init. */
#pragma once

#include <stdbool.h>
#include "message/proof.h"

typedef struct link_secrets { /* NULL: none */
    teffi_secret *own;        /* of a silo: the silos' secret; of a client: the clients' */
    teffi_secret *clients;    /* of a silo: the clients', if they have another */
} link_secrets;

/* teffi_secrets_init - read the files. in: NULL: none. errs: as teffi_secret_read(); both have the
 * same secret: TEFF_E_INVALID; then there are none.
 * teffi_secrets_fini - accepts zeroed memory. */
TEFF_MUST_USE teff_err teffi_secrets_init(link_secrets *secrets, const char *file,
                                          const char *client_file, char *text);
void teffi_secrets_fini(link_secrets *secrets);

/* teffi_secrets_find - in: role of the dialler. out: the secret of such connections; NULL: none. */
const teffi_secret *teffi_secrets_find(const link_secrets *secrets, uint32_t role);

/* teffi_secrets_find_missing - has only one side a secret? out: why they do not connect, in words for
 * both sides; NULL: both have one, or none. */
const char *teffi_secrets_find_missing(bool dialler_has, bool acceptor_has);
