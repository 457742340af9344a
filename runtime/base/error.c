/* error.c - the names of errors, their texts, and which leave a call's outcome unknown. */
#include "base/error.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

enum { USER_CODES = TEFF_E_MAX - TEFF_E_USER + 1 };

/* out: the name of TEFF_E_USER(n). It is written at its first use, so unused pages of the table
 * take no memory. */
static const char *get_user_code_name(unsigned n)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static char names[USER_CODES][sizeof "user error 12345"];
    pthread_mutex_lock(&lock);
    if (!names[n][0])
        snprintf(names[n], sizeof names[n], "user error %hu", (unsigned short)n);
    pthread_mutex_unlock(&lock);
    return names[n];
}

const char *teff_err_name(teff_err err)
{
    static const char *const names[] = {
        [TEFF_OK] = "TEFF_OK",
        [TEFF_E_INVALID] = "TEFF_E_INVALID",
        [TEFF_E_NOMEM] = "TEFF_E_NOMEM",
        [TEFF_E_TIMEOUT] = "TEFF_E_TIMEOUT",
        [TEFF_E_UNREACHABLE] = "TEFF_E_UNREACHABLE",
        [TEFF_E_UNKNOWN] = "TEFF_E_UNKNOWN",
        [TEFF_E_OVERLOADED] = "TEFF_E_OVERLOADED",
        [TEFF_E_CANCELLED] = "TEFF_E_CANCELLED",
        [TEFF_E_UNAVAILABLE] = "TEFF_E_UNAVAILABLE",
        [TEFF_E_NOT_FOUND] = "TEFF_E_NOT_FOUND",
        [TEFF_E_UNIMPLEMENTED] = "TEFF_E_UNIMPLEMENTED",
        [TEFF_E_TOO_LARGE] = "TEFF_E_TOO_LARGE",
        [TEFF_E_MALFORMED] = "TEFF_E_MALFORMED",
        [TEFF_E_CONFLICT] = "TEFF_E_CONFLICT",
        [TEFF_E_EXISTS] = "TEFF_E_EXISTS",
        [TEFF_E_REFUSED] = "TEFF_E_REFUSED",
        [TEFF_E_CLOSED] = "TEFF_E_CLOSED",
        [TEFF_E_IO] = "TEFF_E_IO",
        [TEFF_E_FAILED] = "TEFF_E_FAILED",
        [TEFF_E_DEADLOCK] = "TEFF_E_DEADLOCK",
        [TEFF_E_VERSION] = "TEFF_E_VERSION",
        [TEFF_E_ABORTED] = "TEFF_E_ABORTED",
    };
    unsigned n = (unsigned)err;
    if (n < sizeof names / sizeof names[0])
        return names[n];
    return n >= TEFF_E_USER && n <= TEFF_E_MAX ? get_user_code_name(n - TEFF_E_USER)
                                               : "TEFF_E_INVALID";
}

/* out: non-zero: the call may have run although it failed. */
int teff_call_may_have_run(teff_err err)
{
    return err == TEFF_E_TIMEOUT || err == TEFF_E_UNREACHABLE || err == TEFF_E_UNKNOWN ||
           err == TEFF_E_CANCELLED;
}

teff_err teffi_fail(char *text, teff_err err, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    if (text)
        vsnprintf(text, TEFF_TEXT_MAX, fmt, args);
    va_end(args);
    return err;
}
