// Tests how a run's folders on a scratch path are named. Folders that
// dead ranks of the run left are found, however many ranks the run had.
#include "trainer/node/scratch_id.h"

#include <gtest/gtest.h>

#include "offload/scratch_folder.h"
#include "tests/trainer/support_trainer.h"

namespace spillway::trainer::scratch_id_test {
namespace {

std::vector<std::string> names(const std::vector<offload::Orphan>& orphans) {
  std::vector<std::string> all;
  for (const offload::Orphan& o : orphans) all.push_back(o.name);
  return all;
}

TEST(ScratchId, OneRankHasTheRunsName) {
  EXPECT_EQ((ScratchId{"0a1b"}).mine(), "0a1b");
  EXPECT_EQ((ScratchId{"0a1b", 1, 2}).mine(), "0a1b-rank1");
  EXPECT_EQ((ScratchId{"0a1b", 1, 2}).of(0), "0a1b-rank0");
}

TEST(ScratchId, HasTheFoldersOfItsRanksAlone) {
  const ScratchId id{"0a1b", 1, 2};
  EXPECT_TRUE(id.has("spillway-0a1b-rank0"));
  EXPECT_TRUE(id.has("spillway-0a1b-rank1"));
  EXPECT_FALSE(id.has("spillway-0a1b-rank2"));
  EXPECT_FALSE(id.has("spillway-0a1b"));
  EXPECT_TRUE((ScratchId{"0a1b"}).has("spillway-0a1b"));
}

TEST(ScratchId, FindsWhatAnyRankOfTheRunLeft) {
  const TemporaryFolder scratch;
  for (const char* run : {"0a1b", "0a1b-rank0", "0a1b-rank3", "0a1c", "0a1bc"}) offload::ScratchFolder(scratch.path(), run).keep();
  offload::make_aside(scratch.path() / "spillway-0a1b-rank0", 1);
  scratch.write("spillway-0a1b-rank0/tier", std::string(1 << 20, 'x'));
  scratch.write("spillway-0a1b-rank3/tier", std::string(1 << 20, 'x'));
  const ScratchId id{"0a1b", 1, 2};
  EXPECT_EQ(names(id.of_others(scratch.path())),
            (std::vector<std::string>{"spillway-0a1b", "spillway-0a1b-rank0.aside-0000000000000001", "spillway-0a1b-rank3"}));
  EXPECT_GE(id.bytes_left_behind(scratch.path()), 1 << 20);
  EXPECT_LT(id.bytes_left_behind(scratch.path()), 2 << 20);
  EXPECT_EQ(id.bytes_left_behind(scratch.path() / "missing"), 0);
}

}  // namespace
}  // namespace spillway::trainer::scratch_id_test
