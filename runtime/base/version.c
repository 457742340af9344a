/* version.c - the library's version. */
#include <teff/version.h>

int teff_version(void)
{
    return TEFF_VERSION;
}
