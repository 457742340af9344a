/* local.h - thread-local variables that are looked at in every call: without the function that a
 * shared library would otherwise call to find each. There is room for some hundred bytes of them
 * when a program opens the library late. They must be touched in never-inlined functions only: a
 * stack may go on on another thread. */
#ifndef TEFFI_BASE_LOCAL_H
#define TEFFI_BASE_LOCAL_H

#ifdef _Thread_local /* tests/explore has its own */
#define TEFFI_LOCAL _Thread_local
#define TEFFI_LOCAL_EXTERN extern
#else
#define TEFFI_LOCAL _Thread_local __attribute__((tls_model("initial-exec")))
#define TEFFI_LOCAL_EXTERN extern TEFFI_LOCAL
#endif

#endif
