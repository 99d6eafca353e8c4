// Benchmarks the products of a mixture of experts on the CPU against one dense product with as many multiplications: forward (y = x W^T),
// the gradients of the rows (dx) and those of the weights (dW). Each iteration runs the experts' products and the dense ones in turn, so
// that drift of the machine hits both; counters are medians. The rows of the experts are of unequal number, as a router makes them: expert
// e has a share of all rows that falls linearly, the first three times the last one's.
//   TFLOP/s: of the experts' products. dense_TFLOP/s: of the dense product. share: the first in percent of the second.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "bench/support.h"
#include "device/memory_pool.h"
#include "device/stream.h"
#include "kernels/experts/expert_products.h"
#include "kernels/products/matmul.h"

namespace spillway {
namespace {

enum class Kind { y, dx, dw };

// `rows` rows in all, among `experts` experts with weights [out, in].
struct Shapes {
  i64 rows, experts, out, in;
};

// The first is gpt-oss-20b's gate and up with 512 tokens, then Qwen3-30B-A3B's gate with 512 and 2,048 tokens, then a small mixture.
constexpr Shapes kShapes[] = {{2048, 32, 5760, 2880}, {4096, 128, 768, 2048}, {16384, 128, 768, 2048}, {2048, 16, 1024, 1024}};

Tensor begins_of(const Shapes& s) {
  const Tensor begins = empty({s.experts + 1}, DType::int32);
  double sum = 0, all = 0;
  const auto share = [&](i64 e) { return 3.0 - 2.0 * static_cast<double>(e) / static_cast<double>(s.experts - 1); };
  for (i64 e = 0; e < s.experts; ++e) all += share(e);
  for (i64 e = 0; e <= s.experts; ++e) {
    begins.data<i32>()[e] = static_cast<i32>(static_cast<double>(s.rows) * sum / all + 0.5);
    if (e < s.experts) sum += share(e);
  }
  return begins;
}

void experts(benchmark::State& state, const Shapes& s, DType dtype, Kind kind) {
  static ThreadPool threads(static_cast<int>(std::thread::hardware_concurrency()));
  const Stream stream{Device::cpu(), &threads, &MemoryPool::heap()};
  const StreamScope scope(stream);
  const Tensor begins = begins_of(s), x = filled({s.rows, s.in}, dtype), dy = filled({s.rows, s.out}, dtype);
  const Tensor y = empty({s.rows, s.out}, dtype), dx = empty({s.rows, s.in}, dtype);
  std::vector<Tensor> weights, gradients;
  for (i64 e = 0; e < s.experts; ++e) {
    weights.push_back(filled({s.out, s.in}, dtype));
    gradients.push_back(kind == Kind::dw ? empty({s.out, s.in}, DType::f32) : Tensor());
  }
  const kernels::ExpertWeights stored{weights, kernels::WeightFormat::plain, Shape{s.out, s.in}};
  using enum kernels::ExpertProduct;
  const i64 bytes = std::max({kernels::expert_rows_workspace_bytes(with_transpose, s.rows, Shape{s.out, s.in}, stored.format, dtype),
                              kernels::expert_rows_workspace_bytes(with_weight, s.rows, Shape{s.out, s.in}, stored.format, dtype),
                              kernels::expert_weight_workspace_bytes(s.rows, s.out, s.in, dtype, DType::f32),
                              kernels::matmul_workspace_bytes(s.rows, s.out, s.in, dtype, dtype),
                              kernels::matmul_workspace_bytes(s.rows, s.in, s.out, dtype, dtype),
                              kernels::matmul_workspace_bytes(s.out, s.in, s.rows, dtype, DType::f32)});
  const Tensor workspace = empty({bytes}, DType::uint8), gradient = empty({s.out, s.in}, DType::f32);
  const auto mixture = [&] {
    if (kind == Kind::y) kernels::multiply_expert_rows(begins, with_transpose, x, stored, y, workspace);
    if (kind == Kind::dx) kernels::multiply_expert_rows(begins, with_weight, dy, stored, dx, workspace);
    if (kind == Kind::dw) kernels::multiply_over_expert_rows(begins, dy, x, gradients, workspace);
  };
  const auto dense = [&] {
    if (kind == Kind::y) kernels::matmul(x, weights[0].transpose(0, 1), {}, y, workspace);
    if (kind == Kind::dx) kernels::matmul(dy, weights[0], {}, dx, workspace);
    if (kind == Kind::dw) kernels::matmul(dy.transpose(0, 1), x, {}, gradient, workspace);
  };
  std::vector<double> ours, ceiling;
  const double flops = 2e-12 * static_cast<double>(s.rows) * static_cast<double>(s.out) * static_cast<double>(s.in);
  for (auto _ : state) {
    const double elapsed = seconds(mixture);
    state.SetIterationTime(elapsed);
    ours.push_back(flops / elapsed);
    ceiling.push_back(flops / seconds(dense));
  }
  state.counters["TFLOP/s"] = median(ours);
  state.counters["dense_TFLOP/s"] = median(ceiling);
  state.counters["share"] = 100 * median(ours) / median(ceiling);
}

}  // namespace
}  // namespace spillway

int main(int argc, char** argv) {
  using spillway::DType, spillway::Kind;
  for (const auto& [dtype, type] : {std::pair(DType::bf16, "bf16/"), {DType::f32, "f32/"}}) {
    for (const spillway::Shapes& s : spillway::kShapes) {
      for (const auto& [kind, name] : {std::pair(Kind::y, "/y"), {Kind::dx, "/dx"}, {Kind::dw, "/dw"}}) {
        const std::string label = type + std::to_string(s.rows) + "_rows/" + std::to_string(s.experts) + "_experts/" +
                                  std::to_string(s.out) + "x" + std::to_string(s.in) + name;
        benchmark::RegisterBenchmark(label.c_str(), [=](benchmark::State& state) { spillway::experts(state, s, dtype, kind); })
            ->UseManualTime()
            ->Iterations(7)
            ->Unit(benchmark::kMillisecond);
      }
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
