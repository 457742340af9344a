/* setup.h - cmocka and what it wants included before it. */
#pragma once

/* cmocka comes after these. */
#include "test.h"
