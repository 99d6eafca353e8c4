// Copies and zeros on the device of the stream in force: a CPU's by its threads, done on return; a GPU's on its queue, between any memory
// of the GPU and the host. Thread-safe.
#pragma once
#include "base/types.h"

namespace spillway {

/// Done on return, and after everything that the queue held. The regions must not overlap.
void transfer(std::byte* to, const std::byte* from, i64 bytes);
/// On a GPU put on the queue; both regions stay as they are until it is done. Host memory should be page-locked: else it waits.
void put_transfer(std::byte* to, const std::byte* from, i64 bytes);
/// On a GPU put on the queue.
void fill_zeros(std::byte* at, i64 bytes);

}  // namespace spillway
