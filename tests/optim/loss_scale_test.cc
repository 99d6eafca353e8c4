// Tests that the dynamic loss scale changes as torch.amp.GradScaler changes it (tests/data/optim/loss_scale.json).
#include "optim/loss_scale.h"

#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "tests/support/fixtures.h"

namespace spillway::optim::loss_scale_test {
namespace {

TEST(LossScale, MovesAsGradScalersDoes) {
  std::ifstream file(test::data("optim/loss_scale.json"));
  const nlohmann::json all = nlohmann::json::parse(file);
  int cases = 0, overflows = 0;
  for (const auto& [name, one] : all.items()) {
    if (!one.is_object() || one["growth_factor"] != 2.0 || one["backoff_factor"] != 0.5) continue;
    ++cases;
    LossScale scale{one["init_scale"], 0};
    for (const auto& row : one["rows"]) {
      SCOPED_TRACE(name + " step " + row["step"].dump());
      EXPECT_EQ(scale.scale, row["scale_used"].get<double>());
      overflows += row["overflow"].get<bool>();
      scale = scale.after(!row["overflow"].get<bool>(), one["growth_interval"]);
      EXPECT_EQ(scale.scale, row["scale_after"].get<double>());
      EXPECT_EQ(scale.finite_steps, row["good_steps_after"].get<i64>());
      EXPECT_TRUE(scale.is_valid());
    }
  }
  EXPECT_EQ(cases, 3);
  EXPECT_GE(overflows, 3);
}

TEST(LossScale, StaysAmongTheNumbersOfFp32) {
  LossScale scale{0x1p127, 0};
  scale = scale.after(true, 1);
  EXPECT_EQ(scale, (LossScale{0x1p127, 0}));
  for (int i = 0; i < 20; ++i) scale = scale.after(false);
  EXPECT_EQ(scale.scale, 0x1p107);
  EXPECT_EQ((LossScale{1, 0}.after(false)), (LossScale{0.5, 0})) << "below 1, if nothing else is small enough";
}

TEST(LossScale, IsAPowerOfTwo) {
  for (const double x : {0.25, 1.0, 65536.0}) EXPECT_TRUE((LossScale{x, 3}.is_valid())) << x;
  for (const double x : {0.0, -2.0, 3.0, 1.5, 0x1p128, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()})
    EXPECT_FALSE((LossScale{x, 0}.is_valid())) << x;
  EXPECT_FALSE((LossScale{1, -1}.is_valid()));
}

}  // namespace
}  // namespace spillway::optim::loss_scale_test
