// Benchmarks AdamW on the CPU in every state format, the other update rules and the gradient norm of a tile, and compares them with the
// memory bandwidth. Each iteration runs the loop under test and a ceiling (a simple loop bounded by memory) one after the other on the
// same pages with the same threads; figures are medians over the iterations, so that drift of the machine hits both.
//   adamw: bytes per parameter = gradient, weight, state read + weight, state written (f32: 28). Ceiling: in-place a[i] += s * b[i], 12
//          bytes per element. .../other_slot writes the result to other memory past the caches; x_in_place is the time of this divided by
//          the time of
//          the same update in place, which is a third loop of the same iteration.
//   rules: in place, f32: 12 bytes per parameter and 8 for each array of state. Ceiling: as for adamw.
//   norm:  4 bytes per element. Ceiling: a plain sum of the same floats. Counters: GB/s and ceiling_GB/s (10^9 bytes), share = their
//   ratio in percent, ns/elem over all threads.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/memory_pool.h"
#include "device/stream.h"
#include "optim/adamw_tile.h"
#include "optim/rules/settings.h"
#include "optim/tile_values.h"
#include "trainer/node/axpy.h"

namespace spillway {
namespace {

using optim::Isa;
using trainer::axpy;

constexpr i64 kTiles = 6104;
constexpr i64 kParameters = kTiles * optim::kTileElems;  // 100 million parameters
constexpr i64 kGrainElems = 1 << 16;

// Adds the floats into 64 sums, so that the latency of an addition does not limit the speed.
float plain_sum(const float* a, i64 n) {
  float sum[64] = {};
  for (i64 i = 0; i + 64 <= n; i += 64) {
    for (i64 k = 0; k < 64; ++k) sum[k] += a[i + k];
  }
  return std::accumulate(sum, sum + 64, 0.0f);
}

// Holds one allocation of huge pages for all benchmarks: gradients, and two slots, each with room for weights and state. The arrays that
// the ceilings use lie behind the slots.
struct Bench {
  static constexpr i64 kRowFloats = 8 * kParameters;
  MemoryPool pool{"bench", kUnlimited};
  ThreadPool threads{static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))};
  Stream stream{Device::cpu(), &threads, &pool};
  Allocation memory = pool.allocate((kRowFloats + 2 * kParameters) * 4, "gradient, two slots of weight and state, ceiling");
  float* base = reinterpret_cast<float*>(memory.data());
  float* ceiling = base + kRowFloats;

  Bench() {
    stream.for_ranges(kRowFloats + 2 * kParameters, kGrainElems, [&](i64 begin, i64 end) {
      for (i64 i = begin; i < end; ++i) base[i] = 1e-3f * static_cast<float>(1 + (i * 2654435761u >> 7) % 1000);
    });
  }
  static Bench& get() {
    static Bench bench;
    return bench;
  }
};

