#include "base/error.h"
#include "device/copy.h"
#include "offload/blob.h"

namespace spillway::offload {
namespace {

class MemoryBlob final : public Blob {
 public:
  MemoryBlob(Tier tier, Allocator& memory, const std::string& what, TileRange tiles, i64 tile_bytes, int slots, Traffic& traffic,
             const GpuCopyQueues* queues)
      : Blob(what, tiles, tile_bytes, slots),
        tier_(tier),
        traffic_(traffic),
        queues_(queues),
        memory_(memory.allocate(bytes() * slots, what.c_str())) {}

  Tier tier() const override { return tier_; }
  bool on_gpu() const override { return queues_ && tier_ == Tier::device; }

  Event read(TileRange range, u64 generation, std::span<std::byte> into, const ReadOptions& options) override {
    check(range, std::ssize(into));
    if (tier_ == Tier::host) traffic_.reads(options.for_save)[static_cast<size_t>(tier_)] += std::ssize(into);
    return copy(into.data(), at(range, generation), std::ssize(into), on_gpu() ? &queues_->to_host : nullptr);
  }

  Event write(TileRange range, u64 generation, std::span<const std::byte> from) override {
    check(range, std::ssize(from));
    if (tier_ == Tier::host) traffic_.written_bytes[static_cast<size_t>(tier_)] += std::ssize(from);
    return copy(at(range, generation), from.data(), std::ssize(from), on_gpu() ? &queues_->to_gpu : nullptr);
  }

  std::span<std::byte> view(TileRange range, u64 generation) override {
    const i64 size = range.count() * tile_bytes();
    check(range, size);
    return {at(range, generation), static_cast<size_t>(size)};
  }

 private:
  static Event copy(std::byte* to, const std::byte* from, i64 size, const GpuQueue* queue) {
    if (queue) {
      queue->copy(to, from, size);
      return queue->moment();
    }
    copy_past_caches(to, from, size);
    return Event::done();
  }
  std::byte* at(TileRange range, u64 generation) const {
    return memory_.data() + static_cast<i64>(generation % static_cast<u64>(slots_)) * bytes() + (range.begin - held_.begin) * tile_bytes_;
  }

  const Tier tier_;
  Traffic& traffic_;
  const GpuCopyQueues* const queues_;
  Allocation memory_;
};

}  // namespace

std::unique_ptr<Blob> make_memory_blob(Tier tier, Allocator& memory, const std::string& what, TileRange tiles, i64 tile_bytes, int slots,
                                       Traffic& traffic, const GpuCopyQueues* queues) {
  require(tier != Tier::nvme, "[blob] expected the tier of a blob in memory to be device or host, got nvme");
  require(tiles.count() >= 0 && tile_bytes > 0 && slots >= 1,
          "[blob] expected a number of tiles >= 0, a tile size > 0 and at least one slot");
  return std::make_unique<MemoryBlob>(tier, memory, what, tiles, tile_bytes, slots, traffic, queues);
}

}  // namespace spillway::offload
