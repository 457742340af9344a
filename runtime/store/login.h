/* login.h - credentials for a store's server, and the CA that must have signed its certificate.
 * They are options at the end of the store's address, as ?user=NAME&password-file=FILE.
 * Way:     redis, etcd -> [login] -> os/secret_file
 * Threads: immutable after teffi_login_parse(). */
#pragma once

#include <stdbool.h>
#include "os/secret_file.h"

enum { TEFFI_LOGIN_MAX = 256 }; /* bytes of an option's value */

/* An option that is not given is "". */
typedef struct teffi_login {
    char user[TEFFI_LOGIN_MAX + 1];
    char password_file[TEFFI_LOGIN_MAX + 1];
    char ca_file[TEFFI_LOGIN_MAX + 1];   /* PEM: the CA of the servers' certificates */
    char cert_file[TEFFI_LOGIN_MAX + 1]; /* PEM: the silo's certificate and its key */
} teffi_login;

/* teffi_login_parse - read the options of an address into *login.
 * in:   options: "", or the address from its question mark on. tls: are ca-file and cert-file
 *       allowed? text is not NULL.
 * errs: TEFF_E_INVALID: an option that is unknown, given twice, empty or too long; a user without a
 *       password file; a certificate without a CA. */
TEFF_MUST_USE teff_err teffi_login_parse(teffi_login *login, const char *options, bool tls,
                                         char *text);

/* teffi_login_read_password - read the password file. Called for each connection, because the file
 * may change.
 * out:  *password, which teffi_secret_free() frees; NULL: no password file, or an error.
 * errs: as teffi_secret_read(). */
TEFF_MUST_USE teff_err teffi_login_read_password(const teffi_login *login, teffi_secret **password,
                                                 char *text);
