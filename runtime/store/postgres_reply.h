/* postgres_reply.h - set the result of an operation from what the server returned. The server is
 * not trusted: the form and length of a reply are checked before it is used.
 * Way:     postgres -> [postgres_reply] -> libpq's PGresult
 * Threads: any; the functions use only their arguments. */
#pragma once

#include <libpq-fe.h>
#include "store/engine.h"

/* teffi_postgres_set_result - set op's result from the reply to its statement.
 * in:   result: of status PGRES_TUPLES_OK, with all columns in binary form.
 * errs: in op->err: TEFF_E_CONFLICT. TEFF_E_NOMEM. A reply of another form is TEFF_E_MALFORMED for
 *       a read or scan and TEFF_E_UNKNOWN for a write; then op->rows is as it was submitted. */
void teffi_postgres_set_result(teffi_store_op *op, const PGresult *result);
