// Gives a test a GPU with memory and a stream. Tests are skipped if the machine has no GPU. Only *cuda_test.cc files include this header.
#pragma once
#include <gtest/gtest.h>

#include "device/cuda_handle.h"
#include "device/device_query.h"
#include "device/memory_pool.h"
#include "device/stream.h"
#include "tensor/tensor.h"

#include <cstdlib>
#include <memory>
#include <optional>

namespace spillway::test {

// Takes each piece of memory from the driver in a separate call, since compute-sanitizer only checks such allocations.
class SeparateGpuMemory final : public MemorySource {
 public:
  std::byte* take(i64 bytes) override {
    std::byte* at = nullptr;
    return cudaMalloc(reinterpret_cast<void**>(&at), static_cast<size_t>(bytes)) == cudaSuccess ? at : nullptr;
  }
  void give_back(std::byte* at, i64) noexcept override { static_cast<void>(cudaFree(at)); }
};

class Gpu {
 public:
  explicit Gpu(i64 bytes = 256 << 20) : pool_("device", bytes, "", memory(bytes)) {}
  const Stream& stream() const { return stream_; }
  MemoryPool& pool() { return pool_; }
  /// Runs `work` with this stream as the current one, and waits until the GPU has completed it.
  template <class Work>
  auto run(Work work) const {
    const StreamScope scope(stream_);
    if constexpr (std::is_void_v<decltype(work())>) {
      work();
      wait();
    } else {
      auto result = work();
      wait();
      return result;
    }
  }
  /// Returns a copy on the GPU. An undefined tensor is returned as it is.
  Tensor operator()(const Tensor& t) const {
    const StreamScope scope(stream_);
    return t.defined() ? to_current_device(t) : t;
  }
  Tensor empty(const Shape& shape, DType dtype) const {
    const StreamScope scope(stream_);
    return spillway::empty(shape, dtype);
  }
  Tensor host(const Tensor& t) const {
    const StreamScope scope(stream_);
    return to_host(t);
  }

 private:
  static std::unique_ptr<MemorySource> memory(i64 bytes) {
    if (std::getenv("SPILLWAY_TEST_SEPARATE_MEMORY")) return std::make_unique<SeparateGpuMemory>();
    return gpu_memory(0, bytes);
  }
  void wait() const { cuda_check(cudaStreamSynchronize(queue_.get()), "cudaStreamSynchronize"); }

  MemoryPool pool_;
  const CudaStream queue_ = make_cuda_stream();
  const Stream stream_{Device::cuda(0), nullptr, &pool_, queue_.get()};
};

/// GpuTest is a fixture that skips its tests if there is no GPU that this build can use.
class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    const GpuReport report = query_gpus();
    if (report.gpus.empty()) GTEST_SKIP() << report.problem;
    if (!report.gpus[0].problem.empty()) GTEST_SKIP() << report.gpus[0].problem;
    gpu_.emplace();
  }
  Gpu& gpu() { return *gpu_; }

 private:
  std::optional<Gpu> gpu_;
};

}  // namespace spillway::test
