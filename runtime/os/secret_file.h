/* secret_file.h - a secret that silos or clients share, or a password, read from a file. It is
 * never logged, and no error text contains it.
 * Way:     link/secrets, store/login -> [secret_file] -> message/proof; a server
 * Threads: any. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <teff/error.h>

/* TEFFI_SECRET_MIN: of those that nodes share. Shorter ones could be guessed: whoever has seen one
 * handshake can try secrets against it. */
enum { TEFFI_SECRET_MIN = 16, TEFFI_SECRET_MAX = 1024 };

typedef struct teffi_secret {
    size_t len; /* 1 to TEFFI_SECRET_MAX */
    uint8_t bytes[TEFFI_SECRET_MAX];
} teffi_secret;

/* teffi_secret_read - read a file's bytes, without one newline (LF, CR LF or CR) at their end.
 * in:   path. len_min: bytes, at least 1. text, of TEFF_TEXT_MAX bytes, may be NULL.
 * out:  *secret, which teffi_secret_free() frees; NULL on an error.
 * errs: with text: TEFF_E_INVALID (it cannot be read, is no regular file, has too few or too many
 *       bytes, or others than its owner and group may read or write it), TEFF_E_NOMEM. */
TEFF_MUST_USE teff_err teffi_secret_read(const char *path, size_t len_min, teffi_secret **secret,
                                         char *text);

/* teffi_secret_free - overwrite and free. in: may be NULL. */
void teffi_secret_free(teffi_secret *secret);
