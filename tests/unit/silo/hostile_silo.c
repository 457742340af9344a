/* hostile_silo.c - the silo that test_hostile.c attacks: it says how many bytes it has allocated.
 * Freed bytes do not count: malloc keeps those of a peak. */
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include "lab.h"

static teff_err where(lab_hashed *self, lab_text *out)
{
    char text[32] = "home";
    if (strcmp(self->key, "used") == 0) {
        struct mallinfo2 info = mallinfo2(); /* zeros with a sanitizer */
        snprintf(text, sizeof text, "%zu", info.uordblks + info.hblkhd);
    }
    out->text = teff_strdup(self->ctx, text);
    return TEFF_OK;
}

int main(int argc, char **argv)
{
    static const lab_hashed_methods hashed = {.where = where};
    return teff_silo_main(argc, argv, lab_hashed_type(&hashed, NULL), NULL);
}
