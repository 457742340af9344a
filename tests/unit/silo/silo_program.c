/* silo_program.c - a silo program as a user writes it: the tests start it and look at it from
 * outside. */
#include <unistd.h>
#include "lab.h"

static teff_err where(lab_hashed *self, lab_text *out)
{
    out->text = teff_strdup(self->ctx, self->ctx->node->address);
    return TEFF_OK;
}

/* Keeps its thread for ever. */
static teff_err hang(lab_rare *self, lab_text *out)
{
    (void)self;
    (void)out;
    for (;;)
        pause();
    return TEFF_OK;
}

int main(int argc, char **argv)
{
    static const lab_hashed_methods hashed = {.where = where};
    static const lab_turns_methods turns = {0};
    static const lab_rare_methods rare = {.where = hang};
    return teff_silo_main(argc, argv, lab_hashed_type(&hashed, NULL), lab_turns_type(&turns, NULL),
                          lab_rare_type(&rare, NULL), NULL);
}
