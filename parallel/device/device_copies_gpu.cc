#include <cstring>
#include <optional>

#include "base/error.h"
#include "device/transfer.h"
#include "parallel/device/device_copies.h"
#include "parallel/device/nvme_pass.h"
#include "parallel/device/only_queued.h"

namespace spillway::parallel {
namespace {

// GpuCopies copies data for a GPU. The GPU's copy engines copy between GPU memory and host memory; data on nvme passes through buffers in
// host memory.
class GpuCopies final : public DeviceCopies {
 public:
  GpuCopies(const Plan& plan, ModelState& state, const Lanes& lanes, MemoryPool& host)
      : plan_(plan), state_(state), lanes_(lanes), inputs_(host.allocate(plan.input_bytes, "inputs")) {
    if (plan.bounces == 0) return;
    from_nvme_.emplace(plan, state, host);
    to_nvme_.emplace(plan, state, host);
  }

  void take_in(std::vector<MicroBatch>& batches) const override {
    i64 bytes = 0;
    const auto for_all = [&](auto&& body) {
      bytes = 0;
      for (MicroBatch& batch : batches) {
        for (Tensor* t : batch.tensors()) {
          if (!t->defined()) continue;
          body(*t);
          bytes += round_up(t->bytes(), kAllocationAlignment);
        }
      }
    };
    for_all([](const Tensor&) {});
    require(bytes <= plan_.input_bytes, "[inputs] expected micro-batches that are not larger than planned");
    const Stream& stream = Stream::current();
    const auto storage = Storage::owning(stream.device, stream.memory->allocate(bytes, "inputs"));
    for_all([&](Tensor& t) {
      if (t.raw()) std::memcpy(inputs_.data() + bytes, t.raw(), static_cast<size_t>(t.bytes()));
      t = Tensor(storage, bytes, t.shape(), t.dtype());
    });
    if (bytes > 0) put_transfer(storage->data(), inputs_.data(), bytes);
  }

  Tensor hand_out(Tensor made) const override { return to_host(made); }

  double fetch(const Instruction& i, offload::Blob& from, std::span<std::byte> into) override {
    if (!copied_by_gpu(i, plan_.placement)) return from_nvme_->fetch(from, i.tiles, into.data(), *lanes_.queue(i.lane));
    return put_copy(i, from, from.view(i.tiles, state_.generation()).data(), into.data());
  }

  double evict(const Instruction& i, std::span<const std::byte> from, offload::Blob& into) override {
    if (!copied_by_gpu(i, plan_.placement)) return to_nvme_->evict(from.data(), into, i.tiles, *lanes_.queue(i.lane));
    return put_copy(i, into, from.data(), into.view(i.tiles, state_.generation()).data());
  }

 private:
  // Puts a copy on the queue (CUDA stream) of the instruction's lane. The GPU's copy engines carry it out while the GPU computes.
  double put_copy(const Instruction& i, const offload::Blob& blob, const std::byte* from, std::byte* to) {
    const i64 bytes = i.tiles.count() * blob.tile_bytes();
    lanes_.queue(i.lane)->copy(to, from, bytes);
    offload::Traffic& traffic = state_.traffic();
    if (blob.tier() == Tier::host)
      (i.op == Op::Fetch ? traffic.read_bytes : traffic.written_bytes)[static_cast<size_t>(Tier::host)] += bytes;
    return 0;
  }

  const Plan& plan_;
  ModelState& state_;
  const Lanes& lanes_;
  const Allocation inputs_;
  std::optional<NvmePass> from_nvme_, to_nvme_;
};

}  // namespace

std::unique_ptr<DeviceCopies> make_gpu_copies(const Plan& plan, ModelState& state, const Lanes& lanes, MemoryPool& host) {
  return std::make_unique<GpuCopies>(plan, state, lanes, host);
}

}  // namespace spillway::parallel
