// Tests the order of instructions on a GPU's lanes (one CUDA stream each): work that is only queued waits on the GPU for
// the instructions that it comes after, work of the CPU waits for them on the CPU, and nothing else waits.
#include "parallel/device/gpu_lanes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <future>
#include <thread>

#include "device/cuda_handle.h"
#include "device/memory_pool.h"
#include "device/transfer.h"
#include "tests/support/gpu.h"

namespace spillway::test::gpu_lanes_cuda_test {
namespace {

using parallel::Lane;
using parallel::List;
using parallel::Timing;

constexpr i64 kBytes = 4096;

// Holds up a GPU queue until the gate is opened. It opens after 20 s, so that a test that would otherwise wait forever fails.
struct Gate {
  void hold(const GpuQueue& queue) {
    cuda_check(cudaLaunchHostFunc(
                   queue.handle(), [](void* gate) { static_cast<Gate*>(gate)->pass(); }, this),
               "cudaLaunchHostFunc");
  }
  void pass() { in_time = opened.get_future().wait_for(std::chrono::seconds(20)) == std::future_status::ready; }
  void open() {
    is_open = true;
    opened.set_value();
  }
  std::promise<void> opened;
  std::atomic<bool> is_open = false, in_time = false;
};

// Runs two instructions on two CUDA streams. One copies sevens to the GPU when the gate is opened; the other copies back what it finds.
class GpuLaneOrder : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    const Stream work{.device = Device::cuda(0), .memory = &gpu().pool()};
    lanes_.emplace(work, [this](const parallel::Instruction& i) { return i.lane == Lane::load || second_is_queued_; });
    there_ = gpu().pool().allocate(kBytes, "test");
    sevens_ = pinned_.allocate(kBytes, "test"), got_ = pinned_.allocate(kBytes, "test");
    std::memset(sevens_.data(), 7, kBytes), std::memset(got_.data(), 1, kBytes);
    gpu().run([&] { fill_zeros(there_.data(), kBytes); });
  }
  void begin(bool in_order) {
    list_[0].lane = Lane::load, list_[1].lane = Lane::compute;
    if (in_order) list_[1].after = {0};
    lanes_->begin(list_);
    lanes_->perform(list_[0], [&] {
      gate_.hold(*lanes_->queue(Lane::load));
      lanes_->queue(Lane::load)->copy(there_.data(), sevens_.data(), kBytes);
      return 0.0;
    });
  }
  void second(bool queued) {
    second_is_queued_ = queued;
    lanes_->perform(list_[1], [&] {
      began_open_ = gate_.is_open;
      lanes_->queue(Lane::compute)->copy(got_.data(), there_.data(), kBytes);
      return 0.0;
    });
  }
  void end() {
    lanes_->end(timings_);
    EXPECT_TRUE(gate_.in_time);
  }

  bool all_got(int value) const {
    return std::all_of(got_.data(), got_.data() + kBytes, [&](std::byte b) { return b == static_cast<std::byte>(value); });
  }

  MemoryPool pinned_{"host", kMiB, "", pinned_memory()};  // the pool is page-locked, since copies of other memory would block the CPU
  std::optional<parallel::GpuLanes> lanes_;
  Gate gate_;
  Allocation there_, sevens_, got_;
  List list_ = List(2);
  std::vector<Timing> timings_ = std::vector<Timing>(2);
  bool second_is_queued_ = false, began_open_ = false;
};

TEST_F(GpuLaneOrder, QueuedWorkWaitsOnTheGpuAndNotOnTheCpu) {
  begin(true);
  second(true);
  EXPECT_FALSE(began_open_) << "the CPU did not wait";
  gate_.open();
  end();
  EXPECT_TRUE(all_got(7));
  EXPECT_GE(timings_[0].end_us, timings_[0].start_us);
  EXPECT_GE(timings_[1].start_us, timings_[0].end_us - 1000) << "when it ran, not when it was queued; events keep time coarsely";
}

// Plants the fault that the event guards against: a second instruction that waits for nothing overtakes the first.
TEST_F(GpuLaneOrder, WhatComesAfterNothingDoesNotWait) {
  begin(false);
  second(true);
  lanes_->queue(Lane::compute)->wait();
  gate_.open();
  end();
  EXPECT_TRUE(all_got(0));
}

TEST_F(GpuLaneOrder, WhatTheCpuDoesWaitsAndIsDoneWhenItReturns) {
  begin(true);
  std::thread opens([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    gate_.open();
  });
  second(false);
  EXPECT_TRUE(began_open_);
  EXPECT_TRUE(all_got(7));
  opens.join();
  end();
}

}  // namespace
}  // namespace spillway::test::gpu_lanes_cuda_test
