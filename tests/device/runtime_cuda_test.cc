// Tests that calls of the CUDA runtime for copies, host functions and queries
// behave as the project relies on, on a real GPU and on the emulated one.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <vector>

#include "device/cuda_handle.h"
#include "device/device_query.h"
#include "device/gpu_copy_cuda.h"
#include "device/gpu_queue.h"
#include "device/memory_source.h"

namespace spillway::runtime_cuda_test {
namespace {

class CudaRuntime : public testing::Test {
 protected:
  void SetUp() override {
    if (const GpuReport report = query_gpus(); report.gpus.empty()) GTEST_SKIP() << "needs a GPU: " << report.problem;
    memory_ = gpu_memory(0, kMiB);
    on_ = memory_->take(kMiB);
    queue_ = make_cuda_stream();
  }
  void TearDown() override {
    if (on_) memory_->give_back(on_, kMiB);
    static_cast<void>(cudaGetLastError());
  }
  void wait() const { cuda_check(cudaStreamSynchronize(queue()), "cudaStreamSynchronize"); }
  cudaStream_t queue() const { return queue_.get(); }
  std::byte* on() const { return on_; }  // returns a pointer to kMiB bytes of the GPU's memory

 private:
  std::unique_ptr<MemorySource> memory_;
  std::byte* on_ = nullptr;
  CudaStream queue_;
};

// Copies rows of 12 bytes at a pitch of 20 to the GPU and back to a pitch of 16. The bytes between the rows must not change.
TEST_F(CudaRuntime, CopiesRowsOfOtherPitches) {
  constexpr size_t kRows = 7, kFrom = 20, kOn = 32, kTo = 16, kWidth = 12;
  std::vector<u8> from(kRows * kFrom), to(kRows * kTo, 0xee);
  std::iota(from.begin(), from.end(), u8{0});
  cuda_check(cudaMemcpy2DAsync(on(), kOn, from.data(), kFrom, kWidth, kRows, cudaMemcpyHostToDevice, queue()), "there");
  cuda_check(cudaMemcpy2DAsync(to.data(), kTo, on(), kOn, kWidth, kRows, cudaMemcpyDeviceToHost, queue()), "back");
  wait();
  for (size_t row = 0; row < kRows; ++row) {
    for (size_t i = 0; i < kTo; ++i) ASSERT_EQ(to[row * kTo + i], i < kWidth ? from[row * kFrom + i] : 0xee) << row << ", " << i;
  }
  EXPECT_EQ(cudaMemcpy2DAsync(on(), 8, from.data(), kFrom, kWidth, 1, cudaMemcpyHostToDevice, queue()), cudaErrorInvalidPitchValue);
}

// A host function sees the bytes that were copied before it in the queue. Work after it in the queue waits until it returns.
TEST_F(CudaRuntime, HostFunctionsKeepTheOrderOfTheQueue) {
  struct Seen {
    i64 sent = 41, back = 0;
    static void follow(void* data) {
      auto* seen = static_cast<Seen*>(data);
      seen->sent = seen->back + 1;
    }
  };
  const auto pages = pinned_memory();  // pinned memory, since pageable memory would be read at the call and not in the queue's order
  auto& seen = *new (pages->take(kMiB)) Seen;
  cuda_check(cudaMemcpyAsync(on(), &seen.sent, 8, cudaMemcpyHostToDevice, queue()), "there");
  cuda_check(cudaMemcpyAsync(&seen.back, on(), 8, cudaMemcpyDeviceToHost, queue()), "back");
  cuda_check(cudaLaunchHostFunc(queue(), &Seen::follow, &seen), "cudaLaunchHostFunc");
  cuda_check(cudaMemcpyAsync(on(), &seen.sent, 8, cudaMemcpyHostToDevice, queue()), "there again");
  cuda_check(cudaMemcpyAsync(&seen.back, on(), 8, cudaMemcpyDeviceToHost, queue()), "and back");
  wait();
  EXPECT_EQ(seen.sent, 42);
  EXPECT_EQ(seen.back, 42);
  EXPECT_EQ(cudaLaunchHostFunc(queue(), nullptr, nullptr), cudaErrorInvalidValue);
  pages->give_back(reinterpret_cast<std::byte*>(&seen), kMiB);
}

TEST_F(CudaRuntime, KnowsWhosePointerItIs) {
  const auto kind_of = [](const void* at) {
    cudaPointerAttributes attributes{};
    cuda_check(cudaPointerGetAttributes(&attributes, at), "cudaPointerGetAttributes");
    return attributes;
  };
  EXPECT_EQ(kind_of(on() + 99).type, cudaMemoryTypeDevice);
  EXPECT_EQ(kind_of(on() + 99).device, 0);
  EXPECT_EQ(kind_of(on() + 99).devicePointer, on() + 99);

  const auto pages = system_memory();
  std::byte* at = pages->take(kMiB);
  ASSERT_NE(at, nullptr);
  EXPECT_EQ(kind_of(at).type, cudaMemoryTypeUnregistered);
  cuda_check(cudaHostRegister(at, kMiB, cudaHostRegisterDefault), "cudaHostRegister");
  EXPECT_EQ(kind_of(at + kMiB - 1).type, cudaMemoryTypeHost);
  EXPECT_EQ(kind_of(at + kMiB - 1).hostPointer, at + kMiB - 1);
  cuda_check(cudaHostUnregister(at), "cudaHostUnregister");
  EXPECT_EQ(kind_of(at).type, cudaMemoryTypeUnregistered);
  pages->give_back(at, kMiB);
}

// Host memory is locked in pieces. The driver refuses a copy whose host memory spans two pieces or is only half locked.
TEST_F(CudaRuntime, CopiesAcrossPiecesLockedApart) {
  const auto pages = pinned_memory();
  const i64 bytes = kLockedPieceBytes + 4 * kMiB, half = 32 * kKiB, all = 2 * half;
  std::byte* host = pages->take(bytes);
  ASSERT_NE(host, nullptr);
  std::byte* across = host + rest_of_piece(host) - half;
  for (i64 i = 0; i < all; ++i) across[i] = static_cast<std::byte>(i * 7 % 251);
  std::vector<std::byte> came(static_cast<size_t>(all));
  const GpuQueue copies(Device::cuda(0));
  copies.copy(on(), across, all);
  copies.copy(came.data(), on(), all);
  copies.wait();
  EXPECT_TRUE(std::ranges::equal(came, std::span(across, came.size())));
  std::ranges::fill(std::span(across, came.size()), std::byte{0});
  copies.copy(across, on(), all);
  copies.wait();
  EXPECT_TRUE(std::ranges::equal(came, std::span(across, came.size())));
  pages->give_back(host, bytes);
}

TEST_F(CudaRuntime, SaysWhoReachesWhom) {
  const int gpus = static_cast<int>(query_gpus().gpus.size());
  for (int i = 0; i < gpus; ++i) {
    int can = -1;
    cuda_check(cudaDeviceCanAccessPeer(&can, i, i), "cudaDeviceCanAccessPeer");
    EXPECT_EQ(can, 0) << "a GPU is no peer of its own";
    for (int j = 0; j < gpus; ++j) {
      cuda_check(cudaDeviceCanAccessPeer(&can, i, j), "cudaDeviceCanAccessPeer");
      EXPECT_TRUE(can == 0 || can == 1);
    }
  }
  int can = -1;
  EXPECT_EQ(cudaDeviceCanAccessPeer(&can, 0, gpus), cudaErrorInvalidDevice);
}

}  // namespace
}  // namespace spillway::runtime_cuda_test
