// Our matrix products on a GPU beside the fastest that cuBLASLt has: every algorithm its heuristic returns, with any workspace up to 64
// MiB, timed here, the three fastest of them again in turn with ours. The products of gpt2-124m and of a Llama-shaped model of 1.5 billion
// parameters at 8192 tokens, in bf16, weight gradients and logits in fp32, as training has them. Times are the GPU's, medians over the
// iterations. Counters: tflops, best_tflops, share_% = their ratio (95 is promised), algos = how many were tried.
#include "base/error.h"
#include "bench/gpu_cuda.h"
#include "kernels/matmul/matmul.h"
#include "kernels/matmul/matmul_plan_cuda.h"

namespace spillway::bench {
namespace {

constexpr int kMostAlgos = 64;
constexpr i64 kTheirWorkspace = 64 * kMiB;

Verdict& verdict() {
  static Verdict one("matrix products", 95, "cuBLASLt's best");
  return one;
}

// C[m, n] = A[m, k] B[k, n]; a flipped operand lies transposed.
struct Product {
  std::string name;
  i64 m, n, k;
  bool flip_a, flip_b, bias;
  DType out;
};

Tensor operand(const Gpu& gpu, i64 rows, i64 columns, bool flip) {
  return flip ? gpu.numbers({columns, rows}, DType::bf16).transpose(0, 1) : gpu.numbers({rows, columns}, DType::bf16);
}

// BLAS's columns are our rows.
kernels::BlasMatrix columns_of(i64 rows, i64 columns, bool flip) {
  return flip ? kernels::BlasMatrix{rows, columns, rows, true, 16} : kernels::BlasMatrix{columns, rows, columns, false, 16};
}

kernels::MatmulKey key_of(const Product& p) {
  return {0,
          DType::bf16,
          p.out,
          columns_of(p.k, p.n, p.flip_b),
          columns_of(p.m, p.k, p.flip_a),
          columns_of(p.m, p.n, false),
          p.bias ? 16 : 0,
          kernels::matmul_workspace_bytes(p.m, p.n, p.k, DType::bf16, p.out)};
}

// One algorithm of cuBLASLt on the same operands.
class Theirs {
 public:
  Theirs(const Gpu& gpu, const Product& p, const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& out)
      : gpu_(gpu),
        key_(key_of(p)),
        plan_(kernels::matmul_plan(key_)),
        a_(a),
        b_(b),
        out_(out),
        desc_(kernels::matmul_desc(key_, bias.defined() ? bias.raw() : nullptr)),
        workspace_(empty({kTheirWorkspace}, DType::uint8)) {
    cublasLtMatmulPreference_t made = nullptr;
    kernels::blas_lt_check(lt_.preference_create(&made), "cublasLtMatmulPreferenceCreate");
    const kernels::BlasLtPreference wish(made);
    const auto most = static_cast<std::uint64_t>(kTheirWorkspace);
    kernels::blas_lt_check(lt_.preference_set(made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most),
                           "cublasLtMatmulPreferenceSetAttribute");
    cublasLtMatmulHeuristicResult_t found[kMostAlgos];
    int count = 0;
    kernels::blas_lt_check(lt_.heuristic(plan_.handle, desc_.get(), plan_.a.get(), plan_.b.get(), plan_.d.get(), plan_.d.get(), made,
                                         kMostAlgos, found, &count),
                           "cublasLtMatmulAlgoGetHeuristic");
    for (int i = 0; i < count; ++i) {
      if (found[i].state == CUBLAS_STATUS_SUCCESS) algos_.push_back(found[i].algo);
    }
  }
  int count() const { return static_cast<int>(algos_.size()); }
  void run(int algo) const {
    const float one = 1, zero = 0;
    kernels::blas_lt_check(lt_.matmul(plan_.handle, desc_.get(), &one, b_.raw(), plan_.a.get(), a_.raw(), plan_.b.get(), &zero, out_.raw(),
                                      plan_.d.get(), out_.raw(), plan_.d.get(), &algos_[static_cast<size_t>(algo)], workspace_.raw(),
                                      static_cast<size_t>(kTheirWorkspace), gpu_.stream().queue),
                           "cublasLtMatmul");
  }
  /// Their numbers, the fastest first, after a short look at each. One that the library proposes and does not run is none.
  std::vector<int> fastest(size_t most) const {
    std::vector<std::pair<double, int>> all;
    for (int i = 0; i < count(); ++i) {
      const Work work = [&] { run(i); };
      try {
        work();
        all.emplace_back(gpu_.seconds(work, 3), i);
      } catch (const Error&) {
      }
    }
    std::sort(all.begin(), all.end());
    std::vector<int> order;
    for (const auto& [seconds, i] : all) order.push_back(i);
    order.resize(std::min(order.size(), most));
    return order;
  }