double seconds(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<i64>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

struct Loop {
  std::function<void()> body;
  double bytes = 0;
};

/// Measures `loop` and its ceiling. A `reference`, if given, does the same work in place, and the time of `loop` is compared with that of
/// `reference` too.
void beside(benchmark::State& state, const Loop& loop, const Loop& ceiling, const std::function<void()>& reference = {}) {
  const StreamScope scope(Bench::get().stream);
  loop.body(), ceiling.body();
  std::vector<double> loop_s, ceiling_s, reference_s;
  for (auto _ : state) {
    loop_s.push_back(seconds(loop.body));
    ceiling_s.push_back(seconds(ceiling.body));
    if (reference) reference_s.push_back(seconds(reference));
    state.SetIterationTime(loop_s.back());
  }
  const double rate = loop.bytes / median(loop_s) * 1e-9, top = ceiling.bytes / median(ceiling_s) * 1e-9;
  state.counters["GB/s"] = rate;
  state.counters["ceiling_GB/s"] = top;
  state.counters["share_%"] = 100 * rate / top;
  state.counters["ns/elem"] = median(loop_s) * 1e9 / kParameters;
  state.counters["B/elem"] = loop.bytes / kParameters;
  state.counters["threads"] = Bench::get().threads.threads();
  if (reference) state.counters["x_in_place"] = median(loop_s) / median(reference_s);
}

Loop in_place_axpy() {
  return {[&bench = Bench::get()] {
            bench.stream.for_ranges(kParameters, kGrainElems, [&](i64 begin, i64 end) {
              axpy(bench.ceiling + begin, bench.ceiling + kParameters + begin, end - begin, 1e-7f);
            });
          },
          12.0 * kParameters};
}

struct Slot {
  std::byte *weight, *state;
};

// Updates all tiles from one slot (copy of weights and state) into the other, or in place.
void update_all(const optim::StateFormat& f, Slot old, Slot next, Isa isa) {
  static const auto scalars = optim::make_adamw_scalars<double>({}, 1e-4, 0.1, 10, 1.0);
  const Bench& bench = Bench::get();
  const auto* gradient = reinterpret_cast<const std::byte*>(bench.base);
  const optim::TilePart whole{optim::kTileElems, &scalars};
  bench.stream.run(kTiles, [&](i64 tile, int) {
    const i64 weight = tile * f.weight_tile_bytes(), state = tile * f.state_tile_bytes();
    const auto first = static_cast<u64>(tile * optim::kTileElems);
    optim::adamw_update_tile(
        f, {gradient + tile * f.gradient_tile_bytes(), old.weight + weight, old.state + state, next.weight + weight, next.state + state},
        {&whole, 1}, {{1}, 10, first}, isa, next.weight != old.weight);
  });
}

// Fills a slot (copy of weights and state) with numbers of ordinary size, because a CPU computes very small (denormal) results slowly.
void initialize(const optim::StateFormat& f, Slot slot) {
  constexpr u32 kGradientBits = 0x3a833a83;  // the bits of one fp32 number or of two bf16 numbers near 1e-3
  auto* gradient = reinterpret_cast<u32*>(Bench::get().base);
  std::fill(gradient, gradient + kTiles * f.gradient_tile_bytes() / 4, kGradientBits);
  const std::vector<float> values(optim::kTileElems, 1e-2f), v(optim::kTileElems, 1e-4f);
  Bench::get().stream.run(kTiles, [&](i64 tile, int) {
    optim::write_tile<float>(f, {values, values, v}, slot.weight + tile * f.weight_tile_bytes(), slot.state + tile * f.state_tile_bytes());
  });
}

double bytes_moved(const optim::StateFormat& f) {
  const bool weight_is_read = f.weight != DType::bf16 || f.master == optim::Master::split;
  const i64 per_tile = f.gradient_tile_bytes() + 2 * f.state_tile_bytes() + (weight_is_read ? 2 : 1) * f.weight_tile_bytes();
  return static_cast<double>(kTiles * per_tile);
}

void adamw(benchmark::State& state, const optim::StateFormat& f, Isa isa, bool other_slot) {
  const Bench& bench = Bench::get();
  auto* at = reinterpret_cast<std::byte*>(bench.base) + kTiles * f.gradient_tile_bytes();
  const auto slot = [&] {
    std::byte* weight = std::exchange(at, at + kTiles * f.weight_tile_bytes());
    return Slot{weight, std::exchange(at, at + kTiles * f.state_tile_bytes())};
  };
  const Slot old = slot(), next = other_slot ? slot() : old;
  initialize(f, old);
  const auto in_place = [&] { update_all(f, old, old, isa); };
  beside(state, {[&] { update_all(f, old, next, isa); }, bytes_moved(f)}, in_place_axpy(),
         other_slot ? std::function<void()>(in_place) : std::function<void()>());
}

template <class Settings>
void rule(benchmark::State& state, const Settings& settings) {
  const Bench& bench = Bench::get();
  const optim::Rule rule = rule_of(settings);
  const auto scalars = make_scalars(settings, 10, 1.0);
  const int arrays = 2 + state_arrays(rule);  // number of arrays: the gradient, the weight and the state arrays
  const float values[] = {1e-3f, 1e-2f, 1e-4f, 1e-4f, 1e-4f};
  bench.stream.for_ranges(kParameters, kGrainElems, [&](i64 begin, i64 end) {
    for (int k = 0; k < arrays; ++k) std::fill(bench.base + k * kParameters + begin, bench.base + k * kParameters + end, values[k]);
  });
  const auto body = [&] {
    bench.stream.for_ranges(kParameters, kGrainElems, [&](i64 begin, i64 end) {
      const auto part = [&](int k) { return std::span(bench.base + k * kParameters + begin, static_cast<size_t>(end - begin)); };
      const std::span<float> states[] = {part(2), part(3), part(4)};
      optim::update<float>(rule, part(1), std::span(states).first(static_cast<size_t>(state_arrays(rule))), part(0), scalars);
    });
  };
  beside(state, {body, (12.0 + 8 * state_arrays(rule)) * kParameters}, in_place_axpy());
}

void norm(benchmark::State& state, Isa isa) {
  const Bench& bench = Bench::get();
  const std::span<const float> gradient(bench.ceiling, static_cast<size_t>(kParameters));
  std::vector<double> sums(static_cast<size_t>(kTiles));
  const auto body = [&] {
    bench.stream.run(kTiles, [&](i64 tile, int) {
      sums[static_cast<size_t>(tile)] =
          optim::tile_square_sum(gradient.subspan(static_cast<size_t>(tile * optim::kTileElems), optim::kTileElems), isa);
    });
    benchmark::DoNotOptimize(sums.data());
  };
  const auto sum = [&] {
    bench.stream.for_ranges(kParameters, optim::kTileElems,
                            [&](i64 begin, i64 end) { benchmark::DoNotOptimize(plain_sum(gradient.data() + begin, end - begin)); });
  };
  beside(state, {body, 4.0 * kParameters}, {sum, 4.0 * kParameters});
}

void add(const std::string& name, const std::function<void(benchmark::State&)>& run, int iterations = 15) {
  benchmark::RegisterBenchmark(name.c_str(), run)->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(iterations);
}

template <class Settings>
void add_rule(const Settings& settings) {
  add(std::string("rules/") + to_string(rule_of(settings)), [settings](benchmark::State& state) { rule(state, settings); });
}

}  // namespace
}  // namespace spillway

