#include <functional>
#include <limits>
#include <vector>

#include "device/gpu_queue.h"
#include "device/memory_pool.h"
#include "device/transfer.h"
#include "optim/rules/gpu.h"
#include "parallel/state/stopwatch.h"
#include "trainer/plan/probe.h"

namespace spillway::trainer {
namespace {

constexpr i64 kFewTiles = 8, kManyTiles = 2048, kCopyBytes = 16 * kMiB;
constexpr double kLongEnough = 1e-3;  // seconds that a timed update must take at least, so that launching the kernel is only a small part
constexpr int kRoundsOnGpu = 4;

class Probe {
 public:
  Probe(const optim::StateFormat& format, i64 tiles, Device gpu)
      : format_(format),
        tiles_(tiles),
        pool_("probe", kUnlimited, "", gpu_memory(gpu.index, tiles * tile_bytes() + kCopyBytes + kMiB)),
        queue_(gpu),
        stream_{gpu, nullptr, &pool_, queue_.handle()},
        gradient_(zeros(tiles * format.gradient_tile_bytes())),
        weight_(zeros(tiles * format.weight_tile_bytes())),
        state_(zeros(tiles * format.state_tile_bytes())),
        sums_(zeros(tiles * kSumBytes)) {}

  double update_s() {
    const auto scalars = optim::make_adamw_scalars<double>({}, 1e-4, 0.1, 10, 1.0);
    const std::vector<optim::TilePart> whole{{tiles_ * optim::kTileElems, &scalars}};
    return least_seconds([&] {
      optim::update_tiles_on_gpu(format_, {gradient_.data(), weight_.data(), state_.data(), weight_.data(), state_.data()}, tiles_, whole,
                                 {{1}, 10, 0});
    });
  }
  double norm_s() {
    return least_seconds(
        [&] { optim::tile_square_sums_on_gpu(gradient_.data(), format_.gradient, tiles_, reinterpret_cast<double*>(sums_.data())); });
  }
  double copy_s() {
    MemoryPool host("probe", kUnlimited, "", pinned_memory({.gpu = stream_.device.index}));
    const Allocation here = host.allocate(kCopyBytes, "probe"), there = zeros(kCopyBytes);
    return least_seconds([&] { transfer(there.data(), here.data(), kCopyBytes); });
  }
  double update_bytes() const { return static_cast<double>(gradient_.bytes() + 2 * (weight_.bytes() + state_.bytes())); }

 private:
  static constexpr i64 kSumBytes = sizeof(double);

  i64 tile_bytes() const { return format_.gradient_tile_bytes() + format_.weight_tile_bytes() + format_.state_tile_bytes() + kSumBytes; }
  Allocation zeros(i64 bytes) {
    const StreamScope scope(stream_);
    Allocation memory = pool_.allocate(bytes, "probe");
    fill_zeros(memory.data(), bytes);
    return memory;
  }
  double least_seconds(const std::function<void()>& work) {
    const StreamScope scope(stream_);
    double least_us = std::numeric_limits<double>::max();
    for (int round = 0; round < kRoundsOnGpu; ++round) {  // the first round is a warm-up
      const double us = parallel::microseconds_of([&] {
        work();
        queue_.wait();
      });
      if (round > 0) least_us = std::min(least_us, us);
    }
    return least_us / 1e6;
  }

  const optim::StateFormat format_;
  const i64 tiles_;
  MemoryPool pool_;
  const GpuQueue queue_;
  const Stream stream_;
  Allocation gradient_, weight_, state_, sums_;
};

}  // namespace

void time_gpu_units(UnitSeconds& unit, const optim::StateFormat& format, Device gpu) {
  double update_s = 0;
  for (i64 tiles = kFewTiles; tiles <= kManyTiles && update_s < kLongEnough; tiles *= 4) {
    Probe probe(format, tiles, gpu);
    const auto elems = static_cast<double>(tiles * optim::kTileElems);
    update_s = probe.update_s();
    unit.gpu_update_s = update_s / elems;
    unit.gpu_sweep_s = update_s / probe.update_bytes();
    unit.gpu_norm_s = probe.norm_s() / elems;
    unit.copy_s = probe.copy_s() / static_cast<double>(kCopyBytes);
  }
}

}  // namespace spillway::trainer
