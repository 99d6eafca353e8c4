#include "parallel/state/update_stream.h"

#include "base/error.h"
#include "device/stream.h"

namespace spillway::parallel {

UpdateStream::UpdateStream(const Plan& plan, Device gpu, MemoryPool& device, const offload::GpuCopyQueues& copies)
    : copies_(copies),
      updates_(gpu, Urgency::urgent),
      memory_(device.allocate(kStreamedBuffers * plan.streamed_bytes, "optimizer updates on the GPU")),
      buffer_bytes_(plan.streamed_bytes) {}

void UpdateStream::begin() {
  buffer_ = (buffer_ + 1) % emptied_.size();
  used_bytes_ = 0;
  emptied_[buffer_].wait();
}

std::byte* UpdateStream::room(i64 bytes) {
  require(used_bytes_ + bytes <= buffer_bytes_, "[optimizer] expected the tiles of an update to fit into a buffer on the GPU");
  std::byte* const at = memory_.data() + static_cast<i64>(buffer_) * buffer_bytes_ + used_bytes_;
  used_bytes_ += bytes;
  return at;
}

std::byte* UpdateStream::bring(std::span<const std::byte> from) {
  std::byte* const at = room(std::ssize(from));
  copies_.to_gpu.copy(at, from.data(), std::ssize(from));
  return at;
}

void UpdateStream::run(const std::function<void()>& update) {
  updates_.follow(copies_.to_gpu);
  Stream stream = Stream::current();
  stream.queue = updates_.handle();
  const StreamScope scope(stream);
  update();
  copies_.to_host.follow(updates_);
}

void UpdateStream::take(std::span<std::byte> to, const std::byte* from) { copies_.to_host.copy(to.data(), from, std::ssize(to)); }

Event UpdateStream::end() { return emptied_[buffer_] = copies_.to_host.moment(); }

}  // namespace spillway::parallel
