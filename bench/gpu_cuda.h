// Provides the common parts of the GPU benchmarks: memory and a queue on the GPU, times measured by the GPU's clock, runs that take turns
// with a reference, and a final line that tells whether all promised rates are reached. Included by *_cuda.cc files alone.
// SPILLWAY_BENCH_TINY=1 selects sizes that an emulated GPU handles at once.
#pragma once
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "device/cuda_handle.h"
#include "device/device_query.h"
#include "device/gpu_queue.h"
#include "device/memory_pool.h"
#include "tensor/tensor.h"

namespace spillway::bench {

using Work = std::function<void()>;

inline bool tiny() { return std::getenv("SPILLWAY_BENCH_TINY") != nullptr; }

/// Returns why nothing can be measured on this machine, or an empty text if the machine has a GPU.
inline std::string why_no_gpu() {
  const GpuReport report = query_gpus();
  return report.gpus.empty() ? report.problem : report.gpus[0].problem;
}

inline double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<i64>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

class Gpu {
 public:
  /// Allocates `more_bytes` of GPU memory beyond what most benchmarks need.
  explicit Gpu(i64 more_bytes = 0) : bytes_((tiny() ? kTinyMemory : kMemory) + more_bytes), begin_(make_timer()), end_(make_timer()) {}
  const Stream& stream() const { return stream_; }
  const GpuQueue& queue() const { return queue_; }

  /// Returns the time of one run in seconds. `times` runs are put on the queue at once.
  double seconds(const Work& work, int times) const {
    cuda_check(cudaEventRecord(begin_.get(), queue_.handle()), "cudaEventRecord");
    for (int i = 0; i < times; ++i) work();
    cuda_check(cudaEventRecord(end_.get(), queue_.handle()), "cudaEventRecord");
    cuda_check(cudaEventSynchronize(end_.get()), "cudaEventSynchronize");
    float milliseconds = 0;
    cuda_check(cudaEventElapsedTime(&milliseconds, begin_.get(), end_.get()), "cudaEventElapsedTime");
    return milliseconds * 1e-3 / times;
  }
  /// Returns how many runs to queue at once, so that the queue is never empty, and starting and ending it takes no noticeable share of
  /// the time. Runs the work a few times to find that number.
  int times_for(const Work& work) const {
    work();
    return tiny() ? 1 : std::clamp(static_cast<int>(3e-3 / seconds(work, 3)), 2, 200);
  }

  /// Returns a tensor of numbers between -1 and 1, f32 or bf16. Zeros would make the GPU use less power, and so run faster.
  Tensor numbers(const Shape& shape, DType dtype) const {
    constexpr i64 kBlock = 1 << 20;
    std::vector<float> block(static_cast<size_t>(std::min(kBlock, shape.elems())));
    u32 state = 1;
    for (float& x : block) x = static_cast<float>((state = state * 1664525U + 1013904223U) >> 8) * 0x1p-23F - 1;
    if (dtype == DType::f32) return repeated<float>(block, shape);
    std::vector<BFloat16> narrow_block(block.size());
    std::transform(block.begin(), block.end(), narrow_block.begin(), [](float x) { return narrow<BFloat16>(x); });
    return repeated<BFloat16>(narrow_block, shape);
  }
  /// Returns a tensor of whole numbers in [0, limit).
  Tensor ids(const Shape& shape, i64 limit) const {
    std::vector<i32> block(static_cast<size_t>(shape.elems()));
    u32 state = 1;
    for (i32& x : block) x = static_cast<i32>(((state = state * 1664525U + 1013904223U) >> 4) % limit);
    return repeated<i32>(block, shape);
  }
  /// Returns a tensor filled with `block`, repeated to its end.
  template <class T>
  Tensor repeated(std::span<const T> block, const Shape& shape) const {
    const Tensor t = empty(shape, DTypeOf<T>::value);
    const auto length = static_cast<i64>(block.size_bytes());
    for (i64 at = 0; at < t.bytes(); at += length) {
      queue_.copy(t.raw() + at, reinterpret_cast<const std::byte*>(block.data()), std::min(length, t.bytes() - at));
    }
    queue_.wait();
    return t;
  }

 private:
  static CudaEvent make_timer() {
    cudaEvent_t event = nullptr;
    cuda_check(cudaEventCreateWithFlags(&event, cudaEventDefault), "cudaEventCreateWithFlags");
    return CudaEvent(event);
  }
  static constexpr i64 kMemory = 6 * kGiB, kTinyMemory = 96 * kMiB;
  const i64 bytes_;
  MemoryPool memory_{"bench", bytes_, "", gpu_memory(0, bytes_)};
  const GpuQueue queue_{Device::cuda(0)};
  const Stream stream_{Device::cuda(0), nullptr, &memory_, queue_.handle()};
  const CudaEvent begin_, end_;
};

/// Returns the median time of each work item. Every iteration runs all of them one after the other, so that drift of the machine hits all
/// of them.
inline std::vector<double> in_turn(benchmark::State& state, const Gpu& gpu, const std::vector<Work>& all) {
  std::vector<int> times;
  std::vector<std::vector<double>> seconds(all.size());
  for (const Work& work : all) times.push_back(gpu.times_for(work));
  for (auto _ : state) {
    for (size_t i = 0; i < all.size(); ++i) seconds[i].push_back(gpu.seconds(all[i], times[i]));
    state.SetIterationTime(seconds[0].back());
  }
  std::vector<double> medians;
  for (const auto& of_one : seconds) medians.push_back(median(of_one));
  return medians;
}

/// Collects each benchmark's share of its ceiling and prints whether all reach the promised share.
class Verdict {
 public:
  /// `promised`, the share of the measured peak rate that all benchmarks should reach, is in percent.
  Verdict(std::string what, double promised, std::string ceiling)
      : what_(std::move(what)), ceiling_(std::move(ceiling)), promised_(promised) {}
  void add(const std::string& name, double share) {
    ++rows_;
    if (share < promised_) below_.push_back(name + " " + std::to_string(static_cast<int>(share)) + " %");
  }
  void print() const {
    if (rows_ == 0) return;
    std::printf("verdict: %zu of %zu %s reach %.0f %% of %s\n", rows_ - below_.size(), rows_, what_.c_str(), promised_, ceiling_.c_str());
    for (const std::string& one : below_) std::printf("  not: %s\n", one.c_str());
  }

 private:
  const std::string what_, ceiling_;
  const double promised_;
  size_t rows_ = 0;
  std::vector<std::string> below_;
};

inline void add(const std::string& name, const std::function<void(benchmark::State&)>& run) {
  benchmark::RegisterBenchmark(name.c_str(), run)->UseManualTime()->Unit(benchmark::kMicrosecond)->Iterations(tiny() ? 1 : 15);
}

/// Runs the benchmarks that `add_all` adds, or prints why this machine cannot run them. Returns the program's exit status.
inline int run_benches(int argc, char** argv, const std::function<void()>& add_all, const Verdict& verdict = Verdict("", 0, "")) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  if (const std::string why = why_no_gpu(); !why.empty()) {
    std::printf("skipped: %s\n", why.c_str());
    return 0;
  }
  add_all();
  benchmark::RunSpecifiedBenchmarks();
  verdict.print();
  return 0;
}

}  // namespace spillway::bench
