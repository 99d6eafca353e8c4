// Benchmarks Spillway's matrix product against oneDNN's, with two threads each, for the shapes of GPT-2 124M at 256 tokens. Each row runs
// both in turn and prints Spillway's GFLOP/s, oneDNN's GFLOP/s (`onednn`) and their ratio, of which 0.95 is promised. The rows named cold
// are shapes of Qwen2.5 0.5B at 128 and 512 tokens, whose weights come from memory: every run multiplies by another copy of them.
// ONEDNN_MAX_CPU_ISA=AVX2 limits both to AVX2.
#include <benchmark/benchmark.h>
#include <omp.h>

#include <chrono>
#include <cstdlib>
#include <dnnl.hpp>
#include <string>
#include <thread>
#include <vector>

#include "device/memory_pool.h"
#include "kernels/products/instruction_sets.h"
#include "kernels/products/matmul.h"

namespace spillway {
namespace {

constexpr int kThreads = 2;
constexpr i64 kTokens = 256, kWidth = 768, kVocabulary = 50257;
constexpr i64 kFewTokens = 128, kManyTokens = 512, kQwenWidth = 896, kQwenInner = 4864;
constexpr i64 kColdElems = i64{1} << 27;  // elements of B in all its copies together

struct Shape3 {
  const char* name;
  i64 m, n, k;
  bool transpose_a, transpose_b;
  bool cold = false;
};

constexpr Shape3 kShapes[] = {{"qkv/forward", kTokens, 3 * kWidth, kWidth, false, false},
                              {"qkv/input_gradient", kTokens, kWidth, 3 * kWidth, false, true},
                              {"qkv/weight_gradient", kWidth, 3 * kWidth, kTokens, true, false},
                              {"proj/forward", kTokens, kWidth, kWidth, false, false},
                              {"proj/input_gradient", kTokens, kWidth, kWidth, false, true},
                              {"proj/weight_gradient", kWidth, kWidth, kTokens, true, false},
                              {"fc/forward", kTokens, 4 * kWidth, kWidth, false, false},
                              {"fc/input_gradient", kTokens, kWidth, 4 * kWidth, false, true},
                              {"fc/weight_gradient", kWidth, 4 * kWidth, kTokens, true, false},
                              {"fc_proj/forward", kTokens, kWidth, 4 * kWidth, false, false},
                              {"fc_proj/input_gradient", kTokens, 4 * kWidth, kWidth, false, true},
                              {"fc_proj/weight_gradient", 4 * kWidth, kWidth, kTokens, true, false},
                              {"head/forward", kTokens, kVocabulary, kWidth, false, true},
                              {"head/input_gradient", kTokens, kWidth, kVocabulary, false, false},
                              {"head/weight_gradient", kVocabulary, kWidth, kTokens, true, false},
                              {"cold/up/forward", kFewTokens, kQwenInner, kQwenWidth, false, true, true},
                              {"cold/up/input_gradient", kFewTokens, kQwenWidth, kQwenInner, false, false, true},
                              {"cold/down/forward", kFewTokens, kQwenWidth, kQwenInner, false, true, true},
                              {"cold/down/input_gradient", kFewTokens, kQwenInner, kQwenWidth, false, false, true},
                              {"cold/up/512/forward", kManyTokens, kQwenInner, kQwenWidth, false, true, true},
                              {"cold/up/512/input_gradient", kManyTokens, kQwenWidth, kQwenInner, false, false, true}};

Tensor filled(i64 rows, i64 columns, bool transposed) {
  const Tensor t = transposed ? empty({columns, rows}, DType::f32) : empty({rows, columns}, DType::f32);
  u32 state = 1;
  for (float& x : t.span<float>()) x = static_cast<float>((state = state * 1664525U + 1013904223U) >> 8) * 0x1p-24F - 0.5F;
  return transposed ? t.transpose(0, 1) : t;
}

// Holds oneDNN's product of the same tensors, which runs on oneDNN's own threads.
class Reference {
 public:
  Reference(const Tensor& a, const Tensor& b, const Tensor& c)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_), a_(memory(a)), b_(memory(b)), c_(memory(c)) {
    omp_set_num_threads(kThreads);
    const dnnl::matmul::desc description(a_.get_desc(), b_.get_desc(), c_.get_desc());
    product_ = dnnl::matmul(dnnl::matmul::primitive_desc(description, engine_));
  }
  void run(const Tensor& b) {
    b_.set_data_handle(b.raw());
    product_.execute(stream_, {{DNNL_ARG_SRC, a_}, {DNNL_ARG_WEIGHTS, b_}, {DNNL_ARG_DST, c_}});
    stream_.wait();
  }

 private:
  dnnl::memory memory(const Tensor& t) const {
    const dnnl::memory::desc description({t.size(0), t.size(1)}, dnnl::memory::data_type::f32,
                                         dnnl::memory::dims{t.stride(0), t.stride(1)});
    return dnnl::memory(description, engine_, t.raw());
  }
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::memory a_, b_, c_;
  dnnl::matmul product_;
};

// Times one run. Idle threads of OpenMP keep spinning on the cores for a while after each of oneDNN's products, and so do those of
// Spillway's pool. This function therefore lets them fall asleep first, then makes one run to wake the threads of the library that is
// measured, and times the next run.
template <class F>
double seconds(F work) {
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  work();
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Reports the fastest run of either library, since on a shared machine other runs are disturbed.
void matmul(benchmark::State& state, const Shape3& shape) {
  ThreadPool pool(kThreads);
  const Stream stream{Device::cpu(), &pool, &MemoryPool::heap()};
  StreamScope scope(stream);
  const Tensor a = filled(shape.m, shape.k, shape.transpose_a);
  std::vector<Tensor> copies(shape.cold ? static_cast<size_t>(kColdElems / (shape.k * shape.n)) : 1);
  for (Tensor& b : copies) b = filled(shape.k, shape.n, shape.transpose_b);
  size_t runs = 0;
  const auto b = [&] { return copies[runs++ % copies.size()]; };
  const Tensor ours = empty({shape.m, shape.n}, DType::f32), theirs = empty({shape.m, shape.n}, DType::f32);
  const Tensor workspace = empty({kernels::matmul_workspace_bytes(shape.m, shape.n, shape.k, DType::f32)}, DType::uint8);
  Reference reference(a, copies[0], theirs);
  double best = 1e9, best_reference = 1e9;
  for (auto _ : state) {
    const double elapsed = seconds([&] { kernels::matmul(a, b(), {}, ours, workspace); });
    state.SetIterationTime(elapsed);
    best = std::min(best, elapsed);
    best_reference = std::min(best_reference, seconds([&] { reference.run(b()); }));
  }
  const double gigaflop = 2e-9 * static_cast<double>(shape.m * shape.n) * static_cast<double>(shape.k);
  state.counters["gflops"] = gigaflop / best;
  state.counters["onednn"] = gigaflop / best_reference;
  state.counters["ratio"] = best_reference / best;
}

}  // namespace
}  // namespace spillway

int main(int argc, char** argv) {
  if (const char* isa = std::getenv("ONEDNN_MAX_CPU_ISA"); isa && std::string(isa) == "AVX2")
    spillway::kernels::use_at_most(spillway::kernels::InstructionSet::avx2);
  for (const auto& shape : spillway::kShapes) {
    benchmark::RegisterBenchmark(shape.name, [&shape](benchmark::State& state) { spillway::matmul(state, shape); })
        ->UseManualTime()
        ->MinTime(0.3)
        ->Unit(benchmark::kMillisecond);
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
