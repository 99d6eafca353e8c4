// Compares generated schedules with the tables that torch.distributed.pipelining makes and with published formulas.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "parallel/schedule/schedule_check.h"
#include "parallel/schedule/schedule_generate.h"
#include "parallel/schedule/schedule_simulate.h"
#include "tests/parallel/schedule/support_schedules.h"

namespace spillway::parallel::schedule_generate_test {
namespace {

using enum ScheduleKind;

constexpr ScheduleKind kKinds[] = {gpipe, one_forward_one_backward, interleaved, zb_h1, zb_v, vertical};

// Maps torch's names to the schedules that Spillway generates.
const std::map<std::string, ScheduleKind> kTheirs = {{"GPipe", gpipe},
                                                     {"1F1B", one_forward_one_backward},
                                                     {"Interleaved1F1B", interleaved},
                                                     {"InterleavedZeroBubble", zb_h1},
                                                     {"ZBVZeroBubble", zb_v}};

class ReferenceSchedule : public testing::TestWithParam<ReferenceTable> {};

TEST_P(ReferenceSchedule, IsWhatWeGenerateActionForAction) {
  const ReferenceTable& table = GetParam();
  const Schedule read = read_schedule_csv(table.compact_path());
  EXPECT_EQ(read.rank_of, table.rank_of);
  EXPECT_EQ(read.micro_batches, table.micro_batches);
  EXPECT_EQ(read.chunks(), table.chunks);
  if (!kTheirs.contains(table.schedule)) return;
  const Schedule made = generate_schedule(kTheirs.at(table.schedule), {table.ranks, table.micro_batches, table.chunks});
  EXPECT_EQ(made.rows, read.rows);
  EXPECT_EQ(made.rank_of, read.rank_of);
  EXPECT_EQ(to_csv(made), whole_file(table.compact_path()));
}

TEST_P(ReferenceSchedule, TakesAsManySlotsAsTheirs) {
  const ReferenceTable& table = GetParam();
  EXPECT_EQ(simulate_schedule(read_schedule_csv(table.compact_path())).makespan, table.makespan);
}

INSTANTIATE_TEST_SUITE_P(Tables, ReferenceSchedule, testing::ValuesIn(reference_tables()), tag_of);

TEST(ScheduleGenerate, EveryKindOfTheirsThatWeGenerateHasATable) {
  for (const auto& [name, kind] : kTheirs) {
    EXPECT_TRUE(std::ranges::any_of(reference_tables(), [&](const ReferenceTable& table) { return table.schedule == name; })) << name;
  }
}

TEST(ScheduleGenerate, VerticalIsTheirLoopedBfsWithBackwardsInAscendingOrder) {
  Schedule theirs = read_schedule_csv(test::data("schedules/LoopedBFS_r2_m4_s2.compact.csv"));
  EXPECT_TRUE(why_not_executable(theirs));
  for (ScheduleRow& row : theirs.rows) {
    for (Action& a : row) {
      if (a.kind == ActionKind::backward) a.micro_batch = static_cast<u16>(3 - a.micro_batch);
    }
  }
  EXPECT_EQ(generate_schedule(vertical, {2, 4, 2}).rows, theirs.rows);
}

// Shows that on one rank the vertical order computes all micro-batches of a block before the next block.
TEST(ScheduleGenerate, VerticalOnOneRank) {
  EXPECT_EQ(to_csv(generate_schedule(vertical, {1, 2, 3})), "0F0,0F1,1F0,1F1,2F0,2F1,2B0,2B1,1B0,1B1,0B0,0B1\n");
}

bool legal(ScheduleKind kind, const PipelineShape& shape) {
  if (kind == zb_v) return shape.chunks == 2;
  if (kind == interleaved) return shape.chunks >= 2;
  return kind == zb_h1 || kind == vertical || shape.chunks == 1;
}

// Returns the number of slots in which a rank is busy. A micro-batch takes, in each chunk, slots for F and B, or for F, I and W.
i64 busy(ScheduleKind kind, const PipelineShape& s) { return s.micro_batches * s.chunks * (kind == zb_h1 || kind == zb_v ? 3 : 2); }

// Returns the largest number of activations that rank r may hold at once, as the papers bound it. These
// are activations of chunks, so a rank's whole share of a micro-batch is `chunks` of them.
i64 activations_bound(ScheduleKind kind, const PipelineShape& s, i64 r) {
  const i64 all = s.micro_batches * s.chunks, behind = s.ranks - 1 - r;
  const i64 round = ceil_div(s.micro_batches, std::max<i64>(1, s.micro_batches / s.ranks));
  if (kind == one_forward_one_backward) return std::min(behind + 1, all);
  if (kind == interleaved) return std::min((s.chunks - 1) * round + 2 * behind + 1, all);
  if (kind == zb_h1) return std::min((s.chunks - 1) * round + s.ranks, all);
  if (kind == zb_v) return std::min(2 * s.ranks, all);
  return all;
}

// Tests random shapes, which include those in which a schedule never reaches its steady state.
TEST(ScheduleGenerate, RandomShapesAreWholeExecutableAndWithinTheirBounds) {
  std::mt19937 random(20231130);
  const auto draw = [&](u64 most) { return static_cast<i64>(1 + random() % most); };
  std::map<ScheduleKind, int> seen;
  for (int trial = 0; trial < 3000; ++trial) {
    const PipelineShape shape{draw(12), draw(40), draw(4)};
    for (const ScheduleKind kind : kKinds) {
      if (!legal(kind, shape)) continue;
      ++seen[kind];
      SCOPED_TRACE(testing::Message() << to_string(kind) << " " << shape.ranks << " " << shape.micro_batches << " " << shape.chunks);
      const Schedule schedule = generate_schedule(kind, shape);
      ASSERT_NO_THROW(check_schedule(schedule));
      ASSERT_EQ(why_not_executable(schedule), std::nullopt);
      const ScheduleTimes times = simulate_schedule(schedule);
      // number of slots in which a single micro-batch goes down and up the pipeline
      const i64 down_and_up = 2 * shape.ranks * shape.chunks;
      ASSERT_GE(
          times.makespan,
          std::max(busy(kind, shape) + (kind == zb_v ? 0 : 2 * (shape.ranks - 1) - (kind == zb_h1 ? shape.ranks - 1 : 0)), down_and_up));
      for (i64 r = 0; r < shape.ranks; ++r) {
        const RankTimes& rank = times.ranks[static_cast<size_t>(r)];
        ASSERT_EQ(rank.busy, busy(kind, shape));
        const auto bound = static_cast<double>(activations_bound(kind, shape, r));
        ASSERT_LE(rank.peak_activations, bound) << "rank " << r;
        if (kind != zb_h1 && kind != zb_v) {
          ASSERT_EQ(rank.peak_activations, bound) << "rank " << r;
        }
      }
    }
  }
  EXPECT_EQ(seen.size(), std::size(kKinds));
}

// Checks the bubbles, that is the slots in which a rank is idle, both between its first and
// last action and in total. There are enough micro-batches M to fill the pipeline.
TEST(ScheduleGenerate, BubblesArePublishedOnes) {
  for (const i64 P : {1, 2, 3, 4, 8, 13}) {
    for (const i64 M : {2 * P, 4 * P}) {
      for (const ScheduleKind kind : kKinds) {
        for (const i64 chunks : {1, 2, 3}) {
          const PipelineShape shape{P, M, chunks};
          if (!legal(kind, shape)) continue;
          SCOPED_TRACE(testing::Message() << to_string(kind) << " " << P << " " << M << " " << chunks);
          const ScheduleTimes times = simulate_schedule(generate_schedule(kind, shape));
          const i64 bubble = kind == zb_h1 || kind == zb_v ? P - 1 : 2 * (P - 1);
          EXPECT_EQ(times.makespan, busy(kind, shape) + bubble);
          EXPECT_DOUBLE_EQ(times.bubble(), static_cast<double>(bubble) / static_cast<double>(busy(kind, shape) + bubble));
          for (i64 r = 0; r < P; ++r) {
            const RankTimes& rank = times.ranks[static_cast<size_t>(r)];
            EXPECT_EQ(rank.start, r);
            EXPECT_EQ(rank.idle_inside(), kind == zb_v ? 0 : kind == zb_h1 ? P - 1 - r : 2 * (P - 1 - r)) << "rank " << r;
            EXPECT_EQ(times.idle(r), bubble);
          }
        }
      }
    }
  }
}

// Shows that with unequal times the bubble is (P - 1)(F + B) for 1F1B and (P - 1)(F + I - W) for ZB-H1 (arXiv 2401.10241, table 1, whose
// B is I here). In this test B = I + W and W <= I <= F.
TEST(ScheduleGenerate, BubblesOfUnequalTimesArePublishedOnes) {
  for (const StageCosts costs : {StageCosts{3, 5, 3, 2}, StageCosts{4, 7, 4, 3}, StageCosts{8, 12, 7, 5}}) {
    for (const i64 P : {2, 4, 8}) {
      const PipelineShape shape{P, 4 * P, 1};
      const double work = static_cast<double>(shape.micro_batches) * (costs.forward + costs.backward), hops = static_cast<double>(P - 1);
      const ScheduleTimes one = simulate_schedule(generate_schedule(one_forward_one_backward, shape), {.stages = {costs}});
      EXPECT_EQ(one.makespan, work + hops * (costs.forward + costs.backward));
      const ScheduleTimes zero = simulate_schedule(generate_schedule(zb_h1, shape), {.stages = {costs}});
      EXPECT_EQ(zero.makespan, work + hops * (costs.forward + costs.backward_input - costs.backward_weight)) << P;
    }
  }
}

std::string refusal_of(ScheduleKind kind, const PipelineShape& shape) {
  try {
    generate_schedule(kind, shape);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    return error.what();
  }
  return "no error";
}

TEST(ScheduleGenerate, RefusesWithTheNearestLegalChoice) {
  const std::tuple<ScheduleKind, PipelineShape, const char*> cases[] = {
      {gpipe, {2, 2, 2}, "choose vertical"},
      {one_forward_one_backward, {2, 2, 3}, "choose interleaved"},
      {interleaved, {2, 2, 1}, "choose 1f1b"},
      {zb_v, {2, 2, 1}, "choose zb-h1"},
      {zb_v, {2, 2, 3}, "choose zb-h1"},
      {gpipe, {0, 2, 1}, "expected 1 to 65536 ranks, got 0"},
      {gpipe, {2, -1, 1}, "micro-batches, got -1"},
      {vertical, {2, 1, i64{1} << 40}, "chunks on each rank, got 1099511627776"},
      {vertical, {1000, 1, 66}, "choose 65 chunks or fewer"},
      {one_forward_one_backward, {4096, 4096, 1}, "choose 2048 micro-batches or fewer"},
      {zb_h1, {65536, 65536, 1}, "choose 85 micro-batches or fewer"}};
  for (const auto& [kind, shape, piece] : cases)
    EXPECT_NE(refusal_of(kind, shape).find(piece), std::string::npos) << refusal_of(kind, shape);
}

TEST(ScheduleGenerate, NamesAreThoseOfTheCommandLine) {
  for (const ScheduleKind kind : kKinds) EXPECT_EQ(schedule_kind(to_string(kind)), kind);
  EXPECT_EQ(schedule_names().size(), std::size(kKinds));
  EXPECT_EQ(schedule_kind("GPipe"), std::nullopt);
  EXPECT_EQ(default_chunks(interleaved), 2);
  EXPECT_EQ(default_chunks(zb_v), 2);
  EXPECT_EQ(default_chunks(zb_h1), 1);
}

}  // namespace
}  // namespace spillway::parallel::schedule_generate_test
