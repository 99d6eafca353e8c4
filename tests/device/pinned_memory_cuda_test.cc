// Tests page-locked host memory: threads that have selected the GPU lock it, and they lock all of a request or nothing of it.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/units.h"
#include "device/cuda_handle.h"
#include "device/device_query.h"
#include "device/gpu_copy_cuda.h"
#include "device/memory_source.h"
#include "tests/support/forbid.h"

namespace spillway::test::pinned_memory_cuda_test {
namespace {

class PinnedMemory : public testing::Test {
 protected:
  void SetUp() override {
    if (query_gpus().gpus.empty()) GTEST_SKIP() << "needs a GPU";
  }
  static bool is_locked(const std::byte* at) {
    cudaPointerAttributes attributes{};
    return cudaPointerGetAttributes(&attributes, at) == cudaSuccess && attributes.type == cudaMemoryTypeHost;
  }
  // An allocation of kBytes takes two or three locked pieces, depending on where it begins.
  static constexpr i64 kBytes = kLockedPieceBytes + 4 * kMiB;
};

TEST_F(PinnedMemory, IsLockedAsAWholeAndZero) {
  std::vector<std::string> refused;
  const auto source = pinned_memory({.refused = [&](i64, const std::string& why) { refused.push_back(why); }});
  std::byte* at = source->take(kBytes);
  ASSERT_NE(at, nullptr);
  EXPECT_TRUE(is_locked(at));
  EXPECT_TRUE(is_locked(at + kBytes - 1));
  for (i64 i = 0; i < kBytes; i += 64 * kKiB - 1) ASSERT_EQ(at[i], std::byte{0});
  source->give_back(at, kBytes);
  EXPECT_TRUE(refused.empty());
}

#ifdef __CUDA_EMULATED__
TEST_F(PinnedMemory, IsLockedOnThreadsThatHaveTheGpu) {
  const char* before = std::getenv("SPILLWAY_EMULATED_GPUS");
  const std::string was = before ? before : "1";
  ::setenv("SPILLWAY_EMULATED_GPUS", "2", 1);
  const auto source = pinned_memory({.gpu = 1, .cores = {0, 1}});
  static_cast<void>(emulated_cuda::registrations());
  std::byte* at = nullptr;
  std::thread([&] { at = source->take(kBytes); }).join();  // the new thread has selected no GPU
  const emulated_cuda::Registrations by = emulated_cuda::registrations();
  EXPECT_EQ(by.gpus, std::set<int>{1}) << "another GPU was opened";
  EXPECT_EQ(by.threads, 2u);
  int mine = -1;
  EXPECT_EQ(cudaGetDevice(&mine), cudaSuccess);
  EXPECT_EQ(mine, 0) << "the caller's GPU is another one now";
  std::thread([&] { source->give_back(at, kBytes); }).join();
  ::setenv("SPILLWAY_EMULATED_GPUS", was.c_str(), 1);
}

// The emulated GPU takes 20 ms to register a piece. Progress is reported before anything is locked and after each piece.
TEST_F(PinnedMemory, TellsHowFarItIs) {
  std::mutex mutex;
  std::vector<i64> told;
  std::thread::id last_by;
  const auto progress = [&](i64 done, i64 bytes) {
    const std::lock_guard lock(mutex);
    EXPECT_EQ(bytes, kBytes);
    told.push_back(done), last_by = std::this_thread::get_id();
  };
  const auto source = pinned_memory({.progress = progress});
  std::byte* at = source->take(kBytes);
  ASSERT_GE(told.size(), 4u);
  EXPECT_EQ(told.back(), kBytes);
  EXPECT_EQ(last_by, std::this_thread::get_id());
  EXPECT_EQ(std::ranges::count(told, kBytes), 1);
  EXPECT_EQ(std::ranges::count(told, kBytes / 2), 1) << "all is there, nothing is locked";
  EXPECT_GE(std::ranges::count_if(told, [](i64 done) { return done > kBytes / 2; }), 2) << "by pieces";
  source->give_back(at, kBytes);

  told.clear();
  emulated_cuda::fail("cudaHostRegister", 1, cudaErrorMemoryAllocation);
  source->give_back(source->take(kBytes), kBytes);
  EXPECT_EQ(told.back(), kBytes) << "refused, and done with";
}

TEST_F(PinnedMemory, ThatIsRefusedInPartStaysPageableAndIsSaid) {
  for (const int nth : {1, 2}) {
    i64 bytes = 0;
    std::string said;
    const auto source = pinned_memory({.refused = [&](i64 of, const std::string& why) { bytes = of, said = why; }});
    const size_t before = emulated_cuda::registered_bytes();
    emulated_cuda::fail("cudaHostRegister", nth, cudaErrorMemoryAllocation);
    std::byte* at = source->take(kBytes);
    ASSERT_NE(at, nullptr);
    EXPECT_EQ(emulated_cuda::registered_bytes(), before) << "a part is locked";
    EXPECT_EQ(bytes, kBytes);
    EXPECT_NE(said.find("cudaErrorMemoryAllocation"), std::string::npos) << said;
    at[kBytes - 1] = std::byte{1};
    source->give_back(at, kBytes);
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  }
}

// If no thread can be started, locked memory is unlocked without threads. New memory then stays pageable, and a message says so.
TEST_F(PinnedMemory, WithoutAThreadToBeHadGoesOn) {
  const auto without_threads = [] {
    std::string said;
    const auto source = pinned_memory({.refused = [&](i64, const std::string& why) { said = why; }});
    const size_t before = emulated_cuda::registered_bytes();
    std::byte* locked = source->take(kBytes);
    const bool was_locked = is_locked(locked) && said.empty();
    for (const int call : {SYS_clone, SYS_clone3}) forbid(call, EAGAIN);
    source->give_back(locked, kBytes);
    const bool is_unlocked = emulated_cuda::registered_bytes() == before;
    std::byte* pageable = source->take(kBytes);
    const bool is_said = said.find("refused to start another thread") != said.npos && emulated_cuda::registered_bytes() == before;
    pageable[kBytes - 1] = std::byte{1};
    source->give_back(pageable, kBytes);
    ::_exit(was_locked && is_unlocked && is_said ? 0 : 1);
  };
  EXPECT_EXIT(without_threads(), testing::ExitedWithCode(0), "");
}
#endif

}  // namespace
}  // namespace spillway::test::pinned_memory_cuda_test
