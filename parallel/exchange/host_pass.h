// Two buffers of host memory through which a GPU's bytes go to other ranks and come from them, piece by piece, for communicators know host
// memory alone: while one piece crosses the ranks, the next is filled. Used by one lane.
#pragma once
#include <functional>

#include "device/event.h"
#include "device/gpu_queue.h"
#include "device/memory_pool.h"

namespace spillway::parallel {

class HostPass {
 public:
  /// Takes 2 * buffer_bytes from `host`.
  HostPass(MemoryPool& host, i64 buffer_bytes);

  i64 buffer_bytes() const { return buffer_bytes_; }

  /// What is done with each of `pieces`, in this order. fill and empty put copies on `queue`, or do nothing (null); empty's may still be
  /// under way on return, and on the queue nothing of them is overtaken. Rethrows an error of a crossing when no other is under way.
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
