// Takes bytes out of the processor's caches, so that a loop timed over few of them reads memory as it will over many. Thread-safe.
#pragma once
#include <cstddef>
#include <span>

namespace spillway::app {

inline void forget([[maybe_unused]] std::span<const std::byte> bytes) {
#ifdef __x86_64__
  constexpr size_t kLine = 64;
  for (size_t i = 0; i < bytes.size(); i += kLine) __builtin_ia32_clflush(bytes.data() + i);
#endif
}

}  // namespace spillway::app
