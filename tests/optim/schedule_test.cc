#include "optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "tests/optim/support_reference.h"

namespace spillway::optim::schedule_test {
namespace {

using Kind = Schedule::Kind;

// Compares a schedule with reference rates. References reach their minimum at t = total (or T_max, decay_steps), Spillway's schedules
// at the last step, so `steps` is one more. The references' own recurrences have rounding errors; 1e-13 of the highest rate is allowed.
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
  // The next reference has the same warm-up as Spillway's schedules, and stays at the minimum after its end.
  follows("warmup_cosine_min_lr", {Kind::cosine, 1e-3, 10, 81, 0.1}, 0);
}

TEST(Schedule, FollowsTransformersAfterItsWarmUp) {  // a warm-up of transformers begins at a learning rate of 0
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
  EXPECT_EQ(learning_rate({Kind::linear, 1e-3, 10, 4, 0.1}, 3), 1e-3 * 4 / 11);  // this run ends before its warm-up does
}

TEST(Schedule, PolynomialIsLinearToAPower) {
  for (i64 s = 0; s < 60; ++s) {
    EXPECT_EQ(learning_rate({.kind = Kind::polynomial, .learning_rate = 1e-3, .warmup_steps = 4, .steps = 50}, s),
              learning_rate({Kind::linear, 1e-3, 4, 50, 0.1}, s));
  }
  const Schedule squares{.kind = Kind::polynomial, .learning_rate = 1, .steps = 11, .min_lr_ratio = 0.2, .power = 2};
  for (i64 s = 0; s <= 10; ++s) {
    const double left = 1 - static_cast<double>(s) / 10;
    EXPECT_NEAR(learning_rate(squares, s), 0.2 + 0.8 * left * left, 1e-15);
  }
}

TEST(Schedule, StepFollowsPyTorchFromTheWarmUpOn) {
  follows("step_decay", {.kind = Kind::step, .learning_rate = 1e-3, .step_size = 30, .gamma = 0.1}, 0);
  const Schedule later{.kind = Kind::step, .learning_rate = 1, .warmup_steps = 5, .step_size = 10, .gamma = 0.5};
  EXPECT_EQ(learning_rate(later, 4), 5.0 / 6);
  EXPECT_EQ(learning_rate(later, 14), 1);
  EXPECT_EQ(learning_rate(later, 15), 0.5);
  EXPECT_EQ(learning_rate(later, 25), 0.25);
}

TEST(Schedule, WsdFollowsTransformersAfterItsWarmUp) {
  const Schedule wsd{.kind = Kind::wsd, .learning_rate = 1e-3, .warmup_steps = 10, .steps = 101, .min_lr_ratio = 0.1, .decay_steps = 20};
  follows("wsd_cosine", wsd, 10);
  EXPECT_EQ(learning_rate(wsd, 80), 1e-3);
  EXPECT_LT(learning_rate(wsd, 81), 1e-3);
  EXPECT_EQ(learning_rate(wsd, 100), 1e-4);
  Schedule longer = wsd, cosine = wsd;
  longer.decay_steps = 1000;
  cosine.kind = Kind::cosine;
  for (i64 s = 0; s < 110; ++s) EXPECT_EQ(learning_rate(longer, s), learning_rate(cosine, s)) << "it falls from the warm-up's end on";
}

TEST(Schedule, OneCycleFollowsPyTorch) {
  const Schedule cycle{.kind = Kind::onecycle, .learning_rate = 1e-3, .steps = 100};
  follows("onecycle_cos_2phase", cycle, 0);
  EXPECT_EQ(learning_rate(cycle, 100), learning_rate(cycle, 99)) << "beyond the last step";
  for (const double pct_start : {0.0, 0.01, 0.5, 1.0}) {  // with 0.01 the highest rate is at the first step; PyTorch divides 0 by 0 there
    for (const i64 steps : {1, 2, 100}) {
      Schedule other = cycle;
      other.pct_start = pct_start;
      other.steps = steps;
      for (i64 s = 0; s < steps + 2; ++s) {
        const double rate = learning_rate(other, s);
        EXPECT_TRUE(rate > 0 && rate <= 1e-3) << pct_start << " " << steps << " " << s << ": " << rate;
      }
    }
  }
}

}  // namespace
}  // namespace spillway::optim::schedule_test
