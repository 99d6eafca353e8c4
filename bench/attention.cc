// Attention of bf16 heads on a GPU, in the shapes of GPT-2 124M and Llama 3 (1B, 8B): q, k and v as views of one projection, causal. A row
// is the forward pass or the gradients; kRuns of them are put on the queue at once, and timed from an empty queue to an empty one.
// Counters: TFLOP/s of what the causal mask leaves (4 and 10 B H T^2 D / 2, as in arXiv:2307.08691), so that the gradients' products made
// twice count once. Without a GPU the rows are skipped.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>

#include "device/device_query.h"
#include "device/gpu_queue.h"
#include "device/memory_pool.h"
#include "device/stream.h"
#include "kernels/attention.h"

namespace spillway {
namespace {

constexpr int kRuns = 10;

struct Heads {
  const char* name;
  i64 batch, tokens, heads, kv_heads, width;
  Shape q() const { return {batch, tokens, heads, width}; }
  Shape k() const { return {batch, tokens, kv_heads, width}; }
};

constexpr Heads kHeads[] = {{"gpt2-124m/1024", 16, 1024, 12, 12, 64},
                            {"llama3-1b/2048", 8, 2048, 32, 8, 64},
                            {"llama3-1b/8192", 2, 8192, 32, 8, 64},
                            {"llama3-8b/2048", 8, 2048, 32, 8, 128},
                            {"llama3-8b/8192", 2, 8192, 32, 8, 128}};

Tensor filled(const Shape& shape) {
  const Tensor t = empty(shape, DType::bf16);
  u32 state = 1;
  for (BFloat16& x : t.span<BFloat16>()) {
    x = narrow<BFloat16>(4 * (static_cast<float>((state = state * 1664525U + 1013904223U) >> 8) * 0x1p-24F - 0.5F));
  }
  return t;
}

void attention(benchmark::State& state, const Heads& h, bool backward) {
  const GpuReport report = query_gpus();
  if (report.gpus.empty() || !report.gpus[0].problem.empty()) {
    state.SkipWithError((report.gpus.empty() ? report.problem : report.gpus[0].problem).c_str());
    return;
  }
  const Tensor qkv_here = filled({h.batch, h.tokens, h.heads + 2 * h.kv_heads, h.width}), dout_here = filled(h.q());
  use_device(Device::cuda(0));
  constexpr i64 kBytes = i64{4} << 30;
  MemoryPool pool("device", kBytes, "", gpu_memory(0, kBytes));
  const GpuQueue queue(Device::cuda(0));
  const Stream stream{Device::cuda(0), nullptr, &pool, queue.handle()};
  const StreamScope scope(stream);

  const Tensor qkv = to_current_device(qkv_here), dout = to_current_device(dout_here), gradients = empty(qkv.shape(), DType::bf16);
  const auto parts = [&](const Tensor& t, int n) {
    const i64 begin = n == 0 ? 0 : h.heads + (n - 1) * h.kv_heads;
    return t.slice(2, begin, begin + (n == 0 ? h.heads : h.kv_heads));
  };
  const Tensor q = parts(qkv, 0), k = parts(qkv, 1), v = parts(qkv, 2), out = empty(h.q(), DType::bf16);
  const Tensor lse = empty({h.batch, h.heads, h.tokens}, DType::f32);
  const Tensor workspace = empty({std::max(kernels::attention_workspace_bytes(h.q(), h.k(), DType::bf16),
                                           kernels::attention_gradient_workspace_bytes(h.q(), h.k(), DType::bf16))},
                                 DType::uint8);
  const kernels::AttentionMask mask{1 / std::sqrt(static_cast<double>(h.width))};
  const auto run = [&] {
    if (backward) {
      kernels::attention_gradient(q, k, v, out, lse, dout, mask, parts(gradients, 0), parts(gradients, 1), parts(gradients, 2), workspace);
    } else {
      kernels::attention(q, k, v, mask, out, lse, workspace);
    }
  };
  kernels::attention(q, k, v, mask, out, lse, workspace);
  run();
  queue.wait();
  double best = 1e9;
  for (auto _ : state) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kRuns; ++i) run();
    queue.wait();
    const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / kRuns;
    state.SetIterationTime(elapsed);
    best = std::min(best, elapsed);
  }
  const double flop = (backward ? 5.0 : 2.0) * static_cast<double>(h.batch * h.heads * h.tokens * h.tokens * h.width);
  state.counters["TFLOP/s"] = 1e-12 * flop / best;
}

}  // namespace
}  // namespace spillway

int main(int argc, char** argv) {
  for (const auto& heads : spillway::kHeads) {
    for (const bool backward : {false, true}) {
      benchmark::RegisterBenchmark((std::string(heads.name) + (backward ? "/gradients" : "/forward")).c_str(),
                                   [&heads, backward](benchmark::State& state) { spillway::attention(state, heads, backward); })
          ->UseManualTime()
          ->MinTime(0.3)
          ->Unit(benchmark::kMillisecond);
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
