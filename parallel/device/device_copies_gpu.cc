#include "device/transfer.h"
#include "parallel/device/device_copies.h"
#include "parallel/device/only_queued.h"

namespace spillway::parallel {
namespace {

// Between the GPU's memory and the host's a GPU copies itself; what lies on nvme passes a buffer of the host's each way.
class GpuCopies final : public DeviceCopies {
 public:
  GpuCopies(const Plan& plan, ModelState& state, const Lanes& lanes, MemoryPool& host)
      : plan_(plan),
        state_(state),
        lanes_(lanes),
        fetched_(host.allocate(plan.bounce_bytes, "between nvme and the GPU")),
        evicted_(host.allocate(plan.bounce_bytes, "between nvme and the GPU")) {}

  void take_in(MicroBatch& batch) const override {
    for (Tensor* t : batch.tensors()) {
      if (t->defined()) *t = to_current_device(*t, "inputs");
    }
  }

  Tensor hand_out(Tensor made) const override { return to_host(made); }

  double fetch(const Instruction& i, offload::Blob& from, std::span<std::byte> into) override {
    if (!copied_by_gpu(i, plan_.placement)) return fetch_by_way_of_host(from, i.tiles, into);
    return put_copy(i, from, from.view(i.tiles, state_.generation()).data(), into.data());
  }

  double evict(const Instruction& i, std::span<const std::byte> from, offload::Blob& into) override {
    if (!copied_by_gpu(i, plan_.placement)) return evict_by_way_of_host(from, into, i.tiles);
    return put_copy(i, into, from.data(), into.view(i.tiles, state_.generation()).data());
  }

 private:
  // Beside the GPU's computing, by its own engines.
  double put_copy(const Instruction& i, const offload::Blob& blob, const std::byte* from, std::byte* to) {
    const i64 bytes = i.tiles.count() * blob.tile_bytes();
    lanes_.queue(i.lane)->copy(to, from, bytes);
    offload::Traffic& traffic = state_.traffic();
    if (blob.tier() == Tier::host)
      (i.op == Op::Fetch ? traffic.read_bytes : traffic.written_bytes)[static_cast<size_t>(Tier::host)] += bytes;
    return 0;
  }

  // Tiles and the buffer's bytes that they take, as many at a time as it holds.
  template <class Body>
  void for_pieces(const offload::Blob& blob, TileRange tiles, const Allocation& buffer, Body&& body) const {
    const i64 step = plan_.bounce_bytes / blob.tile_bytes();
    for (i64 t = tiles.begin; t < tiles.end; t += step) {
      const TileRange some{t, std::min(tiles.end, t + step)};
      body(some, std::span(buffer.data(), static_cast<size_t>(some.count() * blob.tile_bytes())));
    }
  }

  double fetch_by_way_of_host(offload::Blob& from, TileRange tiles, std::span<std::byte> into) {
    double moving_us = 0;
    for_pieces(from, tiles, fetched_, [&](TileRange some, std::span<std::byte> buffer) {
      moving_us += state_.read(from, some, buffer);
      transfer(into.data() + (some.begin - tiles.begin) * from.tile_bytes(), buffer.data(), std::ssize(buffer));
    });
    return moving_us;
  }

  double evict_by_way_of_host(std::span<const std::byte> from, offload::Blob& into, TileRange tiles) {
    double moving_us = 0;
    for_pieces(into, tiles, evicted_, [&](TileRange some, std::span<std::byte> buffer) {
      transfer(buffer.data(), from.data() + (some.begin - tiles.begin) * into.tile_bytes(), std::ssize(buffer));
      moving_us += state_.write(into, some, buffer);
    });
    return moving_us;
  }

  const Plan& plan_;
  ModelState& state_;
  const Lanes& lanes_;
  const Allocation fetched_, evicted_;
};

}  // namespace

std::unique_ptr<DeviceCopies> make_gpu_copies(const Plan& plan, ModelState& state, const Lanes& lanes, MemoryPool& host) {
  return std::make_unique<GpuCopies>(plan, state, lanes, host);
}

}  // namespace spillway::parallel
