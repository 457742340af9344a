/* setup.h - cmocka and what it wants included before it. */
#ifndef TESTS_STORE_SETUP_H
#define TESTS_STORE_SETUP_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka comes after these. */
#include <cmocka.h>

#endif
