#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>

#include "app/commands/bench.h"
#include "device/copy.h"
#include "device/memory_pool.h"
#include "kernels/products/matmul.h"
#include "optim/adamw_tile.h"
#include "optim/tile_values.h"
#include "trainer/node/axpy.h"

namespace spillway::app {
namespace {

using Clock = std::chrono::steady_clock;
constexpr i64 kGrainElems = 1 << 16;
constexpr float kTinyFactor = 1e-7f;

double seconds_of(const std::function<void()>& loop, int runs) {
  const auto begin = Clock::now();
  for (int i = 0; i < runs; ++i) loop();
  return std::chrono::duration<double>(Clock::now() - begin).count() / runs;
}

BenchRow row(const char* name, double value, const char* unit, const Timing& timing, std::optional<double> ceiling = {}) {
  return {.name = name,
          .path = "",
          .value = value,
          .unit = unit,
          .ceiling = ceiling,
          .threads = Stream::current().thread_count(),
          .spread = timing.spread};
}

u32 scrambled(i64 i) { return static_cast<u32>(i) * 2654435761u; }

// Fills memory with 32-bit words that give numbers of magnitude 0.5 to 1 and either sign, read as one f32 or as two bf16.
void fill(std::byte* data, i64 bytes) {
  auto* words = reinterpret_cast<u32*>(data);
  Stream::current().for_ranges(bytes / 4, kGrainElems, [&](i64 begin, i64 end) {
    for (i64 i = begin; i < end; ++i) words[i] = 0x3f003f00u | (scrambled(i) & 0x807f807fu);
  });
}

void axpy_all(float* a, const float* b, i64 n) {
  Stream::current().for_ranges(n, kGrainElems, [&](i64 begin, i64 end) { axpy(a + begin, b + begin, end - begin, kTinyFactor); });
}

float sum_all(const float* a, i64 n) {
  std::atomic<float> sum = 0;
  Stream::current().for_ranges(n, kGrainElems, [&](i64 begin, i64 end) { sum += plain_sum(a + begin, end - begin); });
  return sum;
}

void copy_all(std::byte* to, const std::byte* from, i64 bytes) { copy_past_caches(to, from, bytes); }

// Product is the matrix product of a transformer's widest layer.
class Product {
 public:
  Product(const BenchSize& size, DType dtype)
      : a_(empty({size.matmul_tokens, size.matmul_width}, dtype)),
        b_(empty({size.matmul_width, 4 * size.matmul_width}, dtype)),
        c_(empty({size.matmul_tokens, 4 * size.matmul_width}, dtype)),
        workspace_(empty({kernels::matmul_workspace_bytes(c_.size(0), c_.size(1), a_.size(1), dtype)}, DType::uint8)) {
    fill(a_.raw(), a_.bytes());
    fill(b_.raw(), b_.bytes());
  }
  void operator()() const { kernels::matmul(a_, b_, {}, c_, workspace_); }
  double operations() const { return 2.0 * static_cast<double>(c_.elems()) * static_cast<double>(a_.size(1)); }

 private:
  Tensor a_, b_, c_, workspace_;
};

// Adam holds the weights, gradients and moments of `tiles` tiles (16,384 elements each) and updates them in place.
class Adam {
 public:
  explicit Adam(i64 tiles)
      : tiles_(tiles),
        gradient_(Stream::current().memory->allocate(tiles * format_.gradient_tile_bytes(), "bench: gradients")),
        weight_(Stream::current().memory->allocate(tiles * format_.weight_tile_bytes(), "bench: weights")),
        state_(Stream::current().memory->allocate(tiles * format_.state_tile_bytes(), "bench: moments")) {
    const std::vector<float> values(optim::kTileElems, 1e-2f), v(optim::kTileElems, 1e-4f);
    Stream::current().run(tiles_, [&](i64 tile, int) {
      std::fill_n(reinterpret_cast<float*>(gradient_at(tile)), optim::kTileElems, 1e-3f);
      optim::write_tile<float>(format_, {values, values, v}, weight_at(tile), state_at(tile));
    });
  }
  i64 parameters() const { return tiles_ * optim::kTileElems; }
  double bytes_per_parameter() const {
    const i64 bytes = format_.gradient_tile_bytes() + 2 * format_.weight_tile_bytes() + 2 * format_.state_tile_bytes();
    return static_cast<double>(bytes) / optim::kTileElems;
  }
  void update() const {
    static const auto kScalars = optim::make_adamw_scalars<double>({}, 1e-4, 0.1, 10, 1.0);
    const optim::TilePart whole{optim::kTileElems, &kScalars};
    Stream::current().run(tiles_, [&](i64 tile, int) {
      optim::adamw_update_tile(format_, {gradient_at(tile), weight_at(tile), state_at(tile), weight_at(tile), state_at(tile)}, {&whole, 1},
                               {{1}, 10, static_cast<u64>(tile * optim::kTileElems)});
    });
  }
  void ceiling() const {
    axpy_all(reinterpret_cast<float*>(weight_.data()), reinterpret_cast<const float*>(gradient_.data()), parameters());
  }

