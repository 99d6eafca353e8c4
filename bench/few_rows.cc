// Benchmarks matrix products with few rows of A, as in text generation, against the memory bandwidth, for weights of Qwen2.5-0.5B and
// GPT-2. Products with up to four rows take a special path. Each iteration runs the product, the same product with five rows (for which
// the weight is first copied into packed form, as for one row without that path) and the ceilings in turn, each on all CPUs; counters are
// medians, so that drift of the machine hits all of them. Each weight has several copies, together larger than the caches, which are used
// in turn.
//   GB/s: bytes of weights divided by the time of the product. packed_GB/s: the same for five rows. Ceilings: read_GB/s, a plain sum,
//   which
//   only reads, as a product does; axpy_GB/s, in-place a[i] += s * b[i], 12 bytes per element, which `spillway bench memory` shows.
//   share: GB/s in percent of read_GB/s.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <string>
#include <thread>
#include <vector>

#include "bench/support.h"
#include "device/memory_pool.h"
#include "device/stream.h"
#include "kernels/products/gemm_few_rows.h"
#include "kernels/products/matmul.h"
#include "trainer/node/axpy.h"

namespace spillway {
namespace {

constexpr i64 kGrain = 1 << 16, kCached = 192 * kMiB, kPacked = kernels::gemm::kFewRows + 1;

// Lists the shapes of the products: number of rows, outputs and inputs.
constexpr std::array<i64, 3> kShapes[] = {{1, 896, 4864},   {4, 896, 4864}, {1, 4864, 896}, {1, 151936, 896},
                                          {4, 151936, 896}, {1, 768, 768},  {1, 3072, 768}, {1, 768, 3072}};

struct Row {
  i64 m, out, in;
  bool out_in;  // true: the weight is stored as [out, in]
  DType dtype;
  std::string name() const {
    return std::string(to_string(dtype)) + "/" + std::to_string(out) + "x" + std::to_string(in) + (out_in ? "/out_in" : "/in_out") +
           "/rows:" + std::to_string(m);
  }
};

void few_rows(benchmark::State& state, const Row& row) {
  static ThreadPool threads(static_cast<int>(std::thread::hardware_concurrency()));
  const Stream stream{Device::cpu(), &threads, &MemoryPool::heap()};
  StreamScope scope(stream);
  const i64 weight_bytes = row.out * row.in * size_of(row.dtype), elems = kCached / 8;
  std::vector<Tensor> weights;
  while (std::ssize(weights) * weight_bytes < kCached) {
    const Tensor weight = filled(row.out_in ? Shape{row.out, row.in} : Shape{row.in, row.out}, row.dtype);
    weights.push_back(row.out_in ? weight.transpose(0, 1) : weight);
  }
  const Tensor x = filled({kPacked, row.in}, row.dtype), y = empty({kPacked, row.out}, row.dtype);
  const Tensor a = filled({elems}, DType::f32), b = filled({elems}, DType::f32);
  const Tensor workspace = empty({kernels::matmul_workspace_bytes(kPacked, row.out, row.in, row.dtype, row.dtype)}, DType::uint8);
  const auto product = [&](i64 m) {
    return seconds([&] {
      for (const Tensor& weight : weights) kernels::matmul(x.slice(0, 0, m), weight, {}, y.slice(0, 0, m), workspace);
    });
  };
  std::vector<double> few, packed, read, axpy;
  const double bytes = static_cast<double>(std::ssize(weights) * weight_bytes) * 1e-9;
  for (auto _ : state) {
    const double elapsed = product(row.m);
    state.SetIterationTime(elapsed / static_cast<double>(weights.size()));
    few.push_back(bytes / elapsed);
    packed.push_back(bytes / product(kPacked));
    read.push_back(static_cast<double>(4 * elems) * 1e-9 / seconds([&] {
                     stream.for_ranges(elems, kGrain, [&](i64 from, i64 to) {
                       benchmark::DoNotOptimize(trainer::plain_sum(a.data<float>() + from, to - from));
                     });
                   }));
    axpy.push_back(trainer::kAxpyBytes * static_cast<double>(elems) * 1e-9 / seconds([&] {
                     stream.for_ranges(elems, kGrain, [&](i64 from, i64 to) {
                       trainer::axpy(a.data<float>() + from, b.data<float>() + from, to - from, 1e-9F);
                     });
                   }));
  }
  state.counters["GB/s"] = median(few);
  state.counters["packed_GB/s"] = median(packed);
  state.counters["read_GB/s"] = median(read);
  state.counters["axpy_GB/s"] = median(axpy);
  state.counters["share"] = 100 * median(few) / median(read);
}

}  // namespace
}  // namespace spillway

int main(int argc, char** argv) {
  using spillway::DType;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const bool out_in : {true, false}) {
      for (const auto& [m, out, in] : spillway::kShapes) {
        const spillway::Row row{m, out, in, out_in, dtype};
        benchmark::RegisterBenchmark(row.name().c_str(), [row](benchmark::State& state) { spillway::few_rows(state, row); })
            ->UseManualTime()
            ->Iterations(9)
            ->Unit(benchmark::kMillisecond);
      }
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
