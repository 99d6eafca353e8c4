// Tests when a machine counts as busy. The samples are set by the tests, so the machine that runs them has no part in them.
#include "trainer/node/busy.h"

#include <gtest/gtest.h>

#include "tests/trainer/support_trainer.h"

namespace spillway::trainer::busy_test {
namespace {

Contention of(ThreadTime thread, double cores_s) { return between({{{1, {}}}, 0, 0}, {{{1, thread}}, thread.ran_s, cores_s}); }

TEST(Busy, ThreadsThatGetTheirTimeAreNotHeldUp) {
  EXPECT_FALSE(of({.ran_s = 10, .waited_s = 0}, 10).busy());
  EXPECT_FALSE(of({.ran_s = 10, .waited_s = 0.5}, 20).busy()) << "others run on other cores";
  EXPECT_FALSE(of({.ran_s = 0, .waited_s = 0}, 60).busy()) << "threads that sleep ask for nothing";
}

TEST(Busy, OtherProgramsHoldThreadsUp) {
  const Contention half = of({.ran_s = 10, .waited_s = 10}, 20);
  EXPECT_TRUE(half.busy());
  EXPECT_DOUBLE_EQ(half.obtained, 0.5);
  EXPECT_DOUBLE_EQ(half.others, 0.5);
  EXPECT_NE(half.text().find("50 %"), std::string::npos) << half.text();
  EXPECT_TRUE(of({.ran_s = 10, .waited_s = 2}, 12).busy());
}

// Eight threads on two cores wait for each other, but nobody else runs.
TEST(Busy, ThreadsThatWaitForEachOtherAreNotABusyMachine) { EXPECT_FALSE(of({.ran_s = 20, .waited_s = 60}, 20.5).busy()); }

// A measurement starts threads and joins them before it ends. Their time is no other program's.
TEST(Busy, ThreadsOfItsOwnThatHaveEndedAreNoOtherProgram) {
  EXPECT_FALSE(between({{{1, {}}}, 0, 0}, {{{1, {.ran_s = 1, .waited_s = 1}}}, 9, 9}).busy());
}

TEST(Busy, AFewTicksOfOthersMeanNothing) { EXPECT_FALSE(of({.ran_s = 0.05, .waited_s = 0.05}, 0.09).busy()); }

TEST(Busy, OnlyTheTimeBetweenTheSamplesCounts) {
  const CpuSample before{{{1, {.ran_s = 100, .waited_s = 300}}, {2, {.ran_s = 5, .waited_s = 5}}}, 105, 1000};
  const CpuSample after{{{1, {.ran_s = 104, .waited_s = 300}}, {3, {.ran_s = 4, .waited_s = 0}}}, 113, 1008};
  EXPECT_DOUBLE_EQ(between(before, after).obtained, 1) << "thread 2 ended, thread 3 began";
  EXPECT_DOUBLE_EQ(between(before, after).others, 0);
}

// Cores 0 and 1 may be used; the third column of /proc/stat's lines is system time, the fourth is idle time, in hundredths of a second.
TEST(Busy, SamplesAreTheKernelsAccount) {
  FakeHost host;
  host.file("/proc/self/status", "Name:\ttest\nCpus_allowed_list:\t0-1\n")
      .file("/proc/self/stat", "17 (a) b 1) R 1 1 1 0 -1 4194304 95 0 0 0 250 70 0 0 20 0 2 0 1\n")
      .file("/proc/self/task/17/schedstat", "3000000000 1000000000 5\n")
      .file("/proc/self/task/18/schedstat", "500000000 0 2\n")
      .file("/proc/stat",
            "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 100 0 50 7000 300 0 0 50 0 0\ncpu1 200 0 0 1 1 0 0 0 0 0\ncpu2 9000 0 0 0 0 0 0 0\nintr 1\n");
  const CpuSample sample = cpu_sample(host.host());
  ASSERT_EQ(sample.threads.size(), 2u);
  EXPECT_DOUBLE_EQ(sample.threads.at(17).ran_s, 3);
  EXPECT_DOUBLE_EQ(sample.threads.at(17).waited_s, 1);
  EXPECT_DOUBLE_EQ(sample.threads.at(18).ran_s, 0.5);
  EXPECT_DOUBLE_EQ(sample.own_s, 2.5);
  EXPECT_DOUBLE_EQ(sample.cores_s, 3.5);
}

TEST(Busy, WithoutTheKernelsAccountNothingCountsAsBusy) {
  const CpuSample none = cpu_sample(FakeHost().host());
  EXPECT_TRUE(none.threads.empty());
  EXPECT_FALSE(between(none, none).busy());
}

}  // namespace
}  // namespace spillway::trainer::busy_test