int main(int argc, char** argv) {
  using namespace spillway;
  using optim::Master, optim::Moments, optim::StateFormat;
  for (optim::Isa isa : optim::available_isas()) {
    const std::string name = optim::to_string(isa);
    add("adamw/f32/" + name, [isa](benchmark::State& state) { adamw(state, optim::plain_format(DType::f32), isa, false); });
    add("norm/" + name, [isa](benchmark::State& state) { norm(state, isa); });
  }
  for (const optim::SgdSettings& settings : {optim::SgdSettings{}, {.momentum = 0.9}, {.momentum = 0.9, .nesterov = true}})
    add_rule(settings);
  for (bool decoupled : {false, true}) {
    for (bool amsgrad : {false, true}) add_rule(optim::AdamSettings{.amsgrad = amsgrad, .decoupled_weight_decay = decoupled});
  }
  add_rule(optim::AdagradSettings{});
  for (bool centered : {false, true}) {
    for (double momentum : {0.0, 0.9}) add_rule(optim::RmspropSettings{.momentum = momentum, .centered = centered});
  }
  add_rule(optim::LionSettings{});
  const std::pair<const char*, StateFormat> formats[] = {
      {"f32", optim::plain_format(DType::f32)},
      {"bf16_fp32_master", optim::plain_format(DType::bf16)},
      {"bf16_split_master", {DType::bf16, Master::split}},
      {"bf16_split_master/bf16_gradient", {DType::bf16, Master::split, Moments::fp32, DType::bf16}},
      {"bf16_split_master/bf16_moments", {DType::bf16, Master::split, Moments::bf16}},
      {"bf16_split_master/int8_moments", {DType::bf16, Master::split, Moments::int8}},
  };
  for (const auto& [name, format] : formats) {
    for (bool other_slot : {false, true}) {
      add(std::string("adamw/") + name + (other_slot ? "/other_slot" : "/in_place"),
          [f = format, other_slot](benchmark::State& state) { adamw(state, f, optim::Isa::best, other_slot); });
    }
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
