#include "base/error.h"
#include "device/copy.h"
#include "offload/blob.h"

namespace spillway::offload {
namespace {

class MemoryBlob final : public Blob {
 public:
  MemoryBlob(Tier tier, Allocator& memory, const std::string& what, TileRange tiles, i64 tile_bytes, int slots, Traffic& traffic,
             const GpuQueue* queue)
      : Blob(what, tiles, tile_bytes, slots),
        tier_(tier),
        traffic_(traffic),
        queue_(queue),
        memory_(memory.allocate(bytes() * slots, what.c_str())) {}

  Tier tier() const override { return tier_; }
  bool on_gpu() const override { return queue_ && tier_ == Tier::device; }

  Event read(TileRange range, u64 generation, std::span<std::byte> into, Priority) override {
    check(range, std::ssize(into));
    copy(into.data(), at(range, generation), std::ssize(into));
    if (tier_ == Tier::host) traffic_.read_bytes[static_cast<size_t>(tier_)] += std::ssize(into);
    return Event::done();
  }

  Event write(TileRange range, u64 generation, std::span<const std::byte> from) override {
    check(range, std::ssize(from));
    copy(at(range, generation), from.data(), std::ssize(from));
    if (tier_ == Tier::host) traffic_.written_bytes[static_cast<size_t>(tier_)] += std::ssize(from);
    return Event::done();
  }

  std::span<std::byte> view(TileRange range, u64 generation) override {
    const i64 size = range.count() * tile_bytes();
    check(range, size);
    return {at(range, generation), static_cast<size_t>(size)};
  }

 private:
  void copy(std::byte* to, const std::byte* from, i64 size) const {
    if (!queue_) return copy_past_caches(to, from, size);
    queue_->copy(to, from, size);
    queue_->wait();
  }
  std::byte* at(TileRange range, u64 generation) const {
    return memory_.data() + static_cast<i64>(generation % static_cast<u64>(slots_)) * bytes() + (range.begin - held_.begin) * tile_bytes_;
  }

  const Tier tier_;
  Traffic& traffic_;
  const GpuQueue* const queue_;
  Allocation memory_;
};

}  // namespace

std::unique_ptr<Blob> make_memory_blob(Tier tier, Allocator& memory, const std::string& what, TileRange tiles, i64 tile_bytes, int slots,
                                       Traffic& traffic, const GpuQueue* queue) {
  require(tier != Tier::nvme, "[blob] a memory blob lies in the device or host tier");
  require(tiles.count() >= 0 && tile_bytes > 0 && slots >= 1, "[blob] expected tiles >= 0, tile bytes > 0 and at least one slot");
  return std::make_unique<MemoryBlob>(tier, memory, what, tiles, tile_bytes, slots, traffic, queue);
}

}  // namespace spillway::offload
