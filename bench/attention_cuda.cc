// Benchmarks attention with bf16 heads on a GPU, in the shapes of GPT-2 124M and Llama 3 (1B, 8B): causal, with q, k and v as views of
// one projection, and in windows of 1024, over rows of documents of 1024 tokens, and with a soft cap. A row measures the forward pass or
// the gradients; times are medians by the GPU's clock. Counters: ms, and TFLOP/s of the work inside the causal mask (4 B H T^2 D / 2
// operations forward and 10 B H T^2 D / 2 for the gradients, as in arXiv:2307.08691), or inside windows and documents. Products that the
// gradients compute twice count once. gpu_peers.py measures PyTorch for comparison. Rows that end with cudnn do the same through cuDNN; if
// they are missing, stderr says why.
#include <cmath>
#include <numeric>
#include <span>
#include <string>

#include "bench/gpu_cuda.h"
#include "kernels/sequence/attention_library.h"

namespace spillway::bench {
namespace {

struct Heads {
  const char* name;
  i64 batch, tokens, heads, kv_heads, width;
  i64 window = 0, document = 0;  // the size of the window, and of each document of a row; 0 if there is none
  double softcap = 0;
  Shape q() const { return {batch, tokens, heads, width}; }
  Shape k() const { return {batch, tokens, kv_heads, width}; }
  Shape qkv() const { return {batch, tokens, heads + 2 * kv_heads, width}; }
  /// Returns the number of pairs of a query and a key that it sees, of one head of a row.
  double pairs() const {
    const auto all = static_cast<double>(tokens), seen = static_cast<double>(window > 0 ? window : document > 0 ? document : tokens);
    return window > 0 ? seen * (all - seen / 2) : all * seen / 2;
  }
};

constexpr Heads kHeads[] = {{"gpt2-124m/1024", 16, 1024, 12, 12, 64},
                            {"llama3-1b/2048", 8, 2048, 32, 8, 64},
                            {"llama3-1b/8192", 2, 8192, 32, 8, 64},
                            {"llama3-8b/2048", 8, 2048, 32, 8, 128},
                            {"llama3-8b/8192", 2, 8192, 32, 8, 128}};
// these are not measured with cuDNN, which takes plain causal attention only
constexpr Heads kMasked[] = {{"llama3-8b/8192/window", 2, 8192, 32, 8, 128, 1024},
                             {"llama3-8b/8192/documents", 2, 8192, 32, 8, 128, 0, 1024},
                             {"gemma2-9b/8192/softcap", 2, 8192, 16, 8, 256, 0, 0, 50}};

using kernels::AttentionLibrary;

void attention(benchmark::State& state, Heads h, bool backward, AttentionLibrary library) {
  if (tiny()) h.batch = 1, h.tokens = 64, h.window /= 32, h.document /= 32;
  const bool cudnn = library == AttentionLibrary::cudnn;
  const Gpu gpu(cudnn ? kernels::attention_library_bytes({h.batch, h.tokens, h.heads, h.kv_heads, h.width, DType::bf16}) : 0);
  const StreamScope scope(gpu.stream());
  const auto part = [&](const Tensor& t, int n) {
    const i64 begin = n == 0 ? 0 : h.heads + (n - 1) * h.kv_heads;
    return t.slice(2, begin, begin + (n == 0 ? h.heads : h.kv_heads));
  };
  const Tensor qkv = gpu.numbers(h.qkv(), DType::bf16), dout = gpu.numbers(h.q(), DType::bf16), gradients = empty(h.qkv(), DType::bf16);
  const Tensor q = part(qkv, 0), k = part(qkv, 1), v = part(qkv, 2), out = empty(h.q(), DType::bf16);
  const Tensor lse = empty({h.batch, h.heads, h.tokens}, DType::f32);
  const i64 forward_bytes = kernels::attention_workspace_bytes(h.q(), h.k(), DType::bf16, library),
            gradient_bytes = kernels::attention_gradient_workspace_bytes(h.q(), h.k(), DType::bf16, library);
  const Tensor workspace = empty({std::max(forward_bytes, backward ? gradient_bytes : 0)}, DType::uint8);
  std::vector<i32> positions(static_cast<size_t>(h.document));
  std::iota(positions.begin(), positions.end(), 0);
  const kernels::AttentionMask mask{.scale = 1 / std::sqrt(static_cast<double>(h.width)),
                                    .library = library,
                                    .softcap = h.softcap,
                                    .window = h.window,
                                    .positions_BT = h.document > 0 ? gpu.repeated<i32>(positions, {h.batch, h.tokens}) : Tensor()};
  const Work forward = [&] { kernels::attention(q, k, v, mask, out, lse, workspace); };
  const Work back = [&] {
    kernels::attention_gradient(q, k, v, out, lse, dout, mask, part(gradients, 0), part(gradients, 1), part(gradients, 2), workspace);
  };
  forward();
  const double seconds = in_turn(state, gpu, {backward ? back : forward})[0];
  state.counters["ms"] = 1e3 * seconds;
  state.counters["TFLOP/s"] = 1e-12 * (backward ? 10.0 : 4.0) * static_cast<double>(h.batch * h.heads * h.width) * h.pairs() / seconds;
}

void add_all_of(std::span<const Heads> all, AttentionLibrary library, const std::string& suffix) {
  for (const Heads& heads : all) {
    for (const bool backward : {false, true}) {
      add(heads.name + std::string(backward ? "/gradients" : "/forward") + suffix,
          [&heads, backward, library](benchmark::State& state) { attention(state, heads, backward, library); });
    }
  }
}

void add_all() {
  add_all_of(kHeads, AttentionLibrary::own, "");
  add_all_of(kMasked, AttentionLibrary::own, "");
  const std::string why = kernels::missing_attention_library(query_gpus().gpus[0].compute_capability);
  if (why.empty()) {
    add_all_of(kHeads, AttentionLibrary::cudnn, "/cudnn");
  } else {
    std::fprintf(stderr, "not measured: cuDNN's attention: %s\n", why.c_str());
  }
}

}  // namespace
}  // namespace spillway::bench

int main(int argc, char** argv) { return spillway::bench::run_benches(argc, argv, spillway::bench::add_all); }
