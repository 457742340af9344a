/* errno.c - errno as grain code sees it: a call that compilers may not cache over an await. */
#include <teff/grain.h>

__attribute__((noinline)) int *teff_errno(void)
{
    return __errno_location();
}
