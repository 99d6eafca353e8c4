// Copies between a GPU and host memory that is page-locked (pinned) in pieces. The driver refuses a copy whose host
// memory crosses from one locked piece into another or into unlocked memory: such memory "must be either entirely
// registered … or not registered at all" (CUDA runtime API, cudaMemcpyAsync). Pieces therefore end at fixed addresses
// (multiples of the piece size), and copies are cut at these addresses. Only files named *_cuda* include this header.
#pragma once
#include <cstdint>

#include "base/units.h"

struct CUstream_st;  // the struct behind cudaStream_t

namespace spillway {

/// The size of a locked piece. It is a compromise: the driver takes time and memory for each piece, and refuses some that are too long.
constexpr i64 kLockedPieceBytes = kGiB;

/// Returns the number of bytes from `at` to the end of the locked piece that contains `at`.
inline i64 rest_of_piece(const std::byte* at) {
  return kLockedPieceBytes - static_cast<i64>(reinterpret_cast<std::uintptr_t>(at) % static_cast<std::uintptr_t>(kLockedPieceBytes));
}

/// Puts a copy on `queue`, a stream of the calling thread's GPU. If the host memory is not page-locked,
/// the calling thread waits for the copy, and gpu_waits() grows by one for each piece. Throws Error(io).
void put_gpu_copy(std::byte* to, const std::byte* from, i64 bytes, CUstream_st* queue);

/// Blocks until all work on `queue` of the GPU is done. Unless the work was done already, gpu_waits() grows by one. Throws Error(io), and
/// Error(data) if a kernel of the GPU found an index outside its range.
void wait_for_gpu_queue(CUstream_st* queue, int gpu);
void count_gpu_wait();

}  // namespace spillway