 private:
  std::byte* gradient_at(i64 tile) const { return gradient_.data() + tile * format_.gradient_tile_bytes(); }
  std::byte* weight_at(i64 tile) const { return weight_.data() + tile * format_.weight_tile_bytes(); }
  std::byte* state_at(i64 tile) const { return state_.data() + tile * format_.state_tile_bytes(); }

  const optim::StateFormat format_ = optim::plain_format(DType::f32);
  const i64 tiles_;
  Allocation gradient_, weight_, state_;
};

}  // namespace

Timing timing_of(std::vector<double> seconds) {
  std::ranges::sort(seconds);
  return {seconds.front(), seconds[seconds.size() / 2] / seconds.front() - 1};
}

BenchSize fitting(BenchSize size, i64 granted_bytes) {
  size.memory_bytes = std::clamp<i64>(granted_bytes / 4 / kMiB * kMiB, kMiB, size.memory_bytes);
  size.parameters = std::clamp<i64>(granted_bytes / 2 / 16, optim::kTileElems, size.parameters);
  size.exchange_bytes = std::clamp<i64>(granted_bytes / 4 / kBenchRanks / kMiB * kMiB, kMiB, size.exchange_bytes);
  return size;
}

std::vector<Timing> time_loops(const std::vector<std::function<void()>>& loops, const BenchSize& size) {
  std::vector<int> runs;
  for (const auto& loop : loops) {
    loop();
    runs.push_back(static_cast<int>(std::clamp(std::ceil(size.round_s / seconds_of(loop, 1)), 1.0, 1e6)));
  }
  std::vector<std::vector<double>> seconds(loops.size());
  for (int round = 0; round < size.rounds; ++round) {
    for (size_t i = 0; i < loops.size(); ++i) seconds[i].push_back(seconds_of(loops[i], runs[i]));
  }
  std::vector<Timing> all;
  for (const auto& one : seconds) all.push_back(timing_of(one));
  return all;
}

std::vector<BenchRow> bench_memory(const BenchSize& size) {
  const Allocation a = Stream::current().memory->allocate(size.memory_bytes, "bench: a"),
                   b = Stream::current().memory->allocate(size.memory_bytes, "bench: b");
  fill(a.data(), size.memory_bytes);
  fill(b.data(), size.memory_bytes);
  const i64 n = size.memory_bytes / 4;
  volatile float read = 0;  // volatile keeps the compiler from removing the sum
  const auto s = time_loops(
      {[&] { axpy_all(reinterpret_cast<float*>(a.data()), reinterpret_cast<const float*>(b.data()), n); },
       [&] { copy_all(a.data(), b.data(), size.memory_bytes); }, [&] { read = sum_all(reinterpret_cast<const float*>(b.data()), n); }},
      size);
  const double axpy_rate = kAxpyBytes * static_cast<double>(n) / s[0].seconds;
  return {row("memory.axpy", axpy_rate, "bytes/s", s[0]),
          row("memory.copy", 2 * static_cast<double>(size.memory_bytes) / s[1].seconds, "bytes/s", s[1], axpy_rate),
          row("memory.read", static_cast<double>(size.memory_bytes) / s[2].seconds, "bytes/s", s[2])};
}

std::vector<BenchRow> bench_matmul(const BenchSize& size) {
  const Product f32(size, DType::f32), bf16(size, DType::bf16);
  const auto s = time_loops({f32, bf16}, size);
  return {row("matmul.f32", f32.operations() / s[0].seconds, "FLOP/s", s[0]),
          row("matmul.bf16", bf16.operations() / s[1].seconds, "FLOP/s", s[1])};
}

std::vector<BenchRow> bench_adam(const BenchSize& size) {
  const Adam adam(ceil_div(size.parameters, optim::kTileElems));
  const auto s = time_loops({[&] { adam.update(); }, [&] { adam.ceiling(); }}, size);
  const auto n = static_cast<double>(adam.parameters());
  return {
      row("cpu-adam.f32", s[0].seconds / n * 1e9, "ns/parameter", s[0], s[1].seconds / n * 1e9 * adam.bytes_per_parameter() / kAxpyBytes)};
}

}  // namespace spillway::app
