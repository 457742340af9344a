/* login.c - the options of a store's address, and the password file. */
#include "store/login.h"

#include <string.h>
#include "base/error.h"

/* in: tls: are ca-file and cert-file allowed? name: the option's name, of len bytes.
 * out: the field for the option's value; NULL if there is no such option. */
static char *find_login_field(teffi_login *login, bool tls, const char *name, size_t len)
{
    const struct {
        const char *name;
        char *value;
    } all[] = {{"user", login->user},
               {"password-file", login->password_file},
               {"ca-file", login->ca_file},
               {"cert-file", login->cert_file}};
    for (size_t i = 0; i < (tls ? 4 : 2); i++)
        if (strlen(all[i].name) == len && memcmp(all[i].name, name, len) == 0)
            return all[i].value;
    return NULL;
}

/* Stores the value of one option. in: option: NAME=VALUE, len bytes. */
static teff_err set_login_option(teffi_login *login, bool tls, const char *option, size_t len,
                                 char *text)
{
    const char *equals = memchr(option, '=', len);
    size_t name_len = equals ? (size_t)(equals - option) : len;
    size_t value_len = equals ? len - name_len - 1 : 0;
    char *to = find_login_field(login, tls, option, name_len);
    if (!to)
        return teffi_fail(text, TEFF_E_INVALID, "option '%.*s' of the store: %s expected",
                          name_len < TEFFI_LOGIN_MAX ? (int)name_len : TEFFI_LOGIN_MAX, option,
                          tls ? "user, password-file, ca-file or cert-file"
                              : "user or password-file");
    if (value_len == 0 || value_len > TEFFI_LOGIN_MAX || to[0]) /* to[0]: it was set before */
        return teffi_fail(text, TEFF_E_INVALID,
                          "option %.*s of the store: one value of 1 to %d bytes expected",
                          (int)name_len, option, TEFFI_LOGIN_MAX);
    memcpy(to, equals + 1, value_len);
    to[value_len] = '\0';
    return TEFF_OK;
}

teff_err teffi_login_parse(teffi_login *login, const char *options, bool tls, char *text)
{
    memset(login, 0, sizeof *login);
    while (*options) {
        options++; /* the question mark, or an ampersand */
        size_t len = strcspn(options, "&");
        teff_err err = set_login_option(login, tls, options, len, text);
        if (err)
            return err;
        options += len;
    }
    if (login->user[0] && !login->password_file[0])
        return teffi_fail(text, TEFF_E_INVALID,
                          "option user of the store: password-file expected, too");
    if (login->cert_file[0] && !login->ca_file[0])
        return teffi_fail(text, TEFF_E_INVALID,
                          "option cert-file of the store: ca-file expected, too");
    return TEFF_OK;
}

teff_err teffi_login_read_password(const teffi_login *login, teffi_secret **password, char *text)
{
    *password = NULL;
    return login->password_file[0] ? teffi_secret_read(login->password_file, 1, password, text)
                                   : TEFF_OK;
}
