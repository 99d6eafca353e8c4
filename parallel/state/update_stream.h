// An UpdateStream takes tiles through a GPU, which makes optimizer updates of them there. It holds a few buffers in GPU memory. While the
// tiles of one buffer are updated, those of another arrive and those of a third leave, so the link between host memory and the GPU works in
// both directions at once. The host memory must be page-locked. Used by the optimizer thread.
#pragma once
#include <array>
#include <functional>
#include <span>

#include "device/memory_pool.h"
#include "offload/blob.h"
#include "parallel/plan/plan.h"

namespace spillway::parallel {

class UpdateStream {
 public:
  /// Allocates the buffers of Plan::streamed_bytes from `device`, the memory of `gpu`. `copies` must outlive this object.
  UpdateStream(const Plan& plan, Device gpu, MemoryPool& device, const offload::GpuCopyQueues& copies);

  /// Begins to use the next buffer. Waits until the tiles that were in it have left.
  void begin();
  /// Returns the next `bytes` free bytes of the buffer.
  std::byte* room(i64 bytes);
  /// Puts a copy to the GPU on the queue. Returns where in the buffer the bytes will lie.
  std::byte* bring(std::span<const std::byte> from);
  /// Calls `update`, which puts kernels on the queue of the current stream. They start when all bytes have arrived.
  void run(const std::function<void()>& update);
  /// Puts a copy from the buffer to host memory on the queue, after the kernels.
  void take(std::span<std::byte> to, const std::byte* from);
  /// Ends the use of the buffer. Returns an event that happens when the updates and all copies out of the buffer are done.
  Event end();

 private:
  const offload::GpuCopyQueues& copies_;
  // The queue of the kernels. They are short, and copies wait for them, so they do not queue up behind kernels of blocks.
  const GpuQueue updates_;
  const Allocation memory_;
  const i64 buffer_bytes_;
  std::array<Event, kStreamedBuffers> emptied_{Event::done(), Event::done(), Event::done()};
  size_t buffer_ = 0;   // number of the buffer in use
  i64 used_bytes_ = 0;  // bytes of this buffer that are in use
};

}  // namespace spillway::parallel
