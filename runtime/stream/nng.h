/* nng.h - streams of nng, and the results of its operations. */
#pragma once

#include <nng/nng.h>
#include "stream/stream.h"

/* teffi_nng_make_result - make the result of an operation that has ended.
 * out:  bytes is set if the operation succeeded; stream is NULL. */
teffi_stream_result teffi_nng_make_result(nng_aio *aio);

/* teffi_nng_stream_new - make a stream of nng's.
 * in:   stream, taken over. plain: not TLS; receive_now and write_now abort operations,
 *       which is not possible with TLS.
 * out:  NULL: no memory, stream is still the caller's. */
teffi_stream *teffi_nng_stream_new(nng_stream *stream, bool plain);
