// Evicts bytes from the processor's caches. A short timed loop then reads them from memory, as a long loop would. Thread-safe.
#pragma once
#include <cstddef>
#include <span>

namespace spillway::trainer {

/// Evicts `bytes` from the caches, using the threads of the current stream. Does nothing on processors other than x86-64.
void forget(std::span<const std::byte> bytes);

}  // namespace spillway::trainer
