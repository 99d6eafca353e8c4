// Tests that emulated GPUs are as strict as real ones about contexts, errors and copies of pageable memory, and what times they report.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "device/cuda_handle.h"
#include "device/device_query.h"
#include "device/memory_source.h"
#include "tests/support/gpu_log.h"

#ifdef __CUDA_EMULATED__
#include <cuda_runtime.h>

namespace spillway::test::emulated_cuda_test {
namespace {

class EmulatedGpus : public testing::Test {
 protected:
  void SetUp() override {
    if (const char* gpus = std::getenv(kGpus)) gpus_ = gpus;
    ::setenv(kGpus, "3", 1);
    memory_ = gpu_memory(0, kMiB);
    on_ = memory_->take(kMiB);
    queue_ = make_cuda_stream();
  }
  void TearDown() override {
    memory_->give_back(on_, kMiB);
    static_cast<void>(cudaGetLastError());
    emulated_cuda::forget_contexts();
    ::unsetenv(kTaken);
    ::setenv(kGpus, gpus_.c_str(), 1);
  }
  static constexpr const char *kGpus = "SPILLWAY_EMULATED_GPUS", *kTaken = "SPILLWAY_EMULATED_TAKEN";
  cudaStream_t queue() const { return queue_.get(); }
  std::byte* on() const { return on_; }  // returns a pointer to kMiB bytes of the first GPU's memory

 private:
  std::string gpus_ = "0";
  std::unique_ptr<MemorySource> memory_;
  std::byte* on_ = nullptr;
  CudaStream queue_;
};

TEST_F(EmulatedGpus, ADriverOrGpuThatIsTooOldIsNamedWithWhatIsNeeded) {
  const auto problem_with = [](const char* variable, const char* value) {
    ::setenv(variable, value, 1);
    const GpuReport report = query_gpus();
    ::unsetenv(variable);
    return report.gpus.empty() ? report.problem : report.gpus[0].problem;
  };
  const auto expect = [](const std::string& problem, const std::string& part) {
    EXPECT_NE(problem.find(part), std::string::npos) << problem;
  };
  expect(problem_with("SPILLWAY_EMULATED_DRIVER", "12040"),
         "the NVIDIA driver is for CUDA 12.4 at most, this build is of CUDA 13.0: update");
  expect(problem_with("SPILLWAY_EMULATED_DRIVER", "0"), "no NVIDIA driver is loaded: ");
  expect(problem_with("SPILLWAY_EMULATED_CAPABILITY", "75"), "its compute capability is 75, and the kernels need 80 (Ampere) or newer");
  EXPECT_EQ(problem_with("SPILLWAY_EMULATED_CAPABILITY", "80"), "");
}

// How threads wait is set once for all libraries of a process.
TEST_F(EmulatedGpus, HowThreadsWaitIsLeftToOthersWhereThatIsAskedFor) {
  const GpuLog log;
  EXPECT_EQ(query_gpus(0, GpuWaiting::as_it_is).gpus.at(0).problem, "");
  EXPECT_EQ(log.count("cudaInitDevice"), 0);
  EXPECT_EQ(query_gpus(0).gpus.at(0).problem, "");
  EXPECT_EQ(log.count("cudaInitDevice"), 1);
}

// Opening a GPU takes half a GiB of its memory. A GPU that another process uses exclusively cannot be opened.
TEST_F(EmulatedGpus, AskingForOneOpensThatAlone) {
  emulated_cuda::forget_contexts();
  ::setenv(kTaken, "2", 1);
  const auto ask = [](std::optional<int> one) {
    GpuReport report;
    std::thread([&] { report = query_gpus(one); }).join();  // the new thread has selected no GPU
    return report;
  };
  EXPECT_EQ(ask(1).gpus.size(), 3U);
  EXPECT_FALSE(emulated_cuda::has_context(0));
  EXPECT_TRUE(emulated_cuda::has_context(1));
  EXPECT_FALSE(emulated_cuda::has_context(2));
  size_t free_bytes = 0, total_bytes = 0;
  std::thread([&] {
    cuda_check(cudaSetDevice(1), "cudaSetDevice");
    cuda_check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
    EXPECT_LT(free_bytes, total_bytes) << "a context takes memory";
    EXPECT_EQ(cudaSetDevice(2), cudaErrorDevicesUnavailable);
  }).join();
}

TEST_F(EmulatedGpus, CopiesOfPageableMemoryWaitAndAreCounted) {
  const auto pages = pinned_memory();
  std::byte* pinned = pages->take(kMiB);
  std::vector<std::byte> pageable(kMiB);
  const size_t before = emulated_cuda::blocking_copies();
  cuda_check(cudaMemcpyAsync(on(), pinned, kMiB, cudaMemcpyHostToDevice, queue()), "pinned");
  cuda_check(cudaMemcpyAsync(pinned, on(), kMiB, cudaMemcpyDeviceToHost, queue()), "pinned");
  EXPECT_EQ(emulated_cuda::blocking_copies(), before);
  cuda_check(cudaMemcpyAsync(on(), pageable.data(), kMiB, cudaMemcpyHostToDevice, queue()), "pageable");
  EXPECT_EQ(cudaStreamQuery(queue()), cudaSuccess);
  cuda_check(cudaMemcpy2DAsync(pageable.data(), 64, on(), 64, 32, 8, cudaMemcpyDeviceToHost, queue()), "pageable");
  EXPECT_EQ(cudaStreamQuery(queue()), cudaSuccess);
  EXPECT_EQ(emulated_cuda::blocking_copies(), before + 2);
  cuda_check(cudaStreamSynchronize(queue()), "cudaStreamSynchronize");
  pages->give_back(pinned, kMiB);
}

// An error of a kernel or a copy ends the GPU's context: every later call to that GPU fails, on any stream. Other GPUs work on.
TEST_F(EmulatedGpus, AnErrorStays) {
  const CudaStream other = make_cuda_stream();
  cudaEvent_t event = nullptr;
  cuda_check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  emulated_cuda::fail("cudaMemsetAsync", 1, cudaErrorIllegalAddress);
  cuda_check(cudaMemsetAsync(on(), 1, kMiB, queue()), "queued");
  EXPECT_EQ(cudaStreamSynchronize(queue()), cudaErrorIllegalAddress);
  static_cast<void>(cudaGetLastError());
  EXPECT_EQ(cudaStreamSynchronize(other.get()), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaMemsetAsync(on(), 1, kMiB, other.get()), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaEventRecord(event, other.get()), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaEventSynchronize(event), cudaErrorIllegalAddress);
  void* more = nullptr;
  EXPECT_EQ(cudaMalloc(&more, kMiB), cudaErrorIllegalAddress);
  std::thread([] {
    EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, kMiB), cudaSuccess);
    EXPECT_EQ(cudaFree(memory), cudaSuccess);
  }).join();
  static_cast<void>(cudaEventDestroy(event));
}

