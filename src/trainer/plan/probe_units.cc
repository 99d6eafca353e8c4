#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "base/crc32c.h"
#include "device/copy.h"
#include "device/memory_pool.h"
#include "device/stream.h"
#include "kernels/products/matmul.h"
#include "optim/norm.h"
#include "optim/rules/tile.h"
#include "optim/tile_values.h"
#include "parallel/state/stopwatch.h"
#include "trainer/node/forget.h"
#include "trainer/plan/probe.h"

namespace spillway::trainer {
namespace {

constexpr i64 kMemoryBytes = 24 * kMiB, kCacheTiles = 16;
constexpr int kRounds = 3;

// Tiles holds state in memory, in tiles of 16,384 elements that are updated in place.
class Tiles {
 public:
  Tiles(const optim::StateFormat& format, i64 count, Allocator& memory)
      : format_(format),
        count_(count),
        gradient_(memory.allocate(count * format.gradient_tile_bytes(), "probe: gradients")),
        weight_(memory.allocate(count * format.weight_tile_bytes(), "probe: weights")),
        state_(memory.allocate(count * format.state_tile_bytes(), "probe: optimizer state")) {
    const std::vector<double> values(optim::kTileElems, 1e-2), v(optim::kTileElems, 1e-4);
    optim::write_tile<double>(format, {values, values, v}, weight_.data(), state_.data());
    for (i64 tile = 1; tile < count; ++tile) {
      std::memcpy(weight_.data() + tile * format.weight_tile_bytes(), weight_.data(), static_cast<size_t>(format.weight_tile_bytes()));
      if (const i64 bytes = format.state_tile_bytes(); bytes > 0)
        std::memcpy(state_.data() + tile * bytes, state_.data(), static_cast<size_t>(bytes));
    }
    std::memset(gradient_.data(), 0, static_cast<size_t>(gradient_.bytes()));
  }

  void update(const Stream& stream) const {
    const auto scalars = optim::make_adamw_scalars<double>({}, 1e-4, 0.1, 10, 1.0);
    const optim::TilePart whole{optim::kTileElems, &scalars};
    stream.run(count_, [&](i64 tile, int) {
      std::byte* weight = weight_.data() + tile * format_.weight_tile_bytes();
      std::byte* state = state_.data() + tile * format_.state_tile_bytes();
      const std::byte* gradient = gradient_.data() + tile * format_.gradient_tile_bytes();
      optim::update_tile(format_, {gradient, weight, state, weight, state}, {&whole, 1},
                         {{1}, 10, static_cast<u64>(tile * optim::kTileElems)});
    });
  }
  void square_sums(const Stream& stream) const {
    stream.run(count_, [&](i64 tile, int) {
      const auto* gradient = reinterpret_cast<const float*>(gradient_.data() + tile * format_.gradient_tile_bytes());
      sums_[static_cast<size_t>(tile)] = optim::tile_square_sum(std::span(gradient, static_cast<size_t>(optim::kTileElems)));
    });
  }
  void forget_all() const {
    for (const Allocation* memory : {&gradient_, &weight_, &state_}) forget({memory->data(), static_cast<size_t>(memory->bytes())});
  }
  double update_bytes() const { return static_cast<double>(gradient_.bytes() + 2 * weight_.bytes() + 2 * state_.bytes()); }
  double elems() const { return static_cast<double>(count_ * optim::kTileElems); }

 private:
  const optim::StateFormat format_;
  const i64 count_;
  Allocation gradient_, weight_, state_;
  mutable std::vector<double> sums_ = std::vector<double>(static_cast<size_t>(count_));
};

double least_seconds(
    const std::function<void()>& loop, const std::function<void()>& before = [] {}) {
  loop();
  double least_us = std::numeric_limits<double>::max();
  for (int i = 0; i < kRounds; ++i) {
    before();
    least_us = std::min(least_us, parallel::microseconds_of(loop));
  }
  return least_us / 1e6;
}

void time_tiles(UnitSeconds& unit, const optim::StateFormat& format, const Stream& one, const Stream& all, Allocator& memory) {
  const Tiles cached(format, kCacheTiles, memory);
  unit.tile_s = least_seconds([&] { cached.update(one); }) / cached.elems();
  const i64 tile_bytes = format.gradient_tile_bytes() + format.weight_tile_bytes() + format.state_tile_bytes();
  const Tiles large(format, kMemoryBytes / tile_bytes, memory);
  const auto forget_large = [&] { large.forget_all(); };
  const double update_s = least_seconds([&] { large.update(all); }, forget_large);
  unit.update_s = update_s / large.elems();
  unit.sweep_s = update_s / large.update_bytes();
  unit.norm_s = least_seconds([&] { large.square_sums(all); }, forget_large) / large.elems();
}

}  // namespace

double time_products(DType type, ThreadPool& threads) {
  constexpr i64 kRows = 256, kWidth = 1024;
  MemoryPool pool("probe", kUnlimited);
  const Stream all{Device::cpu(), &threads, &pool};
  const StreamScope scope(all);
  const Tensor a = zeros({kRows, kWidth}, type), b = zeros({kWidth, kWidth}, type), out = empty({kRows, kWidth}, type);
  const Tensor workspace = empty({kernels::matmul_workspace_bytes(kRows, kWidth, kWidth, type)}, DType::uint8);
  return 2.0 * kRows * kWidth * kWidth / least_seconds([&] { kernels::matmul(a, b, {}, out, workspace); });
}

void time_units(UnitSeconds& unit, const optim::StateFormat& format, ThreadPool& threads) {
  MemoryPool pool("probe", kUnlimited);
  const Stream all{Device::cpu(), &threads, &pool}, one{Device::cpu(), nullptr, &pool};
  time_tiles(unit, format, one, all, pool);
  const Allocation from = pool.allocate(kMemoryBytes / 2, "probe: from"), to = pool.allocate(kMemoryBytes / 2, "probe: to");
  const std::span<const std::byte> bytes(from.data(), static_cast<size_t>(from.bytes()));
  std::memset(from.data(), 1, bytes.size());
  volatile u32 sum = 0;  // volatile keeps the compiler from removing the loop
  const std::span<const std::byte> few = bytes.first(kCacheTiles * 4 * optim::kTileElems);
  unit.checksum_s = least_seconds([&] { sum = sum + crc32c(few); }) / static_cast<double>(few.size());
  const auto forget_both = [&] {
    forget(bytes);
    forget({to.data(), bytes.size()});
  };
  const StreamScope scope(all);
  unit.copy_s =
      least_seconds([&] { copy_past_caches(to.data(), from.data(), from.bytes()); }, forget_both) / static_cast<double>(bytes.size());
}

}  // namespace spillway::trainer
