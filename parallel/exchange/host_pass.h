// A HostPass holds two host buffers through which data in GPU memory goes to other ranks, or comes from them,
// piece by piece. They are needed because communicators can use host memory only. While one piece is exchanged
// with other ranks, the next piece is copied into the other buffer. Used by one thread.
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

  /// The functions that run() calls for each piece, in this order: `fill` queues a copy into the buffer, `cross` starts the exchange with
  /// other ranks, and `empty` queues a copy out of the buffer. `fill` and
  /// `empty` may be null. When run() returns, copies of `empty` may still be in progress, but later work on the queue comes after them.
  /// If an exchange fails, run() rethrows its error once no other exchange is in progress.
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
