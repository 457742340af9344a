/* setup.h - cmocka and what it wants included before it. */
#ifndef TESTS_STORE_SETUP_H
#define TESTS_STORE_SETUP_H

/* cmocka comes after these. */
#include "test.h"

#endif
