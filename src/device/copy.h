// Copies memory regions larger than the caches, such as offloaded data on the CPU backend, where device
// memory and host memory are both memory of the CPU. The non-temporal stores bypass the caches: the
// destination is not read before it is written, and the caches keep the data of the computation. Thread-safe.
#pragma once
#include "base/types.h"

namespace spillway {

/// Copies `bytes` with the threads of the current stream and returns when the copy is complete. The regions must not overlap.
void copy_past_caches(std::byte* to, const std::byte* from, i64 bytes);

}  // namespace spillway
