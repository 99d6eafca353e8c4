// Provides the training state of a small model stored in host memory or on nvme beside a GPU, without a rank that
// trains it, and a gate that holds up a GPU queue. Only *cuda_test.cc files include this header.
#pragma once
#include <atomic>
#include <future>

#include "device/cuda_handle.h"
#include "models/model.h"
#include "tests/parallel/device/support_gpu_run.h"
#include "tests/support/faulty_engine.h"

namespace spillway::test {

/// Holds up a GPU queue until the gate is opened. It opens after 20 s, so that a test that would otherwise wait forever fails.
class GpuGate {
 public:
  void hold(const GpuQueue& queue) {
    cuda_check(cudaLaunchHostFunc(
                   queue.handle(), [](void* gate) { static_cast<GpuGate*>(gate)->pass(); }, this),
               "cudaLaunchHostFunc");
  }
  void open() { opened_.set_value(); }
  /// Returns true if open() was called before the gate gave up. Valid once the queue has passed the gate.
  bool was_opened_in_time() const { return in_time_; }

 private:
  void pass() { in_time_ = opened_.get_future().wait_for(std::chrono::seconds(20)) == std::future_status::ready; }
  std::promise<void> opened_;
  std::atomic<bool> in_time_ = false;
};

class GpuState {
 public:
  static constexpr i64 kMoreBytes = 16 * kMiB;  // extra bytes in each memory pool, for allocations of the test itself

  explicit GpuState(const RunOptions& o, const std::function<void(parallel::Plan&)>& change = {})
      : model_(models::build(o.model, o.dtype)), plan_(planned(model_, o, change)) {
    std::filesystem::create_directory(folder_.path() / "0");
    parallel::Resources resources{&device_, &host_, nullptr, &engine_, {{folder_.path() / "0", 1}}, "test"};
    state_.emplace(plan_, resources);
  }
  const parallel::Plan& plan() const { return plan_; }
  parallel::ModelState& state() { return *state_; }
  FaultySystem& disk() { return engine_.system(); }
  MemoryPool& device() { return device_; }
  MemoryPool& host() { return host_; }
  /// Returns the group with the most elements.
  const parallel::Group& largest() const {
    return *std::ranges::max_element(plan_.layout.groups, {}, [](const parallel::Group& g) { return g.elems; });
  }

 private:
  static parallel::Plan planned(const nn::Sequential& model, const RunOptions& o, const std::function<void(parallel::Plan&)>& change) {
    parallel::Plan plan = make_plan(plan_request(model, o));
    if (change) change(plan);
    return plan;
  }
  const nn::Sequential model_;
  const parallel::Plan plan_;
  MemoryPool device_{"device", plan_.total[0] + kMoreBytes, "", gpu_memory(0, plan_.total[0] + kMoreBytes)};
  MemoryPool host_{"host", plan_.total[1] + kMoreBytes, "", pinned_memory()};
  FaultyEngine engine_;
  const TemporaryFolder folder_;
  std::optional<parallel::ModelState> state_;
};

}  // namespace spillway::test
