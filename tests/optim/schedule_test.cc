#include "optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "tests/optim/support_reference.h"

namespace spillway::optim::schedule_test {
namespace {

using Kind = Schedule::Kind;

// References reach their minimum at t = total (or T_max, decay_steps); ours at the last step, so `steps` is one more. Their own recurrences
// round: 1e-13 of the top rate.
void follows(const std::string& name, const Schedule& schedule, i64 from) {
  const auto expected = test::reference_rates(name);
  ASSERT_GT(expected.size(), 90u);
  for (i64 t = from; t < static_cast<i64>(expected.size()); ++t) {
    EXPECT_NEAR(learning_rate(schedule, t), expected[static_cast<size_t>(t)], 1e-13 * schedule.learning_rate) << name << " step " << t;
  }
}

TEST(Schedule, FollowsReferences) {
  follows("constant", {Kind::constant, 1e-3, 0, 100, 0.1}, 0);
  follows("cosine_annealing", {Kind::cosine, 1e-3, 0, 100, 0.01}, 0);
  follows("warmup_cosine_min_lr", {Kind::cosine, 1e-3, 10, 81, 0.1}, 0);  // our warm-up, and the minimum beyond the end
}

TEST(Schedule, FollowsTransformersAfterItsWarmUp) {  // whose warm-up starts at rate 0
  follows("constant_with_warmup", {Kind::constant, 1e-3, 10, 100, 0.1}, 10);
  follows("warmup_linear", {Kind::linear, 1e-3, 10, 101, 0}, 10);
  follows("warmup_cosine", {Kind::cosine, 1e-3, 10, 101, 0}, 10);
}

TEST(Schedule, EndpointsAreExact) {
  for (Kind kind : {Kind::linear, Kind::cosine}) {
    const Schedule schedule{kind, 3e-4, 7, 50, 0.1};
    for (i64 s = 0; s < 7; ++s) EXPECT_EQ(learning_rate(schedule, s), 3e-4 * static_cast<double>(s + 1) / 8);
    EXPECT_EQ(learning_rate(schedule, 7), 3e-4);
    EXPECT_LT(learning_rate(schedule, 8), 3e-4);
    EXPECT_GT(learning_rate(schedule, 48), 0.1 * 3e-4);
    for (i64 s : {49, 50, 51, 1000000}) EXPECT_EQ(learning_rate(schedule, s), 0.1 * 3e-4);
    for (i64 s = 8; s < 50; ++s) EXPECT_LT(learning_rate(schedule, s), learning_rate(schedule, s - 1));
  }
}

TEST(Schedule, CosineAndLinearMeetInTheMiddle) {
  const double middle = 0.5 * (1e-3 + 1e-4);
  EXPECT_NEAR(learning_rate({Kind::cosine, 1e-3, 10, 31, 0.1}, 20), middle, 1e-18);
  EXPECT_NEAR(learning_rate({Kind::linear, 1e-3, 10, 31, 0.1}, 20), middle, 1e-18);
}

TEST(Schedule, ShortRuns) {
  EXPECT_EQ(learning_rate({Kind::cosine, 1e-3, 0, 1, 0.1}, 0), 1e-3);
  EXPECT_EQ(learning_rate({Kind::cosine, 1e-3, 0, 1, 0.1}, 1), 0.1 * 1e-3);
  EXPECT_EQ(learning_rate({Kind::linear, 1e-3, 0, 2, 0.1}, 1), 0.1 * 1e-3);
  EXPECT_EQ(learning_rate({Kind::linear, 1e-3, 3, 4, 0.1}, 3), 1e-3);
  EXPECT_EQ(learning_rate({Kind::linear, 1e-3, 10, 4, 0.1}, 3), 1e-3 * 4 / 11);  // the run ends within its warm-up
}

TEST(Schedule, ParsesItsNames) {
  EXPECT_EQ(parse_schedule("constant"), Kind::constant);
  EXPECT_EQ(parse_schedule("linear"), Kind::linear);
  EXPECT_EQ(parse_schedule("cosine"), Kind::cosine);
  try {
    parse_schedule("cosin");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    EXPECT_NE(std::string(error.what()).find("cosine"), std::string::npos);
  }
}

}  // namespace
}  // namespace spillway::optim::schedule_test
