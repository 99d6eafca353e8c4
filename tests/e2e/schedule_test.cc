// Tests the schedule command as a user runs it: the built program, the files it writes and its exit status.
#include <gtest/gtest.h>

#include "tests/e2e/support_program.h"

namespace spillway::test::schedule_test {
namespace {

TEST(ScheduleProgram, MakesDrawsWritesAndReadsBack) {
  const Workplace here;
  const Args made = {"schedule", "--pipeline-schedule", "interleaved", "--pipeline-stages", "4", "--gradient-accumulation-steps", "10"};
  Args with_files = made;
  with_files.insert(with_files.end(), {"--out", "x.svg", "--csv", "x.csv"});
  const Finished first = here.spillway(with_files);
  ASSERT_EQ(first.status, 0) << first.err;
  EXPECT_TRUE(mentions(first.out, "interleaved: 4 ranks, 2 stages a rank, 10 micro-batches")) << first.out;
  EXPECT_TRUE(mentions(first.out, "executable: ")) << first.out;
  EXPECT_TRUE(mentions(here.read("x.svg"), "</svg>"));
  const Finished again = here.spillway({"schedule", "--pipeline-schedule", "x.csv"});
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(again.out.substr(again.out.find("rank 0")), first.out.substr(first.out.find("rank 0"))) << "but for the name, the same report";
  EXPECT_EQ(here.spillway(made).out, first.out) << "the same every time";
}

TEST(ScheduleProgram, ADamagedTableIsExitFourWithItsPlace) {
  const Workplace here;
  here.write("x.csv", "0F0,0B0\n1F0,1B0,1B0\n");
  const Finished finished = here.spillway({"schedule", "--pipeline-schedule", "x.csv"});
  EXPECT_EQ(finished.status, 4);
  EXPECT_EQ(finished.out, "");
  EXPECT_TRUE(mentions(finished.err, "spillway schedule: [schedule] x.csv, row 2, column 3: expected every action at most once, got 1B0"))
      << finished.err;
}

}  // namespace
}  // namespace spillway::test::schedule_test
