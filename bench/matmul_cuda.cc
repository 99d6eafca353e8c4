// Benchmarks Spillway's matrix products on a GPU against the fastest algorithm of cuBLASLt: all algorithms that its heuristic returns,
// with any workspace up to 64 MiB, are timed here, and the three fastest run again in turn with Spillway's. The shapes are the products
// of gpt2-124m and of a Llama-shaped model of 1.5 billion parameters at 8192 tokens, in bf16, with weight gradients and logits in fp32,
// as in training. Times are the GPU's, medians over the iterations. Operands are laid out as in training: rows of logits and of their
// gradients have the same pitch. Counters: TFLOP/s, best_TFLOP/s, share_% = their ratio (95 is promised), algos = number of algorithms
// tried, and the leading dimensions lda, ldb, ldc: the elements from one row or column to the next of each operand.
#include <numeric>

#include "base/error.h"
#include "bench/gpu_cuda.h"
#include "kernels/products/matmul.h"
#include "kernels/products/matmul_plan_cuda.h"

namespace spillway::bench {
namespace {

constexpr int kMostAlgos = 64;
constexpr i64 kTheirWorkspace = 64 * kMiB;

Verdict& verdict() {
  static Verdict one("matrix products", 95, "cuBLASLt's best");
  return one;
}

// Describes the product C[m, n] = A[m, k] B[k, n]; a flipped operand is stored transposed. The pitch of A or C is the number of elements
// from one stored row to the next; 0 means that rows have no gaps.
struct Product {
  std::string name;
  i64 m, n, k;
  bool flip_a, flip_b, bias;
  DType out;
  i64 pitch_a = 0, pitch_c = 0;
  i64 lda() const { return pitch_a > 0 ? pitch_a : flip_a ? m : k; }
  i64 ldb() const { return flip_b ? k : n; }
  i64 ldc() const { return pitch_c > 0 ? pitch_c : n; }
};

// Returns a matrix that is the front part of each row of a tensor with the given pitch.
Tensor operand(const Gpu& gpu, i64 rows, i64 columns, bool flip, i64 pitch) {
  if (flip) return gpu.numbers({columns, pitch}, DType::bf16).slice(1, 0, rows).transpose(0, 1);
  return gpu.numbers({rows, pitch}, DType::bf16).slice(1, 0, columns);
}

// Describes a matrix as matmul_cuda.cu does: BLAS stores columns, so its columns are our rows.
kernels::BlasMatrix columns_of(i64 rows, i64 columns, bool flip, i64 pitch, DType dtype) {
  const i64 inner = flip ? rows : columns, bytes = std::gcd(inner, pitch) * size_of(dtype), alignment = std::gcd(bytes, i64{16});
  return {inner, flip ? columns : rows, pitch, flip, alignment};
}

kernels::MatmulKey key_of(const Product& p) {
  return {0,
          DType::bf16,
          p.out,
          columns_of(p.k, p.n, p.flip_b, p.ldb(), DType::bf16),
          columns_of(p.m, p.k, p.flip_a, p.lda(), DType::bf16),
          columns_of(p.m, p.n, false, p.ldc(), p.out),
          p.bias ? 16 : 0,
          kernels::matmul_workspace_bytes(p.m, p.n, p.k, DType::bf16, p.out)};
}

// Holds the algorithms of cuBLASLt for the operands that Spillway's product uses.
class Theirs {
 public:
  Theirs(const Gpu& gpu, const Product& p, const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& out)
      : gpu_(gpu),
        key_(key_of(p)),
        plan_(kernels::matmul_plan(key_)),
        a_(a),
        b_(b),
        out_(out),
        desc_(kernels::matmul_desc(key_, bias.defined() ? bias.raw() : nullptr, nullptr)),
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
  /// Times each algorithm briefly and returns the indices of the `most` fastest, the fastest first. Algorithms that the library proposes
  /// but cannot run are left out.
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
  const Tensor a = operand(gpu, p.m, p.k, p.flip_a, p.lda()), b = operand(gpu, p.k, p.n, p.flip_b, p.ldb());
  const Tensor bias = p.bias ? gpu.numbers({p.n}, DType::bf16) : Tensor(), out = empty({p.m, p.ldc()}, p.out).slice(1, 0, p.n);
  const Tensor workspace = empty({kernels::matmul_workspace_bytes(p.m, p.n, p.k, DType::bf16, p.out)}, DType::uint8);
  const Theirs theirs(gpu, p, a, b, bias, out);
  std::vector<Work> all{[&] { kernels::matmul(a, b, bias, out, workspace); }};
  for (const int algo : theirs.fastest(3)) all.emplace_back([&theirs, algo] { theirs.run(algo); });
  if (all.size() == 1) return state.SkipWithError("cuBLASLt has no algorithm that runs");
  const std::vector<double> seconds = in_turn(state, gpu, all);
  const double best = *std::min_element(seconds.begin() + 1, seconds.end());
  const double teraflop = 2e-12 * static_cast<double>(p.m * p.n) * static_cast<double>(p.k);
  state.counters["TFLOP/s"] = teraflop / seconds[0];
  state.counters["best_TFLOP/s"] = teraflop / best;
  state.counters["share_%"] = 100 * best / seconds[0];
  state.counters["algos"] = theirs.count();
  state.counters["lda"] = static_cast<double>(p.lda());
  state.counters["ldb"] = static_cast<double>(p.ldb());
  state.counters["ldc"] = static_cast<double>(p.ldc());
  verdict().add(p.name, 100 * best / seconds[0]);
}

// Adds y = x W (+ bias) and its gradients. `in_out` tells whether the weight is stored as [in, out].
void add_linear(const std::string& name, i64 tokens, i64 inputs, i64 outputs, bool in_out, bool bias) {
  const std::vector<Product> all{{name + "/forward", tokens, outputs, inputs, false, !in_out, bias, DType::bf16},
                                 {name + "/input_gradient", tokens, inputs, outputs, false, in_out, false, DType::bf16},
                                 in_out ? Product{name + "/weight_gradient", inputs, outputs, tokens, true, false, false, DType::f32}
                                        : Product{name + "/weight_gradient", outputs, inputs, tokens, true, false, false, DType::f32}};
  for (const Product& p : all) {
    add(p.name, [p](benchmark::State& state) { beside_best(state, p); });
  }
}

// Adds the products that make the logits and their gradients. Logits are fp32 and computed some columns at a time
// (kernels::logits_cut); their bf16 gradients are stored at the begin of the logits' rows (ops/losses/loss.cc).
void add_head(const std::string& name, i64 tokens, i64 width, i64 vocabulary) {
  const i64 columns = std::min<i64>(vocabulary / 64 * 64, 4096), gradients = 2 * columns;
  const std::vector<Product> all{{name + "/forward", tokens, columns, width, false, true, false, DType::f32, 0, columns},
                                 {name + "/input_gradient", tokens, width, columns, false, false, false, DType::f32, gradients},
                                 {name + "/weight_gradient", columns, width, tokens, true, false, false, DType::f32, gradients}};
  for (const Product& p : all) {
    add(p.name, [p](benchmark::State& state) { beside_best(state, p); });
  }
}

void add_all() {
  const i64 tokens = tiny() ? 16 : 8192, gpt2 = tiny() ? 32 : 768, llama = tiny() ? 32 : 2048;
  add_linear("gpt2-124m/qkv", tokens, gpt2, 3 * gpt2, true, true);
  add_linear("gpt2-124m/proj", tokens, gpt2, gpt2, true, true);
  add_linear("gpt2-124m/fc", tokens, gpt2, 4 * gpt2, true, true);
  add_linear("gpt2-124m/fc_proj", tokens, 4 * gpt2, gpt2, true, true);
  add_head("gpt2-124m/head", tokens, gpt2, tiny() ? 97 : 50257);
  add_linear("llama-1.5b/q", tokens, llama, llama, false, false);
  add_linear("llama-1.5b/kv", tokens, llama, llama / 2, false, false);
  add_linear("llama-1.5b/up", tokens, llama, 3 * llama, false, false);
  add_linear("llama-1.5b/down", tokens, 3 * llama, llama, false, false);
  add_head("llama-1.5b/head", tokens, llama, tiny() ? 96 : 32000);
}

}  // namespace
}  // namespace spillway::bench

int main(int argc, char** argv) { return spillway::bench::run_benches(argc, argv, spillway::bench::add_all, spillway::bench::verdict()); }
