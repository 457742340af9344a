/* login.h - who a silo is to a store's server, and who the server is to it: the options at the end
 * of the store's address, as ?user=NAME&password-file=FILE.
 * Way:     redis, etcd -> [login] -> os/secret_file
 * Threads: immutable after teffi_login_parse(). */
#pragma once

#include <stdbool.h>
#include "os/secret_file.h"

enum { TEFFI_LOGIN_MAX = 256 }; /* bytes of an option's value */

/* "": not given. */
typedef struct teffi_login {
    char user[TEFFI_LOGIN_MAX + 1];
    char password_file[TEFFI_LOGIN_MAX + 1];
    char ca_file[TEFFI_LOGIN_MAX + 1];   /* PEM: the authority of the servers' certificates */
    char cert_file[TEFFI_LOGIN_MAX + 1]; /* PEM: the silo's certificate and its key */
} teffi_login;

/* teffi_login_parse - in: options: "", or from the question mark on. tls: the engine can use
 * ca_file and cert_file. text is not NULL.
 * errs: TEFF_E_INVALID: an unknown option, one given twice, empty or too long, a user without a
 *       password, a certificate without an authority. */
TEFF_MUST_USE teff_err teffi_login_parse(teffi_login *login, const char *options, bool tls,
                                         char *text);

/* teffi_login_password - read the password's file, which may have changed since the last time.
 * out:  *password, which teffi_secret_free() frees; NULL: there is none, or an error.
 * errs: as teffi_secret_read(). */
TEFF_MUST_USE teff_err teffi_login_password(const teffi_login *login, teffi_secret **password,
                                            char *text);
