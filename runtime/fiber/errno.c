/* errno.c - errno's address for grain code. Unlike __errno_location(), compilers may not cache its
 * result over an await, after which a turn may continue on another thread. */
#include <teff/errno.h>

__attribute__((noinline)) int *teff_errno(void)
{
    return __errno_location();
}