 private:
  const kernels::BlasLt& lt_ = kernels::blas_lt();
  const Gpu& gpu_;
  const kernels::MatmulKey key_;
  const kernels::MatmulPlan& plan_;
  const Tensor a_, b_, out_;
  const kernels::BlasLtDesc desc_;
  const Tensor workspace_;
  std::vector<cublasLtMatmulAlgo_t> algos_;
};

void beside_best(benchmark::State& state, const Product& p) {
  const Gpu gpu;
  const StreamScope scope(gpu.stream());
  const Tensor a = operand(gpu, p.m, p.k, p.flip_a), b = operand(gpu, p.k, p.n, p.flip_b);
  const Tensor bias = p.bias ? gpu.numbers({p.n}, DType::bf16) : Tensor(), out = empty({p.m, p.n}, p.out);
  const Tensor workspace = empty({kernels::matmul_workspace_bytes(p.m, p.n, p.k, DType::bf16, p.out)}, DType::uint8);
  const Theirs theirs(gpu, p, a, b, bias, out);
  std::vector<Work> all{[&] { kernels::matmul(a, b, bias, out, workspace); }};
  for (const int algo : theirs.fastest(3)) all.emplace_back([&theirs, algo] { theirs.run(algo); });
  if (all.size() == 1) return state.SkipWithError("cuBLASLt has no algorithm that runs");
  const std::vector<double> seconds = in_turn(state, gpu, all);
  const double best = *std::min_element(seconds.begin() + 1, seconds.end());
  const double teraflop = 2e-12 * static_cast<double>(p.m * p.n) * static_cast<double>(p.k);
  state.counters["tflops"] = teraflop / seconds[0];
  state.counters["best_tflops"] = teraflop / best;
  state.counters["share_%"] = 100 * best / seconds[0];
  state.counters["algos"] = theirs.count();
  verdict().add(p.name, 100 * best / seconds[0]);
}

// y = x W (+ bias) and its gradients. `in_out`: how the weight lies.
void add_linear(const std::string& name, i64 tokens, i64 inputs, i64 outputs, bool in_out, bool bias) {
  const std::vector<Product> all{{name + "/forward", tokens, outputs, inputs, false, !in_out, bias, DType::bf16},
                                 {name + "/input_gradient", tokens, inputs, outputs, false, in_out, false, DType::bf16},
                                 in_out ? Product{name + "/weight_gradient", inputs, outputs, tokens, true, false, false, DType::f32}
                                        : Product{name + "/weight_gradient", outputs, inputs, tokens, true, false, false, DType::f32}};
  for (const Product& p : all) {
    add(p.name, [p](benchmark::State& state) { beside_best(state, p); });
  }
}

// Logits are fp32, and a part of the tokens at a time.
void add_head(const std::string& name, i64 tokens, i64 width, i64 vocabulary) {
  const std::vector<Product> all{{name + "/forward", tokens, vocabulary, width, false, true, false, DType::f32},
                                 {name + "/input_gradient", tokens, width, vocabulary, false, false, false, DType::bf16},
                                 {name + "/weight_gradient", vocabulary, width, tokens, true, false, false, DType::f32}};
  for (const Product& p : all) {
    add(p.name, [p](benchmark::State& state) { beside_best(state, p); });
  }
}

void add_all() {
  const i64 tokens = tiny() ? 16 : 8192, head_tokens = tiny() ? 16 : 2048, gpt2 = tiny() ? 32 : 768, llama = tiny() ? 32 : 2048;
  add_linear("gpt2-124m/qkv", tokens, gpt2, 3 * gpt2, true, true);
  add_linear("gpt2-124m/proj", tokens, gpt2, gpt2, true, true);
  add_linear("gpt2-124m/fc", tokens, gpt2, 4 * gpt2, true, true);
  add_linear("gpt2-124m/fc_proj", tokens, 4 * gpt2, gpt2, true, true);
  add_head("gpt2-124m/head", head_tokens, gpt2, tiny() ? 97 : 50257);
  add_linear("llama-1.5b/q", tokens, llama, llama, false, false);
  add_linear("llama-1.5b/kv", tokens, llama, llama / 2, false, false);
  add_linear("llama-1.5b/up", tokens, llama, 3 * llama, false, false);
  add_linear("llama-1.5b/down", tokens, 3 * llama, llama, false, false);
  add_head("llama-1.5b/head", head_tokens, llama, tiny() ? 96 : 32000);
}

}  // namespace
}  // namespace spillway::bench

int main(int argc, char** argv) { return spillway::bench::run_benches(argc, argv, spillway::bench::add_all, spillway::bench::verdict()); }
