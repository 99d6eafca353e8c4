// Where a MemoryPool's memory comes from: the system, the system with pages that GPUs copy from and to without a detour, or a GPU.
// Thread-safety: the pool's.
#pragma once
#include <memory>

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

/// The same, page-locked for GPUs a piece at a time (gpu_copy_cuda.h). Where the system refuses (memlock), the rest stays pageable: copies
/// are slower, the numbers the same. A build without CUDA locks nothing.
std::unique_ptr<MemorySource> pinned_memory();

/// One reservation of a GPU's memory, made at once, so that nobody else's growth and no fragmentation of the driver's can end a run later.
/// Not zero. Error(refused) when the GPU has less free; Error(usage) in a build without CUDA.
std::unique_ptr<MemorySource> gpu_memory(int gpu, i64 bytes);

}  // namespace spillway
