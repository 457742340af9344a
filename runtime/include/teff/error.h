/* error.h - all error codes of teff.
 * Way:     the runtime and grain methods -> [teff_err] -> callers, other silos (the wire keeps the
 *          number)
 *
 * A call has one of three outcomes. TEFF_OK: it ran. An error for which teff_call_may_have_run() is
 * true: it may have run. Every other error: it did not run, or it ran and failed as the error
 * says. */
#pragma once

#ifdef __cplusplus
#define TEFF_BEGIN_C extern "C" {
#define TEFF_END_C }
#else
#define TEFF_BEGIN_C
#define TEFF_END_C
#endif

#define TEFF_API __attribute__((visibility("default")))
#define TEFF_MUST_USE __attribute__((warn_unused_result))

#define TEFF_TEXT_MAX 512 /* bytes of an error's text, the zero byte included */

TEFF_BEGIN_C

typedef enum teff_err {
    TEFF_OK = 0,
    TEFF_E_INVALID = 1,     /* an argument, option or input is not what the docstring asks for */
    TEFF_E_NOMEM = 2,       /* out of memory, or over the part's own budget */
    TEFF_E_TIMEOUT = 3,     /* no response before the deadline; the call may have run */
    TEFF_E_UNREACHABLE = 4, /* the link to the silo broke; the call may have run */
    TEFF_E_UNKNOWN = 5,     /* a store operation may or may not have happened; read again */
    TEFF_E_OVERLOADED = 6,  /* a queue is at its limit; the call did not run */
    TEFF_E_CANCELLED = 7, /* its silo or client was closed, or teff_cancel_fire; it may have run */
    TEFF_E_UNAVAILABLE = 8, /* no silo can take the call now (none, stopping, too many forwards) */
    TEFF_E_NOT_FOUND = 9,   /* no such grain type, method, row or process */
    TEFF_E_UNIMPLEMENTED = 10, /* the method's slot is NULL, or the command has no handler */
    TEFF_E_TOO_LARGE = 11,     /* over a limit in bytes, depth or fields */
    TEFF_E_MALFORMED = 12,     /* bytes that do not decode, or a text that is not UTF-8 */
    TEFF_E_CONFLICT = 13,      /* the etag or version did not match; nothing was written */
    TEFF_E_EXISTS = 14,        /* already there */
    TEFF_E_REFUSED = 15, /* the peer is of another cluster, version or role, is not trusted, or
                                * may not make this call, which did not run */
    TEFF_E_CLOSED = 16,  /* the object is closed or closing; nothing was done */
    TEFF_E_IO = 17,      /* the system or an engine reported an error; the text says which */
    TEFF_E_FAILED = 18,  /* a grain's method failed; the text is the grain's own */
    TEFF_E_DEADLOCK =
        19, /* of calls between grains: those of a cycle waited for each other, as the text
                           * says; this one did not run. Of data: see teff/engine.h */
    TEFF_E_VERSION = 20, /* no silo hosts the caller's version of the grain type; it did not run */
    TEFF_E_ABORTED =
        21,             /* the transaction was rolled back, as another one or the loss of a silo was
                                * in its way; nothing was changed; may be called again */
    TEFF_E_USER = 1000, /* the application's own codes: TEFF_E_USER .. TEFF_E_MAX */
    TEFF_E_MAX = 65535
} teff_err;

/* The application's own error code number n, 0 to TEFF_E_MAX - TEFF_E_USER. Its type is teff_err,
 * so neither C nor C++ warns where it is returned or compared:
 *     #define BANK_E_NO_FUNDS TEFF_E_USER(1)
 *     return teff_fail(self->ctx, BANK_E_NO_FUNDS, "%s has no such sum", self->key);
 *     if (err == BANK_E_NO_FUNDS) ...
 * A switch over such codes must switch over (int)err, as the enum does not list them. */
#ifdef __cplusplus
#define TEFF_E_USER(n) (static_cast<teff_err>(TEFF_E_USER + (n)))
#else
#define TEFF_E_USER(n) ((teff_err)(TEFF_E_USER + (n)))
#endif

/* teff_err_name - the enumerator's name, "TEFF_E_TIMEOUT"; "user error 1" for TEFF_E_USER(1);
 * "TEFF_E_INVALID" for a number that is no code.
 * in:   err, any number.
 * out:  a static string, never NULL.
 * runs: anywhere. */
TEFF_API const char *teff_err_name(teff_err err);

/* teff_call_may_have_run - may the call have run although it failed?
 * in:   err, any number.
 * out:  non-zero for TEFF_E_TIMEOUT, TEFF_E_UNREACHABLE, TEFF_E_UNKNOWN and TEFF_E_CANCELLED.
 * runs: anywhere. */
TEFF_API int teff_call_may_have_run(teff_err err);

TEFF_END_C
