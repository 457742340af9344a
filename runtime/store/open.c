/* open.c - the list of engines. A new engine adds its line to engines[] and addresses[]. */
#include "store/store.h"

#include <string.h>
#include "base/error.h"
#include "config.h"
#include "store/engine.h"

typedef struct engine {
    const char *prefix; /* of its addresses; the whole address if it does not end in a colon */
    /* rest: the address after the prefix. text is not NULL. */
    teff_err (*open)(const char *rest, teffi_store **store, char *text);
} engine;

static const engine engines[] = {
    {"memory", teffi_memory_open},
    {"sqlite:", teffi_sqlite_open},
#if TEFFI_HAS_POSTGRES
    {"postgres:", teffi_postgres_open},
#endif
};
static const char addresses[] = "memory, sqlite:FILE"
#if TEFFI_HAS_POSTGRES
                                ", postgres:DATABASE"
#endif
    ;

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

const char *teffi_store_check(const char *address)
{
    return find_engine(address) ? NULL : addresses;
}

teff_err teffi_store_open(const char *address, teffi_store **store, char *text)
{
    char ignored[TEFF_TEXT_MAX];
    const engine *found = find_engine(address);
    text = text ? text : ignored;
    *store = NULL;
    text[0] = '\0';
    if (found)
        return found->open(address + strlen(found->prefix), store, text);
    return teffi_fail(text, TEFF_E_INVALID, "store '%.200s': expected one of %s", address ? address : "",
                      addresses);
}
