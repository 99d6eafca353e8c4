// Tests the predicted time and memory of a plan. The prediction for a pipeline simulates the plans of all ranks; these plans are tested
// too.
#include "trainer/plan/prediction.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "models/model.h"
#include "models/presets.h"
#include "trainer/plan/stage_plans.h"

namespace spillway::trainer::prediction_test {
namespace {

using parallel::Tier;

struct PredictionTest : testing::Test {
  const nn::Sequential model = models::build(models::preset("gpt2-tiny"), DType::f32);
  parallel::PlanRequest request;

  PredictionTest() {
    request.model = &model;
    request.layout = parallel::make_layout(model);
    request.sequence_length = 32;
    request.scheduling.micro_batches = 2;
    request.placement = parallel::Placement::uniform(request.layout, Tier::host, Tier::host, Tier::host);
  }
};

TEST_F(PredictionTest, AKindOfStepIsSimulatedOnce) {
  const parallel::Plan plan = make_plan(request);
  Prediction prediction(plan, request, {}, 1);
  const StepCost& cost = prediction.step(plan.train);
  EXPECT_DOUBLE_EQ(cost.seconds, predict(plan, {}, model, Rates()).seconds);
  EXPECT_EQ(&prediction.step(plan.train), &cost);
  EXPECT_DOUBLE_EQ(prediction.step(plan.train, plan.train.head, plan.train.skip).seconds,
                   predict(plan, {.tail = &parallel::Program::skip}, model, Rates()).seconds);
}

TEST_F(PredictionTest, TheProcessHoldsItsRanksOrWhatTimingTook) {
  const parallel::Plan plan = make_plan(request);
  const i64 planned = plan.total[0] + plan.total[1] - plan.queue_buffers * plan.queue_buffer_bytes;
  const auto bytes = [&](const NodeRates& node, int ranks) { return Prediction(plan, request, node, ranks).process_bytes(); };
  const i64 of_rank = bytes({.process_bytes = 1000}, 1) - 1000;
  EXPECT_GE(of_rank, planned);
  EXPECT_LE(of_rank, planned + 4 * kMiB) << "threads, and code";
  EXPECT_EQ(bytes({.process_bytes = 1000}, 3), 1000 + 3 * of_rank);
  EXPECT_EQ(bytes({.process_bytes = 1000, .peak_bytes = of_rank + 1005}, 1), 1000 + of_rank + 5);
}

// A small model uses no more tiles of a large staging ring (buffers for disk I/O) than it has itself, so the process stays small.
TEST_F(PredictionTest, OfALargeRingASmallModelTouchesLittle) {
  request.placement = parallel::Placement::uniform(request.layout, Tier::nvme, Tier::nvme, Tier::nvme);
  const i64 few = Prediction(make_plan(request), request, {}, 1).process_bytes();
  request.staging_buffers = 200;
  const parallel::Plan plan = make_plan(request);
  EXPECT_GT(plan.total[1], 300 * kMiB);
  EXPECT_LT(Prediction(plan, request, {}, 1).process_bytes(), few + 64 * kMiB);
}

TEST_F(PredictionTest, SaysWhatItIsDoubtfulOf) {
  const parallel::Plan plan = make_plan(request);
  const std::string text = Prediction(plan, request, {.doubts = "; blocks are guessed"}, 1).text();
  EXPECT_TRUE(text.starts_with("predicted: ")) << text;
  EXPECT_NE(text.find(" a step, bound by "), std::string::npos) << text;
  EXPECT_NE(text.find("; computing takes "), std::string::npos) << text;
  EXPECT_NE(text.find("; the process takes about "), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with("; blocks are guessed")) << text;
}

TEST_F(PredictionTest, SaysWhatShareOfAStepTheGpuComputes) {
  request.device = Device::Kind::cuda;
  request.scheduling.copy_engines = true;
  const parallel::Plan plan = make_plan(request);
  Rates rates = make_rates({}, Device::Kind::cuda, DType::f32, {}, {});
  const double copying_s = predict(plan, {}, model, rates).seconds;
  rates.blocks.assign(plan.layout.blocks.size(),
                      {.forward = 1e3 * copying_s, .backward = 1e3 * copying_s, .backward_more = 1e3 * copying_s});
  const std::string busy = Prediction(plan, request, {.rates = rates}, 1).text();
  EXPECT_NE(busy.find("; the GPU computes 100 % of the step; "), std::string::npos) << busy;
  rates.blocks.assign(plan.layout.blocks.size(), {.forward = 1e-12, .backward = 1e-12, .backward_more = 1e-12});
  rates.unit.gpu_norm_s = rates.unit.gpu_sweep_s = 0;
  const std::string idle = Prediction(plan, request, {.rates = rates}, 1).text();
  EXPECT_NE(idle.find("; the GPU computes 0 % of the step; "), std::string::npos) << idle;
}

TEST_F(PredictionTest, RanksOfAPipelineWaitForEachOther) {
  request.scheduling.pipeline = {.rank = 1, .ranks = 2};
  const parallel::Plan plan = make_plan(request);
  const std::vector<parallel::Plan> stages = plans_of_stages(request, plan);
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_EQ(stages[1].total, plan.total);
  EXPECT_EQ(stages[0].scheduling.pipeline.rank, 0);
  Prediction prediction(plan, request, {}, 1);
  EXPECT_DOUBLE_EQ(prediction.step(plan.train).seconds, predict_together(stages, 1, {}, model, Rates()).seconds);
}

TEST_F(PredictionTest, ProgramsOfOnePlanMeetAndThoseOfTwoDoNot) {
  request.scheduling.pipeline = {.rank = 0, .ranks = 2};
  request.scheduling.sharding = {.stage = 1, .rank = 0, .ranks = 2};
  std::vector<parallel::Plan> stages = plans_of_stages(request, make_plan(request));
  check_meetings(stages);
  request.scheduling.micro_batches = 3;
  stages[0] = make_plan(request);
  EXPECT_THROW(check_meetings(stages), Error);
}

}  // namespace
}  // namespace spillway::trainer::prediction_test
