/* local.h - thread-local variables of hot paths, in the initial-exec TLS model: access needs no
 * function call, but a library opened by dlopen() may have only some hundred bytes of them.
 * Only functions that are never inlined may use them: a fiber may continue on another thread. */
#pragma once

#ifdef _Thread_local /* tests/explore has its own */
#define TEFFI_LOCAL _Thread_local
#define TEFFI_LOCAL_EXTERN extern
#else
#define TEFFI_LOCAL _Thread_local __attribute__((tls_model("initial-exec")))
#define TEFFI_LOCAL_EXTERN extern TEFFI_LOCAL
#endif
