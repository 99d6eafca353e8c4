#include "device/copy.h"
#include "device/stream.h"
#include "parallel/device/device_sums.h"
#include "parallel/device/gradient_rounding.h"

namespace spillway::parallel {
namespace {

class CpuSums final : public DeviceSums {
 public:
  explicit CpuSums(const Plan& plan) : plan_(plan) {}

  void reduce(const Instruction& i, const FinishedGradient& g) override {
    if (!plan_.scheduling.rounds(plan_.layout.groups[i.group])) return sum_squares(g);
    round_gradient(g.base, g.resting, g.square_sums);
    if (g.home) copy_past_caches(g.home, g.base, i.tiles.count() * kTileElems * size_of(g.resting));
  }
  void take_square_sums() override {}

  double* loss(u16) const override { return nullptr; }
  double loss_sum(const BlockRunner& runner) override { return runner.loss_sum(); }

 private:
  // Sums the squares of each tile. A gradient that is also copied to other memory is copied while its tile is in the cache.
  void sum_squares(const FinishedGradient& g) const {
    const DType dtype = plan_.scheduling.format.gradient;
    const i64 tile_bytes = kTileElems * size_of(dtype);
    Stream::current().run(std::ssize(g.square_sums), [&](i64 tile, int) {
      const auto sum = [&](const auto* elements) { return optim::tile_square_sum(std::span(elements, static_cast<size_t>(kTileElems))); };
      const std::byte* from = g.base + tile * tile_bytes;
      g.square_sums[static_cast<size_t>(tile)] =
          dtype == DType::f64 ? sum(reinterpret_cast<const double*>(from)) : sum(reinterpret_cast<const float*>(from));
      if (g.home) copy_past_caches(g.home + tile * tile_bytes, from, tile_bytes);
    });
  }

  const Plan& plan_;
};

}  // namespace

std::unique_ptr<DeviceSums> make_cpu_sums(const Plan& plan) { return std::make_unique<CpuSums>(plan); }

}  // namespace spillway::parallel
