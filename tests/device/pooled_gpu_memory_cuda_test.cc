// Tests what the library shares with others in the process: the memory of a GPU, its default stream, and the current GPU.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/units.h"
#include "device/gpu_queue.h"
#include "device/transfer.h"
#include "tests/support/gpu.h"

namespace spillway::test::pooled_gpu_memory_cuda_test {
namespace {

class SharedGpus : public GpuTest {};

TEST_F(SharedGpus, APieceThatComesBackMayBeTakenAgainInTheOrderOfTheQueue) {
  MemoryPool pool("shared", kUnlimited, "", pooled_gpu_memory(0));
  const Stream stream{Device::cuda(0), nullptr, &pool, common_gpu_queue()};
  const StreamScope scope(stream);
  std::vector<u8> seen(kMiB);
  const Allocation kept = pool.allocate(kMiB, "test");
  for (u8 round = 1; round < 50; ++round) {
    Allocation more = pool.allocate(4 * kMiB, "test");  // the memory is freed while a memset of it is still queued
    cuda_check(cudaMemsetAsync(more.data(), round, static_cast<size_t>(more.bytes()), stream.queue), "cudaMemsetAsync");
    put_transfer(kept.data(), more.data(), kMiB);
    more.reset();
    const Allocation other = pool.allocate(4 * kMiB, "test");
    fill_zeros(other.data(), other.bytes());
    transfer(reinterpret_cast<std::byte*>(seen.data()), kept.data(), kMiB);
    ASSERT_EQ(std::ranges::count(seen, round), kMiB);
  }
  EXPECT_EQ(pool.used_bytes(), kMiB);
}

TEST_F(SharedGpus, WhatTheGpuHasNotIsRefusedAndTheNextIsNot) {
  const auto memory = pooled_gpu_memory(0);
  try {
    memory->take(i64{1} << 50);
    FAIL() << "expected a refusal";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::refused);
    EXPECT_NE(std::string(e.what()).find("cuda:0"), std::string::npos) << e.what();
  }
  std::byte* const at = memory->take(kMiB);
  EXPECT_NE(at, nullptr);
  memory->give_back(at, kMiB);
  wait_for_gpu(Device::cuda(0));
}

TEST_F(SharedGpus, AnotherLibrarysQueueFollowsTheCommonOne) {
  MemoryPool pool("shared", kUnlimited, "", pooled_gpu_memory(0));
  const Stream stream{Device::cuda(0), nullptr, &pool, common_gpu_queue()};
  const StreamScope scope(stream);
  const GpuQueue other(Device::cuda(0));
  const Allocation at = pool.allocate(16 * kMiB, "test");
  std::vector<u8> seen(kMiB);
  for (u8 round = 1; round < 20; ++round) {
    cuda_check(cudaMemsetAsync(at.data(), round, static_cast<size_t>(at.bytes()), stream.queue), "cudaMemsetAsync");
    let_follow_common_queue(Device::cuda(0), other.handle());
    other.copy(reinterpret_cast<std::byte*>(seen.data()), at.data() + at.bytes() - kMiB, kMiB);
    other.wait();
    ASSERT_EQ(std::ranges::count(seen, round), kMiB);
  }
  wait_for_common_queue(Device::cuda(0));
}

// Another library may use the GPU's default pool and may have set how much that keeps.
TEST_F(SharedGpus, TheDefaultPoolOfTheGpuIsLeftAsItIs) {
  use_device(Device::cuda(0));
  cudaMemPool_t others = nullptr;
  cuda_check(cudaDeviceGetDefaultMemPool(&others, 0), "cudaDeviceGetDefaultMemPool");
  const auto threshold = [&](std::uint64_t bytes) {
    cuda_check(cudaMemPoolSetAttribute(others, cudaMemPoolAttrReleaseThreshold, &bytes), "cudaMemPoolSetAttribute");
  };
  threshold(3 * kMiB);
  const auto memory = pooled_gpu_memory(0);
  memory->give_back(memory->take(kMiB), kMiB);
  trim_gpu_memory(0);
  std::uint64_t seen = 0;
  cuda_check(cudaMemPoolGetAttribute(others, cudaMemPoolAttrReleaseThreshold, &seen), "cudaMemPoolGetAttribute");
  EXPECT_EQ(seen, 3 * kMiB);
  threshold(0);
}

#ifdef __CUDA_EMULATED__  // these tests fill a GPU, which on a real one would end other programs

// Returns the free memory of GPU 0 that another library sees.
i64 free_bytes() {
  size_t free = 0, total = 0;
  cuda_check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return static_cast<i64>(free);
}

TEST_F(SharedGpus, WhatComesBackIsKeptUntilTheMemoryIsTrimmed) {
  use_device(Device::cuda(0));
  trim_gpu_memory(0);
  const i64 before = free_bytes(), bytes = before / 2 / kMiB * kMiB;
  const auto memory = pooled_gpu_memory(0);
  memory->give_back(memory->take(bytes), bytes);
  wait_for_gpu(Device::cuda(0));
  EXPECT_LE(free_bytes(), before - bytes) << "the pool is expected to keep it";
  trim_gpu_memory(0);
  EXPECT_EQ(free_bytes(), before);
}

// Memory that another library keeps in the default pool stays there.
TEST_F(SharedGpus, OnlyMemoryOfThisLibraryIsTrimmed) {
  use_device(Device::cuda(0));
  cudaMemPool_t others = nullptr;
  cuda_check(cudaDeviceGetDefaultMemPool(&others, 0), "cudaDeviceGetDefaultMemPool");
  std::uint64_t all = std::numeric_limits<std::uint64_t>::max(), none = 0;
  cuda_check(cudaMemPoolSetAttribute(others, cudaMemPoolAttrReleaseThreshold, &all), "cudaMemPoolSetAttribute");
  trim_gpu_memory(0);
  const i64 before = free_bytes();
  void* at = nullptr;
  cuda_check(cudaMallocAsync(&at, static_cast<size_t>(8 * kMiB), common_gpu_queue()), "cudaMallocAsync");
  cuda_check(cudaFreeAsync(at, common_gpu_queue()), "cudaFreeAsync");
  const auto memory = pooled_gpu_memory(0);
  memory->give_back(memory->take(kMiB), kMiB);
  trim_gpu_memory(0);
  EXPECT_EQ(free_bytes(), before - 8 * kMiB);
  cuda_check(cudaMemPoolSetAttribute(others, cudaMemPoolAttrReleaseThreshold, &none), "cudaMemPoolSetAttribute");
  cuda_check(cudaMemPoolTrimTo(others, 0), "cudaMemPoolTrimTo");
  EXPECT_EQ(free_bytes(), before);
}

// Two pieces that the pool keeps are together as long as a third one, and what the GPU has free beside them is shorter.
TEST_F(SharedGpus, WhatIsKeptInShortPiecesServesALongOneAndAWholeBudget) {
  use_device(Device::cuda(0));
  trim_gpu_memory(0);
  const i64 before = free_bytes(), piece = before * 2 / 5 / kMiB * kMiB, whole = 2 * piece;
  const auto memory = pooled_gpu_memory(0);
  const auto leave_two_pieces = [&] {
    std::byte *const one = memory->take(piece), *const two = memory->take(piece);
    memory->give_back(one, piece), memory->give_back(two, piece);
    wait_for_gpu(Device::cuda(0));
  };
  leave_two_pieces();
  std::byte* const at = memory->take(whole);
  EXPECT_NE(at, nullptr);
  memory->give_back(at, whole);
  trim_gpu_memory(0);
  leave_two_pieces();
  EXPECT_NO_THROW(gpu_memory(0, whole));
  EXPECT_EQ(free_bytes(), before);
}

#endif

TEST_F(SharedGpus, TheGpuThatWasCurrentIsSoAgain) {
  int count = 0, current = -1;
  cuda_check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  use_device(Device::cuda(0));
  for (int gpu = 0; gpu < count; ++gpu) {
    {
      const CurrentDevice one(Device::cuda(gpu));
      const CurrentDevice none(Device::cpu());
      cuda_check(cudaGetDevice(&current), "cudaGetDevice");
      EXPECT_EQ(current, gpu);
    }
    cuda_check(cudaGetDevice(&current), "cudaGetDevice");
    EXPECT_EQ(current, 0);
  }
}

}  // namespace
}  // namespace spillway::test::pooled_gpu_memory_cuda_test
