// Tests failures of a disk and of a GPU's copies in the middle of a step whose activations travel, or whose optimizer updates stream
// through the GPU. The step throws an error that names what failed, nothing hangs, and a restart goes on from the last commit with bitwise
// the same results.
#include "base/error.h"
#include "device/cuda_handle.h"
#include "models/model.h"
#include "tests/parallel/device/support_gpu_run.h"
#include "tests/support/faulty_engine.h"

namespace spillway::test::gpu_faults_cuda_test {
namespace {

using parallel::Tier;

RunOptions spilling(Tier activations) {
  RunOptions o = small_gpu_run("gpt2-tiny");
  o.parameters = o.gradients = o.optimizer = Tier::nvme;
  o.activations = activations;
  o.order = parallel::Order::vertical;
  o.model.layers = 1;
  o.sequence_length = 4;
  return o;
}

// A rank whose store lies in a folder that outlives it, as after the death of a process.
class Trained {
 public:
  Trained(const RunOptions& o, const std::filesystem::path& folder) : o_(o), model_(models::build(o.model, o.dtype)) {
    plan_ = make_plan(plan_request(model_, o));
    device_.emplace("device", plan_.total[0], "", gpu_memory(0, plan_.total[0]));
    host_.emplace("host", plan_.total[1], "", pinned_memory());
    parallel::Resources resources{&*device_, &*host_, &threads_, &engine_, {{folder, 1}}, "test"};
    rank_.emplace(model_, plan_, resources);
    if (rank_->state().recovered()) {
      step_ = std::stol(*rank_->state().recovered());
    } else {
      rank_->load([](const nn::Parameter& p, i64 begin, std::span<double> out) { nn::initial_values(p, 1, begin, out); });
      rank_->state().commit(rank_->state().generation(), "0");
    }
  }
  void step() {
    parallel::StepSettings settings = step_settings(o_, step_);
    settings.record = [&](const parallel::StepResult&) { return std::to_string(step_ + 1); };
    rank_->train_step([&] { return random_batch(o_, step_); }, settings);
    ++step_;
  }
  std::vector<std::vector<double>> weights_at_end() {
    while (step_ < o_.steps) step();
    rank_->settle();
    return read_values(model_, plan_, rank_->state());
  }
  i64 steps_done() const { return step_; }
  const parallel::Plan& plan() const { return plan_; }
  FaultySystem& disk() { return engine_.system(); }

 private:
  const RunOptions o_;
  const nn::Sequential model_;
  parallel::Plan plan_;
  std::optional<MemoryPool> device_, host_;
  ThreadPool threads_{1};
  FaultyEngine engine_;
  std::optional<parallel::Rank> rank_;
  i64 step_ = 0;
};

std::string error_of(const std::function<void()>& body, ErrorCode code) {
  try {
    body();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.what();
  }
  return "";
}

std::vector<std::vector<double>> undisturbed(const RunOptions& o) {
  const TemporaryFolder folder;
  return Trained(o, folder.path()).weights_at_end();
}

class GpuFaults : public GpuRuns {
 protected:
  // Makes one step, lets `plant` plant a fault in the second, and expects an error that `says` so, and a restart from the commit of the
  // first step.
  static void expect_restart(const RunOptions& o, const std::function<void(Trained&)>& plant, const std::string& says) {
    static const std::vector<std::vector<double>> want = undisturbed(o);
    const TemporaryFolder folder;
    {
      Trained run(o, folder.path());
      run.step();
      plant(run);
      const std::string said = error_of([&] { run.step(); }, ErrorCode::io);
      EXPECT_NE(said.find(says), std::string::npos) << "got \"" << said << "\", expected " << says;
    }
#ifdef __CUDA_EMULATED__
    emulated_cuda::forget_contexts();  // a failed copy makes a GPU unusable for the process
#endif
    Trained again(o, folder.path());
    EXPECT_EQ(again.steps_done(), 1);
    EXPECT_EQ(again.weights_at_end(), want);
  }
};

// The order of transfers on the disk varies from step to step, so faults are planted all over the step: some of them meet a Fetch or an
// Evict of activations, others weights, gradients or the optimizer's updates.
TEST_F(GpuFaults, OfTheDiskEndTheStepAndARestartGoesOn) {
  for (const bool streams : {false, true}) {
    RunOptions o = spilling(Tier::nvme);
    o.streams_steps = streams;
    i64 each = 0;
    {
      const TemporaryFolder folder;
      Trained run(o, folder.path());
      const i64 before = run.disk().transfers;
      run.step();
      each = run.disk().transfers - before;
    }
    constexpr i64 kPlaces = 4;
    for (i64 part = 0; part < kPlaces; ++part) {
      SCOPED_TRACE(testing::Message() << "streams " << streams << ", transfer " << each * part / kPlaces << " of " << each);
      expect_restart(
          o, [&](Trained& run) { run.disk().fail_at = run.disk().transfers + each * part / kPlaces; }, "/tiles");
    }
  }
}

#ifdef __CUDA_EMULATED__
// Plants failures of the copies of a step whose activations travel to host memory.
TEST_F(GpuFaults, OfACopyEndTheStepAndARestartGoesOn) {
  RunOptions o = spilling(Tier::host);
  for (const int nth : {3, 20}) {
    SCOPED_TRACE(nth);
    expect_restart(
        o, [&](Trained&) { emulated_cuda::fail("cudaMemcpyAsync", nth, cudaErrorLaunchFailure); }, "cuda");
  }
}
#endif

}  // namespace
}  // namespace spillway::test::gpu_faults_cuda_test
