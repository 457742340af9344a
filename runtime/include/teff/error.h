/* error.h - every way a call or an operation of teff can end.
 * Way:     the runtime and grain methods -> [teff_err] -> callers, other silos (the wire keeps the
 *          number)
 *
 * One enum, 0 = OK. Three outcomes of a call can be told apart: TEFF_OK ran; the errors that
 * teff_err_unknown() names may or may not have run; every other error says it did not run, or
 * ran and failed in the way the error names. */
#ifndef TEFF_ERROR_H
#define TEFF_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

#define TEFF_API __attribute__((visibility("default")))
#define TEFF_MUST_USE __attribute__((warn_unused_result))

#define TEFF_TEXT_MAX 512 /* bytes of an error's text, the zero byte included */

typedef enum teff_err {
    TEFF_OK = 0,
    TEFF_E_INVALID = 1,     /* an argument, option or input is not what the docstring asks for */
    TEFF_E_NOMEM = 2,       /* memory is out, or the part's own budget is */
    TEFF_E_TIMEOUT = 3,     /* no answer before the deadline; the call may have run */
    TEFF_E_UNREACHABLE = 4, /* the link to the silo broke under the call; it may have run */
    TEFF_E_UNKNOWN = 5,     /* a store operation whose outcome is not known; read again */
    TEFF_E_OVERLOADED = 6,  /* a queue is at its limit; the call did not run */
    TEFF_E_CANCELLED = 7,   /* given up by the caller or by a stopping silo before it ran */
    TEFF_E_UNAVAILABLE =
        8,                /* nobody can take the call now (no silo, stopping, too many forwards) */
    TEFF_E_NOT_FOUND = 9, /* no such grain type, method, row or process */
    TEFF_E_UNIMPLEMENTED = 10, /* the grain type is there, the method's slot is NULL */
    TEFF_E_TOO_LARGE = 11,     /* over a limit in bytes, depth or fields */
    TEFF_E_MALFORMED = 12,     /* bytes that do not decode */
    TEFF_E_CONFLICT = 13,      /* the etag or version did not match; nothing was written */
    TEFF_E_EXISTS = 14,        /* already there */
    TEFF_E_REFUSED = 15,       /* the peer is of another cluster, version, role or is not trusted */
    TEFF_E_CLOSED = 16,        /* the object is closed or closing; nothing was done */
    TEFF_E_IO = 17,            /* the system or an engine reported an error; the text says which */
    TEFF_E_FAILED = 18,        /* a grain's method failed; the text is the grain's own */
    TEFF_E_DEADLOCK = 19,      /* the call would wait for itself */
    TEFF_E_USER = 1000,        /* the application's own codes: TEFF_E_USER .. TEFF_E_MAX */
    TEFF_E_MAX = 65535
} teff_err;

/* teff_err_name - the enumerator's name, "TEFF_E_TIMEOUT"; "TEFF_E_USER" from TEFF_E_USER on.
 * out:  a static string, never NULL.
 * runs: anywhere. */
TEFF_API const char *teff_err_name(teff_err err);

/* teff_err_unknown - may the call have run although it failed?
 * out:  non-zero for TEFF_E_TIMEOUT, TEFF_E_UNREACHABLE and TEFF_E_UNKNOWN. */
TEFF_API int teff_err_unknown(teff_err err);

#ifdef __cplusplus
}
#endif
#endif
