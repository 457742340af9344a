/* bug.h - asserts that stay on in release: a bug of the runtime, or in its use, aborts. */
#pragma once

/* teffi_abort_for_bug - print a bug and its place to stderr and abort. runs: anywhere; does not
 * return. */
_Noreturn void teffi_abort_for_bug(const char *file, int line, const char *what);

/* teffi_abort_for_broken_rule - print which rule of the public headers a turn or a thread broke,
 * and abort.
 * in: who, the turn or thread, in words. */
_Noreturn void teffi_abort_for_broken_rule(const char *who, const char *rule);

#define teffi_bug_if(cond) ((cond) ? teffi_abort_for_bug(__FILE__, __LINE__, #cond) : (void)0)
