// Tests the handles that own CUDA resources. The tests are built if CUDA is available; those that need a GPU skip without one.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "device/cuda_handle.h"
#include "device/device_query.h"

namespace spillway::handle_cuda_test {
namespace {

TEST(CudaCheck, NamesTheCallAndTheCode) {
  EXPECT_NO_THROW(cuda_check(cudaSuccess, "cudaMalloc"));
  try {
    cuda_check(cudaErrorMemoryAllocation, "cudaMalloc");
    FAIL() << "an error was let through";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io);
    EXPECT_NE(std::string(error.what()).find("cudaMalloc to succeed, got cudaErrorMemoryAllocation (2)"), std::string::npos)
        << error.what();
  }
}

int destroyed = 0;
cudaError_t count_destroyed(int*) {
  ++destroyed;
  return cudaSuccess;
}

TEST(CudaHandle, GivesBackExactlyOnce) {
  using Counted = CudaHandle<int*, count_destroyed>;
  int a = 0, b = 0;
  destroyed = 0;
  {
    Counted first(&a), second(&b);
    Counted moved(std::move(first));
    EXPECT_FALSE(first);
    EXPECT_EQ(moved.get(), &a);
    moved = std::move(second);
    EXPECT_EQ(destroyed, 1);  // the assignment destroyed the object that `moved` held before
    EXPECT_EQ(moved.get(), &b);
  }
  EXPECT_EQ(destroyed, 2);
}

// Shows typical use: bytes go to the GPU on one stream and come back on another, which waits for an event of the first stream.
TEST(CudaHandle, EventOrdersTwoStreams) {
  if (const GpuReport report = query_gpus(); report.gpus.empty()) GTEST_SKIP() << "needs a GPU: " << report.problem;
  const CudaStream up = make_cuda_stream(), down = make_cuda_stream();
  const CudaEvent arrived = make_cuda_event();
  std::vector<int> sent(1 << 20), received(sent.size());
  std::iota(sent.begin(), sent.end(), 7);
  const size_t bytes = sent.size() * sizeof(int);
  void* memory = nullptr;
  cuda_check(cudaMalloc(&memory, bytes), "cudaMalloc");
  cuda_check(cudaMemcpyAsync(memory, sent.data(), bytes, cudaMemcpyHostToDevice, up.get()), "cudaMemcpyAsync");
  cuda_check(cudaEventRecord(arrived.get(), up.get()), "cudaEventRecord");
  cuda_check(cudaStreamWaitEvent(down.get(), arrived.get(), 0), "cudaStreamWaitEvent");
  cuda_check(cudaMemcpyAsync(received.data(), memory, bytes, cudaMemcpyDeviceToHost, down.get()), "cudaMemcpyAsync");
  cuda_check(cudaStreamSynchronize(down.get()), "cudaStreamSynchronize");
  cuda_check(cudaFree(memory), "cudaFree");
  EXPECT_EQ(received, sent);
}

}  // namespace
}  // namespace spillway::handle_cuda_test
