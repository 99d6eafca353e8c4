// Copies between places in memory that are larger than caches: what moves between the device and host memory, where both are memory of the
// CPU. Stores pass the caches by: the destination is not read before it is written, and caches keep what is computed with. Thread-safe.
#pragma once
#include "base/types.h"

namespace spillway {

/// Spread over the threads of the current stream; done on return. The regions must not overlap.
void copy_past_caches(std::byte* to, const std::byte* from, i64 bytes);

}  // namespace spillway
