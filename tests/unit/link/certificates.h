/* certificates.h - authorities and certificates for tests, made by openssl in their own folder.
 * Way:     link/test_link_tls, link/test_identity, cluster/test_join, silo/test_authorize
 *          -> [certificates] -> openssl */
#pragma once

#include <stdbool.h>

/* certificates_begin - make the folder. out: false: it cannot be made.
 * certificates_end - remove it. out: 0, or not. */
bool certificates_begin(void);
int certificates_end(void);

/* certificates_path - of a file there; four paths are valid at a time. */
const char *certificates_path(const char *name);

/* certificates_make_ca - makes NAME.pem and NAME.key. out: false: there is no openssl. */
bool certificates_make_ca(const char *name);

/* certificates_make - makes NAME.pem, a certificate with its key.
 * in: ca, who signs it. key: as openssl req's -newkey wants it; NULL: a short one. options: more of
 * openssl x509. */
bool certificates_make(const char *ca, const char *name, const char *key, int days,
                       const char *options);

/* certificates_run - runs a shell command in the folder. */
bool certificates_run(const char *command);
