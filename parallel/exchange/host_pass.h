// Two host buffers through which data in GPU memory goes to or comes from other ranks piece by piece, because communicators use host memory
// only. While one piece crosses the ranks, the next is filled. Used by one lane.
#pragma once
#include <functional>

#include "device/event.h"
#include "device/gpu_queue.h"
#include "device/memory_pool.h"

namespace spillway::parallel {

class HostPass {
 public:
  /// Allocates 2 * buffer_bytes from `host`.
  HostPass(MemoryPool& host, i64 buffer_bytes);

  i64 buffer_bytes() const { return buffer_bytes_; }

  /// The functions that run() calls for each of `pieces`, in this order. fill and empty put copies on `queue`, or are null. The copies of
  /// empty may still be in progress when run() returns, but later work on the queue comes after them. run() rethrows an error of a crossing
  /// once no other crossing is in progress.
  struct Work {
    std::function<void(i64 piece, std::byte* buffer)> fill;
    std::function<Event(i64 piece, std::byte* buffer)> cross;
    std::function<void(i64 piece, std::byte* buffer)> empty;
  };
  void run(const GpuQueue& queue, i64 pieces, const Work& work);

 private:
  std::byte* buffer(i64 piece) const { return memory_.data() + piece % 2 * buffer_bytes_; }

  const i64 buffer_bytes_;
  Allocation memory_;
};

}  // namespace spillway::parallel
