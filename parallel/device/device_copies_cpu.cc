#include "parallel/device/device_copies.h"

namespace spillway::parallel {
namespace {

// CpuCopies copies data for a CPU that computes: between its part of the memory (tier device) and the tiers host and nvme.
class CpuCopies final : public DeviceCopies {
 public:
  explicit CpuCopies(ModelState& state) : state_(state) {}

  void take_in(std::vector<MicroBatch>&) const override {}
  Tensor hand_out(Tensor made) const override { return made; }
  double fetch(const Instruction& i, offload::Blob& from, std::span<std::byte> into) override { return state_.read(from, i.tiles, into); }
  double evict(const Instruction& i, std::span<const std::byte> from, offload::Blob& into) override {
    return state_.write(into, i.tiles, from);
  }

 private:
  ModelState& state_;
};

}  // namespace

std::unique_ptr<DeviceCopies> make_cpu_copies(ModelState& state) { return std::make_unique<CpuCopies>(state); }

}  // namespace spillway::parallel
