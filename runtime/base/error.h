/* error.h - the text of an error, written once, where the error begins. */
#pragma once

#include <teff/error.h>

/* teffi_fail - format the text of an error. in: text, of TEFF_TEXT_MAX bytes; NULL: nothing is
 * written. out: err. */
teff_err teffi_fail(char *text, teff_err err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
