/* held.c - the count of locks that each thread holds; see held.h. Not in a release. */
#include "base/held.h"

#include "base/bug.h"
#include "base/local.h"

static TEFFI_LOCAL int held;

__attribute__((noinline)) void teffi_held_locks_add(int locks)
{
    held += locks;
    teffi_bug_if(held < 0); /* this thread released a lock that another thread took */
}

__attribute__((noinline)) void teffi_abort_if_lock_is_held(const char *file, int line)
{
    if (held)
        teffi_abort_for_bug(file, line, "a lock is held where the turn may be suspended");
}
