// Copies between a GPU and host memory that is page-locked in pieces. The driver refuses a copy of host memory that crosses from one locked
// piece into another, or into what is not locked: such memory "must be either entirely registered … or not registered at all" (CUDA runtime
// API, cudaMemcpyAsync). So pieces end at addresses that everybody knows, and copies are cut there. Included by *cuda.cc alone.
#pragma once
#include <cstdint>

#include "base/units.h"

struct CUstream_st;  // cudaStream_t's

namespace spillway {

/// The driver takes time and memory for each locked piece, and refuses some that are too long.
constexpr i64 kLockedPieceBytes = kGiB;

/// From `at` to the end of the piece it would lie in.
inline i64 rest_of_piece(const std::byte* at) {
  return kLockedPieceBytes - static_cast<i64>(reinterpret_cast<std::uintptr_t>(at) % static_cast<std::uintptr_t>(kLockedPieceBytes));
}

/// Put on the queue, of the calling thread's GPU. Error(io). Counted in gpu_waits() where it is not page-locked.
void put_gpu_copy(std::byte* to, const std::byte* from, i64 bytes, CUstream_st* queue);

/// Until all that is on the queue is done; counted in gpu_waits() unless it is. Error(io).
void wait_for_gpu_queue(CUstream_st* queue);
void count_gpu_wait();

}  // namespace spillway
