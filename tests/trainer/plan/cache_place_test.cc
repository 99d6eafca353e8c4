// Tests where a plan puts the key/value cache: on the device if it fits there, otherwise in host memory. No GPU is needed.
#include <gtest/gtest.h>

#include "models/model.h"
#include "models/presets.h"
#include "trainer/plan/choice.h"
#include "trainer/plan/cost_model.h"
#include "trainer/plan/planner.h"
#include "trainer/settings/placement_settings.h"

namespace spillway::trainer::cache_place_test {
namespace {

using parallel::Plan;
using parallel::Tier;

class CachePlace : public testing::TestWithParam<Device::Kind> {
 protected:
  CachePlace() : model_(models::build(models::preset("llama-tiny"), DType::bf16)) {
    request_.model = &model_;
    request_.layout = parallel::make_layout(model_);
    request_.training = false;
    request_.sequence_length = 16;
    request_.cache_positions = 16384;
    request_.scheduling.format = optim::plain_format(DType::bf16);
    request_.device = GetParam();
    request_.scheduling.copy_engines = GetParam() == Device::Kind::cuda;
    wishes_.parameters = PlacementWish::whole(Tier::device);
    rates_ = make_rates({}, GetParam(), DType::bf16, {}, {});
    rates_.threads = 2;
  }
  ChosenPlan chosen(i64 device_bytes, i64 host_bytes) const {
    return choose_plan(request_, wishes_, {.bytes = {device_bytes, host_bytes, 0}}, rates_);
  }

  nn::Sequential model_;
  parallel::PlanRequest request_;
  PlacementSettings wishes_;
  Rates rates_;
};

TEST_P(CachePlace, IsTheDeviceWhileThereIsRoom) {
  const ChosenPlan roomy = chosen(kGiB, kGiB);
  const i64 cache = roomy.plan.cache_bytes;
  ASSERT_GT(cache, 0);
  EXPECT_EQ(roomy.plan.placement.cache, Tier::device);
  EXPECT_EQ(chosen(roomy.plan.total[0], kGiB).plan.placement.cache, Tier::device);

  EXPECT_EQ(chosen(kGiB, roomy.plan.total[1]).plan.placement.cache, Tier::device) << "the host has no room for it";

  const ChosenPlan tight = chosen(roomy.plan.total[0] - 1, kGiB);
  EXPECT_EQ(tight.plan.placement.cache, Tier::host);
  EXPECT_GE(tight.plan.total[1], cache);
  EXPECT_LT(tight.plan.total[0], roomy.plan.total[0]);
  EXPECT_NE(tight.why.end(),
            std::ranges::find_if(tight.why, [](const std::string& line) { return line.starts_with("key/value cache: in host memory, "); }));
  EXPECT_EQ(chosen(tight.plan.total[0], tight.plan.total[1]).plan.placement.cache, Tier::host);
  EXPECT_THROW(chosen(tight.plan.total[0], cache - 1), Error) << "nowhere";

  parallel::PlanRequest other = request_;
  Shares shares{};
  apply_choice(parse_choice(to_text(choice_of(tight.plan, {}))), other, shares);
  EXPECT_EQ(other.placement.cache, Tier::host) << "what other ranks are told";
}

INSTANTIATE_TEST_SUITE_P(Devices, CachePlace, testing::Values(Device::Kind::cpu, Device::Kind::cuda),
                         [](const auto& entry) { return entry.param == Device::Kind::cuda ? "gpu" : "cpu"; });

}  // namespace
}  // namespace spillway::trainer::cache_place_test
