/* errno.c - errno's address for grain code. After an await a turn may continue on another thread,
 * so compilers must not cache the address over it, as they do with __errno_location(). */
#include <teff/errno.h>

__attribute__((noinline)) int *teff_errno(void)
{
    return __errno_location();
}
