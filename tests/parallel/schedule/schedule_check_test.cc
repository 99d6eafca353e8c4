// Tests that the schedule checker finds each planted violation and passes schedules that are valid.
#include <gtest/gtest.h>

#include <random>

#include "parallel/schedule/schedule_check.h"
#include "parallel/schedule/schedule_generate.h"
#include "tests/parallel/schedule/support_schedules.h"

namespace spillway::parallel::schedule_check_test {
namespace {

using enum ActionKind;

Schedule small(ScheduleKind kind) { return generate_schedule(kind, {2, 4, default_chunks(kind)}); }

std::string error_of(const Schedule& schedule) {
  return data_error_of([&] { check_schedule(schedule); });
}

std::string error_of(const char* csv) {
  return data_error_of([&] { parse_schedule_csv(csv, "x"); });
}

void expect_piece(const std::string& message, const char* piece) { EXPECT_NE(message.find(piece), std::string::npos) << message; }

TEST(ScheduleCheck, EveryActionOnce) {
  expect_piece(error_of("0F0,0F1,0B0,0B1,0F1"), "row 1, column 5: expected every action at most once, got 0F1");
  expect_piece(error_of("0F0,0I0,0W0,0W0"), "column 4: expected every action at most once, got 0W0");
  expect_piece(error_of("0F0,0F1,0B0"), "got no 0B1 in row 1");
  expect_piece(error_of("0F0,0I0"), "got no 0W0 in row 1");
  expect_piece(error_of("0F1,0B1"), "got no 0F0 in row 1");
  expect_piece(error_of("0F0,0B0,0I0,0W0"), "column 3: expected either B or the pair I and W");
  expect_piece(error_of("0F0,0I0,0B0"), "column 3: expected either B or the pair I and W");
}

TEST(ScheduleCheck, OrderWithinARow) {
  expect_piece(error_of("0B0,0F0"), "column 1: expected 0F0 earlier in this row, got 0B0");
  expect_piece(error_of("0F0,0W0,0I0"), "column 2: expected 0I0 earlier in this row, got 0W0");
}

TEST(ScheduleCheck, StagesStayOnTheirRank) {
  Schedule moved = small(ScheduleKind::one_forward_one_backward);
  std::swap(moved.rows[0], moved.rows[1]);
  expect_piece(error_of(moved), "row 1, column 1: expected stage 1 only in row 2");
  Schedule beyond = small(ScheduleKind::gpipe);
  beyond.rows[1][3].stage = 2;
  expect_piece(error_of(beyond), "row 2, column 4: expected a stage below 2, got 2F3");
  beyond.rows[1][3] = {.kind = forward, .stage = 1, .micro_batch = 4};
  expect_piece(error_of(beyond), "expected a micro-batch below 4, got 1F4");
}

TEST(ScheduleCheck, ShapesThatAreNone) {
  expect_piece(error_of(Schedule{.name = "x"}), "got 0 stages and 0 ranks");
  Schedule schedule = small(ScheduleKind::gpipe);
  schedule.micro_batches = 0;
  expect_piece(error_of(schedule), "65536 micro-batches, got 0");
  schedule = small(ScheduleKind::gpipe);
  schedule.rank_of = {0, 2};
  expect_piece(error_of(schedule), "stages on ranks below 2, got one on rank 2");
  schedule = generate_schedule(ScheduleKind::vertical, {1, 4, 2});
  schedule.rows.insert(schedule.rows.begin(), ScheduleRow());
  schedule.rank_of = {1, 1};
  expect_piece(error_of(schedule), "got none on rank 0");
  schedule = small(ScheduleKind::gpipe);
  schedule.rows[0].back().overlaps_next = true;
  expect_piece(error_of(schedule), "an overlapped forward to be followed by the backward");
}

TEST(ScheduleCheck, RanksThatWaitForEachOther) {
  EXPECT_EQ(error_of("0F0,0F1,0B1,0B0\n1F0,1B0,1F1,1B1"), "no error");
  const std::string two = error_of("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1");
  expect_piece(two, "ranks wait for each other: rank 0 at 0B0 waits for 1B0, rank 1 at 1F1 waits for 0F1");
  expect_piece(two, "[schedule] x, row 1, column 2");
  // In this schedule a few ranks wait for each other in a cycle. Rank 0 waits for one of them but is not part of the cycle.
  const std::string three = error_of("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n2F0,2F1,2B0,2B1");
  expect_piece(three, "row 2, column 2: expected an order");
  expect_piece(three, "rank 1 at 1B0 waits for 2B0, rank 2 at 2F1 waits for 1F1");
  expect_piece(error_of("0F0,2F0,0B0,2B0\n1F0,1B0"), "rank 0 at 0B0 waits for 1B0, rank 1 at 1B0 waits for 2B0");
  expect_piece(error_of("1F0,0F0,0B0,1B0"), "rank 0 at 1F0 waits for 0F0");
}

// Swaps two neighbouring actions of one rank. The checker must refuse the result, unless it is still a valid order.
TEST(ScheduleCheck, SwappedNeighboursAreFoundOrHarmless) {
  int refused = 0, passed = 0;
  for (const ScheduleKind kind :
       {ScheduleKind::one_forward_one_backward, ScheduleKind::interleaved, ScheduleKind::zb_h1, ScheduleKind::zb_v}) {
    const Schedule whole = small(kind);
    for (size_t r = 0; r < whole.rows.size(); ++r) {
      for (size_t i = 0; i + 1 < whole.rows[r].size(); ++i) {
        Schedule swapped = whole;
        std::swap(swapped.rows[r][i], swapped.rows[r][i + 1]);
        const bool whole_pair =
            whole.rows[r][i].stage == whole.rows[r][i + 1].stage && whole.rows[r][i].micro_batch == whole.rows[r][i + 1].micro_batch;
        const bool refuses = error_of(swapped) != "no error";
        EXPECT_TRUE(refuses || !whole_pair) << to_csv(swapped);
        refused += refuses;
        passed += !refuses;
      }
    }
  }
  EXPECT_GT(refused, 20);
  EXPECT_GT(passed, 20);
}

TEST(ScheduleCheck, WeightGradientsOutOfOrderAreNotExecutable) {
  EXPECT_EQ(why_not_executable(parse_schedule_csv("0F0,0F1,0I1,0I0,0W0,0W1", "x")), std::nullopt);
  const auto reason = why_not_executable(parse_schedule_csv("0F0,0F1,0I0,0I1,0W1,0W0", "x"));
  ASSERT_TRUE(reason);
  expect_piece(*reason, "stage 0 runs the weight gradient of micro-batch 1 before that of micro-batch 0; expected ascending order");
  ASSERT_TRUE(why_not_executable(parse_schedule_csv("0F0,0F1,0B1,0B0\n1F0,1B0,1F1,1B1", "x")));
  for (const ReferenceTable& table : reference_tables()) {
    EXPECT_EQ(why_not_executable(read_schedule_csv(table.compact_path())).has_value(), table.schedule == "LoopedBFS") << table.tag;
  }
}

}  // namespace
}  // namespace spillway::parallel::schedule_check_test
