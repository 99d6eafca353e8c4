// Defines the sources of a MemoryPool's memory: the system, the system with page-locked
// memory for direct GPU copies, or a GPU. The pool calls its source under the pool's lock.
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
  /// Returns `bytes` (a multiple of the page size) of memory, or null when there is no more; errno then holds the reason if the system
  /// gives one.
  virtual std::byte* take(i64 bytes) = 0;
  virtual void give_back(std::byte* at, i64 bytes) noexcept = 0;
};

/// Returns a source of zeroed pages of the system. From 2 MiB on, memory is 2 MiB-aligned and uses transparent huge pages.
std::unique_ptr<MemorySource> system_memory();

/// Options for allocating page-locked memory.
struct Pinning {
  int gpu = 0;  // the GPU through whose context the memory is locked; the lock is valid for all GPUs
  // The CPU cores that touch the memory first, so that it lies in their NUMA node.
  // They should be cores near the GPU. If the list is empty, any cores do so.
  std::vector<int> cores;
  // The function that is called on the allocating thread when memory could not be locked. It may be empty.
  std::function<void(i64 bytes, const std::string& why)> refused;
  // The function that is told the progress of one allocation. Half of each byte counts when its page exists
  // and half when the page is locked. Several threads call the function, in any order. At the end the
  // allocating thread calls it with the full size, whether locking was refused or not. It may be empty.
  std::function<void(i64 done, i64 bytes)> progress;
};

/// Returns a source of system memory that is page-locked for GPUs in pieces (gpu_copy_cuda.h). Several threads lock
/// the memory, since hundreds of GiB take long. If the system or the driver refuses a piece (ulimit -l, memory), the
/// whole allocation stays pageable. Results do not change, but copies then pass through the driver's own buffers, at
/// half the rate on slow CPUs, and the thread that starts a copy waits for it. A build without CUDA locks nothing.
std::unique_ptr<MemorySource> pinned_memory(Pinning pinning = {});

/// Returns a source that reserves `bytes` of a GPU's memory at once, so that neither other processes
/// nor fragmentation in the driver can end a run later. The memory is not zeroed. Throws
/// Error(refused) when the GPU has fewer than `bytes` free, and Error(usage) in a build without CUDA.
std::unique_ptr<MemorySource> gpu_memory(int gpu, i64 bytes);

/// Returns a source that takes GPU memory piece by piece from a pool of the driver that this library makes, one for each GPU, for use
/// beside other libraries of the process. The pool keeps released memory for later requests ("CUDA Runtime API 13.0, Stream Ordered Memory
/// Allocator"). The GPU's default pool, which other libraries use, is left as it is. Allocation and release are ordered on
/// common_gpu_queue() (gpu_queue.h), so only work on that queue may use the memory. The memory is not zeroed. take() throws Error(refused)
/// when the GPU has less free memory than requested, also after trim_gpu_memory(); pooled_gpu_memory() throws Error(usage) in a build
/// without CUDA, and Error(io) if the driver offers no pools.
std::unique_ptr<MemorySource> pooled_gpu_memory(int gpu);

/// Waits for the work on common_gpu_queue() and gives back to the GPU what the pool of pooled_gpu_memory() keeps of released memory, so
/// that other libraries and processes can have it. Throws Error(io) if that work failed. Does nothing if there is no such pool.
void trim_gpu_memory(int gpu);

}  // namespace spillway
