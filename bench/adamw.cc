// CPU AdamW and the tile norm beside what the memory gives. Each iteration runs the loop under test and its ceiling one after the other on
// the same pages with the same threads; figures are medians over the iterations, so drift of the machine hits both.
//   adamw: 28 bytes a parameter (read weight, m, v, gradient; write weight, m, v). Ceiling: in-place a[i] += s * b[i], 12 bytes an element.
//   norm:  4 bytes an element. Ceiling: a plain sum of the same floats.
// Counters: GB/s and ceiling_GB/s (10^9 bytes), share = their ratio in percent, ns/elem over all threads.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "device/memory_pool.h"
#include "device/stream.h"
#include "optim/norm.h"
#include "optim/update.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace spillway {
namespace {

using optim::Isa;

constexpr i64 kParameters = 100'000'000;
constexpr i64 kGrainElems = 1 << 16;

#if defined(__x86_64__)
__attribute__((target("avx512f"))) i64 axpy_avx512(float* a, const float* b, i64 n, float s) {
  const __m512 factor = _mm512_set1_ps(s);
  i64 i = 0;
  for (; i + 16 <= n; i += 16) {
    _mm512_storeu_ps(a + i, _mm512_add_ps(_mm512_loadu_ps(a + i), _mm512_mul_ps(factor, _mm512_loadu_ps(b + i))));
  }
  return i;
}

__attribute__((target("avx2"))) i64 axpy_avx2(float* a, const float* b, i64 n, float s) {
  const __m256 factor = _mm256_set1_ps(s);
  i64 i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm256_storeu_ps(a + i, _mm256_add_ps(_mm256_loadu_ps(a + i), _mm256_mul_ps(factor, _mm256_loadu_ps(b + i))));
  }
  return i;
}
#endif

void axpy(float* a, const float* b, i64 n, float s) {
  i64 i = 0;
#if defined(__x86_64__)
  static const Isa best = optim::resolve(Isa::best);
  if (best == Isa::avx512) i = axpy_avx512(a, b, n, s);
  if (best == Isa::avx2) i = axpy_avx2(a, b, n, s);
#endif
  for (; i < n; ++i) a[i] += s * b[i];
}

// 64 sums, so that the latency of an addition does not bound it.
float plain_sum(const float* a, i64 n) {
  float sum[64] = {};
  for (i64 i = 0; i + 64 <= n; i += 64) {
    for (i64 k = 0; k < 64; ++k) sum[k] += a[i + k];
  }
  return std::accumulate(sum, sum + 64, 0.0f);
}

// weight | m | v | gradient in one piece of huge pages; the axpy's a and b are its halves.
struct Bench {
  MemoryPool pool{"bench", kUnlimited};
  ThreadPool threads{static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))};
  Stream stream{Device::cpu(), &threads, &pool};
  Allocation memory = pool.allocate(4 * kParameters * 4, "state and gradient");
  float* base = reinterpret_cast<float*>(memory.data());

  Bench() {
    stream.for_ranges(4 * kParameters, kGrainElems, [&](i64 begin, i64 end) {
      for (i64 i = begin; i < end; ++i) base[i] = 1e-3f * static_cast<float>(1 + (i * 2654435761u >> 7) % 1000);
    });
  }
  std::span<float> part(i64 index) const { return {base + index * kParameters, static_cast<size_t>(kParameters)}; }
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

void beside(benchmark::State& state, const std::function<void()>& body, double bytes, const std::function<void()>& ceiling,
            double ceiling_bytes) {
  const StreamScope scope(Bench::get().stream);
  body();
  ceiling();
  std::vector<double> body_s, ceiling_s;
  for (auto _ : state) {
    body_s.push_back(seconds(body));
    ceiling_s.push_back(seconds(ceiling));
    state.SetIterationTime(body_s.back());
  }
  const double rate = bytes / median(body_s) * 1e-9, top = ceiling_bytes / median(ceiling_s) * 1e-9;
  state.counters["GB/s"] = rate;
  state.counters["ceiling_GB/s"] = top;
  state.counters["share_%"] = 100 * rate / top;
  state.counters["ns/elem"] = median(body_s) * 1e9 / kParameters;
  state.counters["threads"] = Bench::get().threads.threads();
}

// The whole run at once, or in chunks of so many tiles, as a Step instruction does.
void adamw(benchmark::State& state, Isa isa, i64 chunk_elems) {
  const Bench& bench = Bench::get();
  const auto scalars = optim::make_adamw_scalars<float>({}, 1e-4, 0.1, 10, 1.0);
  const auto body = [&] {
    for (i64 at = 0; at < kParameters; at += chunk_elems) {
      const auto from = static_cast<size_t>(at), count = static_cast<size_t>(std::min(chunk_elems, kParameters - at));
      const auto chunk = [&](i64 index) { return bench.part(index).subspan(from, count); };
      optim::adamw_update_tiles(optim::AdamWRun<float>{chunk(0), chunk(1), chunk(2), chunk(3)}, scalars, isa);
    }
  };
  const auto ceiling = [&] {
    bench.stream.for_ranges(2 * kParameters, kGrainElems, [&](i64 begin, i64 end) {
      axpy(bench.base + begin, bench.base + 2 * kParameters + begin, end - begin, 1e-7f);
    });
  };
  beside(state, body, 28.0 * kParameters, ceiling, 12.0 * 2 * kParameters);
}

void norm(benchmark::State& state, Isa isa) {
  const Bench& bench = Bench::get();
  const auto gradient = bench.part(3);
  std::vector<double> sums(static_cast<size_t>(ceil_div(kParameters, optim::kTileElems)));
  const auto body = [&] {
    bench.stream.for_ranges(kParameters, optim::kTileElems, [&](i64 begin, i64 end) {
      sums[static_cast<size_t>(begin / optim::kTileElems)] =
          optim::tile_square_sum(gradient.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)), isa);
    });
    benchmark::DoNotOptimize(sums.data());
  };
  const auto ceiling = [&] {
    bench.stream.for_ranges(kParameters, optim::kTileElems,
                            [&](i64 begin, i64 end) { benchmark::DoNotOptimize(plain_sum(gradient.data() + begin, end - begin)); });
  };
  beside(state, body, 4.0 * kParameters, ceiling, 4.0 * kParameters);
}

void add(const std::string& name, const std::function<void(benchmark::State&)>& run, int iterations) {
  benchmark::RegisterBenchmark(name.c_str(), run)->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(iterations);
}

}  // namespace
}  // namespace spillway

int main(int argc, char** argv) {
  using namespace spillway;
  for (optim::Isa isa : optim::available_isas()) {
    const std::string name = optim::to_string(isa);
    add(
        "adamw/" + name, [isa](benchmark::State& state) { adamw(state, isa, kParameters); }, 15);
    add(
        "norm/" + name, [isa](benchmark::State& state) { norm(state, isa); }, 15);
  }
  add(
      "adamw/chunks_of_64_tiles", [](benchmark::State& state) { adamw(state, optim::Isa::best, 64 * optim::kTileElems); }, 15);
  add(
      "adamw/chunks_of_16_tiles", [](benchmark::State& state) { adamw(state, optim::Isa::best, 16 * optim::kTileElems); }, 15);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
