/* poison.h - poisons kept free memory in builds with AddressSanitizer, so that its use is detected.
 * TEFFI_POISONS is defined only in these builds; in others the macros do nothing. */
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#define TEFFI_POISONS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TEFFI_POISONS 1
#endif
#endif
#ifdef TEFFI_POISONS
#include <sanitizer/asan_interface.h>
#define TEFFI_POISONING 1
#else
#define TEFFI_POISONING 0
#define ASAN_POISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif
