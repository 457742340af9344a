/* test.h - cmocka, with the headers that it needs before it. Tests do not mark unused parameters:
 * callbacks have the signature of their seam. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#pragma GCC diagnostic ignored "-Wunused-parameter"
