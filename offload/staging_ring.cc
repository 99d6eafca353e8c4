#include "offload/staging_ring.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "base/error.h"
#include "offload/scratch_file.h"

namespace spillway::offload {

struct StagingRing::Lease::Shared {
  Allocation memory;
  i64 buffer_bytes = 0;
  int buffers = 0;
  std::mutex mutex;
  std::condition_variable freed;
  std::vector<std::byte*> free;
};

StagingRing::Lease::Lease(std::shared_ptr<Shared> shared, std::byte* buffer) : shared_(std::move(shared)), buffer_(buffer) {}

StagingRing::Lease::Lease(Lease&& other) noexcept
    : shared_(std::move(other.shared_)), buffer_(std::exchange(other.buffer_, nullptr)), busy_(std::exchange(other.busy_, std::nullopt)) {}

StagingRing::Lease::~Lease() {
  if (!buffer_) return;
  if (busy_) {
    try {
      busy_->wait();
    } catch (...) {  // the error is ignored here: the code that started the work also holds the event and gets the error from it
    }
  }
  {
    std::lock_guard lock(shared_->mutex);
    shared_->free.push_back(buffer_);
  }
  shared_->freed.notify_one();
}

std::span<std::byte> StagingRing::Lease::bytes() const { return {buffer_, static_cast<size_t>(shared_->buffer_bytes)}; }

StagingRing::StagingRing(MemoryPool& memory, int buffers, i64 buffer_bytes, const char* what) : shared_(std::make_shared<Lease::Shared>()) {
  require(buffers >= 1 && buffer_bytes >= 1, "[staging ring] expected at least one buffer of at least one byte");
  const i64 stride_bytes = round_up(buffer_bytes, kDirectAlignment);
  shared_->memory = memory.allocate(buffers * stride_bytes, what);
  require(reinterpret_cast<std::uintptr_t>(shared_->memory.data()) % kDirectAlignment == 0,
          "[staging ring] expected page-aligned memory from the pool");
  shared_->buffer_bytes = buffer_bytes;
  shared_->buffers = buffers;
  for (int i = buffers; i-- > 0;) shared_->free.push_back(shared_->memory.data() + i * stride_bytes);
}

StagingRing::Lease StagingRing::acquire() {
  std::unique_lock lock(shared_->mutex);
  shared_->freed.wait(lock, [&] { return !shared_->free.empty(); });
  return take();
}

std::optional<StagingRing::Lease> StagingRing::acquire_for(double seconds) {
  std::unique_lock lock(shared_->mutex);
  const auto until = std::chrono::steady_clock::now() +
                     std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
  if (!shared_->freed.wait_until(lock, until, [&] { return !shared_->free.empty(); })) return {};
  return take();
}

StagingRing::Lease StagingRing::take() {
  std::byte* buffer = shared_->free.back();
  shared_->free.pop_back();
  return Lease(shared_, buffer);
}

int StagingRing::buffers() const { return shared_->buffers; }
i64 StagingRing::buffer_bytes() const { return shared_->buffer_bytes; }

}  // namespace spillway::offload
