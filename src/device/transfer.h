// Copies and zero fills on the device of the current stream. On a CPU its threads do them, and they are done on return. On a GPU they go on
// its queue; copies work between any memory of the GPU and the host. Thread-safe.
#pragma once
#include "base/types.h"

namespace spillway {

/// Copies and returns when the copy is complete; on a GPU it comes after everything queued before. The regions must not overlap.
void transfer(std::byte* to, const std::byte* from, i64 bytes);
/// Copies; on a GPU it only queues the copy, and both regions must stay unchanged until it is done. Host memory should be page-locked,
/// otherwise the call waits.
void put_transfer(std::byte* to, const std::byte* from, i64 bytes);
/// Fills with zeros; on a GPU it only queues the fill.
void fill_zeros(std::byte* at, i64 bytes);

}  // namespace spillway
