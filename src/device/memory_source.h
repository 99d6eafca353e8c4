// Where a MemoryPool's memory comes from: the system, the system with pages that GPUs copy from and to without a detour, or a GPU.
// Thread-safety: the pool's.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/types.h"

namespace spillway {

class MemorySource {
 public:
  virtual ~MemorySource() = default;
  /// `bytes` in whole pages. Null when there is no more; errno then says why, if the system does.
  virtual std::byte* take(i64 bytes) = 0;
  virtual void give_back(std::byte* at, i64 bytes) noexcept = 0;
};

/// Zero pages, 2 MiB-aligned with transparent huge pages from 2 MiB on.
std::unique_ptr<MemorySource> system_memory();

struct Pinning {
  int gpu = 0;  // whose context locks it, for all GPUs
  // On which memory is touched first, so that it lies near them: those near the GPU. Empty: any.
  std::vector<int> cores;
  // Told of memory that could not be locked, on the thread that asked for it. May be none.
  std::function<void(i64 bytes, const std::string& why)> refused;
  // Told how much of what was asked for at once is done, half of each byte when it is there and half when it is locked: from several
  // threads in any order, and at the end, refused or not, all of it by the thread that asked. May be none.
  std::function<void(i64 done, i64 bytes)> progress;
};

/// The same, page-locked for GPUs a piece at a time (gpu_copy_cuda.h), on several threads: hundreds of GiB take long. Where the system or
/// the driver refuses any piece (ulimit -l, memory), all that was asked for at once stays pageable: the numbers are the same, but copies
/// go by way of the driver's own buffers, at half the rate where the CPU is slow, and whoever starts one waits for it. A build without CUDA
/// locks nothing.
std::unique_ptr<MemorySource> pinned_memory(Pinning pinning = {});

/// One reservation of a GPU's memory, made at once, so that nobody else's growth and no fragmentation of the driver's can end a run later.
/// Not zero. Error(refused) when the GPU has less free; Error(usage) in a build without CUDA.
std::unique_ptr<MemorySource> gpu_memory(int gpu, i64 bytes);

/// A GPU's memory piece by piece as it is asked for, beside other libraries of the process, from the driver's own pool, which keeps what is
/// given back for what comes next ("CUDA Runtime API 13.0, Stream Ordered Memory Allocator"). A piece is its taker's, and may be another's
/// after it is given back, in the order of common_gpu_queue() (gpu_queue.h): for work that is put there alone. Not zero. take() throws
/// Error(refused) when the GPU has less free; this throws Error(usage) in a build without CUDA.
std::unique_ptr<MemorySource> pooled_gpu_memory(int gpu);

}  // namespace spillway
