/* nng.h - streams of nng, and the results of its operations. */
#pragma once

#include <nng/nng.h>
#include "stream/stream.h"

/* teffi_nng_result - make the result of an operation that has ended. It has bytes, but no stream. */
teffi_stream_result teffi_nng_result(nng_aio *aio);

/* teffi_nng_stream_new - in: stream, taken over. plain: it is not TLS, so operations can be aborted;
 * only then receive_now and write_now are possible. out: NULL: no memory, stream is still the
 * caller's. */
teffi_stream *teffi_nng_stream_new(nng_stream *stream, bool plain);
