// Copies memory and fills it with zeros on the device of the current stream. On a CPU the threads of the stream do the work, which is
// complete on return. On a GPU the work is put on the stream's queue; each region may be memory of the GPU or of the host. Thread-safe.
#pragma once
#include "base/types.h"

namespace spillway {

/// Copies `bytes` and returns when the copy is complete. On a GPU the copy
/// comes after all work that was queued before. The regions must not overlap.
void transfer(std::byte* to, const std::byte* from, i64 bytes);
/// Copies `bytes`. On a GPU the call only queues the copy, and both regions must stay unchanged until the
/// copy is done. Host memory should be page-locked; with pageable memory the call waits for the copy.
void put_transfer(std::byte* to, const std::byte* from, i64 bytes);
/// Fills `bytes` with zeros. On a GPU the call only queues the fill.
void fill_zeros(std::byte* at, i64 bytes);

}  // namespace spillway