TEST_F(EmulatedGpus, FreeingWaitsForWhatIsQueued) {
  void* more = nullptr;
  cuda_check(cudaMalloc(&more, kMiB), "cudaMalloc");
  const auto late = [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(50)); };
  cuda_check(cudaLaunchHostFunc(queue(), late, nullptr), "cudaLaunchHostFunc");
  cuda_check(cudaMemsetAsync(more, 1, kMiB, queue()), "cudaMemsetAsync");
  cuda_check(cudaFree(more), "cudaFree");
  EXPECT_EQ(cudaStreamQuery(queue()), cudaSuccess);
}

// Gives the emulated GPUs a rate of 1 GB/s for copies in each direction.
class EmulatedTimes : public EmulatedGpus {
 protected:
  void SetUp() override {
    EmulatedGpus::SetUp();
    emulated_cuda::use_rates({.copy_bytes_per_s = 1e9, .threads_per_s = 1e9, .flops = 1e12});
    host_ = pages_->take(kMiB);
  }
  void TearDown() override {
    pages_->give_back(host_, kMiB);
    emulated_cuda::forget_rates();
    EmulatedGpus::TearDown();
  }
  static CudaEvent event() {
    cudaEvent_t made = nullptr;
    cuda_check(cudaEventCreateWithFlags(&made, cudaEventDefault), "cudaEventCreateWithFlags");
    return CudaEvent(made);
  }
  // there() and back() copy memory to the GPU and back to the host; at 1 GB/s, a thousand bytes take a microsecond.
  void there(cudaStream_t stream, size_t bytes) const {
    cuda_check(cudaMemcpyAsync(on(), host_, bytes, cudaMemcpyHostToDevice, stream), "there");
  }
  void back(cudaStream_t stream, size_t bytes) const {
    cuda_check(cudaMemcpyAsync(host_ + kMiB / 2, on() + kMiB / 2, bytes, cudaMemcpyDeviceToHost, stream), "back");
  }
  // Returns the milliseconds until all `streams` have completed what `work` queues on them.
  template <class Work>
  float time_of(const std::vector<cudaStream_t>& streams, Work work) {
    const CudaEvent begin = event(), end = event();
    for (const cudaStream_t stream : streams) cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    cuda_check(cudaEventRecord(begin.get(), streams[0]), "cudaEventRecord");
    cuda_check(cudaEventSynchronize(begin.get()), "cudaEventSynchronize");
    work();
    for (const cudaStream_t stream : streams) {
      if (stream == streams[0]) continue;
      const CudaEvent done = event();
      cuda_check(cudaEventRecord(done.get(), stream), "cudaEventRecord");
      cuda_check(cudaStreamWaitEvent(streams[0], done.get()), "cudaStreamWaitEvent");
    }
    cuda_check(cudaEventRecord(end.get(), streams[0]), "cudaEventRecord");
    cuda_check(cudaEventSynchronize(end.get()), "cudaEventSynchronize");
    float ms = 0;
    cuda_check(cudaEventElapsedTime(&ms, begin.get(), end.get()), "cudaEventElapsedTime");
    return ms;
  }

 private:
  const std::unique_ptr<MemorySource> pages_ = pinned_memory();
  std::byte* host_ = nullptr;
};

