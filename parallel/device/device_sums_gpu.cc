#include <algorithm>
#include <numeric>

#include "device/transfer.h"
#include "optim/adamw_gpu.h"
#include "parallel/device/device_sums.h"
#include "parallel/device/gradient_rounding.h"

namespace spillway::parallel {
namespace {

// Keeps all sums in one buffer in GPU memory: first the sums of squares of all tiles, then the losses. loss_sum() copies the whole buffer
// to the host.
class GpuSums final : public DeviceSums {
 public:
  GpuSums(const Plan& plan, const Lanes& lanes, MemoryPool& device, MemoryPool& host)
      : plan_(plan), lanes_(lanes), sums_(device.allocate(plan.sums_bytes, "norm")), come_(host.allocate(plan.sums_bytes, "norm")) {}

  void reduce(const Instruction& i, const FinishedGradient& g) override {
    const i64 tiles = i.tiles.count(),
              first = std::accumulate(plan_.layout.model_tiles.begin(), plan_.layout.model_tiles.begin() + i.group, i64{0}) + i.tiles.begin;
    if (plan_.scheduling.rounds(plan_.layout.groups[i.group])) round_gradient_on_gpu(g.base, g.resting, tiles);
    optim::tile_square_sums_on_gpu(g.base, g.resting, tiles, square_sums(sums_) + first);
    reduced_.push_back({first, g.square_sums});
    if (g.home) lanes_.queue(i.lane)->copy(g.home, g.base, tiles * kTileElems * size_of(g.resting));
  }

  void take_square_sums() override {
    for (const Reduced& r : reduced_) std::copy_n(square_sums(come_) + r.first, r.into.size(), r.into.begin());
    reduced_.clear();
  }

  double* loss(u16 micro_batch) const override { return losses(sums_) + micro_batch; }

  double loss_sum(const BlockRunner& runner) override {
    const i64 count = plan_.tile_sums + static_cast<i64>(runner.micro_batches());
    transfer(come_.data(), sums_.data(), count * static_cast<i64>(sizeof(double)));
    if (!plan_.layout.has_last_block()) return runner.loss_sum();
    return std::accumulate(losses(come_), losses(come_) + runner.micro_batches(), 0.0);
  }

 private:
  static double* square_sums(const Allocation& in) { return reinterpret_cast<double*>(in.data()); }
  double* losses(const Allocation& in) const { return square_sums(in) + plan_.tile_sums; }

  const Plan& plan_;
  const Lanes& lanes_;
  const Allocation sums_, come_;
  // Sums of squares that the GPU has computed but that take_square_sums() has not returned yet.
  // `first` is the index of the first tile among all tiles of the model.
  struct Reduced {
    i64 first;
    std::span<double> into;
  };
  std::vector<Reduced> reduced_;
};

}  // namespace

std::unique_ptr<DeviceSums> make_gpu_sums(const Plan& plan, const Lanes& lanes, MemoryPool& device, MemoryPool& host) {
  return std::make_unique<GpuSums>(plan, lanes, device, host);
}

}  // namespace spillway::parallel
