// Tests how metrics.jsonl is read: numbers keep their last bit, steps that were run again replace the earlier ones, truncated and damaged
// lines are reported, and spikes of long runs survive thinning. Takes 0.1 s.
#include "app/report/history.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/app/support_app.h"
#include "trainer/events/lines.h"
#include "trainer/run/metrics.h"

namespace spillway::app::history_test {
namespace {

MetricsRow row_of(i64 step, double loss) {
  MetricsRow row;
  row.step = step;
  row.result.loss = loss;
  row.result.grad_norm = 1.0 / 3.0;
  row.learning_rate = 1e-3 / 7;
  row.seconds = 0.1;
  row.result.data_tokens = 1000;
  row.positions = 1500;
  row.samples = 10;
  row.moved.read = {0, 10, 2000};
  row.moved.written = {0, 20, 4000};
  row.phases = {{"bound_compute", 75.0}, {"bound_disk", 25.0}, {"lane_compute", 80.0}, {"head", 90.0}, {"tail", 10.0}};
  row.tier_bytes = {100, 200, 300};
  row.peak_bytes = {110, 210, 310};
  row.predicted_ms = 90;
  row.bound_by = "compute";
  return row;
}

class HistoryTest : public testing::Test {
 protected:
  void add(const MetricsRow& row) { text_ += to_json(row) + "\n"; }
  void add_steps(i64 first, i64 last) {
    for (i64 step = first; step <= last; ++step) add(row_of(step, 10.0 / static_cast<double>(step + 2)));
  }
  History read(i64 buckets = 100, const std::optional<RunPlan>& plan = {}) const {
    folder_.write("metrics.jsonl", text_);
    return read_history(folder_.path() / "metrics.jsonl", buckets, plan);
  }
  std::string text_;
  const TemporaryFolder folder_;
};

TEST_F(HistoryTest, NumbersAreThoseOfTheFile) {
  add_steps(1, 9);
  MetricsRow validated = row_of(10, 0.1 + 0.2);
  validated.validation_loss = 2.0 / 3;
  add(validated);
  const History h = read();
  EXPECT_EQ(h.steps, 10);
  EXPECT_EQ(h.first_step, 1);
  EXPECT_EQ(h.last_step, 10);
  EXPECT_EQ(h.tokens, 10'000);
  EXPECT_EQ(h.positions, 15'000);
  EXPECT_EQ(h.measure("loss").last, (Point{10, 0.1 + 0.2}));
  EXPECT_EQ(h.measure("loss").least, (Point{10, 0.1 + 0.2}));
  EXPECT_EQ(h.measure("loss").most, (Point{1, 10.0 / 3}));
  EXPECT_EQ(h.measure("grad_norm").last.value, 1.0 / 3);
  EXPECT_EQ(h.measure("lr").last.value, 1e-3 / 7);
  EXPECT_EQ(h.measure("validation_loss").count, 1);
  EXPECT_EQ(h.measure("validation_loss").least, (Point{10, 2.0 / 3}));
  EXPECT_EQ(h.measure("peak_bytes.nvme").most.value, 310);
  EXPECT_DOUBLE_EQ(h.seconds, 1.0);
  EXPECT_DOUBLE_EQ(h.read[2], 2000);
  EXPECT_DOUBLE_EQ(h.phase_ms.at("lane_compute"), 80);
  EXPECT_EQ(h.of("loss").points().size(), 10u);
  EXPECT_FALSE(h.torn);
}

TEST_F(HistoryTest, ANumberThatIsNotFiniteIsCountedAndLeftOut) {
  add(row_of(1, 2));
  add(row_of(2, std::nan("")));
  add(row_of(3, 1));
  const History h = read();
  EXPECT_EQ(h.steps, 3);
  EXPECT_EQ(h.not_finite, 1);
  EXPECT_EQ(h.measure("loss").count, 2);
}

TEST_F(HistoryTest, OfAStepThatWasRunAgainTheLastLineCounts) {
  add_steps(1, 10);
  for (i64 step = 6; step <= 8; ++step) add(row_of(step, 100));
  add(row_of(7, 7));  // step 7 is run for the third time
  const History h = read();
  EXPECT_EQ(h.steps, 7);
  EXPECT_EQ(h.last_step, 7);
  EXPECT_EQ(h.run_again, 7);  // steps 6 to 10 were run again, and then steps 7 and 8 once more
  EXPECT_EQ(h.measure("loss").last, (Point{7, 7}));
  EXPECT_EQ(h.measure("loss").most, (Point{6, 100}));
  EXPECT_EQ(h.tokens, 7000);
  EXPECT_EQ(h.parts_lost, 0);
}

// Older versions wrote no "positions" to metrics.jsonl, and their "tokens" counted padding. Positions are then read from "tokens".
TEST_F(HistoryTest, LinesOfOlderProgramsAreReadAsTheyAre) {
  text_ = R"({"step":1,"loss":2.5,"tokens":100,"tokens_per_s":200.0,"step_ms":500.0})"
          "\n";
  EXPECT_EQ(read().tokens, 100);
  EXPECT_EQ(read().positions, 100);
  EXPECT_EQ(read().measure("positions").count, 0);
}

TEST_F(HistoryTest, HalfALineIsLeftOutAndSaid) {
  add_steps(1, 3);
  text_ += to_json(row_of(4, 1)).substr(0, 80);
  const History h = read();
  EXPECT_EQ(h.last_step, 3);
  EXPECT_TRUE(h.torn);
  EXPECT_EQ(h.damaged, 0);
}

TEST_F(HistoryTest, DamagedLinesAreNamed) {
  add_steps(1, 2);
  for (const char* line :
       {"{\"step\": 3, \"loss\"", "[3]", "{\"step\": \"3\"}", "{\"step\": -3}", "{\"step\": 3.5}", "\xff\xfe", "{\"loss\": 1}"})
    text_ += std::string(line) + "\n";
  text_ += std::string(Lines::kLongest + 10, 'x') + "\n";
  add_steps(4, 5);
  const History h = read();
  EXPECT_EQ(h.steps, 4);
  EXPECT_EQ(h.damaged, 8);
  EXPECT_EQ(h.damaged_lines, (std::vector<i64>{3, 4, 5, 6, 7}));
  EXPECT_EQ(h.parts_lost, 1);
  EXPECT_FALSE(h.torn);
}

TEST_F(HistoryTest, AListOrADeepObjectUnderAKnownKeyIsNoNumber) {
  text_ = R"({"step":1,"loss":[5],"lr":{"loss":{"loss":9}},"tier_bytes":{"device":7,"other":8},"later":"key"})"
          "\n";
  const History h = read();
  EXPECT_EQ(h.steps, 1);
  EXPECT_EQ(h.measure("loss").count, 0);
  EXPECT_EQ(h.measure("tier_bytes.device").last.value, 7);
}

TEST_F(HistoryTest, SpikesOfALongRunSurvive) {
  for (i64 step = 1; step <= 3000; ++step) {
    const double loss = step == 1234 ? 50 : step == 2345 ? 0.5 : 2;
    text_ += fmt::format("{{\"step\":{},\"loss\":{}}}\n", step, loss);
  }
  const History h = read(100);
  const std::vector<Point>& points = h.of("loss").points();
  EXPECT_LE(points.size(), 200u);
  EXPECT_EQ(std::ranges::count(points, Point{1234, 50}), 1);
  EXPECT_EQ(std::ranges::count(points, Point{2345, 0.5}), 1);
  EXPECT_TRUE(std::ranges::is_sorted(points, {}, [](const Point& p) { return p.step; }));
}

TEST_F(HistoryTest, WhatBoundTheStepsInPieces) {
  for (i64 step = 1; step <= 20; ++step) {
    MetricsRow row = row_of(step, 1);
    if (step > 15) row.bound_by = "disk";
    add(row);
  }
  const History h = read();
  ASSERT_EQ(h.bounds.size(), 2u);
  EXPECT_EQ(h.bounds[0].last, 15);
  EXPECT_EQ(h.bounds[1].by, "disk");
  EXPECT_EQ(h.bound_steps.at("compute"), 15);
}

// The audit of measured against predicted times covers only the last start of a run and
// the plan of that start. Like the trainer's audit, it leaves out two warm-up steps.
TEST_F(HistoryTest, TheAuditIsOfTheLastStart) {
  RunPlan plan;
  plan.began_at_step = 5;
  plan.step_s = 0.09;
  plan.phase_ms = {{"forward", 30}};
  for (i64 step = 1; step <= 10; ++step) {
    MetricsRow row = row_of(step, 1);
    row.began_at_step = step <= 5 ? 0 : 5;
    row.phases["forward"] = 40;
    row.seconds = step <= 7 ? 9 : 0.1;
    add(row);
  }
  const History h = read(100, plan);
  EXPECT_EQ(h.audit.steps(), 3);
  const std::vector<AuditRow> rows = h.audit.rows({});
  EXPECT_NEAR(rows[0].measured, 0.1, 1e-12);
  EXPECT_NEAR(rows[0].predicted, 0.09, 1e-12);
  EXPECT_EQ(rows[1].what, "forward");
  EXPECT_NEAR(rows[1].predicted, 0.03, 1e-12);
  EXPECT_NEAR(rows[1].measured, 0.04, 1e-12);
  EXPECT_THAT(h.audit.verdict(plan.levers), testing::HasSubstr("bound by compute (75 % of the step"));
  EXPECT_EQ(h.starts, (std::vector<i64>{0, 5}));
}

}  // namespace
}  // namespace spillway::app::history_test
