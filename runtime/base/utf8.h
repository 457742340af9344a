/* utf8.h - checks UTF-8: shortest forms only, no surrogates, up to U+10FFFF (RFC 3629). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool teffi_utf8_valid(const uint8_t *text, size_t len);
