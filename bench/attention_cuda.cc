// Attention of bf16 heads on a GPU, in the shapes of GPT-2 124M and Llama 3 (1B, 8B): q, k and v as views of one projection, causal. A row
// is the forward pass or the gradients, median by the GPU's clock. Counters: ms, and TFLOP/s of what the causal mask leaves (4 and
// 10 B H T^2 D / 2, as in arXiv:2307.08691), so that the gradients' products made twice count once. gpu_peers.py holds PyTorch's beside it.
#include <cmath>
#include <string>

#include "bench/gpu_cuda.h"
#include "kernels/attention/attention.h"

namespace spillway::bench {
namespace {

struct Heads {
  const char* name;
  i64 batch, tokens, heads, kv_heads, width;
  Shape q() const { return {batch, tokens, heads, width}; }
  Shape k() const { return {batch, tokens, kv_heads, width}; }
  Shape qkv() const { return {batch, tokens, heads + 2 * kv_heads, width}; }
};

constexpr Heads kHeads[] = {{"gpt2-124m/1024", 16, 1024, 12, 12, 64},
                            {"llama3-1b/2048", 8, 2048, 32, 8, 64},
                            {"llama3-1b/8192", 2, 8192, 32, 8, 64},
                            {"llama3-8b/2048", 8, 2048, 32, 8, 128},
                            {"llama3-8b/8192", 2, 8192, 32, 8, 128}};

void attention(benchmark::State& state, Heads h, bool backward) {
  if (tiny()) h.batch = 1, h.tokens = 64;
  const Gpu gpu;
  const StreamScope scope(gpu.stream());
  const auto part = [&](const Tensor& t, int n) {
    const i64 begin = n == 0 ? 0 : h.heads + (n - 1) * h.kv_heads;
    return t.slice(2, begin, begin + (n == 0 ? h.heads : h.kv_heads));
  };
  const Tensor qkv = gpu.numbers(h.qkv(), DType::bf16), dout = gpu.numbers(h.q(), DType::bf16), gradients = empty(h.qkv(), DType::bf16);
  const Tensor q = part(qkv, 0), k = part(qkv, 1), v = part(qkv, 2), out = empty(h.q(), DType::bf16);
  const Tensor lse = empty({h.batch, h.heads, h.tokens}, DType::f32);
  const Tensor workspace = empty({std::max(kernels::attention_workspace_bytes(h.q(), h.k(), DType::bf16),
                                           kernels::attention_gradient_workspace_bytes(h.q(), h.k(), DType::bf16))},
                                 DType::uint8);
  const kernels::AttentionMask mask{1 / std::sqrt(static_cast<double>(h.width))};
  const Work forward = [&] { kernels::attention(q, k, v, mask, out, lse, workspace); };
  const Work back = [&] {
    kernels::attention_gradient(q, k, v, out, lse, dout, mask, part(gradients, 0), part(gradients, 1), part(gradients, 2), workspace);
  };
  forward();
  const double seconds = in_turn(state, gpu, {backward ? back : forward})[0];
  state.counters["ms"] = 1e3 * seconds;
  state.counters["TFLOP/s"] =
      1e-12 * (backward ? 5.0 : 2.0) * static_cast<double>(h.batch * h.heads * h.tokens * h.tokens * h.width) / seconds;
}

void add_all() {
  for (const Heads& heads : kHeads) {
    for (const bool backward : {false, true}) {
      add(std::string(heads.name) + (backward ? "/gradients" : "/forward"),
          [&heads, backward](benchmark::State& state) { attention(state, heads, backward); });
    }
  }
}

}  // namespace
}  // namespace spillway::bench

int main(int argc, char** argv) { return spillway::bench::run_benches(argc, argv, spillway::bench::add_all); }
