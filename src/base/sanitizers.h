// For the few loops that a sanitized build would run many times slower: what they read and write is checked once, before them, and not by
// each of their instructions. Nothing in other builds. Their file is compiled without marks of scopes (cmake/room.cmake): functions that
// are checked and become part of one that is not would leave theirs behind on the stack.
#pragma once
#include "base/types.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define SPILLWAY_CHECKED_BEFORE __attribute__((no_sanitize("address", "undefined")))
#else
#define SPILLWAY_CHECKED_BEFORE
#endif

namespace spillway {

/// AddressSanitizer's report if any of the n elements from `data` on may not be touched.
template <class T>
inline void expect_addressable([[maybe_unused]] const T* data, [[maybe_unused]] i64 n) {
#if defined(__SANITIZE_ADDRESS__)
  if (n <= 0) return;
  // Its interface takes what it does not change as something that it may.
  const void* poisoned = __asan_region_is_poisoned(const_cast<T*>(data), static_cast<size_t>(n) * sizeof(T));
  if (poisoned) [[maybe_unused]]
    const char touched = *static_cast<const volatile char*>(poisoned);
#endif
}

}  // namespace spillway
