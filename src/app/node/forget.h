// Takes bytes out of the processor's caches, so that a loop timed over few of them reads memory as it will over many. Thread-safe.
#pragma once
#include <cstddef>
#include <span>

namespace spillway::app {

/// On the threads of the current stream.
void forget(std::span<const std::byte> bytes);

}  // namespace spillway::app
