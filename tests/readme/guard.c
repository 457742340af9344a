/* guard.c - SECURITY's function that decides which calls clients may make. */
#include <string.h>
#include "words.teff.h"

/* Clients may read each word's count, and change no count. */
static int authorize(void *arg, const teff_client_call *call)
{
    (void)arg;
    return call->method && strcmp(call->method, "words.Word.Get") == 0;
}

int main(int argc, char **argv)
{
    static const words_word_methods methods = {0};
    static const teff_silo_options silo = {.size = sizeof silo, .authorize = authorize};
    const teff_silo_program program = {.size = sizeof program, .silo = &silo};
    return teff_silo_run(argc, argv, &program, words_word_type(&methods, NULL), NULL);
}
