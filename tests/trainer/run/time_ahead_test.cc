// Tests when a run must stop so that a save still fits into its time limit. The decision uses the longest of recently measured times, or
// estimates as long as none is measured.
#include "trainer/record/time_ahead.h"

#include <gtest/gtest.h>

namespace spillway::trainer::time_ahead_test {
namespace {

TEST(LongestLately, ExpectsUntilItMeasures) {
  LongestLately step(40);
  EXPECT_EQ(step.seconds(), 40);
  step.add(3);
  EXPECT_EQ(step.seconds(), 3) << "what was measured counts, though it is shorter";
  step.add(12);
  step.add(5);
  EXPECT_EQ(step.seconds(), 12);
}

TEST(LongestLately, ForgetsWhatIsLongAgo) {
  LongestLately step;
  step.add(100);
  for (int i = 0; i < 100; ++i) step.add(2);
  EXPECT_EQ(step.seconds(), 2);
}

TEST(TimeAhead, CountsWhatTheNextStepBringsWithIt) {
  TimeAhead ahead;
  ahead.step.add(10);
  ahead.validation.add(300);
  ahead.sample.add(20);
  ahead.histograms.add(4);
  EXPECT_EQ(ahead.seconds({}), 10);
  EXPECT_EQ(ahead.seconds({.validates = true}), 310);
  EXPECT_EQ(ahead.seconds({.samples = true, .counts_histograms = true}), 34);
}

TEST(TimeAhead, APartOfAValidationIsAtMostAStepUntilOneIsMeasured) {
  TimeAhead ahead;
  ahead.step.add(10);
  EXPECT_EQ(ahead.part_of_validation_s(), 10);
  ahead.micro_batch.add(2);
  EXPECT_EQ(ahead.part_of_validation_s(), 2);
}

// If the limit is 30 s, a step takes 12 s and a save 1 s, there is time for a second step after the first one, but not for a third.
TEST(TimeLimit, AStepThatDoesNotFitIsNotBegun) {
  const TimeLimit limit(30);
  EXPECT_FALSE(limit.is_short(12, 12, 1));
  EXPECT_TRUE(limit.is_short(24, 12, 1));
  EXPECT_TRUE(limit.is_short(16, 12, 1)) << "to the last instant is too long";
  EXPECT_FALSE(TimeLimit().is_short(1e9, 1e9, 1e9)) << "there is none";
}

// Saving a checkpoint of 6 TiB takes 103 s if 64 nodes write at 1 GB/s each, and nearly two hours if one node does.
TEST(ExpectedSave, IsThePlansBytesAtTheDisksRate) {
  const i64 bytes = i64{6} << 40;
  EXPECT_NEAR(expected_save_s(bytes, 64, 1e9), 103.1, 0.1);
  EXPECT_NEAR(expected_save_s(bytes, 1, 1e9), 6597, 1);
  EXPECT_EQ(expected_save_s(1000, 1, 1e9), 1) << "a second at the least: files are made and synced";
}

}  // namespace
}  // namespace spillway::trainer::time_ahead_test
