#include "trainer/settings/weighted_path.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "tests/support/temporary_folder.h"

namespace spillway::trainer::weighted_path_test {
namespace {

using Words = std::vector<std::string>;
using Weights = std::vector<double>;

TEST(WeightedPaths, AreAPathAndWhatComesAfterItsLastColon) {
  const WeightedPaths two = weighted_paths({"a.jsonl:0.7", "x:y/b.txt:3e-1"});
  EXPECT_EQ(two.paths, (Words{"a.jsonl", "x:y/b.txt"}));
  EXPECT_EQ(two.weights, (Weights{0.7, 0.3}));
  const WeightedPaths none = weighted_paths({"a.jsonl", "not:there.txt", ":7"});
  EXPECT_EQ(none.paths, (Words{"a.jsonl", "not:there.txt", ":7"}));
  EXPECT_TRUE(none.weights.empty());
  EXPECT_TRUE(weighted_paths({}).paths.empty());
}

TEST(WeightedPaths, OfWhatIsThereIsAPath) {
  const test::TemporaryFolder folder;
  const std::string there = folder / "a.txt:0.5";
  std::ofstream(there) << "x";
  EXPECT_EQ(weighted_paths({there}).paths, Words{there});
  EXPECT_TRUE(weighted_paths({there}).weights.empty());
  EXPECT_EQ(weighted_paths({there + ":2"}).paths, Words{there});
  EXPECT_EQ(weighted_paths({there + ":2"}).weights, Weights{2});
  for (const char* bad : {":", ":much", ":0.5x"}) EXPECT_THROW(weighted_paths({there + bad}), Error) << bad;
}

TEST(WeightedPaths, HaveWeightsAboveZeroForAllOrNone) {
  for (const char* bad : {"a:0", "a:-1", "a:inf", "a:nan", "a:1e999", "a:-0.0"}) {
    try {
      weighted_paths({bad});
      ADD_FAILURE() << bad;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::usage);
      EXPECT_NE(std::string(e.what()).find(bad), std::string::npos) << e.what();
    }
  }
  EXPECT_THROW(weighted_paths({"a:1", "b"}), Error);
}

}  // namespace
}  // namespace spillway::trainer::weighted_path_test
