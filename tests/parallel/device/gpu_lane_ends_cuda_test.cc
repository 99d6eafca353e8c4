// Tests instructions that the CPU performs in part but whose end is queued on a CUDA stream. Only instructions that
// come after such an end wait for it, and each waits where it runs: on the GPU or on the CPU.
#include <gtest/gtest.h>

#include <thread>

#include "device/transfer.h"
#include "parallel/device/gpu_lanes.h"
#include "tests/parallel/device/support_gpu_state.h"
#include "tests/support/gpu.h"

namespace spillway::test::gpu_lane_ends_cuda_test {
namespace {

using parallel::Lane;
using parallel::List;
using parallel::Op;

constexpr i64 kBytes = 4096;

// Runs two instructions. The first queues a copy of sevens to the GPU, which runs when the gate
// is opened. The second copies back what it finds there, so it must find sevens.
class GpuLaneEnds : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    const Stream work{.device = Device::cuda(0), .memory = &gpu().pool()};
    lanes_.emplace(
        work, [this](const parallel::Instruction& i) { return i.lane == Lane::compute && second_is_queued_; },
        [](const parallel::Instruction& i) { return i.lane == Lane::optimizer || i.op == Op::Fetch; });
    there_ = gpu().pool().allocate(kBytes, "test");
    sevens_ = host_.allocate(kBytes, "test"), got_ = host_.allocate(kBytes, "test");
    std::fill_n(sevens_.data(), kBytes, std::byte{7});
    gpu().run([&] { fill_zeros(there_.data(), kBytes); });
  }
  void first() {
    list_[0].lane = Lane::optimizer, list_[0].op = Op::Step;
    list_[1].after = {0};
    lanes_->begin(list_);
    lanes_->perform(list_[0], [&] {
      gate_.hold(*lanes_->queue(Lane::optimizer));
      lanes_->queue(Lane::optimizer)->copy(there_.data(), sevens_.data(), kBytes);
      return 0.0;
    });
  }
  void second(Lane lane, Op op, bool queued) {
    list_[1].lane = lane, list_[1].op = op, second_is_queued_ = queued;
    lanes_->perform(list_[1], [&] {
      began_open_ = is_open_;
      lanes_->queue(lane)->copy(got_.data(), there_.data(), kBytes);
      return 0.0;
    });
  }
  void open() {
    is_open_ = true;
    gate_.open();
  }
  void end() {
    std::vector<parallel::Timing> timings(2);
    lanes_->end(timings);
    EXPECT_TRUE(gate_.was_opened_in_time());
    EXPECT_TRUE(std::equal(got_.data(), got_.data() + kBytes, sevens_.data()));
    EXPECT_GE(timings[0].end_us, timings[0].start_us);
    if (list_[1].op == Op::Evict) return;  // the times of an Evict are measured by the executor, not by GpuLanes
    EXPECT_GE(timings[1].end_us, timings[0].end_us - 1000) << "when its end has come; events keep time coarsely";
  }

  MemoryPool host_{"host", kMiB, "", pinned_memory()};
  std::optional<parallel::GpuLanes> lanes_;
  GpuGate gate_;
  Allocation there_, sevens_, got_;
  List list_ = List(2);
  std::atomic<bool> is_open_ = false;
  bool second_is_queued_ = false, began_open_ = false;
};

TEST_F(GpuLaneEnds, QueuedWorkWaitsForTheEndOnTheGpu) {
  first();
  second(Lane::compute, Op::Forward, true);
  EXPECT_FALSE(began_open_);
  open();
  end();
}

TEST_F(GpuLaneEnds, AFetchsCpuPartRunsBeforeWhatItsCopiesComeAfter) {
  first();
  second(Lane::load, Op::Fetch, false);
  EXPECT_FALSE(began_open_);
  open();
  end();
}

TEST_F(GpuLaneEnds, WhatTheCpuDoesWaitsForTheEnd) {
  first();
  std::thread opens([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    open();
  });
  second(Lane::store, Op::Evict, false);
  EXPECT_TRUE(began_open_);
  opens.join();
  end();
}

// Shows that an optimizer update (Op::Step) waits for the end of an earlier instruction even on its own CUDA stream, because the CPU part
// of the update reads that instruction's result.
TEST_F(GpuLaneEnds, SoDoesAnotherStep) {
  first();
  std::thread opens([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    open();
  });
  second(Lane::optimizer, Op::Step, false);
  EXPECT_TRUE(began_open_);
  opens.join();
  end();
}

}  // namespace
}  // namespace spillway::test::gpu_lane_ends_cuda_test
