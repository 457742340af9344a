/* bug.h - asserts that stay on in release: a bug stops the process where it was noticed. */
#ifndef TEFFI_BASE_BUG_H
#define TEFFI_BASE_BUG_H

/* teffi_bug - print what and where to stderr and abort. runs: anywhere; does not return. */
_Noreturn void teffi_bug(const char *file, int line, const char *what);

#define teffi_bug_if(cond) ((cond) ? teffi_bug(__FILE__, __LINE__, #cond) : (void)0)

#endif
