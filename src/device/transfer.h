// Copies and zero fills on the device of the current stream. On a CPU the threads of the stream do the work, and it is complete on return.
// On a GPU the work is put on the stream's queue; each region may be memory of the GPU or of the host. Thread-safe.
#pragma once
#include "base/types.h"

namespace spillway {

/// Copies, and returns when the copy is complete. On a GPU the copy comes after everything queued before. The regions must not overlap.
void transfer(std::byte* to, const std::byte* from, i64 bytes);
/// Copies. On a GPU it only queues the copy, and both regions must stay unchanged until the copy is done. Host memory should be
/// page-locked, otherwise the call waits.
void put_transfer(std::byte* to, const std::byte* from, i64 bytes);
/// Fills with zeros; on a GPU it only queues the fill.
void fill_zeros(std::byte* at, i64 bytes);

}  // namespace spillway
