/* poison.h - TEFFI_POISONS is defined where this is built with AddressSanitizer: memory that is
 * kept for later is poisoned there, so that it sees who still uses it. */
#ifndef TEFFI_BASE_POISON_H
#define TEFFI_BASE_POISON_H

#if defined(__SANITIZE_ADDRESS__)
#define TEFFI_POISONS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TEFFI_POISONS 1
#endif
#endif
#ifdef TEFFI_POISONS
#include <sanitizer/asan_interface.h>
#endif

#endif
