// What a chosen plan is expected to take, and the plans of a pipeline's ranks that it is simulated with.
#include "app/plan/prediction.h"

#include <gtest/gtest.h>

#include "app/plan/stage_plans.h"
#include "base/error.h"
#include "models/model.h"
#include "models/presets.h"

namespace spillway::app::prediction_test {
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
  const StepCost& cost = prediction.step(plan.train, plan.train.commit);
  EXPECT_DOUBLE_EQ(cost.seconds, predict(plan, {}, model, Rates()).seconds);
  EXPECT_EQ(&prediction.step(plan.train, plan.train.commit), &cost);
  EXPECT_DOUBLE_EQ(prediction.step(plan.train, plan.train.skip).seconds,
                   predict(plan, {.tail = &parallel::Program::skip}, model, Rates()).seconds);
}

TEST_F(PredictionTest, TheProcessHoldsItsRanksOrWhatTimingTook) {
  const parallel::Plan plan = make_plan(request);
  const i64 of_rank = plan.total[0] + plan.total[1];
  EXPECT_EQ(Prediction(plan, request, {.process_bytes = 1000}, 1).process_bytes(), 1000 + of_rank);
  EXPECT_EQ(Prediction(plan, request, {.process_bytes = 1000}, 3).process_bytes(), 1000 + 3 * of_rank);
  EXPECT_EQ(Prediction(plan, request, {.process_bytes = 1000, .probe_bytes = of_rank + 5}, 1).process_bytes(), 1000 + of_rank + 5);
}

TEST_F(PredictionTest, SaysWhatItIsDoubtfulOf) {
  const parallel::Plan plan = make_plan(request);
  const std::string text = Prediction(plan, request, {.doubts = "; blocks are guessed"}, 1).text();
  EXPECT_TRUE(text.starts_with("predicted: ")) << text;
  EXPECT_NE(text.find(" a step, bound by "), std::string::npos) << text;
  EXPECT_NE(text.find("; the process about "), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with("; blocks are guessed")) << text;
}

TEST_F(PredictionTest, RanksOfAPipelineWaitForEachOther) {
  request.scheduling.pipeline = {.rank = 1, .ranks = 2};
  const parallel::Plan plan = make_plan(request);
  const std::vector<parallel::Plan> stages = plans_of_stages(request, plan);
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_EQ(stages[1].total, plan.total);
  EXPECT_EQ(stages[0].scheduling.pipeline.rank, 0);
  Prediction prediction(plan, request, {}, 1);
  EXPECT_DOUBLE_EQ(prediction.step(plan.train, plan.train.commit).seconds, predict_together(stages, 1, {}, model, Rates()).seconds);
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
}  // namespace spillway::app::prediction_test
