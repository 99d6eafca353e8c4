// Tests whether an optimizer update (Op::Step) runs on the GPU. The plan's answer, which the cost model uses to estimate the time of an
// update, must agree with the Stepper's answer and with where the bytes reside.
#include <gtest/gtest.h>

#include "models/model.h"
#include "offload/io_engine.h"
#include "parallel/state/stepper.h"
#include "tests/parallel/device/support_gpu_run.h"

namespace spillway::test::step_place_cuda_test {
namespace {

using parallel::Instruction;
using parallel::ModelState;
using parallel::Tier;

class StepPlaces : public GpuRuns {};

TEST_F(StepPlaces, ThePlanTheStepperAndTheBytesAgree) {
  constexpr Tier kTiers[] = {Tier::device, Tier::host, Tier::nvme};
  RunOptions o = small_gpu_run("gpt2-tiny");
  o.model.layers = 1;
  const nn::Sequential model = models::build(o.model, o.dtype);
  int by_gpu = 0, by_cpu = 0, streamed = 0;
  for (int n = 0; n < 54; ++n) {
    o.parameters = kTiers[n % 3], o.gradients = kTiers[n / 3 % 3], o.optimizer = kTiers[n / 9 % 3];
    o.ranks = n < 27 ? 1 : 2, o.zero_stage = n < 27 ? 0 : 1 + n % 3;
    o.micro_batches = 1 + n % 2;
    o.streams_steps = n / 2 % 2 == 1;
    const parallel::Plan plan = make_plan(plan_request(model, o));
    const TemporaryFolder folder;
    MemoryPool device("device", plan.total[0], "", gpu_memory(0, plan.total[0])), host("host", plan.total[1] + kMiB, "", pinned_memory());
    ThreadPool threads(1);
    const auto engine = offload::make_io_engine(offload::IoEngineKind::pread).engine;
    parallel::Resources resources{&device, &host, &threads, engine.get(), {{folder.path(), 1}}, "test"};
    ModelState state(plan, resources);
    const parallel::Stepper stepper(plan, state);
    for (const parallel::List* list : {&plan.train.head, &plan.train.commit}) {
      for (const Instruction& i : *list) {
        if (i.op != parallel::Op::Step) continue;
        const bool given = i.in.bytes > 0;
        const bool there =
            state.weights(i.group).on_gpu() && state.optimizer(i.group)->on_gpu() && (given || state.gradients(i.group, 0).on_gpu());
        EXPECT_EQ(plan.steps_on_gpu(i.group, given), there) << n;
        EXPECT_EQ(stepper.only_queues(plan.layout.buckets[i.bucket], given), there) << n;
        (there ? by_gpu : by_cpu) += 1;
        EXPECT_EQ(plan.streams_step(i.group, given), o.streams_steps && !there) << n;
        if (there) continue;
        const bool touches_gpu = o.streams_steps || state.weights(i.group).on_gpu() || state.optimizer(i.group)->on_gpu();
        EXPECT_EQ(stepper.leaves_copies(i.group, given), touches_gpu) << n;
        streamed += o.streams_steps;
      }
    }
  }
  EXPECT_GT(by_gpu, 0);
  EXPECT_GT(by_cpu, by_gpu);
  EXPECT_GT(streamed, 0);
}

}  // namespace
}  // namespace spillway::test::step_place_cuda_test
