// Tests which cores of a node a rank is bound to. The nodes are fakes: the test writes the files that /sys would contain.
#include "trainer/node/cores.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/trainer/support_trainer.h"

namespace spillway::trainer::cores_test {
namespace {

using Cores = std::vector<int>;

Cores first_cores(int count) {
  Cores all(static_cast<size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// Describes a node with two sockets of four physical cores each. Each core has two hyperthreads; the second ones are numbered
// after all first ones. Each socket is a NUMA node. Two GPUs are attached to the second socket and two more to the first.
class CoresOfANode : public testing::Test {
 protected:
  CoresOfANode() {
    fake_.file("/sys/devices/system/node/online", "0-1\n");
    fake_.file("/sys/devices/system/node/node0/cpulist", "0-3,8-11\n").file("/sys/devices/system/node/node1/cpulist", "4-7,12-15\n");
    for (int core = 0; core < 16; ++core) {
      const std::string topology = "/sys/devices/system/cpu/cpu" + std::to_string(core) + "/topology/";
      const int first = core % 8;
      fake_.file(topology + "physical_package_id", std::to_string(first / 4) + "\n");
      fake_.file(topology + "thread_siblings_list", std::to_string(first) + "," + std::to_string(first + 8) + "\n");
    }
    for (const auto& [gpu, node] : {std::pair{0, 1}, {1, 1}, {2, 0}, {3, 0}}) {
      gpus_.push_back("0000:0" + std::to_string(gpu) + ":00.0");
      fake_.file("/sys/bus/pci/devices/" + gpus_.back() + "/local_cpulist", node == 0 ? "0-3,8-11\n" : "4-7,12-15\n");
    }
  }
  Cores share(int rank, int ranks) const { return share_of_cores(fake_.host(), first_cores(16), rank, ranks); }
  Cores bound(const std::string& bind, int rank, int ranks, const Cores& allowed = first_cores(16), bool on_gpus = true,
              const std::string& launcher = "torchrun") const {
    return cores_of_rank(fake_.host(), bind, {.name = launcher, .local_ranks = ranks, .local_rank = rank}, allowed,
                         on_gpus ? gpus_ : std::vector<std::string>());
  }
  FakeHost fake_;
  std::vector<std::string> gpus_;
};

const Cores kNode0 = {0, 1, 2, 3, 8, 9, 10, 11}, kNode1 = {4, 5, 6, 7, 12, 13, 14, 15};

TEST_F(CoresOfANode, AreDealtWithTheirHyperthreadsSocketBySocket) {
  EXPECT_EQ(share(0, 2), kNode0);
  EXPECT_EQ(share(1, 2), kNode1);
  EXPECT_EQ(share(1, 4), (Cores{2, 3, 10, 11}));
  EXPECT_EQ(share(7, 8), (Cores{7, 15}));
}

TEST_F(CoresOfANode, AreDealtByHyperthreadWhereThereAreMoreRanks) {
  Cores all;
  for (int r = 0; r < 16; ++r) {
    ASSERT_EQ(share(r, 16).size(), 1u);
    all.push_back(share(r, 16)[0]);
  }
  EXPECT_EQ(all, (Cores{0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15}));
}

TEST_F(CoresOfANode, AreThoseNearARanksGpuWhichItsNeighboursHaveInCommon) {
  EXPECT_EQ(bound("cores", 0, 4), (Cores{4, 5, 12, 13}));
  EXPECT_EQ(bound("auto", 1, 4), (Cores{6, 7, 14, 15}));
  EXPECT_EQ(bound("cores", 2, 4), (Cores{0, 1, 8, 9}));
  EXPECT_EQ(bound("cores", 3, 4), (Cores{2, 3, 10, 11}));
  EXPECT_EQ(bound("cores", 1, 2, kNode0), (Cores{2, 3, 10, 11})) << "of what is allowed, where none of it is near";
}

TEST_F(CoresOfANode, OfANumaNodeAreAll) {
  EXPECT_EQ(bound("numa", 0, 4), kNode1);
  EXPECT_EQ(bound("numa", 3, 4), kNode0);
  EXPECT_EQ(bound("numa", 0, 1), kNode1) << "a rank alone has a GPU somewhere, too";
  EXPECT_EQ(bound("numa", 0, 2, first_cores(16), false), kNode0);
  EXPECT_EQ(bound("numa", 1, 2, first_cores(16), false), kNode1);
  EXPECT_EQ(bound("numa", 0, 1, first_cores(16), false), Cores()) << "all are its own";
}

TEST_F(CoresOfANode, AreLeftToWhoDealsThem) {
  EXPECT_EQ(bound("none", 0, 4), Cores());
  EXPECT_EQ(bound("auto", 0, 4, first_cores(16), true, "srun"), Cores());
  EXPECT_EQ(bound("auto", 0, 1), Cores());
  EXPECT_EQ(bound("cores", 0, 4, first_cores(16), true, "srun"), (Cores{4, 5, 12, 13}));
}

TEST(Cores, AreAlikeWhereNothingTells) {
  const Host nothing = FakeHost().host();
  const auto share = [&](const Cores& cores, int rank, int ranks) { return share_of_cores(nothing, cores, rank, ranks); };
  EXPECT_EQ(share({0, 1, 2, 3, 8, 9, 10}, 0, 2), (Cores{0, 1, 2}));
  EXPECT_EQ(share({0, 1, 2, 3, 8, 9, 10}, 1, 2), (Cores{3, 8, 9, 10}));
  EXPECT_EQ(share({4, 5}, 2, 3), (Cores{5}));
  EXPECT_EQ(share({4, 5}, 0, 3), (Cores{4}));
  EXPECT_EQ(cores_near(nothing, "0000:00:00.0"), Cores());
}

TEST(Cores, AreWrittenAsRanges) {
  EXPECT_EQ(parse_core_list("0-3,8,10-11\n"), (Cores{0, 1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(parse_core_list("7"), (Cores{7}));
  for (const char* text : {"0-3,8,10-11", "7", "0,2,4"}) EXPECT_EQ(core_list_text(parse_core_list(text)), text);
  EXPECT_EQ(core_list_text({}), "?");
  for (const char* nothing : {"", "\n", "none", "-1"}) EXPECT_EQ(parse_core_list(nothing), Cores()) << nothing;
}

}  // namespace
}  // namespace spillway::trainer::cores_test
