// Tests GPU queues: events at points of a queue, queues that wait for each other, and the count of waits by the CPU.
#include "device/gpu_queue.h"

#include <algorithm>
#include <future>
#include <thread>

#include "base/units.h"
#include "device/index_fault_cuda.h"
#include "tests/support/gpu.h"

namespace spillway::test::gpu_queue_cuda_test {
namespace {

constexpr i64 kBytes = 4096;

// Holds up a GPU queue until `opened` is set, but no longer than 20 s, so that a deadlock ends in a failed test.
struct Gate {
  void hold(const GpuQueue& queue) {
    cuda_check(
        cudaLaunchHostFunc(
            queue.handle(), [](void* gate) { static_cast<Gate*>(gate)->opened.get_future().wait_for(std::chrono::seconds(20)); }, this),
        "cudaLaunchHostFunc");
  }
  std::promise<void> opened;
};

class GpuQueues : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    queue_.emplace(Device::cuda(0));
    on_gpu_ = gpu().pool().allocate(kBytes, "test");
    from_ = host_.allocate(kBytes, "test"), to_ = host_.allocate(kBytes, "test");
    std::fill_n(from_.data(), kBytes, std::byte{7});
    std::fill_n(to_.data(), kBytes, std::byte{1});
  }
  bool has_come() const { return std::equal(to_.data(), to_.data() + kBytes, from_.data()); }

  MemoryPool host_{"host", kMiB, "", pinned_memory()};
  std::optional<GpuQueue> queue_;
  Allocation on_gpu_, from_, to_;
};

// Kernels leave such notes; see tests/kernels.
TEST_F(GpuQueues, AnIndexThatAKernelFoundOutsideIsAnErrorOfTheNextWaitAlone) {
  const auto expect_error = [](const auto& wait) {
    *index_fault(0) = {IndexFault::kWritten, 7, 5, "gather"};
    try {
      wait();
      FAIL() << "expected an error";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::data);
      EXPECT_TRUE(std::string(e.what()).starts_with("[gather] expected an index in [0, 5), got 7 (a kernel of cuda:0")) << e.what();
    }
    EXPECT_NO_THROW(wait());
  };
  expect_error([&] { queue_->wait(); });
  const Event moment = queue_->moment();
  expect_error([&] { moment.wait(); });
}

TEST_F(GpuQueues, AMomentHasComeWhenAllBeforeItIsDone) {
  Gate gate;
  gate.hold(*queue_);
  queue_->copy(on_gpu_.data(), from_.data(), kBytes);
  queue_->copy(to_.data(), on_gpu_.data(), kBytes);
  const Event moment = queue_->moment();
  EXPECT_FALSE(moment.ready());
  EXPECT_FALSE(has_come());
  gate.opened.set_value();
  moment.wait();
  EXPECT_TRUE(moment.ready());
  EXPECT_TRUE(has_come());
  const Event again = Event::all({queue_->moment(), moment});
  again.wait();
  EXPECT_TRUE(again.ready());
}

TEST_F(GpuQueues, WhatFollowsAnotherWaitsForIt) {
  const GpuQueue other(Device::cuda(0));
  Gate gate;
  gate.hold(*queue_);
  queue_->copy(on_gpu_.data(), from_.data(), kBytes);
  other.follow(*queue_);
  other.copy(to_.data(), on_gpu_.data(), kBytes);
  const Event come = other.moment();
  EXPECT_FALSE(come.ready());
  gate.opened.set_value();
  come.wait();
  EXPECT_TRUE(has_come());
}

TEST_F(GpuQueues, WaitsAreCountedThatFindWorkAndCopiesOfPageableMemory) {
  queue_->wait();
  const i64 before = gpu_waits();
  queue_->wait();
  queue_->moment().wait();
  EXPECT_LE(gpu_waits() - before, 1) << "the moment alone may not have come yet";
  const i64 idle = gpu_waits();
  Gate gate;
  gate.hold(*queue_);
  queue_->copy(on_gpu_.data(), from_.data(), kBytes);
  EXPECT_EQ(gpu_waits(), idle);
  std::future<void> opens = std::async(std::launch::async, [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    gate.opened.set_value();
  });
  queue_->wait();
  EXPECT_EQ(gpu_waits(), idle + 1);
  opens.get();
  std::vector<std::byte> pageable(kBytes);
  queue_->copy(pageable.data(), on_gpu_.data(), kBytes);
  EXPECT_EQ(gpu_waits(), idle + 2);
  queue_->wait();
  EXPECT_EQ(pageable[kBytes - 1], std::byte{7});
}

}  // namespace
}  // namespace spillway::test::gpu_queue_cuda_test
