// Tests times and activations of schedules that are small enough to compute by hand, and of one that is not small.
#include <gtest/gtest.h>

#include <chrono>
#include <limits>

#include "parallel/schedule/schedule_check.h"
#include "parallel/schedule/schedule_generate.h"
#include "parallel/schedule/schedule_simulate.h"
#include "tests/parallel/schedule/support_schedules.h"

namespace spillway::parallel::schedule_simulate_test {
namespace {

Schedule table(const char* csv) { return parse_schedule_csv(csv, "x"); }

// Compares with times computed by hand: rank 0 computes F0 in [0, 2); the transfer takes 0.5; rank 1 computes F0 in [2.5, 5.5) and B0 in
// [5.5, 10.5); the transfer back takes 0.5; rank 0 computes B0 in [11, 15).
TEST(ScheduleSimulate, CostsByStageAndTransfers) {
  const ScheduleCosts costs{.stages = {{.forward = 2, .backward = 4}, {.forward = 3, .backward = 5}}, .transfer = 0.5};
  const ScheduleTimes times = simulate_schedule(table("0F0,0B0\n1F0,1B0"), costs);
  EXPECT_EQ(times.actions[1][0].start, 2.5);
  EXPECT_EQ(times.actions[1][1].end, 10.5);
  EXPECT_EQ(times.actions[0][1].start, 11);
  EXPECT_EQ(times.makespan, 15);
  EXPECT_EQ(times.ranks[0].idle_inside(), 9);
  EXPECT_EQ(times.ranks[1].idle_inside(), 0);
  EXPECT_EQ(times.idle(1), 7);
  EXPECT_DOUBLE_EQ(times.bubble(), 16.0 / 30);
}

TEST(ScheduleSimulate, StagesOfOneRankNeedNoTransfer) {
  EXPECT_EQ(simulate_schedule(table("0F0,1F0,1B0,0B0"), {.transfer = 100}).makespan, 4);
  // A micro-batch that goes down and up the V of two ranks makes three hops, the middle one inside
  // rank 1, so two of them are transfers. The same holds for its gradient's way back.
  const Schedule v = generate_schedule(ScheduleKind::zb_v, {2, 1, 2});
  EXPECT_EQ(simulate_schedule(v, {.transfer = 10}).makespan, simulate_schedule(v).makespan + 40);
}

TEST(ScheduleSimulate, EachKindHasItsCost) {
  const ScheduleCosts costs{.stages = {{1, 10, 100, 1000}}};
  EXPECT_EQ(simulate_schedule(table("0F0,0B0"), costs).makespan, 11);
  EXPECT_EQ(simulate_schedule(table("0F0,0I0,0W0"), costs).makespan, 1101);
  EXPECT_EQ(simulate_schedule(table("0F0,,,0B0"), costs).makespan, 11) << "idle slots are an outcome, not work";
}

// Shows that an overlapped pair waits for 1B0, although its forward could start earlier, and takes two slots.
TEST(ScheduleSimulate, AnOverlappedPairStartsWhenBothCan) {
  const ScheduleTimes times = simulate_schedule(table("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n1F0,1B0,1F1,1B1"));
  EXPECT_EQ(times.actions[0][1].start, 3);
  EXPECT_EQ(times.actions[0][1].end, 4);
  EXPECT_EQ(times.actions[0][2].end, 5);
  EXPECT_EQ(times.actions[1][2].start, 4) << "the forward of a pair ends first";
}

TEST(ScheduleSimulate, ActivationsAreHeldToTheEndOfWhatNeedsThem) {
  const auto peak = [](const char* csv, double kept) {
    return simulate_schedule(table(csv), {.kept_for_weight = kept}).ranks[0].peak_activations;
  };
  EXPECT_EQ(peak("0F0,0F1,0B0,0B1", 1), 2);
  EXPECT_EQ(peak("0F0,0B0,0F1,0B1", 1), 1);
  EXPECT_EQ(peak("0F0,0I0,0F1,0I1,0W0,0W1", 1), 2) << "I frees nothing";
  EXPECT_EQ(peak("0F0,0I0,0F1,0I1,0W0,0W1", 0.25), 1.25) << "I frees three quarters";
  EXPECT_EQ(peak("0F0,0I0,0F1,0I1,0W0,0W1", 0), 1) << "I frees all";
  EXPECT_EQ(peak("0F0,(0F1;0B0)OVERLAP_F_B,0B1", 1), 2) << "the pair holds both";
}

TEST(ScheduleSimulate, RefusesCostsThatAreNone) {
  const Schedule schedule = table("0F0,0B0\n1F0,1B0");
  const ScheduleCosts cases[] = {{.stages = {}},
                                 {.stages = {{}, {}, {}}},
                                 {.stages = {{.forward = -1}}},
                                 {.stages = {{.backward = 1e10}}},
                                 {.stages = {{.backward_weight = 1e-10}}},
                                 {.transfer = std::numeric_limits<double>::infinity()},
                                 {.transfer = std::numeric_limits<double>::quiet_NaN()},
                                 {.kept_for_weight = 1.5}};
  for (const ScheduleCosts& costs : cases) EXPECT_THROW(simulate_schedule(schedule, costs), Error);
  EXPECT_EQ(simulate_schedule(schedule, {.stages = {{0, 0, 0, 0}}}).bubble(), 0);
}

// Shows that up to four thousand ranks with sixteen million actions are checked, simulated and proved executable within seconds.
TEST(ScheduleSimulateRelease, ThousandsOfRanksInSeconds) {
  for (const auto& [kind, shape] :
       {std::pair(ScheduleKind::one_forward_one_backward, PipelineShape{4096, 2048, 1}),
        std::pair(ScheduleKind::zb_v, PipelineShape{2048, 1365, 2}), std::pair(ScheduleKind::zb_h1, PipelineShape{4096, 1365, 1})}) {
    const auto begin = std::chrono::steady_clock::now();
    const Schedule schedule = generate_schedule(kind, shape);
    check_schedule(schedule);
    EXPECT_FALSE(why_not_executable(schedule));
    EXPECT_GT(simulate_schedule(schedule).makespan, 2 * shape.ranks);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    RecordProperty(std::string(to_string(kind)), std::to_string(seconds) + " s");
    EXPECT_LT(seconds, 30);
  }
}

}  // namespace
}  // namespace spillway::parallel::schedule_simulate_test
