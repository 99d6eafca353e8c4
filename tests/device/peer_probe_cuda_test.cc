// Tests whether the probe detects that GPUs can copy to each other. Between the emulated GPUs copies work, hang or lose their bytes.
#include "device/peer_probe.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

namespace spillway::test::peer_probe_cuda_test {
namespace {

class PeerProbe : public testing::Test {
 protected:
  // Returns the probe's report for two emulated GPUs whose copies behave as `peers` says. On real GPUs it probes them without a fault.
  PeerReport between_two(const char* peers, double timeout_s = 60, double start_s = 60) {
    if (!std::getenv(kGpus)) return probe_peers(timeout_s, start_s);
    ::setenv(kGpus, "2", 1);
    ::setenv(kPeers, peers, 1);
    const PeerReport report = probe_peers(timeout_s, start_s);
    ::unsetenv(kPeers);
    ::setenv(kGpus, "1", 1);
    return report;
  }
  static constexpr const char *kGpus = "SPILLWAY_EMULATED_GPUS", *kPeers = "SPILLWAY_EMULATED_PEERS";
};

TEST_F(PeerProbe, FindsThatAllReachEachOther) {
  const PeerReport report = between_two("well");
  if (report.gpus < 2) GTEST_SKIP() << "needs two GPUs";
  EXPECT_EQ(report.problem, "");
  EXPECT_LE(report.reached, report.gpus * (report.gpus - 1));
  if (report.gpus == 2 && std::getenv(kGpus)) {
    EXPECT_EQ(report.reached, 2);
  }
}

TEST_F(PeerProbe, SaysWhereCopiesHangLoseBytesOrAreNotAllowed) {
  if (!std::getenv(kGpus)) GTEST_SKIP() << "needs emulated GPUs";
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(between_two("hang", 1).problem, "copies hang from cuda:0 to cuda:1");
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(30));
  EXPECT_EQ(between_two("dead", 1, 1).problem, "NVIDIA's driver does not answer within 1 s");
  const PeerReport lost = between_two("lost");
  EXPECT_EQ(lost.problem, "copies lose data from cuda:0 to cuda:1");
  EXPECT_EQ(lost.reached, 0);
  const PeerReport none = between_two("none");
  EXPECT_EQ(none.problem, "");
  EXPECT_EQ(none.reached, 0);
  EXPECT_EQ(none.gpus, 2);
}

TEST_F(PeerProbe, WhatHangsBetweenTwoIslandsSaysNothingOfTheLinksInThem) {
  if (!std::getenv(kGpus)) GTEST_SKIP() << "needs emulated GPUs";
  ::setenv(kGpus, "4", 1);
  ::setenv("SPILLWAY_EMULATED_NVLINK", "2", 1);
  for (const char* peers : {"hang", "lost"}) {
    ::setenv(kPeers, peers, 1);
    const PeerReport report = probe_peers(1);
    EXPECT_NE(report.problem.find("from cuda:0 to cuda:2"), std::string::npos) << report.problem;
    EXPECT_EQ(report.reached, 4) << "0 and 1, 2 and 3, each way";
    EXPECT_TRUE(report.links_work);
  }
  ::unsetenv("SPILLWAY_EMULATED_NVLINK");
  const PeerReport none = probe_peers(1);
  EXPECT_FALSE(none.links_work);
  ::unsetenv(kPeers);
  ::setenv(kGpus, "1", 1);
}

}  // namespace
}  // namespace spillway::test::peer_probe_cuda_test
