/* cart.h - carts of a shop, as a silo program or a test hosts them. */
#pragma once

#include "shop.teff.h"

/* cart_type - the type of carts. out: for teff_silo_host or teff_silo_main. */
teff_grain_type *cart_type(void);
