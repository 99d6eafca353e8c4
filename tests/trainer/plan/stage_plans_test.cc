// Checks that all ranks of a pipeline agree on the collectives of every Program (a rank's list of instructions), not only of the Programs
// for training.
#include "trainer/plan/stage_plans.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "models/model.h"
#include "models/presets.h"

namespace spillway::trainer::stage_plans_test {
namespace {

using parallel::Plan;
using parallel::Tier;

struct StagePlans : testing::Test {
  const nn::Sequential model = models::build(models::preset("gpt2-tiny"), DType::f32);
  parallel::PlanRequest request;

  StagePlans() {
    request.model = &model;
    request.layout = parallel::make_layout(model);
    request.sequence_length = 32;
    request.scheduling.micro_batches = 2;
    request.scheduling.pipeline = {.rank = 0, .ranks = 2};
    request.scheduling.sharding = {.stage = 1, .rank = 0, .ranks = 2};
    request.adaptive_overlap = true;
    request.placement = parallel::Placement::uniform(request.layout, Tier::host, Tier::host, Tier::host);
  }
  std::vector<Plan> stages() const { return plans_of_stages(request, make_plan(request)); }
};

TEST_F(StagePlans, OneForwardProgramOfAnotherLengthIsFound) {
  std::vector<Plan> all = stages();
  check_meetings(all);
  request.sequence_length = 16;
  all[0].forward = make_plan(request).forward;
  EXPECT_THROW(check_meetings(all), Error);
}

TEST_F(StagePlans, OneClippedProgramOfOtherMicroBatchesIsFound) {
  std::vector<Plan> all = stages();
  ASSERT_TRUE(all[0].train_when_clipping);
  request.scheduling.micro_batches = 3;
  all[0].train_when_clipping = make_plan(request).train_when_clipping;
  EXPECT_THROW(check_meetings(all), Error);
}

}  // namespace
}  // namespace spillway::trainer::stage_plans_test
