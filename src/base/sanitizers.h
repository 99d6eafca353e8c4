// Lets a few hot loops run without AddressSanitizer and UBSan instrumentation, which would slow them down many times. Their memory ranges
// are checked once before the loop instead. In builds without AddressSanitizer this header has no effect. Files that use it are compiled
// without use-after-scope instrumentation (cmake/room.cmake): an instrumented function that is inlined into an exempt one would leave its
// scope markers on the stack.
#pragma once
#include "base/types.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define SPILLWAY_CHECKED_BEFORE __attribute__((no_sanitize("address", "undefined")))
#else
#define SPILLWAY_CHECKED_BEFORE
#endif

namespace spillway {

/// Triggers AddressSanitizer's report if any of the `n` elements starting at `data` is poisoned, that is, outside of live memory.
template <class T>
inline void expect_addressable([[maybe_unused]] const T* data, [[maybe_unused]] i64 n) {
#if defined(__SANITIZE_ADDRESS__)
  if (n <= 0) return;
  // The sanitizer's interface takes a non-const pointer although it does not write.
  const void* poisoned = __asan_region_is_poisoned(const_cast<T*>(data), static_cast<size_t>(n) * sizeof(T));
  if (poisoned) [[maybe_unused]]
    const char touched = *static_cast<const volatile char*>(poisoned);
#endif
}

}  // namespace spillway