TEST_F(EmulatedTimes, WhatIsOrderedAddsUpAndWhatIsNotOverlaps) {
  const CudaStream a = make_cuda_stream(), b = make_cuda_stream();
  const std::vector<cudaStream_t> both = {a.get(), b.get()};
  constexpr size_t kBytes = 100'000;
  constexpr float kOne = 0.1f, kNear = 1e-4f;
  EXPECT_NEAR(time_of(both, [&] { there(a.get(), kBytes), back(a.get(), kBytes); }), 2 * kOne, kNear) << "one stream";
  EXPECT_NEAR(time_of(both, [&] { there(a.get(), kBytes), back(b.get(), kBytes); }), kOne, kNear) << "one engine each way";
  EXPECT_NEAR(time_of(both, [&] { there(a.get(), kBytes), there(b.get(), kBytes); }), 2 * kOne, kNear) << "one engine for both";
  const auto ordered = [&] {
    there(a.get(), kBytes);
    const CudaEvent done = event();
    cuda_check(cudaEventRecord(done.get(), a.get()), "cudaEventRecord");
    cuda_check(cudaStreamWaitEvent(b.get(), done.get()), "cudaStreamWaitEvent");
    back(b.get(), kBytes);
  };
  EXPECT_NEAR(time_of(both, ordered), 2 * kOne, kNear) << "an event between them";
  const auto by_cpu = [&] {
    there(a.get(), kBytes);
    cuda_check(cudaStreamSynchronize(a.get()), "cudaStreamSynchronize");
    back(b.get(), kBytes);
  };
  EXPECT_NEAR(time_of(both, by_cpu), 2 * kOne, kNear) << "the CPU between them";
}

// There are eight hardware connections. The ninth stream shares one with the first stream, so it waits behind that stream's waits.
TEST_F(EmulatedTimes, ManyStreamsShareEightConnections) {
  std::vector<CudaStream> streams;
  std::vector<cudaStream_t> all;
  for (int i = 0; i < 9; ++i) all.push_back(streams.emplace_back(make_cuda_stream()).get());
  constexpr size_t kBytes = 100'000;
  const auto chained = [&](size_t other) {
    return [&, other] {
      there(all[0], kBytes);
      there(all[0], kBytes);
      back(all[other], kBytes);
    };
  };
  EXPECT_NEAR(time_of({all[0], all[1]}, chained(1)), 0.2f, 1e-4f);
  EXPECT_NEAR(time_of({all[0], all[8]}, chained(8)), 0.2f, 1e-4f) << "it begins with the second copy";
  const auto back_alone = [&](size_t other) {
    const CudaEvent begin = event(), end = event();
    cuda_check(cudaEventRecord(begin.get(), all[other]), "cudaEventRecord");
    chained(other)();
    cuda_check(cudaEventRecord(end.get(), all[other]), "cudaEventRecord");
    cuda_check(cudaEventSynchronize(end.get()), "cudaEventSynchronize");
    float ms = 0;
    cuda_check(cudaEventElapsedTime(&ms, begin.get(), end.get()), "cudaEventElapsedTime");
    return ms;
  };
  for (const cudaStream_t stream : all) cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  const float apart = back_alone(1);
  for (const cudaStream_t stream : all) cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  EXPECT_NEAR(back_alone(8) - apart, 0.1f, 1e-4f);
}

#ifdef __SANITIZE_THREAD__
__global__ void neighbours(int* out, bool wait) {
  __shared__ int cells[64];
  cells[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (wait) __syncthreads();
  out[blockIdx.x * 64 + threadIdx.x] = cells[(threadIdx.x + 1) % 64];
}
__global__ void one_cell(int* out, bool apart) {
  if (threadIdx.x == 0) out[apart ? blockIdx.x : 0] = 1;
}

// Checks kernels for races. If ThreadSanitizer finds one, the process exits with ThreadSanitizer's exit status.
class EmulatedRaces : public EmulatedGpus {
 protected:
  [[noreturn]] void run(void (*kernel)(int*, bool), unsigned blocks, bool ordered) const {
    const cudaLaunchConfig_t config{blocks, 64, 0, queue()};
    cuda_check(cudaLaunchKernelEx(&config, kernel, reinterpret_cast<int*>(on()), ordered), "cudaLaunchKernelEx");
    cuda_check(cudaStreamSynchronize(queue()), "cudaStreamSynchronize");
    std::exit(0);
  }
};

TEST_F(EmulatedRaces, OfABlocksThreadsAndOfBlocksAreSeen) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto well = testing::ExitedWithCode(0), race = testing::ExitedWithCode(66);
  EXPECT_EXIT(run(neighbours, 1, false), race, "data race");
  EXPECT_EXIT(run(neighbours, 8, true), well, "");
  EXPECT_EXIT(run(one_cell, 64, false), race, "data race");
  EXPECT_EXIT(run(one_cell, 64, true), well, "");
}
#endif

}  // namespace
}  // namespace spillway::test::emulated_cuda_test
#endif
