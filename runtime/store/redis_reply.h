/* redis_reply.h - set the result of an operation from the server's reply to the script. The server
 * is not trusted: the form of a reply is checked before it is used.
 * Way:     redis -> [redis_reply] -> hiredis' redisReply
 * Threads: any; the functions use only their arguments. */
#pragma once

#include <hiredis/hiredis.h>
#include "store/engine.h"

/* teffi_redis_set_result - set op's result from the reply to its command.
 * errs: in op->err: TEFF_E_CONFLICT. TEFF_E_NOMEM. TEFF_E_IO, an error of the server.
 *       TEFF_E_MALFORMED: a damaged row; or a read's or scan's reply of another form. Another form
 *       of a write's reply is TEFF_E_UNKNOWN. After an error op->rows is as it was submitted. */
void teffi_redis_set_result(teffi_store_op *op, const redisReply *reply);

/* teffi_redis_is_put - does a row of a write get a value and an etag? */
bool teffi_redis_is_put(const teffi_row *row);
