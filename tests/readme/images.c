/* images.c - README's stateless worker. */
#include "images.teff.h"

/* Keeps every second pixel of an image with one row. */
static teff_err halve(images_resizer *self, const images_image *in, images_image *out)
{
    size_t n = in->width < in->pixels.len ? in->width / 2 : 0;
    uint8_t *half = teff_alloc(self->ctx, n);
    for (size_t i = 0; i < n; i++)
        half[i] = in->pixels.data[2 * i];
    *out = *images_image(.pixels = {n, half}, .width = (uint32_t)n);
    return TEFF_OK;
}

int main(int argc, char **argv)
{
    static const images_resizer_methods methods = {.shrink = halve};
    return teff_silo_main(argc, argv, images_resizer_type(&methods, NULL), NULL);
}
