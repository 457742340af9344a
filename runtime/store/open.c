/* open.c - the list of engines. A new engine adds its line to engines[] and addresses[]. */
#include "store/store.h"

#include <stdio.h>
#include <string.h>
#include "base/error.h"
#include "config.h"
#include "store/engine.h"

typedef struct engine {
    const char *prefix; /* the start of an address; a prefix without a colon is the whole address */
    /* rest: the address after the prefix. text is not NULL. */
    teff_err (*open)(const char *rest, teffi_store **store, char *text);
} engine;

/* open is NULL if this build does not have the engine's library. */
static const engine engines[] = {
    {"memory", teffi_memory_open},
    {"sqlite:", teffi_sqlite_open},
    {"postgres:", TEFFI_HAS_POSTGRES ? teffi_postgres_open : NULL},
    {"redis:", TEFFI_HAS_REDIS ? teffi_redis_open : NULL},
    {"etcd:", TEFFI_HAS_ETCD ? teffi_etcd_open : NULL},
};
static const char addresses[] = "memory|sqlite:FILE"
#if TEFFI_HAS_POSTGRES
                                "|postgres:DATABASE"
#endif
#if TEFFI_HAS_REDIS
                                "|redis:HOST:PORT[/NAME][?OPTIONS]"
#endif
#if TEFFI_HAS_ETCD
                                "|etcd://HOST:PORT[,HOST:PORT..][/NAME][?OPTIONS]"
#endif
    ;
static const char lacks_engine[] = "another engine (this build lacks it, see meson_options.txt)";

/* out: the engine of an address, also if this build lacks it (engine->open is NULL); NULL: the
 * address does not begin with the prefix of any engine. */
static const engine *find_engine(const char *address)
{
    for (size_t i = 0; address && i < sizeof engines / sizeof engines[0]; i++) {
        const char *prefix = engines[i].prefix;
        size_t len = strlen(prefix);
        if (strncmp(address, prefix, len) == 0 && (prefix[len - 1] == ':' || !address[len]))
            return &engines[i];
    }
    return NULL;
}

const char *teffi_store_check_address(const char *address)
{
    const engine *found = find_engine(address);
    return !found ? addresses : !found->open ? lacks_engine : NULL;
}

/* May address contain a password? In a URI, a password stands before "@". libpq also has an option
 * `password`. The option `password-file` is not secret: its value is the name of a file. */
static bool may_contain_password(const char *address)
{
    for (const char *at = address; (at = strcasestr(at, "password")) != NULL;) {
        at += strlen("password");
        if (at[strspn(at, " \t\r\n\v\f")] == '=') /* libpq skips white space */
            return true;
    }
    return strchr(address, '@') != NULL;
}

const char *teffi_store_mask_address(const char *address, char shown[TEFFI_STORE_SHOWN_MAX])
{
    bool hides = may_contain_password(address);
    size_t len = strcspn(address, hides ? ":@" : "");
    snprintf(shown, TEFFI_STORE_SHOWN_MAX, "%.*s%s", (int)(len < 200 ? len : 200), address,
             hides ? ":..." : "");
    return shown;
}

teff_err teffi_store_open(const char *address, teffi_store **store, char *text)
{
    char ignored[TEFF_TEXT_MAX], shown[TEFFI_STORE_SHOWN_MAX];
    const engine *found = find_engine(address);
    const char *expected = teffi_store_check_address(address);
    text = text ? text : ignored;
    *store = NULL;
    text[0] = '\0';
    if (!expected) {
        teff_err err = found->open(address + strlen(found->prefix), store, text);
        if (err != TEFF_E_INVALID || !may_contain_password(address))
            return err;
        expected = addresses; /* the engine's text may quote the address */
    }
    return teffi_fail(text, TEFF_E_INVALID, "store '%s': %s expected",
                      teffi_store_mask_address(address ? address : "", shown), expected);
}
